//! A device that is full, from outside: writers are told what is full, and what next; reads and
//! deletes go on, also after every server was killed; and deletes make room with nobody's help.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use argosy::cluster::ready::{ReadyAnswer, ask};
use argosy_base::info;
use argosy_bench::resp::{Connection, Reply};
use rustix::process::Signal;

use crate::admin::{self, metrics, status};
use crate::support::{
    ByHand, Playground, Server, argosy, bulk, call, connect, empty_dir, info as info_of,
    keep_ports, lives, signal, until, until_ready, wait_for_end, warnings,
};

/// Requests that are sent before the first answer is read.
const PIPELINE: usize = 200;

/// What was acknowledged.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn kill_all(servers: &[Server]) {
    for server in servers {
        signal(server.pid, Signal::KILL);
    }
    for server in servers {
        until("the server dies", || !lives(server.pid));
    }
}

pub(crate) fn start_all(servers: &[Server]) -> Vec<ByHand> {
    let started = servers
        .iter()
        .map(|server| ByHand::start(&server.config))
        .collect();
    for server in servers {
        until_ready(server.admin);
    }
    started
}

/// Keys of all regions; a value that tells them apart.
fn pair(number: usize) -> (Vec<u8>, Vec<u8>) {
    let spread = char::from_digit(u32::try_from(number % 36).unwrap(), 36).unwrap();
    let key = format!("{spread}-{number}").into_bytes();
    let mut value = format!("{number}:").into_bytes();
    value.resize(600, b'.');
    (key, value)
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Vec<&'a [u8]> {
    vec![b"SET", key, value]
}

fn replies(client: &mut Connection, commands: &[Vec<&[u8]>]) -> Vec<Reply> {
    for command in commands {
        client.push(command);
    }
    client.flush().unwrap();
    commands.iter().map(|_| client.reply().unwrap()).collect()
}

/// Writes pairs from `first` on until none of a whole pipeline is taken. Returns what one of these
/// was told.
fn fill(client: &mut Connection, first: usize, model: &mut Model) -> String {
    for from in (first..).step_by(PIPELINE) {
        let pairs: Vec<_> = (from..from + PIPELINE).map(pair).collect();
        let commands: Vec<_> = pairs.iter().map(|(key, value)| set(key, value)).collect();
        let mut told = Vec::new();
        for (reply, (key, value)) in replies(client, &commands).into_iter().zip(&pairs) {
            match reply {
                Reply::Error(line) => {
                    assert!(line.contains("(not applied)"), "{line}");
                    told.push(line);
                }
                _ => drop(model.insert(key.clone(), value.clone())),
            }
        }
        if told.len() == PIPELINE {
            return told.pop().unwrap();
        }
        assert!(model.len() < 1_000_000, "a device ends");
    }
    unreachable!("it returns")
}

fn check(client: &mut Connection, model: &Model) {
    let pairs: Vec<_> = model.iter().collect();
    for chunk in pairs.chunks(PIPELINE) {
        let commands: Vec<_> = chunk
            .iter()
            .map(|(key, _)| vec![&b"GET"[..], key])
            .collect();
        for (reply, (key, value)) in replies(client, &commands).into_iter().zip(chunk) {
            assert_eq!(reply, bulk(value), "{}", String::from_utf8_lossy(key));
        }
    }
}

/// Deletes every other key; each of them may have to be tried again.
fn delete_half(client: &mut Connection, model: &mut Model) -> usize {
    let doomed: Vec<_> = model.keys().step_by(2).cloned().collect();
    for chunk in doomed.chunks(PIPELINE) {
        let commands: Vec<_> = chunk.iter().map(|key| vec![&b"DEL"[..], key]).collect();
        for (reply, key) in replies(client, &commands).into_iter().zip(chunk) {
            if reply != Reply::Integer(1) {
                until("a delete is taken", || {
                    matches!(call(client, &[b"DEL", key]), Reply::Integer(_))
                });
            }
            model.remove(key);
        }
    }
    doomed.len()
}

/// Writes `count` pairs from `first` on, each as often as it takes.
fn write(client: &mut Connection, first: usize, count: usize, model: &mut Model) {
    for from in (first..first + count).step_by(PIPELINE) {
        let pairs: Vec<_> = (from..from + PIPELINE).map(pair).collect();
        let commands: Vec<_> = pairs.iter().map(|(key, value)| set(key, value)).collect();
        let taken = replies(client, &commands);
        for (reply, (key, value)) in taken.into_iter().zip(pairs) {
            if matches!(reply, Reply::Error(_)) {
                until("a write is taken again", || {
                    matches!(call(client, &[b"SET", &key, &value]), Reply::Simple(_))
                });
            }
            model.insert(key, value);
        }
    }
}

