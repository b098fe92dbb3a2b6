//! A member is lost and comes back while regions stay where they are: what clients are told meanwhile, and what it
//! costs.

use argosy_base::info;
use argosy_bench::resp::{Connection, Reply};
use rustix::process::Signal;

use crate::admin::{ask, metrics, status};
use crate::support::{
    ByHand, Playground, Server, bulk, call, connect, info as info_of, keep_ports, lives, ok,
    signal, until, until_ready, warnings,
};

/// A cluster of one region, whose primary is server 0 and stays that.
fn one_region() -> Playground {
    Playground::start_fixed(&["--regions", "1"])
}

fn kill(server: &Server) {
    signal(server.pid, Signal::KILL);
    until("the server dies", || !lives(server.pid));
}

fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(line) => line,
        other => panic!("expected an error, not {other:?}"),
    }
}

#[test]
fn without_a_backup_writes_go_on_until_its_windows_are_full() {
    let playground = one_region();
    let servers = playground.servers.clone();
    let mut client = connect(servers[0].resp);
    assert_eq!(call(&mut client, &[b"SET", b"old", b"1"]), ok());
    until_nothing_is_degraded(&servers[0]);
    let ports = keep_ports();
    kill(&servers[2]);

    // Its memory is still there and takes records, which its next start will find.
    let mut taken = 0;
    let told = loop {
        let key = format!("key-{taken}");
        match call(&mut client, &[b"SET", key.as_bytes(), &[b'v'; 60 << 10]]) {
            Reply::Simple(_) => taken += 1,
            reply => break error(reply),
        }
        assert!(taken < 1000, "windows hold a few megabytes");
    };
    assert!(taken > 10, "{taken} writes were taken, then: {told}");
    assert!(tells_the_outcome(&told), "{told}");
    assert_eq!(call(&mut client, &[b"GET", b"old"]), bulk("1"));
    // Both of the others serve what they are asked for; writes wait, and everybody is told why.
    let (reads, told) = ask(servers[0].admin, "/readyz?verbose");
    assert_eq!(reads, "200", "{told}");
    assert!(
        told.contains("degraded: server 2 shows no sign of life"),
        "{told}"
    );
    assert_eq!(ask(servers[1].admin, "/readyz").0, "200");
    let (writes, told) = ask(servers[0].admin, "/readyz?writes");
    assert_eq!(writes, "503", "{told}");
    assert!(told.contains("given up at their deadline"), "{told}");
    let status = status(servers[0].admin);
    let degraded = status["server"]["degraded"].to_string();
    assert!(
        degraded.contains("server 2 shows no sign of life"),
        "{degraded}"
    );
    let warned = warnings(&servers[0], "server 2 shows no sign of life");
    assert_eq!(warned, 1);
    let page = metrics(servers[0].admin, "/metrics");
    assert_eq!(page["argosy_ready"], 1.0);
    assert_eq!(page["argosy_ready_for_writes"], 0.0);
    // The server, and that the region waits for it; that writes were given up is forgotten some time later.
    let degraded = page["argosy_degraded"];
    assert!((2.0..=3.0).contains(&degraded), "{degraded}");
    // What is primary of nothing misses its peer, and no writes.
    let page = metrics(servers[1].admin, "/metrics");
    assert_eq!(page["argosy_ready_for_writes"], 1.0);
    assert_eq!(page["argosy_degraded"], 1.0);

    // The other server forwards, and is told the same.
    let mut other = connect(servers[1].resp);
    assert_eq!(call(&mut other, &[b"GET", b"old"]), bulk("1"));

    let _back = ByHand::start_fixed(&servers[2].config);
    until_ready(servers[2].admin);
    drop(ports);
    until_ready(servers[0].admin);
    until_nothing_is_degraded(&servers[0]);
    assert_eq!(call(&mut client, &[b"SET", b"old", b"2"]), ok());
    for number in 0..taken {
        let key = format!("key-{number}");
        let found = call(&mut other, &[b"GET", key.as_bytes()]);
        assert_eq!(found, bulk([b'v'; 60 << 10]), "{key}");
    }
}

