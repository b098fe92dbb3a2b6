//! Edits return from their bytes, equal edits are equal bytes, and no bytes make the decoder panic.

use argosy_base::{ClientId, RequestName};
use proptest::prelude::*;

use super::*;
use crate::names::form::HEIGHT_MAX;
use crate::names::logs::{LARGE_LOG, RECOVERY_LOG};

fn number() -> impl Strategy<Value = SegmentNumber> {
    prop_oneof![1u64..200, Just(SegmentNumber::MAX.0)].prop_map(SegmentNumber)
}

fn offset() -> impl Strategy<Value = u32> {
    0..=u32::try_from(SEGMENT_SIZE).unwrap()
}

fn range() -> impl Strategy<Value = KeyRange> {
    let bound = prop::collection::vec(any::<u8>(), 0..40);
    (bound.clone(), prop::option::of(bound)).prop_map(|(from, to)| KeyRange { from, to })
}

fn place() -> impl Strategy<Value = Place> {
    (MEDIUM_LOG..=LEVELS_MAX, any::<u64>(), number()).prop_map(|(level, run, number)| Place {
        level,
        run: RunId(run),
        number,
    })
}

fn log() -> impl Strategy<Value = LogId> {
    prop_oneof![Just(RECOVERY_LOG), Just(LARGE_LOG)]
}

fn point() -> impl Strategy<Value = LogPoint> {
    (log(), number(), offset()).prop_map(|(log, number, to)| LogPoint { log, number, to })
}

prop_compose! {
    fn level_segment()(
        number in number(),
        epoch in any::<u32>(),
        len in offset(),
        checksum in any::<u32>(),
        entries in any::<u32>(),
        tombstones in any::<u32>(),
        range in range(),
        large_bytes in any::<u64>(),
        medium_bytes in any::<u64>(),
        form in form(),
    ) -> LevelSegment {
        let epoch = Epoch(epoch);
        LevelSegment {
            number, epoch, len, checksum, entries, tombstones, large_bytes, medium_bytes, range, form,
        }
    }
}

/// Self-contained in most cases, so that edits without trees come up.
fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        8 => Just(Form::SelfContained),
        1 => Just(Form::Leaves),
        1 => (1..=HEIGHT_MAX).prop_map(Form::Index),
        1 => Just(Form::Medium),
    ]
}

prop_compose! {
    fn tree()(
        number in number(),
        offset in 0..100u32,
        nodes in 1..=16u32,
        height in 0..=HEIGHT_MAX,
    ) -> Tree {
        Tree { root: Pointer::new(number, offset * 512), len: nodes * 512, height }
    }
}

prop_compose! {
    fn log_segment()(
        log in log(),
        ordinal in any::<u64>(),
        number in number(),
        epoch in any::<u32>(),
        base_lsn in any::<u64>(),
        end in prop::option::of(offset()),
    ) -> LogSegment {
        let (epoch, base_lsn) = (Epoch(epoch), Lsn(base_lsn));
        LogSegment { log, ordinal, number, epoch, base_lsn, end }
    }
}

fn reference() -> impl Strategy<Value = Reference> {
    (number(), any::<u64>(), any::<u64>()).prop_map(|(number, added, dropped)| Reference {
        number,
        added,
        dropped,
    })
}

fn duplicates() -> impl Strategy<Value = Arc<Duplicates>> {
    prop::collection::vec((1..6_u64, 1..60_u64), 0..80).prop_map(|requests| {
        let mut table = Duplicates::default();
        for (lsn, (client, seq)) in (1..).zip(requests) {
            let client = ClientId(client);
            table.note(RequestName { client, seq }, Lsn(lsn));
        }
        Arc::new(table)
    })
}

