//! The peers that are crates, through our interface: what is written is read, in order, and what is counted is
//! there.

mod common;

use argosy_peers::{bf_tree, fjall};
use common::owned;

fn key(n: u32) -> Vec<u8> {
    format!("{:08x}", n.wrapping_mul(2_654_435_761)).into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    vec![n.to_string().as_bytes()[0]; (1 + n % 700) as usize]
}

/// The keys of 0 up to `n` but 7, in order.
fn sorted(n: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..n).filter(|n| *n != 7).collect();
    numbers.sort_by_key(|n| key(*n));
    numbers
}

#[test]
fn fjall_has_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let settings = fjall::FjallSettings::within(2 << 20, 64 << 10);
    let store = fjall::Fjall::open(dir.path(), &settings).unwrap();
    for n in 0..5000 {
        store.put(&key(n), &value(n)).unwrap();
    }
    store.delete(&key(7)).unwrap();
    while store.pending() > 0 {
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
    assert!(store.levels() >= 1, "1.7 MB through memtables of 64 KiB");
    for n in 0..5000 {
        let expected = (n != 7).then(|| value(n));
        assert_eq!(store.get(&key(n), owned).unwrap(), expected, "{n}");
    }
    assert_eq!(store.get(b"absent", owned).unwrap(), None);
    let numbers = sorted(5000);
    let mut found = Vec::new();
    let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
    store.scan(&key(numbers[100]), 50, each).unwrap();
    let expected = numbers[100..150].iter().map(|n| (key(*n), value(*n)));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn bf_tree_has_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let settings = bf_tree::BfTreeSettings::within(1 << 20);
    let store = bf_tree::BfTree::open(dir.path(), &settings).unwrap();
    for n in 0..3000 {
        store.put(&key(n), &value(n)).unwrap();
    }
    store.delete(&key(7));
    for n in 0..3000 {
        let expected = (n != 7).then(|| value(n));
        assert_eq!(store.get(&key(n), owned).unwrap(), expected, "{n}");
    }
    assert_eq!(store.get(b"absent", owned).unwrap(), None);
    let numbers = sorted(3000);
    let mut found = Vec::new();
    let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
    store.scan(&key(numbers[100]), 50, each).unwrap();
    let expected = numbers[100..150].iter().map(|n| (key(*n), value(*n)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert!(
        store.put(&[b'k'; 100], b"v").is_err(),
        "a key that it does not take"
    );
    assert!(
        dir.path().join("log").metadata().unwrap().len() > 0,
        "its log is on"
    );
}
