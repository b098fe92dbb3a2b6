//! `argosy inspect dump`, `scrub` and `repair`, and scrubbing in the background, on an embedded store: what is
//! damaged is found and named, and a repair makes a new store of everything else.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use argosy_embedded::Db;
use serde_json::Value;

use crate::inspect_command::{Dir, inspect, path};
use crate::support::{argosy, empty_dir, text, until};

const SEGMENT: u64 = 2 << 20;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(dir: &Path, scrub: Duration) -> Db {
    let builder = Db::builder().memory(64 << 20).device_bytes(128 << 20);
    builder.scrub_period(scrub).open(dir).unwrap()
}

/// A store with levels, all classes of values, and a tail that is in the logs alone.
fn loaded(dir: &Path) -> Model {
    let db = open(dir, Duration::ZERO);
    let mut model = Model::new();
    for n in 0..12_000_u32 {
        let key = format!("{:05}", n * 7919 % 9000).into_bytes();
        let mut value = format!("{n}:").into_bytes();
        value.resize([30, 300, 30, 2000][n as usize % 4], b'v');
        if n == 11_000 {
            db.compact().unwrap();
        }
        if n % 50 == 7 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    db.close().unwrap();
    model
}

fn all(dir: &Path) -> Model {
    let db = open(dir, Duration::ZERO);
    db.iter().map(Result::unwrap).collect()
}

/// The bytes of a device, in one number for each megabyte.
fn print_of(device: &Path) -> Vec<u32> {
    let file = File::open(device).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let len = file.metadata().unwrap().len();
    (0..len >> 20)
        .map(|megabyte| {
            file.read_exact_at(&mut bytes, megabyte << 20).unwrap();
            argosy_base::checksum::extend(0, &bytes)
        })
        .collect()
}

/// Flips a bit in the middle of the first leaves of a segment of the last level. The segment's number.
pub(crate) fn damage(dir: &Path) -> u64 {
    let (_, report) = inspect(&[path(dir), "--section", "levels"]);
    let levels = report["regions"][0]["version"]["levels"]
        .as_array()
        .unwrap()
        .clone();
    let victim = levels.last().unwrap();
    let place = victim["device_segment"].as_u64().unwrap();
    let mut options = File::options();
    let device = options
        .read(true)
        .write(true)
        .open(dir.join("device"))
        .unwrap();
    let at = place * SEGMENT + 3 * 4096 + 2000;
    let mut byte = [0];
    device.read_exact_at(&mut byte, at).unwrap();
    device.write_all_at(&[byte[0] ^ 4], at).unwrap();
    victim["number"].as_u64().unwrap()
}

fn key_of(view: &Value) -> Vec<u8> {
    // These keys are digits, with at most a zero byte behind them.
    let text = view["text"].as_str().unwrap();
    text.replace("\\x00", "\0").into_bytes()
}

#[test]
fn damage_is_named_and_everything_else_is_kept() {
    let dir = Dir(empty_dir("repair"));
    let store = dir.0.join("store");
    let model = loaded(&store);
    let (code, report) = inspect(&["scrub", path(&store), "--rate", "1GiB"]);
    assert_eq!((code, &report["ok"]), (0, &Value::from(true)), "{report}");
    assert!(report["segments"].as_u64().unwrap() > 2, "{report}");
    whole_dump(&store);

    // Of a whole store the copy is whole.
    let copy = dir.0.join("copy");
    let (code, report) = inspect(&["repair", path(&store), "--to", path(&copy)]);
    assert_eq!((code, &report["ok"]), (0, &Value::from(true)), "{report}");
    assert!(all(&copy) == model);
    let again = argosy()
        .args(["inspect", "repair", path(&store), "--to", path(&copy)])
        .output();
    let again = again.unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));

    let number = damage(&store);
    let before = print_of(&store.join("device"));
    let (code, report) = inspect(&["scrub", path(&store)]);
    assert_eq!(code, 8, "{report}");
    let told = &report["damages"][0];
    assert_eq!(told["number"].as_u64(), Some(number), "{report}");
    let (code, dump) = inspect(&["dump", path(&store), "--segment", &number.to_string()]);
    assert_eq!(code, 0);
    let items = dump["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["type"] == "damage"), "{dump}");

    let repaired = dir.0.join("repaired");
    let (code, report) = inspect(&["repair", path(&store), "--to", path(&repaired)]);
    assert_eq!((code, &report["ok"]), (8, &Value::from(false)), "{report}");
    let damages = report["regions"][0]["damages"].as_array().unwrap();
    let ranges: Vec<_> = damages
        .iter()
        .flat_map(|d| d["keys"].as_array().unwrap())
        .collect();
    let lost = |key: &Vec<u8>| {
        ranges.iter().any(|range| {
            let to = &range["to"];
            *key >= key_of(&range["from"]) && (to.is_null() || *key < key_of(to))
        })
    };
    let found = all(&repaired);
    let mut missing = 0;
    for (key, value) in &model {
        match found.get(key) {
            Some(other) => assert!(other == value, "{}", key.escape_ascii()),
            None => {
                assert!(lost(key), "{}: {report}", key.escape_ascii());
                missing += 1;
            }
        }
    }
    assert!((1..500).contains(&missing), "{missing} of a leaf");
    assert!(
        before == print_of(&store.join("device")),
        "the damaged store is as it was"
    );

    // A store that is open finds it by itself, once, and goes on.
    let db = open(&store, Duration::from_millis(1));
    until("the damage is found", || db.stats().scrub.damages == 1);
    until("everything is read again", || db.stats().scrub.passes >= 2);
    let damages = db.damages();
    assert_eq!(damages.len(), 1);
    assert_eq!(damages[0].number.0, number);
    assert!(
        damages[0].keys.iter().all(|range| !range.from.is_empty()),
        "{}",
        damages[0]
    );
    db.put("new", "value").unwrap();
    assert_eq!(db.get("new").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A dump shows every kind of piece, and no more than it may.
fn whole_dump(store: &Path) {
    let (code, dump) = inspect(&["dump", path(store), "--limit", "1000000"]);
    assert_eq!((code, &dump["more"]), (0, &Value::from(false)));
    let items = dump["items"].as_array().unwrap();
    for kind in ["checkpoint", "segment", "leaf", "pair", "put"] {
        assert!(items.iter().any(|item| item["type"] == kind), "no {kind}");
    }
    assert!(items.iter().all(|item| item["type"] != "damage"));
    let (_, some) = inspect(&["dump", path(store), "--limit", "40"]);
    assert_eq!(some["more"], true);
    assert_eq!(some["items"].as_array().unwrap()[..], items[..40]);
    let none = argosy()
        .args(["inspect", "dump", path(store), "--segment", "999999"])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(3), "{}", text(&none.stderr));
}
