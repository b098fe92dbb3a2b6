//! `argosy inspect` on what a playground left: it is whole, members are equal, and damage that is
//! planted in a device is found where it was planted.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use argosy_base::checksum::extend;
use argosy_base::{Identity, Kind};
use argosy_embedded::Db;
use rustix::process::Signal;
use serde_json::Value;

use crate::failover::until_equal;
use crate::support::{
    Playground, argosy, call, connect, empty_dir, info, lives, ok, signal, text, until,
};

const SEGMENT: u64 = 2 << 20;

/// A data directory that goes away with the test.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `argosy inspect` with `args`: its exit code, and what it printed as JSON.
pub(crate) fn inspect(args: &[&str]) -> (i32, Value) {
    let output = argosy()
        .arg("inspect")
        .args(args)
        .args(["-o", "json"])
        .output()
        .unwrap();
    let code = output.status.code().expect("it ends by itself");
    let said = text(&output.stderr);
    let json = serde_json::from_slice(&output.stdout);
    let json = json.unwrap_or_else(|error| panic!("{args:?}: {code}: {error}: {said}"));
    (code, json)
}

pub(crate) fn path(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

/// Verifies `dir`; what is wrong with it.
pub(crate) fn verify(dir: &Path) -> Vec<Value> {
    let (code, report) = inspect(&["verify", path(dir)]);
    assert_eq!(report["schema"], "argosy.inspect-verify.v1");
    let problems = report["problems"].as_array().unwrap().clone();
    assert_eq!(code, if problems.is_empty() { 0 } else { 8 }, "{report}");
    assert_eq!(report["ok"], problems.is_empty());
    problems
}

/// Loads pairs of all sizes: enough for levels and sealed log segments.
pub(crate) fn load(playground: &Playground, seed: u8) {
    let mut client = connect(playground.servers[0].resp);
    for round in 0..300_u32 {
        let mut words: Vec<Vec<u8>> = vec![b"MSET".to_vec()];
        for n in 0..100_u32 {
            let spread = char::from_digit(n % 36, 36).unwrap();
            words.push(format!("{spread}{:05}", (round * 100 + n) * 7919 % 20_000).into_bytes());
            let len = if n % 20 == 0 { 3000 } else { 300 };
            words.push(vec![b'a' + seed; len]);
        }
        let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
        // A busy machine may keep a write waiting past its deadline: then it is sent again.
        until("pairs are written", || call(&mut client, &words) == ok());
    }
    for server in &playground.servers {
        until("memtables have become levels", || {
            let found = info(server.resp, "argosy");
            let number = |name: &str| found.get(name).and_then(|n| n.parse::<u64>().ok());
            number("background_pending") == Some(0) && number("levels") > Some(0)
        });
    }
}

/// A loaded and stopped cluster of three servers.
fn stopped(name: &str) -> Dir {
    let dir = Dir(empty_dir(name));
    let playground = Playground::start(&["--regions", "3", "--data-dir", path(&dir.0)]);
    load(&playground, 0);
    until_equal(&playground.servers);
    let server = dir.0.join("server-1");
    let refused = argosy().arg("inspect").arg(&server).output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let pid = playground.servers[1].pid.to_string();
    assert!(said.contains(&pid) && said.contains("stop"), "{said}");
    assert!(playground.interrupt().success());
    dir
}

#[test]
fn a_stopped_cluster_is_whole_and_its_members_are_equal() {
    let dir = stopped("inspect-whole");
    let servers = [0, 1, 2].map(|id| dir.0.join(format!("server-{id}")));
    let copy = dir.0.join("copy");
    let refused = argosy()
        .args(["inspect", "repair", path(&servers[0]), "--to", path(&copy)])
        .output()
        .unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("3 members") && !copy.exists(), "{said}");
    for server in &servers {
        let (code, before) = inspect(&[path(server)]);
        assert_eq!(
            (code, &before["schema"]),
            (0, &Value::from("argosy.inspect.v1"))
        );
        assert_eq!(verify(server), Vec::<Value>::new());
        let (_, after) = inspect(&[path(server)]);
        assert_eq!(before, after, "looking changes nothing");
        let regions = before["regions"].as_array().unwrap();
        assert_eq!(regions.len(), 3);
        for region in regions {
            let version = &region["version"];
            assert!(
                !version["levels"].as_array().unwrap().is_empty(),
                "{version}"
            );
            let logs = version["logs"].as_array().unwrap();
            assert!(!logs.is_empty(), "{version}");
            for log in logs {
                let number = |field: &str| log[field].as_u64().unwrap_or(0);
                let known = log["log"] == "large";
                assert_eq!(log["dead"].is_u64(), known, "{log}");
                assert!(number("dead") + number("referenced") <= number("held") || !known);
            }
            assert_eq!(region["manifest"]["edits"][0]["checkpoint"], true);
        }
        let segments = before["segments"].as_array().unwrap();
        assert!(segments.iter().all(|segment| segment["references"] == 1));
        let shown = argosy().arg("inspect").arg(server).output().unwrap();
        let shown = text(&shown.stdout);
        for part in [
            "superblock copy 1",
            "catalog generation",
            "L1",
            "large",
            "references",
            "dead",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        let (code, report) = inspect(&["compare", path(&servers[a]), path(&servers[b])]);
        assert_eq!(
            (code, &report["equal"]),
            (0, &Value::from(true)),
            "{report}"
        );
        let regions = report["regions"].as_array().unwrap();
        assert_eq!(regions.len(), 3);
        for region in regions {
            assert!(region["level_segments"].as_u64() > Some(0), "{report}");
            assert!(region["log_bytes"].as_u64() > Some(0), "{report}");
        }
    }
    let nowhere = argosy().args(["inspect", "verify", "/nowhere"]).output();
    assert_eq!(nowhere.unwrap().status.code(), Some(3));
}

/// What a kill leaves in windows belongs to the logs, too.
#[test]
fn killed_servers_are_whole_and_equal_as_well() {
    let dir = Dir(empty_dir("inspect-killed"));
    let mut playground = Playground::start(&["--regions", "3", "--data-dir", path(&dir.0)]);
    load(&playground, 0);
    until_equal(&playground.servers);
    // All at one time: nobody goes on without another.
    for server in &playground.servers {
        signal(server.pid, Signal::KILL);
    }
    for server in &playground.servers {
        until("the server dies", || !lives(server.pid));
    }
    playground.kill();
    let servers = [0, 1, 2].map(|id| dir.0.join(format!("server-{id}")));
    for server in &servers {
        assert_eq!(verify(server), Vec::<Value>::new());
    }
    let (code, report) = inspect(&["compare", path(&servers[0]), path(&servers[1])]);
    assert_eq!(code, 0, "{report}");
    drop(playground);
    // A start takes the shared memory over, and a stop removes it.
    let playground = Playground::start(&["--regions", "3", "--data-dir", path(&dir.0)]);
    assert!(playground.interrupt().success());
}

/// Levels that each member built for itself have other segments, and the same pairs.
#[test]
fn members_that_build_their_levels_hold_the_same_pairs() {
    let dir = Dir(empty_dir("inspect-build-index"));
    let data = path(&dir.0);
    let some = [
        "--regions",
        "3",
        "--replication",
        "build-index",
        "--data-dir",
    ];
    let args: Vec<&str> = some.into_iter().chain([data]).collect();
    let playground = Playground::start(&args);
    load(&playground, 0);
    assert!(playground.interrupt().success());
    let servers = [0, 1, 2].map(|id| dir.0.join(format!("server-{id}")));
    for server in &servers {
        assert_eq!(verify(server), Vec::<Value>::new());
        let (_, shown) = inspect(&[path(server)]);
        for region in shown["regions"].as_array().unwrap() {
            let levels = region["version"]["levels"].as_array().unwrap();
            assert!(!levels.is_empty(), "{region}");
        }
    }
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        let (code, report) = inspect(&["compare", path(&servers[a]), path(&servers[b])]);
        assert_eq!(code, 0, "{report}");
        let regions = report["regions"].as_array().unwrap();
        let pairs: u64 = regions
            .iter()
            .filter_map(|region| region["pairs"].as_u64())
            .sum();
        // Keys of `load`: each is one of 36 first characters with one of 20,000 numbers.
        assert!(regions.len() == 3 && pairs > 15_000, "{report}");
    }
}

