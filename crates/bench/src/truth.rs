//! What a read may return: the version of each record that is surely written, and the newest that
//! may be.
//!
//! Clients write the same records at the same time, and nobody knows in which order a server takes
//! writes that overlap. But a write that began when no other was under way, and ended before
//! another began, is surely the newest: its version becomes the record's *floor*. Versions rise
//! with the moment at which a write begins, so whatever is read by a read that begins later is at
//! least the floor, and at most the newest version begun when the read ends. A write whose outcome
//! is unknown counts as under way for ever, so it never lets the floor rise.
//!
//! ```text
//! record := issued: 24 bits   floor: 24 bits   under way: 15 bits   alone: 1 bit
//! ```
//!
//! One word a record, changed by compare-and-swap; nothing else is ordered by it.
//!
//! While a workload inserts, records are *claimed* in order and written in any; those below a mark
//! that only rises are *present*, that is, surely written. An insert of unknown outcome stops the
//! mark for good.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::Dataset;

const VERSION_BITS: u32 = 24;
const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;
const UNDER_WAY_MAX: u64 = (1 << 15) - 1;

/// One record's word, unpacked.
#[derive(Clone, Copy)]
struct State {
    issued: u64,
    floor: u64,
    under_way: u64,
    alone: bool,
}

impl State {
    const fn unpack(word: u64) -> Self {
        Self {
            issued: word & VERSION_MAX,
            floor: word >> VERSION_BITS & VERSION_MAX,
            under_way: word >> (2 * VERSION_BITS) & UNDER_WAY_MAX,
            alone: word >> 63 == 1,
        }
    }

    const fn pack(self) -> u64 {
        self.issued
            | self.floor << VERSION_BITS
            | self.under_way << (2 * VERSION_BITS)
            | (self.alone as u64) << 63
    }
}

/// The records of a benchmark, and which versions of them a read may return.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// Keys and values.
    pub data: &'a Dataset,
    /// The versions.
    pub truth: &'a Truth,
}

/// The versions of all records.
#[derive(Debug)]
pub struct Truth {
    records: Vec<AtomicU64>,
    /// The first record that nobody has claimed.
    claimed: AtomicU64,
    /// All records below are surely written.
    present: AtomicU64,
}

impl Truth {
    /// `records` records that nobody has written, all claimed by who loads them, and room for
    /// `more` that may be claimed. Takes eight bytes a record.
    #[must_use]
    pub fn new(records: usize, more: usize) -> Self {
        Self {
            records: (0..records + more).map(|_| AtomicU64::new(0)).collect(),
            claimed: AtomicU64::new(records as u64),
            present: AtomicU64::new(0),
        }
    }

