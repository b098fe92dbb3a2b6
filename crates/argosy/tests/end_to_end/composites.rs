//! Hashes, sorted sets and sets through several servers: many clients at one of them, what is left when it is deleted,
//! and all of them from one cluster into another.

use std::net::SocketAddr;

use argosy_client::resp::{Connection, Reply};
use serde_json::json;

use crate::support::{Playground, call, ok};
use crate::tools::{Dir, any, done, run};

const CLIENTS: usize = 12;
const MEMBERS: usize = 60;

/// Each client adds members of its own to one sorted set and to one hash, and counts in one field.
fn fill(addr: std::net::SocketAddr, client: usize) {
    let mut connection = Connection::open(addr).unwrap();
    for member in 0..MEMBERS {
        let name = format!("{client:02}:{member:03}");
        let score = (member * CLIENTS + client).to_string();
        let added = call(
            &mut connection,
            &[b"ZADD", b"_indices", score.as_bytes(), name.as_bytes()],
        );
        assert_eq!(added, Reply::Integer(1), "{name}");
        let set = call(&mut connection, &[b"HSET", b"h", name.as_bytes(), b"v"]);
        assert_eq!(set, Reply::Integer(1), "{name}");
        // What is not there is found not to be, whatever others write.
        let absent = call(&mut connection, &[b"HGET", b"h", b"nobody"]);
        assert_eq!(absent, Reply::Bulk(None));
        let same = [&b"ZADD"[..], b"_indices", score.as_bytes(), name.as_bytes()];
        assert_eq!(call(&mut connection, &same), Reply::Integer(0), "{name}");
    }
}

#[test]
fn clients_add_to_one_sorted_set_at_once() {
    let playground = Playground::start(&["--servers", "3", "--regions", "3"]);
    let servers = &playground.servers;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let addr = servers[client % servers.len()].resp;
            scope.spawn(move || fill(addr, client));
        }
    });
    let all = i64::try_from(CLIENTS * MEMBERS).unwrap();
    for server in servers {
        let mut connection = Connection::open(server.resp).unwrap();
        let mut ask = |words: &[&[u8]]| call(&mut connection, words);
        assert_eq!(ask(&[b"ZCARD", b"_indices"]), Reply::Integer(all));
        let counted = ask(&[b"ZCOUNT", b"_indices", b"-inf", b"+inf"]);
        assert_eq!(counted, Reply::Integer(all));
        assert_eq!(ask(&[b"HLEN", b"h"]), Reply::Integer(all));
        let Reply::Array(Some(pairs)) = ask(&[b"HGETALL", b"h"]) else {
            panic!("a hash is an array");
        };
        assert_eq!(pairs.len(), 2 * CLIENTS * MEMBERS);
        let first = ask(&[
            b"ZRANGEBYSCORE",
            b"_indices",
            b"(0",
            b"+inf",
            b"LIMIT",
            b"0",
            b"2",
        ]);
        let name = |name: &str| Reply::Bulk(Some(name.as_bytes().to_vec()));
        assert_eq!(
            first,
            Reply::Array(Some(vec![name("01:000"), name("02:000")]))
        );
        assert_eq!(
            ask(&[b"ZRANK", b"_indices", b"11:059"]),
            Reply::Integer(all - 1)
        );
        let Reply::Integer(keys) = ask(&[b"DBSIZE"]) else {
            panic!("it is a number");
        };
        // It counts what memtables keep of a key: each head as often as it was written, at most.
        assert!(keys <= 2 * all, "elements are no keys: {keys}");
    }
    let mut connection = Connection::open(servers[0].resp).unwrap();
    assert_eq!(call(&mut connection, &[b"SET", b"h", b"text"]), ok());
    let removed = call(&mut connection, &[b"DEL", b"h", b"_indices"]);
    assert_eq!(removed, Reply::Integer(2));
    let none = call(&mut connection, &[b"HGETALL", b"h"]);
    assert_eq!(none, Reply::Array(Some(Vec::new())));
}

/// When some of the keys expire, in milliseconds after the beginning of 1970: not soon.
const LATER: &str = "4000000000123";

/// Strings, and keys of all types among them: small ones, some that expire, and of each type one that no batch takes.
fn fill_all_types(addr: SocketAddr) {
    let mut connection = Connection::open(addr).unwrap();
    let mut ask = |words: &[&[u8]]| {
        let told = call(&mut connection, words);
        assert!(!matches!(told, Reply::Error(_)), "{told:?}");
    };
    for n in 0..300 {
        let key = format!("key{n:03}").into_bytes();
        match n % 5 {
            0 => ask(&[b"HSET", &key, b"f\xff", &key, b"", b"empty"]),
            1 => ask(&[b"ZADD", &key, b"-inf", b"low", b"0.1", &key]),
            2 => ask(&[b"SADD", &key, b"m", b"\x00\n", &key]),
            _ => ask(&[b"SET", &key, &vec![b'v'; n]]),
        }
        if n % 7 == 3 {
            ask(&[b"PEXPIREAT", &key, LATER.as_bytes()]);
        }
    }
    for from in (0..20_000).step_by(2_000) {
        let names = (from..from + 2_000).map(|n| format!("{n:06}"));
        let names: Vec<_> = names.map(String::into_bytes).collect();
        let twice = names.iter().flat_map(|name| [&name[..], name]);
        let twice: Vec<_> = twice.collect();
        ask(&[&[&b"HSET"[..], b"large hash"][..], &twice[..]].concat());
        ask(&[&[&b"ZADD"[..], b"large zset"][..], &twice[..]].concat());
        let names: Vec<_> = names.iter().map(Vec::as_slice).collect();
        ask(&[&[&b"SADD"[..], b"large set"][..], &names[..]].concat());
    }
    ask(&[b"PEXPIREAT", b"large zset", LATER.as_bytes()]);
    // Few elements, and too many bytes for one batch.
    for field in 0..7_u8 {
        ask(&[b"HSET", b"wide", &[field], &vec![field; 600_000]]);
    }
}

