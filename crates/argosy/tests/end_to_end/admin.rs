//! The admin port of a running cluster: metrics that promtool finds nothing wrong with, sums that
//! are what they say, and a status that agrees with the other servers'.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use argosy_base::info;
use argosy_client::Client;
use serde_json::Value;

use crate::support::{Playground, call, connect, info as info_of, ok, text, until};

/// Pairs that are set through each server.
const SETS: u32 = 5000;

/// What `path` of an admin port says.
fn get(admin: SocketAddr, path: &str) -> String {
    let (status, body) = ask(admin, path);
    assert_eq!(status, "200", "{path}: {body}");
    body
}

/// The status and the body of what a page answers.
pub(crate) fn ask(admin: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status");
    (status.to_owned(), body.to_owned())
}

pub(crate) fn status(admin: SocketAddr) -> Value {
    let status: Value = serde_json::from_str(&get(admin, "/status")).expect("JSON");
    assert_eq!(status["schema"], "argosy.status.v1");
    status
}

/// Values of a page of metrics, by name with labels.
pub(crate) fn metrics(admin: SocketAddr, path: &str) -> BTreeMap<String, f64> {
    let page = get(admin, path);
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.rsplit_once(' ').expect("a value"));
    pairs
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// The sum of all values of `name` whose labels hold `label`.
fn sum(metrics: &BTreeMap<String, f64>, name: &str, label: &str) -> f64 {
    let family = format!("{name}{{");
    let matching = metrics
        .iter()
        .filter(|(key, _)| (key.starts_with(&family) || *key == name) && key.contains(label));
    matching.map(|(_, value)| value).sum()
}

/// Sets pairs of all sizes through every server, so that memtables are flushed, and waits until all
/// is drained. Returns how many commands each server got.
fn load(playground: &Playground) -> u64 {
    let value = vec![b'v'; 1500];
    for (n, server) in playground.servers.iter().enumerate() {
        let mut client = connect(server.resp);
        for pair in 0..SETS {
            // A playground's three regions end at c and at o.
            let region = ["a", "h", "t"][pair as usize % 3];
            let key = format!("{region}-{n}-{pair}");
            let length = if pair % 4 == 0 { 1500 } else { 600 };
            assert_eq!(
                call(&mut client, &[b"SET", key.as_bytes(), &value[..length]]),
                ok()
            );
        }
        call(&mut client, &[b"GET", b"nothing"]);
        call(&mut client, &[b"SET", b"", b"a key has a byte"]);
    }
    for server in &playground.servers {
        until("the background drains", || {
            info_of(server.resp, info::SECTION)[info::BACKGROUND_PENDING] == "0"
        });
    }
    u64::from(SETS)
}

