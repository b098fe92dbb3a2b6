//! Checkpoints, as a program sees them.

use argosy_embedded::{Error, Remedy};

use crate::support::{Dir, small};

#[test]
fn a_checkpoint_is_what_the_store_was() {
    let dir = Dir::new("checkpoint");
    let db = small().open(&dir).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_le_bytes(), vec![1; 1200]).unwrap();
    }
    let made = db.checkpoint("one").unwrap();
    assert_eq!(made.version, 2000);
    for n in 0..2000_u32 {
        db.put(n.to_le_bytes(), vec![2; 1200]).unwrap();
    }
    db.compact().unwrap();
    db.checkpoint("two").unwrap();
    db.close().unwrap();
    drop(db);

    let db = small().open(&dir).unwrap();
    let names: Vec<_> = db.checkpoints().into_iter().map(|each| each.name).collect();
    assert_eq!(names, ["one", "two"]);
    for (name, fill) in [("one", 1), ("two", 2)] {
        let then = db.open_checkpoint(name).unwrap();
        let all = then.iter().map(|pair| pair.unwrap());
        let right = all.filter(|(_, value)| *value == vec![fill; 1200]);
        assert_eq!(right.count(), 2000, "{name}");
        assert_eq!(then.get([7, 0, 0, 0]).unwrap(), Some(vec![fill; 1200]));
    }
    let used = db.stats().device.used_bytes;
    db.drop_checkpoint("one").unwrap();
    db.drop_checkpoint("two").unwrap();
    assert!(db.stats().device.used_bytes < used);
    assert!(db.checkpoints().is_empty());
    assert_eq!(db.iter().count(), 2000);
}

#[test]
fn what_is_wrong_with_a_name_is_said() {
    let dir = Dir::new("checkpoint-names");
    let db = small().open(&dir).unwrap();
    // Of a store without anything in it, too.
    db.checkpoint("a").unwrap();
    for error in [
        db.checkpoint("a").unwrap_err(),
        db.checkpoint("").unwrap_err(),
        db.open_checkpoint("b").unwrap_err(),
        db.drop_checkpoint("b").unwrap_err(),
    ] {
        assert!(matches!(error, Error::Checkpoint(_)), "{error}");
        assert_eq!(error.remedy(), Remedy::Correct);
    }
    assert_eq!(db.open_checkpoint("a").unwrap().iter().count(), 0);
}
