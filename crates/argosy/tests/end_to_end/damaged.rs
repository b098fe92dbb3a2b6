//! A segment of a level that is damaged: its server says so and serves everything else, and repairs it where another
//! member has the same bytes.

use std::path::Path;

use argosy_base::info;
use argosy_bench::resp::{Connection, Reply};

use crate::admin::{ask, metrics, status};
use crate::full::{kill_all, start_all};
use crate::inspect_command::verify;
use crate::lost_member::{load, loaded_key, number};
use crate::repair_command::damage;
use crate::support::{Playground, Server, configure, connect, keep_ports, until, warnings};

/// Pairs that are loaded.
const PAIRS: u64 = 12_000;

/// A cluster of so many servers and one region, whose pairs are in levels.
fn loaded(servers: &str) -> Playground {
    let playground = Playground::start(&["--servers", servers, "--regions", "1"]);
    load(&mut connect(playground.servers[0].resp), 0..PAIRS);
    for server in &playground.servers {
        until("memtables have become levels", || {
            number(server, info::BACKGROUND_PENDING) == 0
        });
    }
    playground
}

fn dir(server: &Server) -> &Path {
    server.config.parent().unwrap()
}

fn metric(server: &Server, name: &str) -> f64 {
    metrics(server.admin, "/metrics")[name]
}

/// Until everything has been read twice since.
fn until_scrubbed(server: &Server) {
    let name = "argosy_scrub_passes_total";
    let passes = metric(server, name);
    until("everything is read again", || {
        metric(server, name) >= passes + 2.0
    });
}

#[test]
fn a_damaged_segment_is_repaired_and_the_log_is_told_once() {
    let playground = loaded("2");
    let servers = playground.servers.clone();
    let ports = keep_ports();
    kill_all(&servers);
    let hurt = &servers[1];
    let number = damage(dir(hurt));
    assert_eq!(verify(dir(hurt)).len(), 1, "segment {number}");
    configure(hurt, "scrub-period", "1s");
    let started = start_all(&servers);
    drop(ports);

    until("it is repaired", || {
        metric(hurt, "argosy_repaired_segments_total") > 0.0
    });
    until_scrubbed(hurt);
    assert_eq!(metric(hurt, "argosy_repaired_segments_total"), 1.0);
    for name in [
        "argosy_scrub_damages",
        "argosy_damaged_segments",
        "argosy_degraded",
    ] {
        assert_eq!(metric(hurt, name), 0.0, "{name}");
    }
    assert_eq!(warnings(hurt, "was damaged and is repaired"), 1);
    let which = format!("segment {number} was damaged and is repaired: it is whole again");
    assert_eq!(warnings(hurt, &which), 1, "{which}");
    assert_eq!(warnings(&servers[0], "damaged"), 0, "the other was whole");
    drop(started);
    assert_eq!(verify(dir(hurt)).len(), 0);
}

/// Reads every pair; how many could not be read.
fn read_all(client: &mut Connection) -> usize {
    let mut failed = 0;
    for from in (0..PAIRS).step_by(100) {
        for number in from..from + 100 {
            client.push(&[b"GET", loaded_key(number).as_bytes()]);
        }
        client.flush().unwrap();
        for _ in 0..100 {
            match client.reply().unwrap() {
                Reply::Bulk(Some(_)) => {}
                Reply::Error(line) => {
                    assert!(line.contains("a leaf's checksum does not match"), "{line}");
                    failed += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    failed
}

/// The server is ready, and says in all ways that `what` is wrong, and nothing else.
fn is_degraded(server: &Server, what: &str) {
    assert_eq!(ask(server.admin, "/readyz").0, "200");
    assert_eq!(ask(server.admin, "/readyz?writes").0, "200");
    let (_, told) = ask(server.admin, "/readyz?verbose");
    assert_eq!(told, format!("ready\ndegraded: {what}\n"));
    let status = status(server.admin)["server"].clone();
    assert_eq!(status["ready"], true);
    assert_eq!(status["ready_for_writes"], true);
    assert_eq!(status["degraded"], serde_json::json!([what]));
    assert_eq!(metric(server, "argosy_degraded"), 1.0);
    assert_eq!(metric(server, "argosy_ready_for_writes"), 1.0);
    until("the log is told", || warnings(server, what) == 1);
}

/// Without a second copy the server cannot repair the damage. It keeps serving, and reports what reads and scrubs find.
#[test]
fn a_server_with_a_damaged_segment_is_ready_and_says_what_is_wrong() {
    let playground = loaded("1");
    let servers = playground.servers.clone();
    let server = &servers[0];
    let ports = keep_ports();
    kill_all(&servers);
    let number = damage(dir(server));
    configure(server, "scrub-period", "0s");
    let started = start_all(&servers);
    assert_eq!(ask(server.admin, "/readyz?verbose").1, "ready\n");
    let failed = read_all(&mut connect(server.resp));
    assert!((1..500).contains(&failed), "{failed} reads of a leaf");
    is_degraded(server, "region 1: 1 damaged segments; the log names them");
    assert_eq!(metric(server, "argosy_damaged_segments"), 1.0);
    assert_eq!(metric(server, "argosy_scrub_damages"), 0.0);

    drop(started);
    configure(server, "scrub-period", "1s");
    let _started = start_all(&servers);
    until("the damage is found", || {
        ask(server.admin, "/readyz?verbose").1.contains("damaged")
    });
    drop(ports);
    until_scrubbed(server);
    let what = "region 1: 1 damaged places; scrub.damages of /status names them";
    is_degraded(server, what);
    let damages = status(server.admin)["scrub"]["damages"].clone();
    let damages = damages.as_array().unwrap();
    assert_eq!(damages.len(), 1, "{damages:?}");
    let named = damages[0].as_str().unwrap();
    assert!(named.contains(&format!("segment {number},")), "{named}");
}
