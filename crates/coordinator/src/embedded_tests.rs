//! Tests of the embedded coordinator: see [`super`].

use super::*;

fn set(key: &str, expected: u64, value: &str) -> Request {
    Request::CompareAndSet {
        key: key.to_owned(),
        expected: EntryVersion(expected),
        value: value.into(),
    }
}

fn ask(coordinator: &mut Embedded, request: Request) -> Result<Entry, CoordinatorError> {
    let id = coordinator.submit(request);
    let (answered, answer) = coordinator.poll().unwrap();
    assert_eq!(answered, id);
    answer
}

#[test]
fn what_is_set_is_read_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut coordinator = Embedded::open(dir.path()).unwrap();
    let nothing = ask(&mut coordinator, Request::Read { key: "k".into() }).unwrap();
    assert_eq!(nothing, Entry::default());
    for n in 0..3 {
        let entry = ask(
            &mut coordinator,
            set("k", n, &format!("value {n}\nline two")),
        )
        .unwrap();
        assert_eq!(entry.version, EntryVersion(n + 1));
    }
    ask(&mut coordinator, set("other", 0, "")).unwrap();
    drop(coordinator);
    let coordinator = Embedded::open(dir.path()).unwrap();
    let entry = coordinator.read_now("k").unwrap();
    assert_eq!(
        (entry.version, entry.value),
        (EntryVersion(3), b"value 2\nline two".to_vec())
    );
    assert_eq!(
        coordinator.read_now("other").unwrap().version,
        EntryVersion(1)
    );
}

#[test]
fn a_change_based_on_an_old_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = Embedded::open(dir.path()).unwrap();
    let mut two = Embedded::open(dir.path()).unwrap();
    ask(&mut one, set("k", 0, "one")).unwrap();
    let error = ask(&mut two, set("k", 0, "two")).unwrap_err();
    assert!(
        matches!(
            error,
            CoordinatorError::Conflict {
                found: EntryVersion(1),
                ..
            }
        ),
        "{error}"
    );
    ask(&mut two, set("k", 1, "two")).unwrap();
    assert_eq!(one.read_now("k").unwrap().value, b"two");
}

#[test]
fn a_change_waits_for_the_lock_and_a_read_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = Embedded::open(dir.path()).unwrap();
    let holder = Embedded::open(dir.path()).unwrap();
    flock(&holder.lock, FlockOperation::LockExclusive).unwrap();
    let id = one.submit(set("k", 0, "late"));
    assert!(one.poll().is_none());
    assert_eq!(one.read_now("k").unwrap(), Entry::default());
    // A holder that dies gives the lock up.
    drop(holder);
    let (answered, answer) = one.poll().unwrap();
    assert_eq!(answered, id);
    assert_eq!(answer.unwrap().version, EntryVersion(1));
}

#[test]
fn counting_together_loses_no_count() {
    let dir = tempfile::tempdir().unwrap();
    let count = |coordinator: &Embedded| -> u64 {
        let entry = coordinator.read_now("count").unwrap();
        String::from_utf8(entry.value).unwrap().parse().unwrap_or(0)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let coordinator = Embedded::open(dir.path()).unwrap();
                let mut left = 25;
                while left > 0 {
                    let entry = coordinator.read_now("count").unwrap();
                    let text = String::from_utf8(entry.value).unwrap();
                    let next = text.parse().unwrap_or(0u64) + 1;
                    let value = next.to_string().into_bytes();
                    match coordinator.set_now("count", entry.version, value) {
                        Ok(_) => left -= 1,
                        Err(CoordinatorError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(count(&Embedded::open(dir.path()).unwrap()), 100);
}

#[test]
fn bad_keys_never_reach_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Embedded::open(dir.path()).unwrap();
    for key in ["", "../k", "K", "a/b", "lock file"] {
        let error = coordinator.read_now(key).unwrap_err();
        assert!(matches!(error, CoordinatorError::BadKey { .. }), "{key:?}");
        assert!(coordinator.set_now(key, EntryVersion(0), vec![]).is_err());
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "the lock"
    );
}

#[test]
fn a_key_named_like_the_lock_is_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Embedded::open(dir.path()).unwrap();
    coordinator
        .set_now("lock", EntryVersion(0), b"v".to_vec())
        .unwrap();
    assert_eq!(coordinator.read_now("lock").unwrap().value, b"v");
}

/// The bytes are stored: a change would make every existing directory unreadable.
#[test]
fn the_layout_never_changes() {
    let entry = Entry {
        version: EntryVersion(7),
        value: b"value".to_vec(),
    };
    let file = encode("key", &entry);
    let expected = "argosy.coordinator.v1 key=key version=7 bytes=5 checksum=31d74573\nvalue";
    assert_eq!(String::from_utf8(file).unwrap(), expected);
    assert_eq!(decode("key", expected.as_bytes()), Ok(entry));
}

#[test]
fn damage_anywhere_is_found() {
    let entry = Entry {
        version: EntryVersion(7),
        value: b"some bytes".to_vec(),
    };
    let good = encode("key", &entry);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // The checksum's digits have a second form each: upper-case.
        let same = decode("key", &bytes).is_ok_and(|found| found == entry);
        let case = bytes.eq_ignore_ascii_case(&good);
        assert!(decode("key", &bytes).is_err() || same && case, "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(decode("key", &good[..len]).is_err(), "cut at {len}");
    }
    assert!(decode("other", &good).is_err());
}

#[test]
fn random_files_are_refused() {
    let mut state = 1u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33).to_le_bytes()[0]
    };
    for round in 0..20_000u32 {
        let mut bytes: Vec<u8> = (0..next()).map(|_| next()).collect();
        if round % 2 == 0 {
            let head = b"argosy.coordinator.v1 key=k version=";
            bytes.splice(0..0, head.iter().copied());
            bytes.push(b'\n');
        }
        assert!(decode("k", &bytes).is_err());
    }
}

#[test]
fn a_damaged_or_later_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Embedded::open(dir.path()).unwrap();
    for (text, word) in [
        ("garbage\n", "no file of a coordinator"),
        ("argosy.coordinator.v2 whatever\n", "later version"),
        ("", "header line"),
    ] {
        std::fs::write(dir.path().join("k.value"), text).unwrap();
        let error = coordinator.read_now("k").unwrap_err();
        assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("k.value") && message.contains(word),
            "{message}"
        );
        // It is not overwritten either.
        assert!(coordinator.set_now("k", EntryVersion(0), vec![]).is_err());
    }
}

#[test]
fn what_a_crash_left_half_written_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Embedded::open(dir.path()).unwrap();
    coordinator
        .set_now("k", EntryVersion(0), b"old".to_vec())
        .unwrap();
    std::fs::write(dir.path().join("k.new"), b"half").unwrap();
    assert_eq!(coordinator.read_now("k").unwrap().value, b"old");
    coordinator
        .set_now("k", EntryVersion(1), b"new".to_vec())
        .unwrap();
    assert_eq!(coordinator.read_now("k").unwrap().value, b"new");
}
