//! Against a walk through the whole chain, which needs no lists of candidates.

use std::sync::Arc;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{
    AddressMode, DeviceSegment, EditSeq, Epoch, KeyRange, LogId, RegionId, ServerId,
};
use argosy_device::{FormatOptions, MemoryDevice, Store, StoreSettings};
use proptest::prelude::*;

use super::*;
use crate::edit::LevelSegment;
use crate::names::Form;
use crate::names::logs::{LARGE_LOG, RECOVERY_LOG};
use crate::segments::StoredSegment;

const REACH: u64 = 3;

/// Follows a chain from front to back, and knows how far values reach into later segments.
#[derive(Default)]
struct Walk {
    /// The last segment into which a value that is referenced may reach.
    to: Option<u64>,
    /// The segment before.
    before: Option<u64>,
}

impl Walk {
    /// Goes on to the next segment. Whether a value that is referenced reaches into it.
    fn enters(&mut self, ordinal: u64, inside_value: Option<bool>) -> bool {
        let follows = self.before.is_some_and(|before| before + 1 == ordinal);
        self.before = Some(ordinal);
        if !follows || inside_value == Some(false) {
            self.to = None;
        }
        self.to >= Some(ordinal)
    }
}

/// What goes of the large log, and of that what is evacuated; and what has to be looked at.
fn walked(
    version: &Version,
    lasts: &LastLsns,
    replay_from: Lsn,
    refs: impl Fn(SegmentNumber) -> u64,
) -> (
    Vec<SegmentNumber>,
    Vec<SegmentNumber>,
    Option<SegmentNumber>,
) {
    let mut walk = Walk::default();
    let (mut gone, mut evacuated, mut unknown) = (vec![], vec![], None);
    let chain = version.log(LARGE_LOG);
    for LogEntry { segment, .. } in chain.range(0..chain.len() - 1) {
        let number = segment.number;
        let inside = lasts.inside_value.get(&number).copied();
        let entered = walk.enters(segment.ordinal, inside);
        let pointed = refs(number) > 0;
        let referenced = pointed && !lasts.is_shadowed(number, version, replay_from);
        if referenced {
            walk.to = Some(segment.ordinal + REACH);
        }
        if segment.end.is_none() || lasts.get(number) >= replay_from || referenced {
            continue;
        }
        if !entered {
            gone.push(number);
            evacuated.extend(pointed.then_some(number));
        } else if inside.is_none() {
            unknown = unknown.or(Some(number));
        }
    }
    (gone, evacuated, unknown)
}

/// What a segment of the large log is.
#[derive(Clone, Copy, Debug)]
struct Log {
    gap: bool,
    referenced: bool,
    inside: Option<bool>,
    moved: Option<u64>,
    /// What the edit does: points into it, or takes that away.
    changes: bool,
}

fn logs() -> impl Strategy<Value = Vec<Log>> {
    let log = (
        prop::bool::weighted(0.1),
        any::<bool>(),
        prop::option::weighted(0.5, any::<bool>()),
        prop::option::weighted(0.3, 1..30_u64),
        prop::bool::weighted(0.2),
    );
    let log = log.prop_map(|(gap, referenced, inside, moved, changes)| Log {
        gap,
        referenced,
        inside,
        moved,
        changes,
    });
    prop::collection::vec(log, 1..40)
}

fn level_segment(number: u64, from: &[u8]) -> LevelSegment {
    LevelSegment {
        number: SegmentNumber(number),
        epoch: Epoch(1),
        len: 4096,
        checksum: 0,
        entries: 1,
        tombstones: 0,
        range: KeyRange::new(from, Some([from, b"x"].concat())),
        large_bytes: 1 << 20,
        medium_bytes: 0,
        form: Form::SelfContained,
    }
}

fn log_segment(log: LogId, ordinal: u64, number: u64, end: Option<u32>) -> LogSegment {
    LogSegment {
        log,
        ordinal,
        number: SegmentNumber(number),
        epoch: Epoch(1),
        base_lsn: Lsn(1),
        end,
    }
}

fn counted(number: u64, added: u64, dropped: u64) -> Reference {
    Reference {
        number: SegmentNumber(number),
        added,
        dropped,
    }
}