/// A device, to be damaged.
struct Victim {
    dir: PathBuf,
    device: File,
}

impl Victim {
    fn open(dir: &Path) -> Self {
        let device = File::options()
            .read(true)
            .write(true)
            .open(dir.join("device"));
        Self {
            dir: dir.to_path_buf(),
            device: device.unwrap(),
        }
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.device.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// What `verify` says with `bytes` at `at`; what was there is put back.
    fn with(&self, at: u64, bytes: &[u8]) -> Vec<Value> {
        let before = self.read(at, bytes.len());
        self.device.write_all_at(bytes, at).unwrap();
        let found = verify(&self.dir);
        self.device.write_all_at(&before, at).unwrap();
        found
    }

    /// What `verify` says with one bit flipped.
    fn with_flip(&self, at: u64) -> Vec<Value> {
        let byte = self.read(at, 1)[0];
        self.with(at, &[byte ^ 4])
    }
}

/// The problem of kind `kind` at byte `offset`, or before, of `device_segment`.
fn find<'a>(found: &'a [Value], kind: &str, device_segment: u64, offset: u64) -> &'a Value {
    let here = |problem: &&Value| {
        problem["kind"] == kind
            && problem["device_segment"] == device_segment
            && problem["offset"].as_u64() <= Some(offset)
            && problem["advice"]
                .as_str()
                .is_some_and(|advice| !advice.is_empty())
    };
    let problem = found.iter().find(here);
    problem.unwrap_or_else(|| panic!("{kind} at {device_segment}+{offset}: {found:?}"))
}