fn promtool(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool: {error}; run `make test`, which installs it"));
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(page.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
}

#[test]
fn promtool_finds_nothing_wrong_with_a_server_that_works() {
    let playground = Playground::start(&["--regions", "3"]);
    for path in ["/metrics", "/metrics/regions"] {
        promtool(&get(playground.servers[0].admin, path));
    }
    let sets = load(&playground);
    let native = Client::connect(&playground.servers[0].resp.to_string()).unwrap();
    for n in 0..100u8 {
        native.put(&[n], b"by a native client").unwrap();
    }
    until("a round of the native front end ends", || {
        let puts = playground.servers.iter().map(|server| {
            let page = metrics(server.admin, "/metrics");
            // A put with a name is a batch.
            sum(
                &page,
                "argosy_requests_total",
                "transport=\"native\",command=\"write\"",
            )
        });
        puts.sum::<f64>() == 100.0
    });
    for server in &playground.servers {
        for path in ["/metrics", "/metrics/regions"] {
            promtool(&get(server.admin, path));
        }
        let page = metrics(server.admin, "/metrics");
        let set = |result: &str| {
            let name = "argosy_requests_total";
            let key = format!("{name}{{transport=\"resp\",command=\"set\",result=\"{result}\"}}");
            page.get(&key).copied()
        };
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let sets = sets as f64;
        assert_eq!(set("ok"), Some(sets));
        assert_eq!(set("invalid"), Some(1.0), "an empty key");
        assert_eq!(set("busy"), None);
        let durations = "argosy_request_duration_seconds_count";
        let timed = sum(&page, durations, "transport=\"resp\",op=\"write\"");
        assert!(timed > 0.0 && timed <= sets, "{timed} of {sets}");
        assert_eq!(page["argosy_native_garbled_total"], 0.0);
        let transports = status(server.admin)["transports"].clone();
        let names = [&transports[0]["transport"], &transports[1]["transport"]];
        assert_eq!(names, ["resp", "native"]);
        assert_eq!(page["argosy_ready"], 1.0);
        assert_eq!(sum(&page, "argosy_link_up", ""), 2.0);
        assert_eq!(sum(&page, "argosy_regions", "role=\"backup\""), 2.0);
        let regions = metrics(server.admin, "/metrics/regions");
        assert_eq!(
            sum(&regions, "argosy_region_info", "state=\"serving\""),
            1.0
        );
    }
}

#[test]
fn sums_are_those_of_their_parts_and_backups_compact_nothing() {
    let playground = Playground::start(&["--regions", "3"]);
    load(&playground);
    for server in &playground.servers {
        let page = metrics(server.admin, "/metrics");
        let memory = info_of(server.resp, "memory");
        let limit: f64 = memory["memory_limit"].parse().unwrap();
        assert_eq!(sum(&page, "argosy_memory_limit_bytes", ""), limit);
        for component in [
            "memtables",
            "windows",
            "links",
            "clients",
            "native",
            "answers",
            "buffers",
            "cache",
        ] {
            let label = format!("component=\"{component}\"");
            let bytes = sum(&page, "argosy_memory_bytes", &label);
            assert!(
                bytes <= sum(&page, "argosy_memory_limit_bytes", &label),
                "{component}"
            );
        }
        assert!(sum(&page, "argosy_memory_bytes", "") > 0.0);

        let cpu = sum(&page, "argosy_cpu_seconds_total", "");
        let process = page["process_cpu_seconds_total"];
        // Threads read their clocks now and then: what is not charged yet is little.
        assert!(cpu <= process && cpu > process / 2.0, "{cpu} of {process}");
        let compaction = |role: &str| {
            let key =
                format!("argosy_cpu_seconds_total{{role=\"{role}\",activity=\"compaction\"}}");
            page[&key]
        };
        assert!(compaction("primary") > 0.0);
        assert_eq!(
            compaction("backup"),
            0.0,
            "a backup receives what is finished"
        );
        let shipping = "argosy_cpu_seconds_total{role=\"backup\",activity=\"index_shipping\"}";
        assert!(page[shipping] > 0.0);

        for kind in ["log", "segments", "edits", "calls", "control"] {
            let label = format!("kind=\"{kind}\"");
            assert!(
                sum(&page, "argosy_shipped_bytes_total", &label) > 0.0,
                "{kind}"
            );
        }
        // Reading it takes a moment in which something may be written.
        until("every byte of the device is charged to something", || {
            let status = status(server.admin);
            let total = |field: &str| -> u64 {
                let work = status["work"].as_array().unwrap().iter();
                work.map(|work| work[field].as_u64().unwrap()).sum()
            };
            let device = &status["device"];
            total("device_write_bytes_total") == device["write_bytes_total"]
                && total("device_read_bytes_total") == device["read_bytes_total"]
        });
    }
}

#[test]
fn the_status_of_members_agrees() {
    let playground = Playground::start(&["--regions", "3"]);
    load(&playground);
    let statuses = || -> Vec<Value> {
        let servers = playground.servers.iter();
        servers.map(|server| status(server.admin)).collect()
    };
    until("members are at the same edit", || {
        let statuses = statuses();
        (0..3).all(|region| {
            let edits = statuses
                .iter()
                .map(|status| &status["regions"][region]["edit"]);
            edits.collect::<std::collections::HashSet<_>>().len() == 1
        })
    });
    let statuses = statuses();
    for (id, status) in statuses.iter().enumerate() {
        assert_eq!(status["server"]["id"], id);
        assert_eq!(status["server"]["ready"], true);
        assert_eq!(status["cluster"]["servers"].as_array().unwrap().len(), 3);
        let parts = status["memory"]["components"].as_array().unwrap();
        let taken: u64 = parts
            .iter()
            .map(|part| part["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(status["memory"]["bytes"], taken);
        for (at, region) in status["regions"].as_array().unwrap().iter().enumerate() {
            let first = &statuses[0]["regions"][at];
            for field in ["id", "from", "to", "members", "digest", "levels"] {
                assert_eq!(region[field], first[field], "{field}");
            }
            let is_primary = region["primary"] == id;
            let role = if is_primary { "primary" } else { "backup" };
            assert_eq!(region["role"], role);
            assert_eq!(region["engine"].is_null(), !is_primary);
            for backup in region["backups"].as_array().unwrap() {
                assert_eq!(backup["state"], "live");
                assert_eq!(backup["lsn_lag"], 0);
            }
        }
    }
}