/// A version with such a large log, whose segments have numbers from 100 on, and a level that points into it.
fn version(logs: &[Log]) -> Version {
    let device = MemoryDevice::eager(16 * SEGMENT_SIZE as u64, 1);
    let options = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(1),
        created_by: "test".to_owned(),
    };
    Store::format(&device, &options).unwrap();
    let store = Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
    let mut edit = Edit::new(EditSeq(1), Epoch(1));
    edit.checkpoint = true;
    edit.numbers.mark = Some(SegmentNumber(1000));
    edit.numbers.replay_from = Some(Lsn(10));
    edit.logs.added.push(log_segment(RECOVERY_LOG, 0, 1, None));
    let mut ordinal = 0;
    for (number, log) in (100..).zip(logs) {
        ordinal += 1 + u64::from(log.gap);
        edit.logs
            .added
            .push(log_segment(LARGE_LOG, ordinal, number, Some(4096)));
        let points = log.referenced.then(|| counted(number, 7, 0));
        edit.references.extend(points);
    }
    edit.logs
        .added
        .push(log_segment(LARGE_LOG, ordinal + 1, 2, None));
    edit.added = vec![(1, RunId(3), level_segment(3, b"a"))];
    let levels_stored = [SegmentNumber(3)].into_iter();
    let logs_stored = edit.logs.added.iter().map(|log| log.number);
    let stored = levels_stored.chain(logs_stored).map(|number| {
        let place = DeviceSegment(u32::try_from(number.0).unwrap());
        let stored = StoredSegment::unclaimed(number, Arc::clone(&store), place);
        (number, stored)
    });
    let empty = Version::empty(RegionId(1), AddressMode::Logical);
    empty.apply(&edit, &stored.collect()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_goes_is_what_a_walk_through_the_chain_finds(
        logs in logs(),
        flushes in any::<bool>(),
        kept in 0..4_usize,
    ) {
        let version = version(&logs);
        let mut lasts = LastLsns::new(Lsn(0));
        // LSNs rise; those of the last segments are in memtables.
        for (number, log) in (100..).zip(&logs) {
            let number = SegmentNumber(number);
            lasts.set(number, Lsn(number.0 - 95));
            if let Some(inside) = log.inside {
                lasts.set_inside_value(number, inside);
            }
            if let Some(moved) = log.moved {
                lasts.set_moved(number, Lsn(moved));
            }
        }
        let refs_now = |number| version.log_refs(number);
        let (_, _, unknown) = walked(&version, &lasts, version.replay_from(), refs_now);
        let found = unknown_beginning(&version, REACH, &lasts).map(|segment| segment.number);
        prop_assert_eq!(found, unknown);

        let mut edit = Edit::new(EditSeq(2), Epoch(1));
        edit.numbers.replay_from = flushes.then_some(Lsn(25));
        let replay_from = edit.numbers.replay_from.unwrap_or(version.replay_from());
        let changed = (100..).zip(&logs).filter(|(_, log)| log.changes);
        let changed = changed.map(|(number, log)| match log.referenced {
            true => counted(number, 0, 7),
            false => counted(number, 9, 0),
        });
        edit.references = changed.collect();
        let refs = |number: SegmentNumber| {
            let log = logs[usize::try_from(number.0 - 100).unwrap()];
            u64::from(log.referenced != log.changes)
        };
        let (mut gone, mut evacuated, _) = walked(&version, &lasts, replay_from, refs);
        // For members that are away, beside a recovery log that begins before all of them.
        gone.truncate(gone.len().saturating_sub(kept));
        evacuated.retain(|number| gone.contains(number));
        lasts.keep(kept);
        truncate_logs(&version, REACH, &mut lasts, &mut edit);
        let gone: Vec<_> = gone.into_iter().map(|number| (LARGE_LOG, number)).collect();
        prop_assert_eq!(&edit.logs.removed, &gone);
        prop_assert_eq!(&edit.evacuated, &evacuated);
        prop_assert!(gone.iter().all(|(_, number)| lasts.moved(*number).is_none()));
    }
}
