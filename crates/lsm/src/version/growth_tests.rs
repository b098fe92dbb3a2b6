//! What an edit costs must not grow with what the version has: the same edits of versions of 2,000 and of 60,000
//! segments, by entries and nodes of lists that are copied or gone through.

use std::collections::BTreeMap;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{DeviceSegment, KeyRange, ServerId};
use argosy_device::{FormatOptions, MemoryDevice, Store, StoreSettings};

use super::*;
use crate::edit::{LogPoint, Place};
use crate::names::Form;
use crate::names::logs::{LARGE_LOG, RECOVERY_LOG};
use crate::shared::work::{self, Work};
use crate::work::truncation::{LastLsns, truncate_logs, unknown_beginning};

/// Segments of the two versions.
pub(crate) const FEW: u64 = 2000;
pub(crate) const MANY: u64 = 60_000;

/// The deepest level.
const LEVEL: u8 = 5;

/// The first number of segments of the level above, of which there is one for eight of the deepest.
const ABOVE: u64 = 8 * MANY;

/// A segment of a run of which segment `n` begins `n * step` behind the first key.
fn segment(number: u64, n: u64, step: u64) -> LevelSegment {
    let key = |n: u64| format!("user{:020}", n * step).into_bytes();
    LevelSegment {
        number: SegmentNumber(number),
        epoch: Epoch(1),
        len: 1 << 20,
        checksum: 0,
        entries: 10_000,
        tombstones: 0,
        range: KeyRange::new(key(n), Some(key(n + 1))),
        large_bytes: 2000,
        medium_bytes: 0,
        form: Form::SelfContained,
    }
}

fn log(log: LogId, ordinal: u64, number: u64, end: Option<u32>) -> LogSegment {
    LogSegment {
        log,
        ordinal,
        number: SegmentNumber(number),
        epoch: Epoch(1),
        base_lsn: Lsn(1),
        end,
    }
}

fn pointed(log: u64, added: u64, dropped: u64) -> Reference {
    Reference {
        number: SegmentNumber(log),
        added,
        dropped,
    }
}

/// A version, and what makes segments for its edits.
pub(crate) struct Bench {
    pub(crate) version: Version,
    store: Arc<Store>,
    /// Level segments, and as many of the large log, whose numbers begin behind 10.
    half: u64,
}

impl Bench {
    /// Half of `segments` are of a level, with some of the level above, the others of the large log, into which the
    /// former point.
    pub(crate) fn new(segments: u64) -> Self {
        let device = MemoryDevice::eager(16 * SEGMENT_SIZE as u64, 1);
        let options = FormatOptions {
            device_id: 1,
            cluster_id: 1,
            server: ServerId(1),
            created_by: "test".to_owned(),
        };
        Store::format(&device, &options).unwrap();
        let store = Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
        let half = segments / 2;
        let mut edit = Edit::new(EditSeq(1), Epoch(1));
        edit.checkpoint = true;
        edit.numbers.mark = Some(SegmentNumber(10 * ABOVE));
        edit.logs.added.push(log(RECOVERY_LOG, 0, 1, None));
        let large = (0..half).map(|n| log(LARGE_LOG, n, 10 + n, Some(1 << 20)));
        edit.logs.added.extend(large);
        edit.logs.added.push(log(LARGE_LOG, half, 2, None));
        edit.added = (0..half)
            .map(|n| (LEVEL, RunId(0), segment(10 + half + n, n, 1000)))
            .chain((0..half / 8).map(|n| (LEVEL - 1, RunId(0), segment(ABOVE + n, n, 8000))))
            .collect();
        // Into all but the first.
        edit.references = (11..10 + half).map(|log| pointed(log, 2000, 0)).collect();
        let mut bench = Self {
            version: Version::empty(RegionId(1), AddressMode::Logical),
            store,
            half,
        };
        bench.apply(&edit);
        assert_eq!(bench.version.check(), Ok(()));
        bench
    }

    /// Applies `edit`. Returns the work.
    pub(crate) fn apply(&mut self, edit: &Edit) -> Work {
        let levels = edit.added.iter().map(|(_, _, segment)| segment.number);
        let logs = edit.logs.added.iter().map(|log| log.number);
        let stored = |number: SegmentNumber| {
            let place = DeviceSegment(u32::try_from(number.0).unwrap());
            let store = Arc::clone(&self.store);
            (number, StoredSegment::unclaimed(number, store, place))
        };
        let new: BTreeMap<_, _> = levels.chain(logs).map(stored).collect();
        let before = self.version.clone();
        let (next, work) = work::of(|| apply::after(&before, edit, &new).unwrap());
        self.version = next;
        work
    }

    fn next(&self) -> Edit {
        Edit::new(self.version.seq().next(), Epoch(1))
    }

