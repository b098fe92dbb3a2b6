//! RocksDB through our interface: what is written is read, and what is counted is there.

mod common;

use argosy_peers::rocksdb::{LogBytes, PeerError, RocksDb, RocksDbSettings};
use common::owned;

const SETTINGS: RocksDbSettings = RocksDbSettings {
    write_buffer_bytes: 64 << 10,
    write_buffers: 2,
    cache_bytes: 1 << 20,
    background_jobs: 2,
    bloom_bits: 10,
    sync: false,
};

#[test]
fn what_is_written_is_read_also_after_closing() {
    let dir = tempfile::tempdir().unwrap();
    let key = |n: u32| format!("{:08x}", n.wrapping_mul(2_654_435_761)).into_bytes();
    let value = |n: u32| vec![n.to_string().as_bytes()[0]; (n % 700) as usize];
    {
        let db = RocksDb::open(dir.path(), &SETTINGS).unwrap();
        for n in 0..5000 {
            db.put(&key(n), &value(n)).unwrap();
        }
        db.delete(&key(7)).unwrap();
        while db.pending().unwrap() > 0 {
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        // 1.7 MB through memtables of 64 KiB.
        assert!(db.compactions().unwrap() > 10);
        assert!(db.levels().unwrap() >= 1);
    }
    let db = RocksDb::open(dir.path(), &SETTINGS).unwrap();
    for n in 0..5000 {
        let expected = (n != 7).then(|| value(n));
        assert_eq!(db.get(&key(n), owned).unwrap(), expected, "{n}");
    }
    assert_eq!(db.get(b"absent", owned).unwrap(), None);
    db.flush().unwrap();
    assert_eq!(db.pending().unwrap(), 0);
}

#[test]
fn scans_are_in_order_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = RocksDb::open(dir.path(), &SETTINGS).unwrap();
    for n in [3, 1, 2, 5] {
        db.put(format!("k{n}").as_bytes(), &[n]).unwrap();
    }
    db.delete(b"k2").unwrap();
    let scan = |from: &str, count| {
        let mut found = Vec::new();
        let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        db.scan(from.as_bytes(), count, each).unwrap();
        found
    };
    let pair = |n: u8| (format!("k{n}").into_bytes(), vec![n]);
    assert_eq!(scan("", 10), [pair(1), pair(3), pair(5)]);
    assert_eq!(scan("k2", 1), [pair(3)]);
    assert_eq!(scan("k6", 1), []);
}

#[test]
fn log_bytes_are_those_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let settings = RocksDbSettings {
        write_buffer_bytes: 64 << 20,
        ..SETTINGS
    };
    let db = RocksDb::open(dir.path(), &settings).unwrap();
    let mut counted = LogBytes::default();
    for n in 0..3000_usize {
        // Of all lengths, so that pieces end in every way at a block's end.
        let (key, value) = (vec![b'k'; 1 + n % 200], vec![b'v'; n % 1300]);
        db.put(&key, &value).unwrap();
        counted.put(key.len(), value.len());
    }
    let mut lengths = Vec::new();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            lengths.push(path.metadata().unwrap().len());
        }
    }
    assert_eq!(lengths, [counted.get()]);
}

#[test]
fn what_fails_says_what_and_why() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"").unwrap();
    let error = RocksDb::open(&dir.path().join("file"), &SETTINGS).unwrap_err();
    assert!(matches!(error, PeerError::Refused { .. }));
    let said = error.to_string();
    assert!(
        said.starts_with("RocksDB could not open its directory: "),
        "{said}"
    );
    // The directory is locked by the first.
    let inside = dir.path().join("db");
    let first = RocksDb::open(&inside, &SETTINGS).unwrap();
    assert!(RocksDb::open(&inside, &SETTINGS).is_err());
    drop(first);
    assert!(RocksDb::open(&inside, &SETTINGS).is_ok());
}

#[test]
fn settings_print_themselves() {
    let settings = RocksDbSettings::within(256 << 20, 64 << 20);
    assert_eq!(settings.cache_bytes, 128 << 20);
    let text = settings.to_string();
    for part in [
        "write_buffer_size=67108864",
        "block_cache=134217728",
        "compression=none",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