prop_compose! {
    fn edit()(
        (seq, epoch, checkpoint) in (any::<u64>(), any::<u32>(), any::<bool>()),
        replay_from in prop::option::of(any::<u64>()),
        durable in prop::option::of(any::<u64>()),
        (mark, own_mark) in (prop::option::of(number()), prop::option::of(number())),
        follows in prop::option::of(any::<u64>()),
        removed in prop::collection::vec(place(), 0..4),
        bounds in prop::collection::vec((place(), range()), 0..4),
        added in prop::collection::vec((1..=LEVELS_MAX, any::<u64>(), level_segment()), 0..4),
        logs_added in prop::collection::vec(log_segment(), 0..4),
        logs_sealed in prop::collection::vec(point(), 0..4),
        (time, logged_from, logs_removed, references, duplicates) in (
            any::<Option<u64>>(),
            any::<Option<u64>>(),
            prop::collection::vec((log(), number()), 0..4),
            prop::collection::vec(reference(), 0..4),
            prop::option::of(duplicates()),
        ),
        evacuated in prop_oneof![
            3 => Just(Vec::new()),
            1 => prop::collection::vec(number(), 0..3),
        ],
        log_points in prop::collection::vec(point(), 0..4),
        trees in prop_oneof![
            3 => Just(Vec::new()),
            1 => prop::collection::vec((1..=LEVELS_MAX, any::<u64>(), tree()), 0..3),
        ],
    ) -> Edit {
        let trees = trees.into_iter().map(|(level, run, t)| (level, RunId(run), t)).collect();
        let added = added.into_iter().map(|(level, run, s)| match s.form {
            Form::Medium => (MEDIUM_LOG, RunId(0), s),
            _ => (level, RunId(run), s),
        }).collect();
        Edit {
            evacuated,
            seq: EditSeq(seq),
            epoch: Epoch(epoch),
            checkpoint,
            numbers: EditNumbers {
                replay_from: replay_from.map(Lsn),
                durable: durable.map(Lsn),
                mark,
                follows: follows.map(EditSeq),
                own_mark,
                time: time.map(Moment),
                logged_from: logged_from.map(Lsn),
            },
            removed,
            bounds,
            added,
            logs: LogChanges {
                added: logs_added,
                sealed: logs_sealed,
                removed: logs_removed,
                points: log_points,
            },
            trees,
            references,
            duplicates,
        }
    }
}

/// Bytes that decode are the bytes of what they decode to: members that store equal bytes agree.
fn check_decoded(bytes: &[u8]) {
    if let Ok(edit) = Edit::decode(bytes) {
        assert_eq!(edit.encode(), bytes);
    }
}

proptest! {
    #[test]
    fn an_edit_returns_from_its_bytes(edit in edit()) {
        prop_assert_eq!(Edit::decode(&edit.encode()), Ok(edit));
    }

    #[test]
    fn damaged_bytes_are_an_error_or_another_edit(
        edit in edit(), at in any::<prop::sample::Index>(), bit in 0..8u32,
    ) {
        let mut bytes = edit.encode();
        let index = at.index(bytes.len());
        bytes[index] ^= 1 << bit;
        check_decoded(&bytes);
    }

    #[test]
    fn a_part_is_no_edit(edit in edit(), at in any::<prop::sample::Index>()) {
        let bytes = edit.encode();
        prop_assert!(Edit::decode(&bytes[..at.index(bytes.len())]).is_err());
        let longer = [bytes, vec![0]].concat();
        prop_assert!(Edit::decode(&longer).is_err());
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_decoded(&bytes);
        check_decoded(&[&[FORMAT, 0, 0][..], &bytes].concat());
    }
}

fn sample() -> Edit {
    let place = |number| Place {
        level: 1,
        run: RunId(3),
        number: SegmentNumber(number),
    };
    Edit {
        numbers: EditNumbers {
            replay_from: Some(Lsn(10)),
            mark: Some(SegmentNumber(64)),
            ..EditNumbers::default()
        },
        removed: vec![place(7)],
        bounds: vec![(place(8), KeyRange::new("b", None))],
        added: vec![(
            2,
            RunId(0),
            LevelSegment {
                number: SegmentNumber(9),
                epoch: Epoch(1),
                len: 4096,
                checksum: 0xabcd,
                entries: 10,
                tombstones: 1,
                range: KeyRange::new("a", Some("c".into())),
                large_bytes: 100,
                medium_bytes: 0,
                form: Form::SelfContained,
            },
        )],
        logs: LogChanges {
            added: vec![LogSegment {
                log: RECOVERY_LOG,
                ordinal: 2,
                number: SegmentNumber(5),
                epoch: Epoch(1),
                base_lsn: Lsn(11),
                end: None,
            }],
            sealed: vec![LogPoint {
                log: RECOVERY_LOG,
                number: SegmentNumber(3),
                to: 4000,
            }],
            removed: vec![(RECOVERY_LOG, SegmentNumber(2))],
            points: vec![LogPoint {
                log: LARGE_LOG,
                number: SegmentNumber(4),
                to: 8192,
            }],
        },
        references: vec![Reference {
            number: SegmentNumber(4),
            added: 100,
            dropped: 300,
        }],
        ..Edit::new(EditSeq(5), Epoch(1))
    }
}

