//! `argosy inspect put-back`: a copy that was set aside is listed, takes its place again, and is taken back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use argosy_bench::resp::Reply;
use rustix::process::Signal;

use crate::admin::metrics;
use crate::cut_command::say;
use crate::full::{kill_all, start_all};
use crate::inspect_command::{inspect, path};
use crate::support::{
    ByHand, Playground, Server, bulk, call, connect, keep_ports, ok, signal, until_ready,
};

const KEYS: u32 = 100;
/// The device segment that the first copy of the only region has its manifest in.
const MANIFEST: u64 = 1;
/// Bytes of the manifest that are damaged: the copy cannot be opened, and the intact rest still names its segments.
const HURT: usize = 3 * 4096;

fn dir(server: &Server) -> &Path {
    server.config.parent().unwrap()
}

fn key(number: u32) -> String {
    format!("key-{number}")
}

/// Puts `bytes` where the manifest of the first copy begins. Returns what was there.
fn exchange(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut options = File::options();
    let device = options.read(true).write(true);
    let device = device.open(dir(server).join("device")).unwrap();
    let mut before = vec![0; bytes.len()];
    device.read_exact_at(&mut before, MANIFEST << 21).unwrap();
    device.write_all_at(bytes, MANIFEST << 21).unwrap();
    before
}

/// The first device segment of the manifest of the copy that is in use.
fn in_use(server: &Server) -> u64 {
    let (code, report) = inspect(&[path(dir(server)), "--section", "catalog"]);
    assert_eq!(code, 0, "{report}");
    let regions = report["regions"].as_array().unwrap();
    assert_eq!(regions.len(), 1, "{report}");
    let segments = &regions[0]["manifest"]["device_segments"];
    segments[0].as_u64().unwrap()
}

/// A cluster of one region, of which server 1 has set a damaged copy aside and filled another one. What was written
/// before is durable in both.
struct Cluster {
    _playground: Playground,
    servers: Vec<Server>,
    running: Vec<ByHand>,
    /// What was damaged, as it was before.
    whole: Vec<u8>,
}

impl Cluster {
    fn start() -> Self {
        let playground = Playground::start(&["--servers", "2", "--regions", "1"]);
        let servers = playground.servers.clone();
        let mut client = connect(servers[0].resp);
        for number in 0..KEYS {
            let set = call(&mut client, &[b"SET", key(number).as_bytes(), b"v"]);
            assert_eq!(set, ok());
        }
        assert_eq!(call(&mut client, &[b"KV.FLUSH"]), ok());
        let ports = keep_ports();
        kill_all(&servers);
        assert_eq!(in_use(&servers[1]), MANIFEST);
        let whole = exchange(&servers[1], &[7; HURT]);
        let running = start_all(&servers);
        drop(ports);
        let cluster = Self {
            _playground: playground,
            servers,
            running,
            whole,
        };
        assert_eq!(cluster.counts(), (1.0, 1.0));
        assert_eq!(cluster.set("later"), ok());
        cluster
    }

    /// Stops both servers, cleanly.
    fn stop(&mut self) {
        for server in &self.running {
            signal(server.pid(), Signal::TERM);
        }
        for server in &mut self.running {
            assert!(server.wait().success());
        }
        self.running.clear();
    }

    /// Runs `argosy inspect put-back` on server 1: its exit code, and what it said.
    fn put_back(&self, options: &[&str]) -> (i32, String) {
        let command = ["put-back", path(dir(&self.servers[1]))];
        say(&[&command[..], options].concat())
    }

    fn set(&self, key: &str) -> Reply {
        let mut client = connect(self.servers[0].resp);
        call(&mut client, &[b"SET", key.as_bytes(), b"v"])
    }

    fn get(&self, key: &str) -> Reply {
        let mut client = connect(self.servers[0].resp);
        call(&mut client, &[b"GET", key.as_bytes()])
    }

    /// All keys that were written before the copy was damaged are there.
    fn has_all(&self) {
        for number in 0..KEYS {
            assert_eq!(self.get(&key(number)), bulk("v"), "{number}");
        }
    }

    /// Copies that server 1 has filled anew since it was started, and those that it has set aside.
    fn counts(&self) -> (f64, f64) {
        let page = metrics(self.servers[1].admin, "/metrics");
        (
            page["argosy_refilled_copies_total"],
            page["argosy_set_aside_copies"],
        )
    }
}

#[test]
fn a_copy_that_is_set_aside_is_listed_put_back_and_taken_back() {
    let mut cluster = Cluster::start();
    let (code, said) = cluster.put_back(&[]);
    assert_eq!(code, 1, "{said}");
    let pid = cluster.running[1].pid().to_string();
    assert!(said.contains(&pid), "it is in use: {said}");
    let ports = keep_ports();
    cluster.stop();
    let listed = (0, "a copy of region 1 is set aside\n".to_owned());
    assert_eq!(cluster.put_back(&[]), listed);
    let (code, said) = cluster.put_back(&["--region", "7"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("no copy of region 7 is set aside"), "{said}");

    let other = in_use(&cluster.servers[1]);
    assert_ne!(other, MANIFEST, "listing changes nothing");
    for used in [MANIFEST, other] {
        let (code, said) = cluster.put_back(&["--region", "1"]);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains("region 1 that was set aside is in use again"),
            "{said}"
        );
        assert_eq!(in_use(&cluster.servers[1]), used);
        assert_eq!(cluster.put_back(&[]), listed, "the other one");
    }
    cluster.running = start_all(&cluster.servers);
    drop(ports);
    assert_eq!(cluster.counts(), (0.0, 1.0), "it is as it was");
    cluster.has_all();
    assert_eq!(cluster.get("later"), bulk("v"));
    assert_eq!(cluster.set("last"), ok());
}

/// Another copy is whole: it counts, and what was put back is set aside again and filled anew.
#[test]
fn a_copy_that_was_put_back_is_filled_anew_from_one_that_is_whole() {
    let mut cluster = Cluster::start();
    let ports = keep_ports();
    cluster.stop();
    exchange(&cluster.servers[1], &cluster.whole);
    assert_eq!(cluster.put_back(&["--region", "1"]).0, 0);
    cluster.running = start_all(&cluster.servers);
    drop(ports);
    assert_eq!(cluster.counts(), (1.0, 1.0));
    cluster.has_all();
    assert_eq!(cluster.get("later"), bulk("v"));
    assert_eq!(cluster.set("last"), ok());
}

/// The device can be read again, and the other copy is lost: the region opens with what the old copy holds.
#[test]
fn a_copy_that_was_put_back_serves_where_the_others_are_lost() {
    let mut cluster = Cluster::start();
    let ports = keep_ports();
    cluster.stop();
    exchange(&cluster.servers[1], &cluster.whole);
    assert_eq!(cluster.put_back(&["--region", "1"]).0, 0);
    let lost = cluster.servers[0].clone();
    std::fs::remove_file(dir(&lost).join("device")).unwrap();
    let started = [
        ByHand::start_with(&lost.config, &["--new-device"]),
        ByHand::start(&cluster.servers[1].config),
    ];
    cluster.running.extend(started);
    for server in &cluster.servers {
        until_ready(server.admin);
    }
    drop(ports);
    assert_eq!(cluster.counts(), (0.0, 1.0));
    cluster.has_all();
    let later = cluster.get("later");
    assert_eq!(later, Reply::Bulk(None), "it came after the old copy");
    assert_eq!(cluster.set("last"), ok());
}
