//! The tools of Redis, untouched, against a playground.

use crate::support::{Playground, python, run, text};

#[test]
fn redis_cli_talks_to_every_server() {
    let playground = Playground::start(&[]);
    let cli = |server: usize, args: &[&str]| {
        let port = playground.servers[server].resp.port().to_string();
        let args = [["-p", &port].as_slice(), args].concat();
        text(&run("redis-cli", &args).stdout).trim().to_owned()
    };
    assert_eq!(cli(0, &["set", "hello", "world"]), "OK");
    assert_eq!(cli(1, &["get", "hello"]), "world");
    assert_eq!(cli(2, &["-3", "mget", "hello", "nobody"]), "world");
    assert_eq!(cli(0, &["mset", "a", "1", "z", "2"]), "OK");
    assert_eq!(cli(1, &["del", "a", "z", "nobody"]), "2");
    assert_eq!(cli(0, &["ping"]), "PONG");
    assert_eq!(cli(0, &["--scan"]), "hello");
    assert_eq!(cli(2, &["kv.range", "-", "+"]), "hello\nworld");
    assert_eq!(cli(1, &["mset", "a", "1", "z", "2"]), "OK");
    let down = cli(2, &["kv.range", "-", "+", "limit", "2", "rev"]);
    assert_eq!(down, "z\n2\nhello\nworld");
    assert_eq!(cli(0, &["kv.range", "a", "hello", "REV"]), "a\n1");
    assert_eq!(cli(0, &["kv.flush"]), "OK");
    assert_eq!(cli(1, &["kv.compact"]), "OK");
    assert!(cli(0, &["info", "server"]).contains("redis_version:"));
    told_to_tools(&cli);
    assert_eq!(cli(0, &["hset", "inner", "f", "1", "g", "2"]), "2");
    assert_eq!(cli(0, &["zadd", "order", "1", "first"]), "1");
    assert_eq!(cli(0, &["sadd", "pack", "m"]), "1");
    for (kind, key) in [("hash", "inner"), ("zset", "order"), ("set", "pack")] {
        let (first, cursor, last) = (["scan", "0", "type", kind], "0\n", key);
        let told = cli(1, &first);
        assert!(told.starts_with(cursor) && told.ends_with(last), "{told}");
    }
    let big = cli(0, &["--bigkeys"]);
    for key in ["hello", "inner", "order", "pack"] {
        assert!(big.contains(key), "{key}: {big}");
    }
    assert_eq!(cli(2, &["del", "inner", "order", "pack"]), "3");
    assert_eq!(cli(0, &["flushall", "sync"]), "OK");
    assert_eq!(cli(1, &["kv.range", "-", "+"]), "");
}

/// What tools read of `INFO` is true.
fn told_to_tools(cli: &impl Fn(usize, &[&str]) -> String) {
    let number = |server: usize, name: &str| -> u64 {
        let info = cli(server, &["info", "everything"]);
        let mut lines = info.lines().filter_map(|line| line.trim().split_once(':'));
        let value = lines
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value);
        let value = value
            .unwrap_or("0")
            .trim_start_matches("keys=")
            .trim_start_matches("calls=");
        let digits = value.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    let keys: u64 = (0..3).map(|server| number(server, "db0")).sum();
    assert_eq!(keys, 3, "hello, a and z");
    for server in 0..3 {
        assert_eq!(number(server, "connected_slaves"), 2);
        let info = cli(server, &["info", "replication"]);
        assert!(info.contains("durability_mode:last-write"), "{info}");
        assert!(info.contains("replication_mode:send-index"), "{info}");
        let (used, limit) = (number(server, "used_memory"), number(server, "maxmemory"));
        assert!(0 < used && used < limit, "{used} of {limit}");
    }
    let gets = number(1, "cmdstat_get");
    let hits = number(1, "keyspace_hits");
    cli(1, &["get", "hello"]);
    cli(1, &["get", "nobody"]);
    assert_eq!(number(1, "cmdstat_get"), gets + 2);
    assert_eq!(number(1, "keyspace_hits"), hits + 1);
}

#[test]
fn redis_benchmark_runs_to_its_end() {
    let playground = Playground::start(&[]);
    let port = playground.servers[0].resp.port().to_string();
    for pipeline in ["1", "16"] {
        let args = [
            "-p",
            &port,
            "-t",
            "ping,set,get,incr,sadd,hset,zadd,mset",
            "-n",
            "1000",
            "-c",
            "20",
            "-r",
            "1000",
            "-d",
            "100",
            "-P",
            pipeline,
            "--csv",
        ];
        let lines = text(&run("redis-benchmark", &args).stdout);
        // One line of titles; PING inline and as an array, and each of the others.
        assert_eq!(lines.lines().count(), 10, "{lines}");
        assert!(lines.contains("\"MSET (10 keys)\""), "{lines}");
    }
}

#[test]
fn redis_py_8_works_with_resp3_and_resp2() {
    let playground = Playground::start(&[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/redis_py.py");
    let ports: Vec<_> = playground
        .servers
        .iter()
        .map(|server| server.resp.port().to_string())
        .collect();
    let args: Vec<&str> = std::iter::once(script)
        .chain(ports.iter().map(String::as_str))
        .collect();
    let python = python();
    let said = text(&run(python.to_str().unwrap(), &args).stdout);
    assert_eq!(said.trim(), "ok", "{said}");
}