#[test]
fn planted_damage_is_found_where_it_is() {
    let dir = stopped("inspect-damage");
    let victim = Victim::open(&dir.0.join("server-1"));
    let old_superblock = victim.read(0, 4096);
    // Another start makes what was read above stale.
    let playground = Playground::start(&["--regions", "3", "--data-dir", path(&dir.0)]);
    load(&playground, 1);
    until_equal(&playground.servers);
    assert!(playground.interrupt().success());
    assert_eq!(verify(&victim.dir), Vec::<Value>::new());

    let (_, whole) = inspect(&[path(&victim.dir)]);
    let region = &whole["regions"][0];
    let number = |value: &Value, field: &str| value[field].as_u64().unwrap();
    let levels = region["version"]["levels"].as_array().unwrap();
    let level = levels
        .iter()
        .max_by_key(|level| number(level, "bytes"))
        .unwrap();
    let (place, len) = (number(level, "device_segment"), number(level, "bytes"));

    // A flipped bit: leaf, footer, manifest, sealed log, superblock, catalog.
    for offset in [100, len - 120] {
        let found = victim.with_flip(place * SEGMENT + offset);
        let told = find(&found, "damaged", place, offset);
        assert_eq!(told["region"], region["region"]);
        assert_eq!(told["number"], level["number"]);
    }
    let manifest = region["manifest"]["device_segments"][0].as_u64().unwrap();
    find(
        &victim.with_flip(manifest * SEGMENT + 60),
        "damaged",
        manifest,
        60,
    );
    let logs = region["version"]["logs"].as_array().unwrap();
    let sealed = logs
        .iter()
        .filter(|log| log["sealed_at"].as_u64() > Some(5000));
    for log in sealed.take(2) {
        let place = number(log, "device_segment");
        find(
            &victim.with_flip(place * SEGMENT + 4500),
            "damaged",
            place,
            4500,
        );
    }
    for at in [40, (64 << 10) + 9, (128 << 10) + 20, (1088 << 10) + 33] {
        let found = victim.with_flip(at);
        assert!(["superblock", "catalog"].contains(&found[0]["part"].as_str().unwrap()));
        find(&found, "damaged", 0, at);
    }

    // A stale block: an old superblock, and a leaf of an earlier segment, which is what a lost write leaves.
    let found = victim.with(0, &old_superblock);
    find(&found, "stale", 0, 0);
    let with_leaves = levels.iter().filter(|level| {
        let form = level["form"].as_str().unwrap();
        form == "leaves" || form == "self-contained"
    });
    let mut by_age: Vec<_> = with_leaves.collect();
    by_age.sort_by_key(|level| (number(level, "epoch"), number(level, "number")));
    let [earlier, .., later] = by_age.as_slice() else {
        panic!("several level segments: {levels:?}");
    };
    let leaf = victim.read(number(earlier, "device_segment") * SEGMENT, 8192);
    let at = number(later, "device_segment");
    let found = victim.with(at * SEGMENT, &leaf);
    let told = find(&found, "stale", at, 0);
    let what = told["what"].as_str().unwrap();
    assert!(what.contains(&earlier["number"].to_string()), "{told}");

    // A missing segment.
    let nothing = vec![0; usize::try_from(SEGMENT).unwrap()];
    find(&victim.with(place * SEGMENT, &nothing), "missing", place, 0);

    doubly_owned(&victim, place);
    differing_members(&dir, &victim, place * SEGMENT + 100);
    assert_eq!(verify(&victim.dir), Vec::<Value>::new());
}

