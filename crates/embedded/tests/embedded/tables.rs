//! Named tables of one store.

use std::time::Duration;

use argosy_embedded::{Change, Changed, Condition, Error, KeyRange, Outcome, Table, WriteBatch};

use crate::support::{Dir, small};

fn pairs(scan: impl Iterator<Item = argosy_embedded::Result<(Vec<u8>, Vec<u8>)>>) -> Vec<String> {
    let shown = scan.map(|pair| {
        let (key, value) = pair.unwrap();
        format!("{}={}", key.escape_ascii(), value.escape_ascii())
    });
    shown.collect()
}

#[test]
fn each_table_has_keys_of_its_own_that_lie_where_it_is_documented() {
    let dir = Dir::new("tables");
    let db = small().open(&dir).unwrap();
    let [a, ab] = ["a", "ab"].map(|name| db.table(name).unwrap());
    assert_eq!(a.name(), b"a");
    a.put("1", "one").unwrap();
    a.put("", "no key at all").unwrap();
    a.put([0xff; 4], "last").unwrap();
    ab.put("1", "other").unwrap();
    db.put("a", "no table").unwrap();
    db.put("b", "no table").unwrap();
    assert_eq!(a.get("1").unwrap().unwrap(), b"one");
    assert_eq!(db.get("a\x001").unwrap().unwrap(), b"one");
    assert_eq!(a.key("1"), b"a\x001");
    assert_eq!(
        ab.get_many(["1", "2"]).unwrap(),
        [Some(b"other".to_vec()), None]
    );
    assert!(a.contains_key("1").unwrap() && !ab.contains_key("").unwrap());
    let all = ["=no key at all", "1=one", "\\xff\\xff\\xff\\xff=last"];
    assert_eq!(pairs(a.iter()), all);
    assert_eq!(pairs(a.iter().rev()), [all[2], all[1], all[0]]);
    assert_eq!(pairs(ab.iter()), ["1=other"]);
    assert_eq!(pairs(a.range("1"..)).len(), 2);
    assert_eq!(pairs(a.range(.."1")), [all[0]]);
    assert_eq!(pairs(a.range("2".."1")), [""; 0]);
    assert_eq!(pairs(a.prefix([0xff])), [all[2]]);
    assert_eq!(pairs(a.range(KeyRange::prefix(b"1"))), [all[1]]);
    assert_eq!(db.range(..).count(), 6);

    a.delete_range("0"..="1").unwrap();
    assert!(a.delete("").unwrap());
    assert_eq!(pairs(a.iter()), [all[2]]);
    a.clear().unwrap();
    assert_eq!(pairs(a.iter()), [""; 0]);
    assert_eq!(db.range(..).count(), 3, "the others are there");
}

#[test]
fn batches_and_snapshots_are_of_all_tables_at_once() {
    let dir = Dir::new("tables-together");
    let db = small().open(&dir).unwrap();
    let tables: [Table; 2] = ["from", "to"].map(|name| db.table(name).unwrap());
    let [from, to] = &tables;
    from.put("k", "v").unwrap();
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.delete(from.key("k")).unwrap();
    batch.put(to.key("k"), "v").unwrap();
    batch
        .put_until(to.key("l"), format!("{}", 1), Default::default())
        .unwrap();
    db.write(&batch).unwrap();
    assert_eq!(pairs(from.at(&before).iter()), ["k=v"]);
    assert_eq!(pairs(to.at(&before).iter()), [""; 0]);
    let after = db.snapshot();
    assert_eq!(from.at(&after).get("k").unwrap(), None);
    assert_eq!(pairs(to.at(&after).range(.."l")), ["k=v"]);
    assert_eq!(pairs(to.iter().read_ahead_at_most(1)), ["k=v", "l=1"]);
}

#[test]
fn writes_of_tables_are_those_of_the_store() {
    let dir = Dir::new("tables-writes");
    let db = small().open(&dir).unwrap();
    let table = db.table(b"counts\xff").unwrap();
    assert_eq!(
        table.change("n", Change::Add(2), "").unwrap(),
        Changed::Number(2)
    );
    assert!(!table.put_if("n", "3", Condition::Absent).unwrap());
    assert!(
        table
            .compare_and_swap("n", Some("2"), Some("twelve"))
            .unwrap()
    );
    assert!(table.compare_and_swap("n", Some(b"twelve"), None).unwrap());
    assert!(
        table
            .compare_and_swap("n", None, Some(&vec![7; 9]))
            .unwrap()
    );
    table.put_with_ttl("n", "gone", Duration::ZERO).unwrap();
    assert_eq!(table.get("n").unwrap(), None);
    for name in [&b""[..], b"a\0b", &[b'n'; 256]] {
        let error = db.table(name).unwrap_err();
        assert!(matches!(error, Error::TableName(_)), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    db.table([b'n'; 255]).unwrap();
}
