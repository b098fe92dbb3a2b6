//! Tests of the files' bytes: see [`super`].

use super::*;

fn put(key: &str, version: u64, owner: Option<u64>, value: &[u8]) -> StateChange {
    StateChange::Put {
        key: key.to_owned(),
        entry: Entry {
            version: EntryVersion(version),
            value: value.to_vec(),
            owner: owner.map(SessionId),
        },
    }
}

fn changes() -> Vec<StateChange> {
    let session = SessionId(5);
    vec![
        StateChange::Begin {
            session,
            timeout_ms: 1000,
        },
        put("a/b", 7, Some(5), b"value"),
        put("k", 1, None, b""),
        StateChange::Remove { key: "k".into() },
        StateChange::End { session },
    ]
}

fn transaction(effects: Effects) -> TransactionRecord {
    TransactionRecord {
        number: 3,
        previous: 0x0102_0304,
        effects,
    }
}

fn snapshot() -> SnapshotRecord {
    let mut state = State::default();
    for change in &changes()[..3] {
        state.apply(change, &mut Vec::new()).unwrap();
    }
    SnapshotRecord {
        generation: 2,
        number: 9,
        previous: 0x0102_0304,
        state,
    }
}

fn heartbeat() -> HeartbeatRecord {
    HeartbeatRecord {
        session: SessionId(5),
        counter: 6,
    }
}

/// Whether a file of any kind decodes.
fn decodes(file: &[u8]) -> bool {
    TransactionRecord::decode(file).is_ok()
        || SnapshotRecord::decode(file).is_ok()
        || HeartbeatRecord::decode(file).is_ok()
}

fn files() -> [Vec<u8>; 4] {
    [
        transaction(Effects::Changes(changes())).encode(),
        transaction(Effects::Seal).encode(),
        snapshot().encode(),
        heartbeat().encode(),
    ]
}

#[test]
fn what_is_encoded_is_decoded() {
    for effects in [
        Effects::Seal,
        Effects::Changes(vec![]),
        Effects::Changes(changes()),
    ] {
        let record = transaction(effects);
        let file = record.encode();
        assert!(file.len() <= TRANSACTION_BYTES_MAX);
        assert_eq!(TransactionRecord::decode(&file), Ok(record));
    }
    assert_eq!(SnapshotRecord::decode(&snapshot().encode()), Ok(snapshot()));
    let file = heartbeat().encode();
    assert_eq!(file.len(), HEARTBEAT_BYTES);
    assert_eq!(HeartbeatRecord::decode(&file), Ok(heartbeat()));
}

/// The bytes are stored: a change would make every existing directory unreadable.
#[test]
fn the_layout_never_changes() {
    let expected = [
        "6172676f7379636f 0200 01 00 263486bd 0300000000000000 04030201 05 \
         03 0500000000000000 e8030000 \
         01 03612f62 0700000000000000 0500000000000000 0576616c7565 \
         01 016b 0100000000000000 0000000000000000 00 \
         02 016b 04 0500000000000000",
        "6172676f7379636f 0200 01 00 15e40281 0300000000000000 04030201 01 05",
        "6172676f7379636f 0200 02 00 5740508b 0200000000000000 0900000000000000 04030201 \
         01 0500000000000000 e8030000 \
         02 03612f62 0700000000000000 0500000000000000 0576616c7565 \
         016b 0100000000000000 0000000000000000 00",
        "6172676f7379636f 0200 03 00 c6336bd1 0500000000000000 0600000000000000",
    ];
    for (file, expected) in files().iter().zip(expected) {
        let expected: String = expected.split_whitespace().collect();
        assert_eq!(hex::encode(file), expected);
    }
}

#[test]
fn damage_anywhere_is_found() {
    for good in files() {
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!decodes(&bytes), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(!decodes(&good[..len]), "cut at {len}");
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert!(!decodes(&longer));
    }
}

#[test]
fn each_kind_is_refused_as_another() {
    let [transaction, _, snapshot, heartbeat] = files();
    for other in [&snapshot, &heartbeat] {
        assert!(TransactionRecord::decode(other).is_err());
    }
    for other in [&transaction, &heartbeat] {
        assert!(SnapshotRecord::decode(other).is_err());
    }
    for other in [&transaction, &snapshot] {
        assert!(HeartbeatRecord::decode(other).is_err());
    }
}

#[test]
fn another_version_is_named() {
    for version in [0, 1, 3, u16::MAX] {
        let mut file = heartbeat().encode();
        file[8..10].copy_from_slice(&version.to_le_bytes());
        let error = HeartbeatRecord::decode(&file).unwrap_err();
        assert_eq!(error, "it was written by another version");
    }
}

/// What has the right checksum and cannot have been written.
#[test]
fn impossible_snapshots_are_refused() {
    let body = |sessions: &[u64], pairs: &[(&str, u64, u64)]| {
        let mut body = vec![0; 20];
        // The last transaction is 2.
        body[8] = 2;
        put_count(&mut body, sessions.len());
        for session in sessions {
            put_session(&mut body, SessionId(*session), 1000);
        }
        put_count(&mut body, pairs.len());
        for (key, version, owner) in pairs {
            let entry = Entry {
                version: EntryVersion(*version),
                value: vec![],
                owner: Some(SessionId(*owner)).filter(|owner| owner.0 > 0),
            };
            put_pair(&mut body, key, &entry);
        }
        sealed(FileKind::Snapshot, &body)
    };
    let decodes = |file: Vec<u8>| SnapshotRecord::decode(&file).is_ok();
    assert!(decodes(body(&[1, 2], &[("a", 1, 0), ("b", 1, 2)])));
    assert!(!decodes(body(&[3], &[])), "of a later transaction");
    assert!(!decodes(body(&[2, 1], &[])), "disorder");
    assert!(!decodes(body(&[1, 1], &[])), "twice");
    assert!(!decodes(body(&[], &[("b", 1, 0), ("a", 1, 0)])), "disorder");
    assert!(!decodes(body(&[], &[("a", 1, 0), ("a", 2, 0)])), "twice");
    assert!(!decodes(body(&[], &[("A", 1, 0)])), "no key");
    assert!(!decodes(body(&[], &[("a", 0, 0)])), "no version");
    assert!(
        !decodes(body(&[], &[("a", u64::MAX, 0)])),
        "the last version"
    );
    assert!(!decodes(body(&[1], &[("a", 1, 2)])), "no owner");
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
        let body: Vec<u8> = (0..next()).map(|_| next()).collect();
        let kinds = [
            FileKind::Transaction,
            FileKind::Snapshot,
            FileKind::Heartbeat,
        ];
        let _ = decodes(&body);
        // Behind a checksum that is right, decoding may succeed, and must not panic.
        let file = sealed(kinds[round as usize % 3], &body);
        if let Ok(record) = TransactionRecord::decode(&file) {
            assert_eq!(record.encode(), file);
        }
        if let Ok(record) = SnapshotRecord::decode(&file) {
            assert_eq!(record.encode(), file);
        }
        if let Ok(record) = HeartbeatRecord::decode(&file) {
            assert_eq!(record.encode(), file);
        }
    }
}
