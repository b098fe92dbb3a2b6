//! A store with a damaged block: reads of the block fail, merges skip it and count that, and writes succeed.

use std::os::unix::fs::FileExt;
use std::path::Path;

use argosy_embedded::Builder;

use crate::support::{Dir, Random, small};

const KEYS: u64 = 6000;
/// Whose value is damaged.
const VICTIM: u64 = 3000;
/// Bytes of the device that are looked through at a time.
const CHUNK: usize = 64 << 10;

fn store() -> Builder {
    small().device_bytes(512 << 20)
}

fn key(number: u64) -> String {
    format!("{number:06}")
}

fn value(number: u64) -> Vec<u8> {
    Random::new(number + 1).bytes(60)
}

/// Flips a bit of `bytes` wherever they lie on the device. Returns in how many places.
fn flip(store: &Path, bytes: &[u8]) -> usize {
    let path = store.join("device");
    let held = std::fs::read(&path).unwrap();
    let zeros = [0; CHUNK];
    let chunks = held.chunks(CHUNK).enumerate();
    let written = chunks.filter(|(_, chunk)| **chunk != zeros[..chunk.len()]);
    let places = written.flat_map(|(chunk, there)| {
        let found = there.windows(bytes.len()).enumerate();
        let found = found.filter(|(_, there)| *there == bytes);
        found.map(move |(at, found)| (chunk * CHUNK + at, found[0]))
    });
    let places: Vec<_> = places.collect();
    let device = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    for (at, byte) in &places {
        device.write_all_at(&[byte ^ 4], *at as u64).unwrap();
    }
    places.len()
}

#[test]
fn what_cannot_be_read_is_told_and_writing_goes_on() {
    let dir = Dir::new("damaged");
    let db = store().open(&dir).unwrap();
    for number in 0..KEYS {
        db.put(key(number), value(number)).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    drop(db);
    assert!(flip(dir.as_ref(), &value(VICTIM)) > 0);

    let db = store().open(&dir).unwrap();
    let error = db.get(key(VICTIM)).unwrap_err().to_string();
    assert!(error.contains("byte"), "it names the place: {error}");
    for number in (0..KEYS).filter(|number| number % 2 == 1) {
        db.put(key(number), value(number + KEYS)).unwrap();
    }
    db.compact().unwrap();
    let damage = db.stats().engine.damage;
    assert!(damage.merges_passed > 0, "{damage:?}");
    assert_eq!(db.damaged_segments().len(), 1);

    let mut lost = 0;
    for number in 0..KEYS {
        let written = value(number + KEYS * (number % 2));
        match db.get(key(number)) {
            Ok(found) => assert_eq!(found, Some(written), "{number}"),
            Err(error) => {
                assert!(error.to_string().contains("byte"), "{number}: {error}");
                lost += 1;
            }
        }
    }
    assert!((1..KEYS / 20).contains(&lost), "{lost} cannot be read");
    db.put(key(VICTIM), "anew").unwrap();
    assert_eq!(db.get(key(VICTIM)).unwrap().as_deref(), Some(&b"anew"[..]));
    db.close().unwrap();
}
