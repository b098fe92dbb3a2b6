//! Several threads, one store.

use std::sync::Barrier;

use argosy_embedded::Durability;

use crate::support::{Dir, small};

#[test]
fn writes_of_several_threads_share_syncs() {
    const THREADS: u32 = 8;
    const EACH: u32 = 50;
    let dir = Dir::new("group");
    let db = small().durability(Durability::Sync).open(&dir).unwrap();
    let before = db.stats().device.syncs;
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, barrier) = (db.clone(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                for n in 0..EACH {
                    let key = (thread * EACH + n).to_le_bytes();
                    db.put(key, b"v").unwrap();
                    assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"v"[..]));
                }
            });
        }
    });
    assert!(db.stats().durable);
    let syncs = db.stats().device.syncs - before;
    let writes = u64::from(THREADS * EACH);
    assert!(syncs < writes, "{syncs} syncs for {writes} writes");
    assert_eq!(db.iter().count() as u64, writes);
}

#[test]
fn a_snapshot_stays_while_others_write() {
    let dir = Dir::new("view");
    let db = small().open(&dir).unwrap();
    for n in 0..1000_u32 {
        db.put(n.to_le_bytes(), b"first").unwrap();
    }
    let snapshot = db.snapshot();
    std::thread::scope(|scope| {
        let writer = db.clone();
        scope.spawn(move || {
            for round in 0..20_u32 {
                for n in 0..1000_u32 {
                    writer
                        .put(n.to_le_bytes(), format!("{round}").as_bytes())
                        .unwrap();
                }
            }
        });
        for _ in 0..10 {
            let all = snapshot.iter().map(|pair| pair.unwrap());
            assert_eq!(all.filter(|(_, value)| value == b"first").count(), 1000);
        }
    });
    assert_eq!(
        snapshot.get(7_u32.to_le_bytes()).unwrap().as_deref(),
        Some(&b"first"[..])
    );
    assert_eq!(
        db.get(7_u32.to_le_bytes()).unwrap().as_deref(),
        Some(&b"19"[..])
    );
}