    /// Ten segments go and one is cut, in the middle; twenty come in their place.
    pub(crate) fn compaction(&self) -> Edit {
        let mut edit = self.next();
        let first = self.half / 3;
        let place = |n: u64| Place {
            level: LEVEL,
            run: RunId(0),
            number: SegmentNumber(10 + self.half + n),
        };
        edit.removed = (first..first + 10).map(place).collect();
        edit.removed.push(Place {
            level: LEVEL - 1,
            run: RunId(0),
            number: SegmentNumber(ABOVE + first / 8),
        });
        let mut left = segment(0, first + 10, 1000).range;
        left.from = segment(0, 2 * (first + 10) + 1, 500).range.from;
        edit.bounds = vec![(place(first + 10), left)];
        edit.added = (0..21)
            .map(|n| {
                let new = segment(3 * MANY + n, 2 * first + n, 500);
                (LEVEL, RunId(0), new)
            })
            .collect();
        // Out of segments that were written together, and into them.
        let first = 11 + self.half / 2;
        edit.references = (first..first + 42)
            .map(|log| pointed(log, 900, 1000))
            .collect();
        edit
    }

    /// Pointers into segments all over the log go.
    pub(crate) fn drops(&self) -> Edit {
        let mut edit = self.next();
        let step = (self.half - 20) / 42;
        edit.references = (0..42).map(|n| pointed(11 + n * step, 0, 1000)).collect();
        edit
    }

    /// A run of twenty segments comes to L1.
    pub(crate) fn flush(&self) -> Edit {
        let mut edit = self.next();
        edit.numbers.replay_from = Some(Lsn(7));
        let step = self.half * 1000 / 20;
        edit.added = (0..20)
            .map(|n| (1, RunId(1), segment(4 * MANY + n, n, step)))
            .collect();
        let last = 10 + self.half;
        edit.references = (last - 20..last).map(|log| pointed(log, 1000, 0)).collect();
        edit
    }

    /// A log segment is sealed, four are declared, one to which nothing points goes.
    pub(crate) fn upkeep(&self) -> Edit {
        let mut edit = self.next();
        edit.logs.sealed = vec![LogPoint {
            log: LARGE_LOG,
            number: SegmentNumber(2),
            to: 1 << 20,
        }];
        edit.logs.added = (1..5)
            .map(|n| log(LARGE_LOG, self.half + n, 5 * MANY + n, None))
            .collect();
        edit.logs.removed = vec![(LARGE_LOG, SegmentNumber(10))];
        edit
    }
}

/// What the edits cost of a version of so many segments.
fn costs<const N: usize>(segments: u64, edits: [fn(&Bench) -> Edit; N]) -> [Work; N] {
    let mut bench = Bench::new(segments);
    edits.map(|edit| {
        let edit = edit(&bench);
        let work = bench.apply(&edit);
        assert_eq!(bench.version.check(), Ok(()));
        work
    })
}

#[test]
fn what_an_edit_costs_does_not_grow_with_the_version() {
    let edits = [Bench::compaction, Bench::flush, Bench::upkeep];
    let (few, many) = (costs(FEW, edits), costs(MANY, edits));
    for (which, (few, many)) in few.iter().zip(many).enumerate() {
        let grows = 2 * many.steps > 3 * few.steps || 2 * many.bytes > 3 * few.bytes;
        assert!(!grows, "edit {which}: {few:?} and {many:?}");
    }
    // An edit that walks a list of the larger version once costs more.
    assert!(many.iter().all(|cost| cost.steps < 4000), "{many:?}");
}

/// Each place of the log costs a leaf and what is above it. Of a small version what is above is one node, of a
/// large one it is one for nearly every leaf: that is all the difference.
#[test]
fn what_pointers_all_over_the_log_cost_goes_by_their_number() {
    let (few, many) = (costs(FEW, [Bench::drops]), costs(MANY, [Bench::drops]));
    let ([few], [many]) = (few, many);
    assert!(2 * many.steps <= 5 * few.steps, "{few:?} and {many:?}");
    assert!(2 * many.bytes <= 5 * few.bytes, "{few:?} and {many:?}");
    assert!(many.steps <= 42 * 90 && many.bytes <= 42 * 1500, "{many:?}");
}

/// What truncating logs in such edits costs, and finding a segment whose beginning has to be known.
#[test]
fn what_trimming_costs_does_not_grow_with_the_version() {
    let of = |segments: u64| {
        let mut bench = Bench::new(segments);
        let mut lasts = LastLsns::new(Lsn(0));
        [Bench::compaction, Bench::flush, Bench::upkeep].map(|edit| {
            let mut edit = edit(&bench);
            edit.logs.removed.clear();
            let version = bench.version.clone();
            let ((), work) = work::of(|| {
                truncate_logs(&version, 18, &mut lasts, &mut edit);
                unknown_beginning(&version, 18, &lasts);
            });
            bench.apply(&edit);
            assert_eq!(bench.version.check(), Ok(()));
            work
        })
    };
    let (few, many) = (of(FEW), of(MANY));
    for (which, (few, many)) in few.iter().zip(many).enumerate() {
        let grows = 2 * many.steps > 3 * few.steps;
        assert!(!grows, "edit {which}: {few:?} and {many:?}");
    }
    assert!(many.iter().all(|cost| cost.steps < 4000), "{many:?}");
}

#[test]
fn what_a_segment_takes_of_memory_does_not_grow_with_the_version() {
    let of = |segments: u64| Bench::new(segments).version.memory_bytes() as u64 / segments;
    let (few, many) = (of(FEW), of(MANY));
    assert!(few.abs_diff(many) <= 1, "{few} and {many} bytes");
    assert!((200..500).contains(&many), "{many} bytes a segment");
    let empty = Version::empty(RegionId(1), AddressMode::Logical);
    assert_eq!(empty.memory_bytes(), 0);
}