fn fill_kill_delete_and_fill(args: &[&str]) {
    let playground = Playground::start(args);
    let servers = playground.servers.clone();
    let mut client = connect(servers[0].resp);
    let mut model = Model::new();
    let told = fill(&mut client, 0, &mut model);
    assert!(told.starts_with("TRYAGAIN region "), "{told}");
    // Where that server has just made room, it is not named any more.
    let names = told.contains("the device of server ") && told.contains("is full");
    assert!(
        names || told.contains("was full until a moment ago"),
        "{told}"
    );
    assert!(told.contains("delete keys"), "{told}");
    check(&mut client, &model);

    let ports = keep_ports();
    kill_all(&servers);
    let _started = start_all(&servers);
    drop(ports);
    let mut client = connect(servers[0].resp);
    check(&mut client, &model);
    let told = fill(&mut client, 2_000_000, &mut model);
    // The last write may have run out of time just as room was freed.
    assert!(
        told.contains("is full") || told.contains("was full"),
        "{told}"
    );

    let deleted = delete_half(&mut client, &mut model);
    check(&mut client, &model);
    write(&mut client, 3_000_000, deleted / 2, &mut model);
    check(&mut client, &model);
}

#[test]
fn a_full_cluster_is_emptied_by_deletes() {
    fill_kill_delete_and_fill(&["--device-bytes", "256MiB"]);
}

#[test]
fn a_full_server_without_copies_is_emptied_by_deletes() {
    let alone = [
        "--servers",
        "1",
        "--replication",
        "none",
        "--device-bytes",
        "96MiB",
    ];
    fill_kill_delete_and_fill(&alone);
}

/// A backup whose device is smaller than its primary's.
#[test]
fn a_full_backup_is_named_and_recovers() {
    let playground = Playground::start(&["--regions", "1", "--device-bytes", "256MiB"]);
    let servers = playground.servers.clone();
    let ports = keep_ports();
    kill_all(&servers);
    // It begins with an empty copy.
    let small = &servers[2];
    let config = std::fs::read_to_string(&small.config).unwrap();
    let smaller = config.replace("device-bytes = \"256MiB\"", "device-bytes = \"96MiB\"");
    assert_ne!(config, smaller, "{config}");
    std::fs::write(&small.config, smaller).unwrap();
    std::fs::remove_file(data_file(small, "device")).unwrap();
    let _small = ByHand::start_with(&small.config, &["--new-device"]);
    let _started = start_all(&servers[..2]);
    until_ready(small.admin);
    drop(ports);

    let mut client = connect(servers[0].resp);
    let mut model = Model::new();
    let told = fill(&mut client, 0, &mut model);
    assert!(told.contains("the device of server 2 is full"), "{told}");
    assert!(!told.contains("device of server 0"), "{told}");
    check(&mut client, &model);
    its_full_device_is_told(small, &servers[0], &mut || {
        let first = 1_000_000 + model.len();
        fill(&mut client, first, &mut model);
    });
    let deleted = delete_half(&mut client, &mut model);
    write(&mut client, 3_000_000, deleted / 2, &mut model);
    check(&mut client, &model);
    for server in &servers {
        until("no device is full any more", || {
            admin::ask(server.admin, "/readyz?verbose").1 == "ready\n"
        });
    }
    until("the metrics say so, too", || {
        metrics(small.admin, "/metrics")["argosy_device_full"] == 0.0
    });
}

/// A server whose device is full, and the primary for which it keeps a copy, say so, and that reads go on. Merges may
/// still make room meanwhile, so `fill_up` is called before anybody is asked.
fn its_full_device_is_told(full: &Server, primary: &Server, fill_up: &mut dyn FnMut()) {
    let own = "the device of this server is full: delete keys";
    let named = "the device of server 2 is full";
    let waits = format!("region 1: {named}");
    for (server, what) in [(full, own), (primary, named), (primary, waits.as_str())] {
        until("what is full is told", || {
            fill_up();
            let (reads, told) = admin::ask(server.admin, "/readyz?verbose");
            let line = format!("degraded: {what}");
            reads == "200" && told.lines().any(|told| told.starts_with(&line))
        });
        until("the status says so, too", || {
            fill_up();
            let status = status(server.admin)["server"].clone();
            let degraded = status["degraded"].as_array().unwrap();
            let mut degraded = degraded.iter().filter_map(|told| told.as_str());
            status["ready"] == true && degraded.any(|told| told.starts_with(what))
        });
    }
    // Its own regions, of which there are none, take writes; the primary's does not.
    assert_eq!(admin::ask(full.admin, "/readyz?writes").0, "200");
    until("writes wait, and for what", || {
        fill_up();
        let (writes, told) = admin::ask(primary.admin, "/readyz?writes");
        writes == "503" && told.starts_with(&format!("not ready: {waits}"))
    });
    until("what writes wait for is in the status", || {
        fill_up();
        let status = status(primary.admin)["server"].clone();
        let what = status["writes_wait_for"].as_str();
        status["ready_for_writes"] == false && what.is_some_and(|what| what.starts_with(&waits))
    });
    until("so do the metrics", || {
        fill_up();
        metrics(full.admin, "/metrics")["argosy_device_full"] == 1.0
    });
    for (server, what) in [(full, own), (primary, named)] {
        until("the log is told", || warnings(server, what) > 0);
    }
}

fn data_file(server: &Server, name: &str) -> std::path::PathBuf {
    Path::new(&server.config).with_file_name(name)
}