/// The fields of the hash that is too long for a reply, and how many it has.
fn each_field(connection: &mut Connection, key: &[u8]) -> Reply {
    let mut told = vec![call(connection, &[b"HLEN", key])];
    for field in 0..7_u8 {
        told.push(call(connection, &[b"HGET", key, &[field]]));
    }
    Reply::Array(Some(told))
}

/// What a key is bound to, as its type is read, and when it expires.
fn told_of(connection: &mut Connection, key: &[u8]) -> (Reply, Reply, Reply) {
    let kind = call(connection, &[b"TYPE", key]);
    let Reply::Simple(name) = &kind else {
        panic!("{kind:?}");
    };
    let all = match name.as_str() {
        "hash" => match call(connection, &[b"HGETALL", key]) {
            // All of it is too long for a reply.
            Reply::Error(_) => each_field(connection, key),
            all => all,
        },
        "zset" => call(connection, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]),
        "set" => call(connection, &[b"SMEMBERS", key]),
        _ => call(connection, &[b"GET", key]),
    };
    let expires = call(connection, &[b"PEXPIRETIME", key]);
    (kind, all, expires)
}

/// All keys of a server, and what they are bound to.
fn all_of(addr: SocketAddr) -> Vec<(Reply, (Reply, Reply, Reply))> {
    let mut connection = Connection::open(addr).unwrap();
    let keys = call(&mut connection, &[b"KV.RANGE", b"-", b"+", b"KEYSONLY"]);
    let Reply::Array(Some(keys)) = keys else {
        panic!("{keys:?}");
    };
    let told = keys.into_iter().map(|key| {
        let Reply::Bulk(Some(bytes)) = &key else {
            panic!("{key:?}");
        };
        let told = told_of(&mut connection, bytes);
        (key, told)
    });
    told.collect()
}

#[test]
fn all_types_are_exported_and_imported() {
    let dir = Dir::new("all-types");
    let one = Playground::start(&["--servers", "1", "--regions", "2"]);
    fill_all_types(any(&one));
    let all = all_of(any(&one));
    assert_eq!(all.len(), 304);
    let file = dir.file("all.jsonl");
    let said = done(any(&one), &["export", "-o", "json", &file]);
    let summary: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&summary["pairs"], &summary["composites"]),
        (&json!(304), &json!(184))
    );
    assert_eq!(summary["elements"], 60 * 7 + 60_000 + 7);
    let exported = std::fs::read_to_string(&file).unwrap();
    let longest = exported.lines().map(str::len).max().unwrap();
    assert!(longest < 4 << 20, "lines of parts are bounded: {longest}");
    let native = done(any(&one), &["export", "--client", "native"]);
    assert!(native == exported, "native clients export the same");

    // What is there gives way, element by element; what is not in the file stays.
    let two = Playground::start(&["--servers", "2", "--regions", "3"]);
    let mut connection = Connection::open(any(&two)).unwrap();
    for words in [
        [&b"HSET"[..], b"large hash", b"not in the file", b"1"],
        [&b"ZADD"[..], b"large set", b"1", b"of another type"],
        [&b"HSET"[..], b"key003", b"of", b"another type"],
    ] {
        assert_eq!(call(&mut connection, &words), Reply::Integer(1));
    }
    let said = done(any(&two), &["import", "-o", "json", &file]);
    let summary: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(summary["pairs"], 304);
    assert!(all_of(any(&two)) == all, "the other cluster has the same");
    // Once more, and from one connection: it is the same.
    done(any(&two), &["import", "--connections", "1", &file]);
    assert!(all_of(any(&two)) == all, "twice is as good as once");

    // It goes on within a key that has several lines, and begins it anew.
    let first = exported.find("\"large hash\"").unwrap();
    let cut = first + exported[first..].match_indices('\n').nth(2).unwrap().0;
    let part = dir.file("part.jsonl");
    for cut in [cut + 1, cut + 100, exported.len() / 2] {
        std::fs::write(&part, &exported[..cut]).unwrap();
        done(any(&one), &["export", "--resume", &part]);
        call(&mut connection, &[b"FLUSHALL"]);
        done(any(&two), &["import", &part]);
        assert!(all_of(any(&two)) == all, "cut at {cut}");
    }

    let (code, _, said) = run(any(&one), &["export", "--format", "tsv"], "");
    assert!(
        code == 1 && said.contains("for which TSV has no lines"),
        "{said}"
    );
    let said = run(
        any(&one),
        &["export", "--snapshot", &dir.file("moment.jsonl")],
        "",
    )
    .2;
    assert!(said.contains("184 of the keys are hashes"), "{said}");
    let moment = std::fs::read_to_string(dir.file("moment.jsonl")).unwrap();
    assert!(moment == exported, "nothing was written meanwhile");
}

#[test]
fn the_shell_says_what_it_does_not_show() {
    let playground = Playground::start(&["--servers", "1", "--regions", "1"]);
    let mut connection = Connection::open(any(&playground)).unwrap();
    call(&mut connection, &[b"HSET", b"h", b"f", b"v"]);
    for client in ["resp", "native"] {
        for command in ["get h", "scan"] {
            let shell = ["shell", "--client", client, "-c", command];
            let (code, _, said) = run(any(&playground), &shell, "");
            assert!(
                code == 1 && said.contains("hashes, sorted sets and sets are for"),
                "{client}: {said}"
            );
        }
        let keys = ["shell", "--client", client, "-c", "put g 1; get g"];
        assert!(done(any(&playground), &keys).contains('1'));
    }
}