/// The catalog says that `place`, which is a level's, belongs to a manifest as well.
fn doubly_owned(victim: &Victim, place: u64) {
    let taken = u32::try_from(place).unwrap();
    let slots = [128 << 10, 1088 << 10];
    let before = slots.map(|at| victim.read(at, 4096));
    for (at, slot) in slots.into_iter().zip(&before) {
        let changed = with_longer_chain(slot, taken, at);
        victim.device.write_all_at(&changed, at).unwrap();
    }
    let found = verify(&victim.dir);
    let told = find(&found, "doubly-owned", place, 0);
    assert!(told["what"].as_str().unwrap().contains("2 refer"), "{told}");
    for (at, slot) in slots.into_iter().zip(&before) {
        victim.device.write_all_at(slot, at).unwrap();
    }
}

/// A catalog in which the first region's manifest has one more device segment.
fn with_longer_chain(slot: &[u8], segment: u32, at: u64) -> Vec<u8> {
    let mut bytes = slot.to_vec();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    // Header of 32 bytes; a region is its id, two words of 8 bytes, the chain's length, the chain.
    let length = word(&bytes, 24);
    let count = word(&bytes, 52);
    let end = 56 + 4 * usize::try_from(count).unwrap();
    bytes.splice(end..end, segment.to_le_bytes());
    bytes.truncate(slot.len());
    bytes[52..56].copy_from_slice(&(count + 1).to_le_bytes());
    bytes[24..28].copy_from_slice(&(length + 4).to_le_bytes());
    let whole = usize::try_from(length + 4).unwrap();
    let identity = Identity::of_server(Kind::Catalog, u32::try_from(at).unwrap());
    let sum = extend(identity.checksum(&bytes[..12]), &bytes[16..whole]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// `compare` names the byte in which a member differs.
fn differing_members(dir: &Dir, victim: &Victim, at: u64) {
    let first = dir.0.join("server-0");
    let byte = victim.read(at, 1)[0];
    victim.device.write_all_at(&[byte ^ 1], at).unwrap();
    let (code, report) = inspect(&["compare", path(&first), path(&victim.dir)]);
    victim.device.write_all_at(&[byte], at).unwrap();
    assert_eq!(
        (code, &report["equal"]),
        (8, &Value::from(false)),
        "{report}"
    );
    assert_eq!(report["difference"]["offset"], at % SEGMENT, "{report}");
}

/// The tool for directories of servers looks into this one, too.
#[test]
fn checkpoints_are_inspected() {
    let dir = Dir(empty_dir("checkpoints"));
    let db = Db::builder()
        .memory(64 << 20)
        .device_bytes(1 << 30)
        .open(&dir.0)
        .unwrap();
    for fill in [1, 2] {
        // The second time every other one.
        for n in (0..3000_u32).step_by(fill.into()) {
            db.put(n.to_le_bytes(), vec![fill; 1200]).unwrap();
        }
        if fill == 1 {
            db.checkpoint("before").unwrap();
        }
    }
    db.compact().unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(verify(&dir.0), Vec::<Value>::new());
    let output = argosy().arg("inspect").arg(&dir.0).output().unwrap();
    let text = text(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("checkpoint "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.starts_with("checkpoint before: everything up to LSN 3000, "),
        "{line}"
    );
    assert!(!line.contains(", 0 of them its own"), "{line}");

    // What it alone keeps, and what of the large log is dead.
    let (_, json) = inspect(&[path(&dir.0)]);
    let checkpoint = &json["checkpoints"][0];
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let parts = ["level_segments", "medium_segments", "log_segments"];
    let parts: u64 = parts.iter().map(|part| number(checkpoint, part)).sum();
    assert_eq!(parts, number(checkpoint, "segments"), "{checkpoint}");
    let own = checkpoint["pinned"].as_array().unwrap();
    assert_eq!(own.len() as u64, number(checkpoint, "own_segments"));
    assert_eq!(number(checkpoint, "own_bytes"), (own.len() as u64) << 21);
    let owners = json["segments"].as_array().unwrap();
    for pinned in own {
        let place = number(pinned, "device_segment");
        let mut of_it = owners
            .iter()
            .filter(|owner| number(owner, "device_segment") == place);
        let of_it = of_it.next().unwrap();
        assert_eq!(of_it["owners"][0]["part"], "checkpoint", "{of_it}");
    }
    let logs = json["regions"][0]["version"]["logs"].as_array().unwrap();
    let mut dead = 0;
    for log in logs {
        if log["log"] == "large" {
            assert!(number(log, "dead") + number(log, "referenced") <= number(log, "held"));
            dead += number(log, "dead");
        } else {
            assert_eq!(log["dead"], Value::Null);
        }
    }
    assert!(dead > 1500 * 1200, "{json}");
}