/// Until a server says in all ways that nothing is wrong.
fn until_nothing_is_degraded(server: &Server) {
    until("nothing is degraded", || {
        ask(server.admin, "/readyz?verbose").1 == "ready\n"
    });
    let page = metrics(server.admin, "/metrics");
    assert_eq!(page["argosy_degraded"], 0.0);
    assert_eq!(page["argosy_ready_for_writes"], 1.0);
}

/// Whether an error that answers a write says what became of it.
fn tells_the_outcome(line: &str) -> bool {
    line.contains("not applied") || line.starts_with("UNCERTAIN") && line.contains("unknown")
}

#[test]
fn without_its_primary_a_region_is_not_available() {
    let playground = one_region();
    let servers = playground.servers.clone();
    let mut client = connect(servers[1].resp);
    assert_eq!(call(&mut client, &[b"SET", b"k", b"1"]), ok());
    let ports = keep_ports();
    kill(&servers[0]);
    let told = error(call(&mut client, &[b"SET", b"k", b"2"]));
    assert!(tells_the_outcome(&told), "{told}");
    let told = error(call(&mut client, &[b"GET", b"k"]));
    assert!(told.starts_with("TRYAGAIN"), "{told}");
    // Once the primary is known to be away nothing is sent to it any more.
    let away = "server 0, the primary of region 1, shows no sign of life";
    until("it is known to be away", || {
        error(call(&mut client, &[b"GET", b"k"])).contains(away)
    });
    let told = error(call(&mut client, &[b"SET", b"k", b"2"]));
    assert!(told.contains(away), "{told}");
    assert!(
        told.starts_with("TRYAGAIN ") && told.ends_with("(not applied)"),
        "{told}"
    );
    // The others are primary of nothing, and do what they are there for.
    assert_eq!(ask(servers[1].admin, "/readyz").0, "200");
    assert_eq!(ask(servers[1].admin, "/readyz?writes").0, "200");
    assert_eq!(
        call(&mut client, &[b"PING"]),
        Reply::Simple("PONG".to_owned())
    );

    let _back = ByHand::start_fixed(&servers[0].config);
    until_ready(servers[0].admin);
    drop(ports);
    until("the region answers", || {
        call(&mut client, &[b"SET", b"k", b"3"]) == ok()
    });
    assert_eq!(call(&mut client, &[b"GET", b"k"]), bulk("3"));
}

#[test]
fn a_returning_server_fetches_the_difference() {
    let playground = one_region();
    let servers = playground.servers.clone();
    let mut client = connect(servers[0].resp);
    let loaded = load(&mut client, 0..12_000);
    until("all is in the levels that will be", || {
        number(&servers[0], info::BACKGROUND_PENDING) == 0
    });
    let ports = keep_ports();
    kill(&servers[2]);
    let _back = ByHand::start_fixed(&servers[2].config);
    until_ready(servers[2].admin);
    drop(ports);
    until_ready(servers[0].admin);
    load(&mut client, 12_000..12_100);
    until("members are equal", || {
        let states = servers.iter().map(|server| {
            let line = info_of(server.resp, info::SECTION_REGIONS)["region_1"].clone();
            line.split_once(",edit=").unwrap().1.to_owned()
        });
        let states: std::collections::BTreeSet<_> = states.collect();
        states.len() == 1
    });
    let fetched = number(&servers[2], info::CATCH_UP_BYTES);
    assert!(
        fetched < loaded / 4,
        "{fetched} bytes were fetched of {loaded}"
    );
}

/// The key of a pair that [`load`] writes: no two are the same.
pub(crate) fn loaded_key(number: u64) -> String {
    format!("key-{:08}", number * 7919 % 1_000_003)
}

/// Writes pairs of a kilobyte; returns their bytes.
pub(crate) fn load(client: &mut Connection, numbers: std::ops::Range<u64>) -> u64 {
    let numbers: Vec<_> = numbers.collect();
    for chunk in numbers.chunks(100) {
        for number in chunk {
            client.push(&[b"SET", loaded_key(*number).as_bytes(), &[b'v'; 900]]);
        }
        client.flush().unwrap();
        for _ in chunk {
            assert_eq!(client.reply().unwrap(), ok());
        }
    }
    u64::try_from(numbers.len()).unwrap() * 912
}

pub(crate) fn number(server: &Server, name: &str) -> u64 {
    info_of(server.resp, info::SECTION)[name].parse().unwrap()
}
