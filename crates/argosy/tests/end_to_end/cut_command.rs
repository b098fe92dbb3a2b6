//! What lay behind a damaged record when a store was opened: `argosy inspect` lists it and prints it, and
//! `argosy inspect discard-cut` frees it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use argosy_bench::resp::Reply;
use argosy_embedded::{Db, Durability};
use rustix::process::Signal;
use serde_json::Value;

use crate::admin::{metrics, status};
use crate::inspect_command::{Dir, inspect, path, verify};
use crate::missing_device::shared_memory;
use crate::support::{
    ByHand, Playground, argosy, call, configure, connect, empty_dir, keep_ports, lives, ok, signal,
    text, until, until_ready, warnings,
};

const KEYS: usize = 500;
const HURT: usize = 10;

/// So long that nothing says within the time of a test that a flush was durable.
const INTERVAL: Duration = Duration::from_secs(5);

fn open(dir: &Path) -> Db {
    let builder = Db::builder().memory(64 << 20).device_bytes(128 << 20);
    let durability = Durability::FlushInterval(INTERVAL);
    builder.durability(durability).open(dir).unwrap()
}

fn key(number: usize) -> String {
    format!("a key of some length {number:06}")
}

/// The device of a store with `KEYS` pairs that are flushed, without what says so, as a loss of power leaves it.
fn without_power(dir: &Path, left: &Path) {
    let db = open(dir);
    for number in 0..KEYS {
        db.put(key(number), format!("value {number}")).unwrap();
    }
    until("everything is on the device", || db.stats().durable);
    std::fs::create_dir_all(left).unwrap();
    let mut from = File::open(dir.join("device")).unwrap();
    let mut to = File::create(left.join("device")).unwrap();
    let mut part = vec![0; 1 << 20];
    loop {
        let len = from.read(&mut part).unwrap();
        match &part[..len] {
            [] => break,
            zeros if zeros.iter().all(|byte| *byte == 0) => {
                to.seek(SeekFrom::Current(len.try_into().unwrap())).unwrap();
            }
            bytes => to.write_all(bytes).unwrap(),
        }
    }
    to.set_len(from.metadata().unwrap().len()).unwrap();
}

/// Flips a bit of the record of pair `HURT`.
fn damage(left: &Path) {
    let mut options = File::options();
    let device = options.read(true).write(true).open(left.join("device"));
    let device = device.unwrap();
    let mut bytes = Vec::new();
    (&device).read_to_end(&mut bytes).unwrap();
    let key = key(HURT).into_bytes();
    let mut found = bytes.windows(key.len());
    let at = found.position(|bytes| bytes == key).unwrap();
    device.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
}

/// Runs `argosy inspect` with `args`: its exit code, and what it printed for people.
pub(crate) fn say(args: &[&str]) -> (i32, String) {
    let output = argosy().arg("inspect").args(args).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().unwrap(), said)
}

fn cut_segments(left: &Path) -> Vec<Value> {
    let (code, report) = inspect(&[path(left), "--section", "logs"]);
    assert_eq!(code, 0);
    let cut = report["regions"][0].get("cut_segments");
    cut.map_or_else(Vec::new, |cut| cut.as_array().unwrap().clone())
}

