//! Scrubbing: what is stored is read and checked in the background, segment by segment. What nobody has read for long
//! may have been lost.
//!
//! A [`Pass`] goes over the finished segments of a copy by rising numbers. A step reads one, of what the copy consists
//! of then, so a region may be written meanwhile: what goes before the pass comes to it needs no check, what comes
//! behind it waits for the next.
//!
//! A [`Scrubber`] spreads passes over time: a whole one takes a *period*, and no more than so many bytes a
//! second are read. It does nothing between two segments, and says how long that is.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Instant, SegmentNumber};

use crate::damage::Damage;
use crate::stored::Stored;

/// Most damaged places that a [`Scrubber`] remembers.
pub const DAMAGES_MAX: usize = 256;

/// How long a scrubber waits where there is nothing to read.
const NOTHING_YET: Duration = Duration::from_secs(600);

/// How often and how fast everything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Duration of a whole pass. Zero turns scrubbing off.
    pub period: Duration,
    /// Most bytes that are read in a second. A pass may take longer than its period because of this bound.
    pub bytes_per_second_max: u64,
}

impl Default for Pace {
    /// Four weeks, and 8 MiB a second.
    fn default() -> Self {
        Self {
            period: Duration::from_secs(28 * 24 * 60 * 60),
            bytes_per_second_max: 8 << 20,
        }
    }
}

/// What a scrubber has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// Bytes read.
    pub bytes: u64,
    /// Segments read.
    pub segments: u64,
    /// Finished passes.
    pub passes: u64,
    /// Damaged places found; each counts once.
    pub damages: u64,
    /// When the last pass ended, on the clock of the steps. `None` if none has ended yet.
    pub last_pass: Option<Instant>,
}

/// What one step of a pass read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: u64,
    /// Damage found in them.
    pub damages: Vec<Damage>,
}

/// One pass over the segments of a copy. See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// The last segment that was looked at.
    last: Option<SegmentNumber>,
    /// The last one that there was when it began, of those that the group numbers and of those that a member numbers
    /// for itself; `None`: it ends when nothing is left.
    upto: Option<[SegmentNumber; 2]>,
    /// Bytes that it reads, where that was known when it began.
    bytes: u64,
}

impl Pass {
    /// A pass that begins with the first segment, and ends when nothing is left.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: None,
            upto: None,
            bytes: 0,
        }
    }

    /// A pass over `numbers`, of which it reads `bytes`, and over nothing that comes later.
    pub fn over(numbers: impl Iterator<Item = SegmentNumber>, bytes: u64) -> Self {
        let mut upto = [SegmentNumber(0); 2];
        for number in numbers {
            let last = &mut upto[usize::from(number.is_own())];
            *last = number.max(*last);
        }
        Self {
            last: None,
            upto: Some(upto),
            bytes,
        }
    }

    /// The last segment that was looked at.
    #[must_use]
    pub const fn last(&self) -> Option<SegmentNumber> {
        self.last
    }

    /// Goes on to segment `number`. Returns whether that was there when the pass began.
    pub fn go_to(&mut self, number: SegmentNumber) -> bool {
        self.last = Some(number);
        let upto = self.upto.map(|upto| upto[usize::from(number.is_own())]);
        upto.is_none_or(|upto| number <= upto)
    }
}

/// Scrubs a region in the background. See the module documentation.
#[derive(Debug)]
pub struct Scrubber {
    pace: Pace,
    pass: Pass,
    /// When the next segment is read.
    due: Option<Instant>,
    stats: ScrubStats,
    known: BTreeSet<(SegmentNumber, u32)>,
    damages: Vec<Damage>,
}

impl Scrubber {
    /// One that begins its first pass some time after its first step.
    #[must_use]
    pub const fn new(pace: Pace) -> Self {
        Self {
            pace,
            pass: Pass::new(),
            due: None,
            stats: ScrubStats {
                bytes: 0,
                segments: 0,
                passes: 0,
                damages: 0,
                last_pass: None,
            },
            known: BTreeSet::new(),
            damages: Vec::new(),
        }
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> ScrubStats {
        self.stats
    }

    /// The damage that it has found in `copy`, as that is now: at most [`DAMAGES_MAX`]. What it found in segments that
    /// are gone since is left out.
    pub fn damages_in(&self, copy: &dyn Stored) -> impl Iterator<Item = &Damage> {
        let damages = self.damages.iter();
        damages.filter(|damage| copy.holds(damage.number))
    }

    /// Segment `number` was damaged and is whole again.
    pub fn repaired(&mut self, number: SegmentNumber) {
        self.known.retain(|(known, _)| *known != number);
        self.damages.retain(|damage| damage.number != number);
    }

    /// Whether it ever does anything.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.pace.period.is_zero()
    }

    /// How long a step has nothing to do; `None`: for good.
    #[must_use]
    pub fn idle(&self, now: Instant) -> Option<Duration> {
        let due = self.due.map_or(Duration::ZERO, |due| due.since(now));
        self.is_on().then_some(due)
    }

    /// Reads the next segment of `copy`, as that is now, if it is due. Returns what was found to be damaged that was
    /// not known, and how long there is nothing to do; `None`: for good. The copy takes note of what was found.
    pub fn step(&mut self, copy: &dyn Stored, now: Instant) -> (Vec<Damage>, Option<Duration>) {
        if !self.is_on() {
            return (Vec::new(), None);
        }
        let due = match self.due {
            Some(due) => due,
            None => self.begin_pass(copy, now),
        };
        if now < due {
            return (Vec::new(), Some(due.since(now)));
        }
        self.known.retain(|(number, _)| copy.holds(*number));
        self.damages.retain(|damage| copy.holds(damage.number));
        let Some(scrubbed) = copy.scrub(&mut self.pass) else {
            self.stats.passes += 1;
            self.stats.last_pass = Some(now);
            let due = self.begin_pass(copy, now);
            return (Vec::new(), Some(due.since(now)));
        };
        self.stats.bytes += scrubbed.bytes;
        self.stats.segments += 1;
        let wait = self.wait(scrubbed.bytes);
        self.due = Some(now + wait);
        let found = self.learn(scrubbed.damages);
        for damage in &found {
            copy.note_damaged(damage.number, &damage.what);
        }
        (found, Some(wait))
    }

    /// How long `bytes` are to take.
    fn wait(&self, bytes: u64) -> Duration {
        let nanos = |bytes: u64, of: u64, within: Duration| {
            let nanos = within.as_nanos() * u128::from(bytes) / u128::from(of.max(1));
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let least = nanos(
            bytes,
            self.pace.bytes_per_second_max,
            Duration::from_secs(1),
        );
        nanos(bytes, self.pass.bytes, self.pace.period).max(least)
    }

    /// Begins a pass, and tells when its first segment is read.
    fn begin_pass(&mut self, copy: &dyn Stored, now: Instant) -> Instant {
        self.pass = copy.begin_pass();
        let first = match self.pass.bytes {
            0 => self.pace.period.min(NOTHING_YET),
            // A restart does not begin with a read.
            bytes => self.wait((bytes / 64).min(SEGMENT_SIZE as u64)),
        };
        let due = now + first.min(NOTHING_YET);
        self.due = Some(due);
        due
    }

    /// Remembers what was not known.
    fn learn(&mut self, damages: Vec<Damage>) -> Vec<Damage> {
        let mut new = Vec::new();
        for damage in damages {
            let at = (damage.number, damage.offset);
            if self.known.len() >= DAMAGES_MAX || !self.known.insert(at) {
                continue;
            }
            self.stats.damages += 1;
            self.damages.push(damage.clone());
            new.push(damage);
        }
        new
    }
}