/// Overwrites the first segment behind the superblock, which the manifest of the only region is in.
fn damage_manifest(server: &Server) {
    use std::io::{Seek, SeekFrom, Write};
    let mut device = std::fs::File::options()
        .write(true)
        .open(data_file(server, "device"))
        .unwrap();
    device.seek(SeekFrom::Start(2 << 20)).unwrap();
    device.write_all(&vec![7; 2 << 20]).unwrap();
}

/// A copy that cannot be opened, where other members are whole: it is set aside and filled anew, of the primary and of
/// a backup alike, by themselves.
#[test]
fn a_damaged_copy_is_filled_anew() {
    for damaged in [0, 1] {
        let playground = Playground::start(&["--regions", "1", "--replicas", "2"]);
        let servers = playground.servers.clone();
        let mut client = connect(servers[0].resp);
        for key in 0..100u32 {
            let key = format!("k{key}");
            let set = call(&mut client, &[b"SET", key.as_bytes(), b"v"]);
            assert_eq!(set, crate::support::ok());
        }
        let _ports = keep_ports();
        kill_all(&servers);
        damage_manifest(&servers[damaged]);
        let _started: Vec<_> = servers
            .iter()
            .map(|server| ByHand::start(&server.config))
            .collect();
        until("everything is there", || {
            let connection = Connection::open(servers[0].resp);
            connection.is_ok_and(|mut client| {
                let reply = client.call(&[b"GET", b"k99"]);
                reply.is_ok_and(|reply| reply == Reply::Bulk(Some(b"v".to_vec())))
            })
        });
        let mut client = connect(servers[0].resp);
        for key in 0..100u32 {
            let key = format!("k{key}");
            let get = call(&mut client, &[b"GET", key.as_bytes()]);
            assert_eq!(get, Reply::Bulk(Some(b"v".to_vec())));
        }
        until("it is whole again", || {
            let mut client = connect(servers[0].resp);
            call(&mut client, &[b"SET", b"more", b"v"]) == crate::support::ok()
        });
        let page = metrics(servers[damaged].admin, "/metrics");
        assert_eq!(page["argosy_refilled_copies_total"], 1.0);
        assert_eq!(page["argosy_set_aside_copies"], 1.0);
    }
}

/// A copy that can never open is not worth a retry, and its state says so.
#[test]
fn a_damaged_copy_is_said_to_have_failed() {
    let playground = Playground::start(&["--regions", "1", "--replicas", "1"]);
    let servers = playground.servers.clone();
    let mut client = connect(servers[0].resp);
    assert_eq!(
        call(&mut client, &[b"SET", b"k", b"v"]),
        crate::support::ok()
    );
    let _ports = keep_ports();
    kill_all(&servers);
    damage_manifest(&servers[0]);
    let _started: Vec<_> = servers
        .iter()
        .map(|server| ByHand::start(&server.config))
        .collect();
    until("the server answers", || {
        let connection = Connection::open(servers[0].resp);
        connection.is_ok_and(|mut client| client.call(&[b"PING"]).is_ok())
    });

    let mut client = connect(servers[0].resp);
    for command in [&[&b"SET"[..], b"k", b"w"][..], &[b"GET", b"k"]] {
        match call(&mut client, command) {
            Reply::Error(line) => {
                assert!(line.contains("region 1 has failed on server 0"), "{line}");
                assert!(
                    !line.contains("retry") && !line.starts_with("TRYAGAIN"),
                    "{line}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    let state = &info_of(servers[0].resp, info::SECTION_REGIONS)["region_1"];
    assert!(state.contains("state=failed"), "{state}");
}

/// Filling a region may take hours, and a closed region may need an operator. The start does not give up meanwhile: it
/// says what it waits for, and Ctrl-C ends it.
#[test]
fn a_start_that_waits_says_for_what_and_can_be_ended() {
    let dir = empty_dir("start-waits");
    let place = dir.to_str().unwrap();
    let playground = Playground::start(&["--servers", "1", "--data-dir", place]);
    let server = playground.servers[0].clone();
    assert!(playground.interrupt().success());
    damage_manifest(&server);

    let mut process = argosy()
        .args(["playground", "--data-dir", place])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = process.stderr.take().unwrap();
    let said = std::thread::Builder::new().spawn(move || {
        let lines = BufReader::new(stderr).lines();
        lines.map_while(Result::ok).collect::<Vec<_>>()
    });
    until("it waits", || answers(server.admin));
    // What it says comes some seconds later; Ctrl-C is heard at any time.
    signal(process.id(), Signal::INT);
    let ended = wait_for_end(&mut process);
    let said = said.unwrap().join().unwrap();
    assert_eq!(ended.code(), Some(4), "{said:?}");
    let last = said.last().unwrap();
    let begin = "argosy: stopped before every server was ready: server 0: region 1";
    assert!(last.starts_with(begin), "{last}");
    std::fs::remove_dir_all(&dir).unwrap();
}

fn answers(admin: SocketAddr) -> bool {
    matches!(ask(admin), ReadyAnswer::NotYet(_))
}