#[test]
fn what_lay_behind_a_cut_is_listed_printed_and_freed() {
    let dir = Dir(empty_dir("cut"));
    let left = dir.0.join("left");
    without_power(&dir.0.join("store"), &left);
    damage(&left);
    assert_eq!(verify(&left), [Value::Null; 0], "it may have been torn");
    assert_eq!(cut_segments(&left), [Value::Null; 0]);

    let db = open(&left);
    assert_eq!(db.iter().count(), HURT);
    db.close().unwrap();
    drop(db);
    let cut = cut_segments(&left);
    assert_eq!(cut.len(), 1, "{cut:?}");
    let cut = &cut[0];
    assert_eq!(cut["log"], "recovery");
    assert_eq!(cut["records"], KEYS - HURT - 1);
    let lsn = |name: &str| cut[name].as_u64().unwrap();
    assert_eq!(lsn("first_lsn"), lsn("cut_at") + 1);
    assert_eq!(lsn("last_lsn") - lsn("first_lsn"), lsn("records") - 1);
    assert_eq!(verify(&left), [Value::Null; 0]);

    let number = cut["number"].to_string();
    let (code, dump) = inspect(&["dump", path(&left), "--segment", &number]);
    assert_eq!(code, 0);
    let items = dump["items"].as_array().unwrap();
    let cut = items.iter().position(|item| item["type"] == "cut segment");
    let cut = &items[cut.unwrap()..];
    for number in HURT + 1..KEYS {
        let item = &cut[number - HURT];
        assert_eq!(item["type"], "put");
        assert_eq!(item["key"]["text"], key(number));
        assert_eq!(item["value"]["text"], format!("value {number}"));
    }

    let (code, said) = say(&[path(&left)]);
    assert!(code == 0 && said.contains("cut segments"), "{said}");
    let (code, said) = say(&["discard-cut", path(&left)]);
    assert!(code == 0 && said.contains("1 cut segments"), "{said}");
    let region = said.split([' ', ',']).nth(1).unwrap().to_owned();
    let discard = ["discard-cut", path(&left), "--region", &region];
    let (code, said) = say(&discard);
    assert!(code == 0 && said.contains("given up"), "{said}");
    assert_eq!(say(&discard).0, 3);
    assert_eq!(cut_segments(&left), [Value::Null; 0]);
    assert_eq!(open(&left).iter().count(), HURT);
    assert_eq!(verify(&left), [Value::Null; 0]);
}

/// A server without peers loses power, and a record of its log is damaged. Its log file warns once, at the first start,
/// that records behind the damaged one were cut off.
#[test]
fn a_server_warns_once_of_what_it_cut_off() {
    let playground = Playground::start(&["--servers", "1", "--device-bytes", "128MiB"]);
    let server = playground.servers[0].clone();
    let ports = keep_ports();
    signal(server.pid, Signal::KILL);
    until("the server dies", || !lives(server.pid));
    let interval = format!("{}s", INTERVAL.as_secs());
    configure(&server, "flush-interval", &interval);
    let started = ByHand::start(&server.config);
    until_ready(server.admin);
    let mut client = connect(server.resp);
    for number in 0..KEYS {
        let value = format!("value {number}");
        client.push(&[b"SET", key(number).as_bytes(), value.as_bytes()]);
    }
    client.flush().unwrap();
    for _ in 0..KEYS {
        assert_eq!(client.reply().unwrap(), ok());
    }
    until("everything is on the device", || {
        let region = &status(server.admin)["regions"][0];
        region["engine"]["durable_lsn"] == region["last_lsn"]
    });
    drop(started);
    std::fs::remove_dir_all(shared_memory(&server.config).join("server-0")).unwrap();
    damage(server.config.parent().unwrap());

    let told = "whole records behind the end of the history";
    assert_eq!(warnings(&server, told), 0);
    let cut = u32::try_from(KEYS - HURT - 1).unwrap();
    for cut in [cut, 0] {
        let _started = ByHand::start(&server.config);
        until_ready(server.admin);
        let page = metrics(server.admin, "/metrics");
        assert_eq!(page["argosy_recovery_cut_records"], f64::from(cut));
        assert_eq!(page["argosy_cut_records_total"], f64::from(cut));
        assert_eq!(
            page["argosy_cut_promotions_total"], 0.0,
            "nobody was chosen"
        );
        assert_eq!(warnings(&server, told), 1, "once, whoever starts it again");
        let left = call(&mut connect(server.resp), &[b"DBSIZE"]);
        assert_eq!(left, Reply::Integer(i64::try_from(HURT).unwrap()));
    }
    assert_eq!(warnings(&server, &format!("{cut} {told}")), 1);
    drop(ports);
}