/// The bytes are stored and sent: a change would make every existing manifest unreadable.
#[test]
fn the_bytes_never_change() {
    let expected: &[u8] = &[
        8, 10, 0, 5, 1, 10, 64, // format, flags, seq, epoch, replay_from, mark
        1, 1, 3, 7, // removed
        1, 1, 3, 8, 1, b'b', 0, // bounds
        1, 2, 0, 9, 1, 0x80, 0x20, 0xcd, 0xab, 0, 0, 10, 1, 100, 0, 1, b'a', 1, 1, b'c',
        0, // added
        1, 1, 2, 5, 1, 11, 0, // logs added
        1, 1, 3, 0xa0, 0x1f, // logs sealed
        1, 1, 2, // logs removed
        1, 2, 4, 0x80, 0x40, // log points
        0, 0, // trees, evacuated
        1, 4, 100, 0xac, 2, // references
    ];
    assert_eq!(sample().encode(), expected);
    let timed = Edit {
        numbers: EditNumbers {
            time: Some(Moment(300)),
            logged_from: Some(Lsn(9)),
            ..EditNumbers::default()
        },
        ..Edit::new(EditSeq(5), Epoch(1))
    };
    // Format, flags, seq, epoch, time, logged from; nothing of the rest.
    let expected = [8, 64, 1, 5, 1, 0xac, 2, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(timed.encode(), expected);
    assert_eq!(Edit::decode(&expected).unwrap(), timed);
}

/// A run of two leaf segments and one index segment.
fn tree_sample() -> Edit {
    let segment = |number, form| LevelSegment {
        number: SegmentNumber(number),
        epoch: Epoch(1),
        len: 4096,
        checksum: 7,
        entries: u32::from(form == Form::Leaves),
        tombstones: 0,
        range: KeyRange::new("a", Some("c".into())),
        large_bytes: 0,
        medium_bytes: 0,
        form,
    };
    let tree = Tree {
        root: Pointer::new(SegmentNumber(9), 512),
        len: 1024,
        height: 2,
    };
    Edit {
        added: vec![
            (1, RunId(4), segment(8, Form::Leaves)),
            (1, RunId(4), segment(9, Form::Index(2))),
        ],
        trees: vec![(1, RunId(4), tree)],
        ..Edit::new(EditSeq(5), Epoch(1))
    }
}

#[test]
fn the_bytes_of_trees_never_change() {
    let expected: &[u8] = &[
        8, 0, 0, 5, 1, 0, 0, // format, flags, seq, epoch, removed, bounds
        2, 1, 4, 8, 1, 0x80, 0x20, 7, 0, 0, 0, 1, 0, 0, 0, 1, b'a', 1, 1, b'c', 1, // leaves
        1, 4, 9, 1, 0x80, 0x20, 7, 0, 0, 0, 0, 0, 0, 0, 1, b'a', 1, 1, b'c', 3, // index
        0, 0, 0, 0, // logs
        1, 1, 4, 0, 2, 0x20, 1, 0, 0, 0, 0, 0x80, 8, 2, // the tree
        0, 0, // evacuated, references
    ];
    assert_eq!(tree_sample().encode(), expected);
    assert_eq!(Edit::decode(expected).unwrap(), tree_sample());
    let text = "edit 5 epoch 1\n  \
        + L1.4:8 [a, c) epoch 1 len 4096 sum 0x7 entries 1 tombstones 0 leaves\n  \
        + L1.4:9 [a, c) epoch 1 len 4096 sum 0x7 entries 0 tombstones 0 index 2\n  \
        tree L1.4 root 9@512 len 1024 height 2";
    assert_eq!(tree_sample().to_string(), text);
}

#[test]
fn an_edit_reads_well() {
    let text = "edit 5 epoch 1 replay 10 mark 64\n  \
        - L1.3:7\n  \
        bounds L1.3:8 [b, end)\n  \
        + L2.0:9 [a, c) epoch 1 len 4096 sum 0xabcd entries 10 tombstones 1 large 100\n  \
        + recovery#2:5 epoch 1 base 11\n  \
        seal recovery:3@4000\n  \
        - recovery:2\n  \
        need large:4@8192\n  \
        references 4: 100 added, 300 dropped";
    assert_eq!(sample().to_string(), text);
}

#[test]
fn a_later_format_is_refused() {
    let mut bytes = sample().encode();
    bytes[0] = FORMAT + 1;
    assert!(Edit::decode(&bytes).is_err());
    let mut bytes = sample().encode();
    bytes[2] |= 0x80;
    assert!(Edit::decode(&bytes).is_err(), "an unknown flag");
}

/// A count is no reason to allocate: what it promises has to be there.
#[test]
fn a_lying_count_is_an_error() {
    let mut bytes = Edit::new(EditSeq(1), Epoch(1)).encode();
    assert_eq!(bytes.len(), 15);
    bytes[5] = 0xff;
    bytes.insert(6, 0x7f);
    assert!(Edit::decode(&bytes).is_err());
}