    /// As [`new`](Self::new), for a rehearsal: taken for written that never were.
    pub(crate) fn rehearsed(records: usize, more: usize) -> Self {
        let truth = Self::new(records, more);
        truth.present.store(records as u64, Ordering::Relaxed);
        truth
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.records) as u64
    }

    /// A record that nobody else inserts.
    pub fn claim(&self) -> u64 {
        let record = self.claimed.fetch_add(1, Ordering::Relaxed);
        assert!(
            record < self.records.len() as u64,
            "there is room for every insert of every workload"
        );
        record
    }

    /// How many records have been claimed: all that may be there.
    #[must_use]
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// So many records are surely there: all below this number.
    pub fn present(&self) -> u64 {
        let claimed = self.claimed();
        let mut present = self.present.load(Ordering::Acquire);
        while present < claimed && self.begin_read(present) > 0 {
            present += 1;
        }
        // Another thread may have come further.
        self.present
            .fetch_max(present, Ordering::AcqRel)
            .max(present)
    }

    /// A write of `record` begins; it writes the version returned, which is at least 1.
    pub fn begin_write(&self, record: u64) -> u32 {
        let state = self.change(record, |state| {
            assert!(
                state.issued < VERSION_MAX && state.under_way < UNDER_WAY_MAX,
                "record {record}: {} versions, {} writes under way; run fewer operations",
                state.issued,
                state.under_way
            );
            State {
                issued: state.issued + 1,
                alone: state.under_way == 0,
                under_way: state.under_way + 1,
                ..state
            }
        });
        u32::try_from(state.issued).expect("a version has 24 bits")
    }

    /// The write of `version` has been acknowledged. Not to be called where it is not known
    /// whether the write took effect.
    pub fn end_write(&self, record: u64, version: u32) {
        self.change(record, |state| {
            assert!(state.under_way > 0, "a write that ends has begun");
            State {
                floor: if state.alone {
                    u64::from(version)
                } else {
                    state.floor
                },
                under_way: state.under_way - 1,
                alone: false,
                ..state
            }
        });
    }

    /// A read of `record` begins; hand the floor returned to [`allows`](Self::allows).
    #[must_use]
    pub fn begin_read(&self, record: u64) -> u32 {
        let floor = State::unpack(self.word(record).load(Ordering::Acquire)).floor;
        u32::try_from(floor).expect("a version has 24 bits")
    }

    /// Whether a read that began at `floor` and ends now may return `version`; zero means that
    /// nothing was found.
    #[must_use]
    pub fn allows(&self, record: u64, floor: u32, version: u32) -> bool {
        let issued = State::unpack(self.word(record).load(Ordering::Acquire)).issued;
        floor <= version && u64::from(version) <= issued
    }

    fn word(&self, record: u64) -> &AtomicU64 {
        &self.records[usize::try_from(record).expect("records are counted in memory")]
    }

    /// Replaces a record's state by what `next` makes of it, and returns the new one.
    fn change(&self, record: u64, next: impl Fn(State) -> State) -> State {
        let word = self.word(record);
        let mut old = word.load(Ordering::Acquire);
        loop {
            let new = next(State::unpack(old));
            // Pairs with itself and with the loads of readers: a reader that sees a floor sees it
            // because the acknowledgement before it was received.
            match word.compare_exchange_weak(old, new.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return new,
                Err(current) => old = current,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_alone_raises_the_floor() {
        let truth = Truth::new(1, 0);
        assert!(truth.allows(0, 0, 0), "nothing was written");
        let version = truth.begin_write(0);
        assert!(truth.allows(0, 0, 0) && truth.allows(0, 0, version));
        truth.end_write(0, version);
        assert_eq!(truth.begin_read(0), version);
        assert!(!truth.allows(0, version, 0), "the write is lost");
        assert!(!truth.allows(0, version, version + 1), "nobody wrote that");
    }

    #[test]
    fn writes_that_overlap_leave_the_floor_where_it_was() {
        let truth = Truth::new(1, 0);
        let (a, b) = (truth.begin_write(0), truth.begin_write(0));
        truth.end_write(0, a);
        truth.end_write(0, b);
        assert_eq!(truth.begin_read(0), 0);
        let c = truth.begin_write(0);
        truth.end_write(0, c);
        assert_eq!(truth.begin_read(0), c);
    }

    #[test]
    fn the_last_of_overlapping_writes_is_not_alone_either() {
        let truth = Truth::new(1, 0);
        let a = truth.begin_write(0);
        let b = truth.begin_write(0);
        truth.end_write(0, a);
        // `b` is under way by itself now, but `a` may have been applied after it.
        truth.end_write(0, b);
        assert!(truth.allows(0, truth.begin_read(0), a));
    }

    #[test]
    fn a_write_of_unknown_outcome_never_lets_the_floor_rise() {
        let truth = Truth::new(1, 0);
        let a = truth.begin_write(0);
        truth.end_write(0, a);
        let _unknown = truth.begin_write(0);
        let c = truth.begin_write(0);
        truth.end_write(0, c);
        assert_eq!(truth.begin_read(0), a);
    }
    #[test]
    fn the_present_records_are_those_below_the_first_that_may_be_missing() {
        let truth = Truth::new(2, 3);
        let write = |record| truth.end_write(record, truth.begin_write(record));
        write(1);
        assert_eq!((truth.present(), truth.claimed()), (0, 2));
        write(0);
        assert_eq!(truth.present(), 2, "the third is not claimed");
        assert_eq!((truth.claim(), truth.claim(), truth.claim()), (2, 3, 4));
        write(4);
        assert_eq!(truth.present(), 2);
        write(2);
        assert_eq!(truth.present(), 3);
        write(3);
        assert_eq!((truth.present(), truth.claimed()), (5, 5));
    }
}
