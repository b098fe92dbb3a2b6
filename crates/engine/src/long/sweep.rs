//! Removes parts that no head names: see [`long`](super).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::range::successor;
use argosy_base::{Direction, Instant, KeyRange, Lsn};

use super::{Head, Part, RESERVED, Uses};
use crate::batch::{Guard, WriteBatch};
use crate::{EngineError, Snapshot, Store, WriteOptions};

/// How parts without a head are looked for, and how long they are kept for those who may be at them.
#[derive(Clone, Copy, Debug)]
pub struct SweepPace {
    /// From the end of one pass over all parts to the next, at most. Where any may have lost their heads, the next
    /// one comes sooner, the fewer versions there are.
    pub every: Duration,
    /// How long no head has to have named a version for its parts to be removed: somebody may have found the head,
    /// and be about to read the first part.
    pub brief: Duration,
    /// How long nobody has to have read a part of it: readers come back for the next one.
    pub readers: Duration,
    /// How long no part of it has to have been put; and how long from the opening on what was there then is kept:
    /// its writer may still come to the head. No longer than `readers` where space is short.
    pub writers: Duration,
}

impl Default for SweepPace {
    /// For a server, whose clients read and write part by part.
    fn default() -> Self {
        Self {
            every: Duration::from_secs(60),
            brief: Duration::from_secs(1),
            readers: Duration::from_secs(10),
            writers: Duration::from_secs(60),
        }
    }
}

impl SweepPace {
    /// For one process alone, whose readers have snapshots, and whose writers say when they end. What was there when
    /// it was opened is nobody's.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            brief: Duration::ZERO,
            readers: Duration::ZERO,
            writers: Duration::ZERO,
            ..Self::default()
        }
    }
}

/// Versions that are looked at in one step.
const STEP_VERSIONS: usize = 16;
/// Most versions without a head that are remembered, at some 50 bytes each; others have to wait until these
/// are gone. So as many go in the time that is granted them, at most.
const SUSPECTS_MAX: usize = 1 << 16;
/// After what time a removal is tried again that the engine was too busy for.
const BUSY: Duration = Duration::from_millis(20);

/// Soonest after a pass that another one begins.
const SOON: Duration = Duration::from_secs(1);
/// What each version that a pass has met adds to that: so passes take little of a second, however many there are.
const SOON_VERSION: Duration = Duration::from_millis(16);
/// Most keys that are looked at again when their versions are due. Those of others are found by the next pass.
const AGAIN_MAX: usize = 256;

/// What a sweeper has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepStats {
    /// Passes that came to the end.
    pub passes: u64,
    /// Versions whose parts were removed.
    pub swept: u64,
    /// Versions that the last pass met.
    pub versions: u64,
}

/// A version that no head names.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// Since when, as far as is known.
    since: Instant,
    /// The pass in which it was last met.
    met: u64,
    /// It was there at the opening: its writer may have been told of its parts by who served them before.
    older: bool,
}

/// Removes parts that no head names. See [`long`](super).
#[derive(Debug)]
pub struct Sweeper {
    pace: SweepPace,
    uses: Arc<Uses>,
    /// Where the pass goes on; `None`: none is under way.
    at: Option<Vec<u8>>,
    /// When the last one ended; `None`: none has.
    ended: Option<Instant>,
    /// The last LSN when the last one began.
    seen: Lsn,
    /// No pass has come to the end since the opening.
    opening: bool,
    /// Parts may be there.
    any: bool,
    /// The sweeper looks at nothing before this time: the engine failed, or was too busy for a removal.
    paused_until: Option<Instant>,
    /// Versions that no head names.
    suspects: BTreeMap<u128, Suspect>,
    /// Keys that are looked at beside the pass, and when.
    again: BTreeSet<(Instant, Vec<u8>)>,
    /// Versions that this pass has met.
    met: u64,
    stats: SweepStats,
}

impl Default for Sweeper {
    fn default() -> Self {
        Self::new(SweepPace::default(), Arc::default())
    }
}

/// What came of a look at a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// It has a head, or is removed.
    Done,
    /// It has none, and somebody may use it until this time at least.
    Kept(Instant),
    /// It is to be removed, and the engine takes no write at present.
    Busy,
}

impl Sweeper {
    /// One that keeps to `pace`, and asks `uses` who is at what.
    #[must_use]
    pub fn new(pace: SweepPace, uses: Arc<Uses>) -> Self {
        Self {
            pace,
            uses,
            at: None,
            ended: None,
            seen: Lsn(0),
            opening: true,
            any: false,
            paused_until: None,
            suspects: BTreeMap::new(),
            again: BTreeSet::new(),
            met: 0,
            stats: SweepStats::default(),
        }
    }

    /// What it looks at has been opened anew: writers may go on with what they began before.
    pub fn opened(&mut self) {
        let uses = Arc::clone(&self.uses);
        *self = Self {
            stats: self.stats,
            ..Self::new(self.pace, uses)
        };
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> SweepStats {
        self.stats
    }

    /// Looks at some versions. Where space is `short`, what nobody is at goes sooner. Returns how long there is
    /// nothing to look at; `None` where there will be nothing until somebody writes.
    ///
    /// # Errors
    /// The engine's: the next pass begins from the start. Where it is busy, this one goes on soon.
    pub fn step(
        &mut self,
        engine: &dyn Store,
        now: Instant,
        short: bool,
    ) -> Result<Option<Duration>, EngineError> {
        if let Some(until) = self.paused_until {
            if now < until {
                return Ok(Some(until - now));
            }
            self.paused_until = None;
        }
        let mut pace = self.pace;
        if short {
            pace.writers = pace.writers.min(pace.readers);
        }
        let mut step = Step {
            pace,
            engine,
            now,
            short,
            left: STEP_VERSIONS,
        };
        let stepped = self.go_on(&mut step);
        if stepped.is_err() {
            self.at = None;
            self.paused_until = Some(now + self.pace.every);
        }
        stepped
    }

    fn go_on(&mut self, step: &mut Step<'_>) -> Result<Option<Duration>, EngineError> {
        self.any |= self.uses.take_any();
        if self.look_at_replaced(step)? == Looked::Busy {
            return Ok(Some(self.pause(step)));
        }
        let pass = self.pass(step)?;
        let again = self.again.first().map(|(due, _)| due.since(step.now));
        Ok(match (pass, again) {
            (Some(pass), Some(again)) => Some(pass.min(again)),
            (pass, again) => pass.or(again),
        })
    }

    /// Has the sweeper wait, because the engine is busy. Returns for how long.
    fn pause(&mut self, step: &Step<'_>) -> Duration {
        self.paused_until = Some(step.now + BUSY);
        BUSY
    }

    /// Looks at keys whose long values have been replaced.
    fn look_at_replaced(&mut self, step: &mut Step<'_>) -> Result<Looked, EngineError> {
        while step.left > 0 {
            let due = self.again.first().is_some_and(|(due, _)| *due <= step.now);
            let key = match due {
                true => self.again.pop_first().map(|(_, key)| key),
                false => self.uses.take_replaced(),
            };
            let Some(key) = key else {
                break;
            };
            match self.look_at_key(&key, step)? {
                Looked::Done => {}
                Looked::Busy => {
                    self.again.insert((step.now, key));
                    return Ok(Looked::Busy);
                }
                Looked::Kept(_) if self.again.len() >= AGAIN_MAX => {}
                Looked::Kept(until) => {
                    self.again.insert((until.max(step.now + BUSY), key));
                }
            }
        }
        Ok(Looked::Done)
    }

    /// Looks at the first versions of a key. Where some are kept, the result says when the first of them may go.
    fn look_at_key(&mut self, key: &[u8], step: &mut Step<'_>) -> Result<Looked, EngineError> {
        let mut range = Part::of_key(key);
        let snapshot = step.engine.snapshot();
        let mut all = Looked::Done;
        while let Some(found) = step.first_of(&*snapshot, &range)? {
            let Some(part) = Part::parse(&found) else {
                range.from = successor(&found);
                continue;
            };
            match self.look(part, step)? {
                Looked::Busy => return Ok(Looked::Busy),
                Looked::Kept(until) => {
                    all = Looked::Kept(match all {
                        Looked::Kept(first) => first.min(until),
                        _ => until,
                    });
                }
                Looked::Done => {}
            }
            match part.all().to {
                Some(next) if step.left > 0 => range.from = next,
                // The pass finds the rest.
                _ => break,
            }
        }
        Ok(all)
    }

    /// Goes on with the pass over all parts.
    fn pass(&mut self, step: &mut Step<'_>) -> Result<Option<Duration>, EngineError> {
        let mut at = match self.at.take() {
            Some(at) => at,
            None => {
                if let Some(wait) = self.wait(step) {
                    return Ok(self.idle(step).then_some(wait));
                }
                self.seen = step.engine.last_lsn();
                self.any = false;
                RESERVED.to_vec()
            }
        };
        let snapshot = step.engine.snapshot();
        while step.left > 0 {
            let range = KeyRange::new(at.clone(), None);
            let Some(key) = step.first_of(&*snapshot, &range)? else {
                return Ok(self.end_pass(step));
            };
            let Some(part) = Part::parse(&key) else {
                // Nobody has written it.
                at = successor(&key);
                continue;
            };
            if self.look(part, step)? == Looked::Busy {
                self.at = Some(at);
                return Ok(Some(self.pause(step)));
            }
            self.met += 1;
            match part.all().to {
                Some(next) => at = next,
                None => return Ok(self.end_pass(step)),
            }
        }
        self.at = Some(at);
        Ok(Some(Duration::ZERO))
    }

    /// Whether a version may be without a head that was not when the last pass went by.
    fn idle(&self, step: &Step<'_>) -> bool {
        let wrote = step.engine.last_lsn() != self.seen;
        !self.suspects.is_empty() || self.any && wrote
    }

    /// How long no pass begins; `None`: one does now.
    fn wait(&self, step: &Step<'_>) -> Option<Duration> {
        let ended = self.ended?;
        let versions = u32::try_from(self.stats.versions).unwrap_or(u32::MAX);
        let gap = match self.idle(step) {
            false => self.pace.every,
            true if step.short => SOON,
            true => SOON_VERSION.saturating_mul(versions).max(SOON),
        };
        let due = ended + gap.min(self.pace.every);
        (step.now < due).then(|| due - step.now)
    }

    fn end_pass(&mut self, step: &Step<'_>) -> Option<Duration> {
        let pass = self.stats.passes;
        self.suspects.retain(|_, suspect| suspect.met == pass);
        self.uses
            .forget(step.now, self.pace.writers, self.pace.readers);
        self.stats.passes += 1;
        self.stats.versions = std::mem::take(&mut self.met);
        self.any |= self.stats.versions > 0;
        self.opening = false;
        self.ended = Some(step.now);
        let wait = self.wait(step);
        self.idle(step).then(|| wait.unwrap_or_default())
    }

    /// Removes the parts of a version if that is due.
    fn look(&mut self, part: Part<'_>, step: &mut Step<'_>) -> Result<Looked, EngineError> {
        step.left = step.left.saturating_sub(1);
        let found = step.engine.get(part.key)?;
        let head = found.value.as_deref().and_then(Head::parse);
        if head.is_some_and(|head| head.version == part.version) {
            self.suspects.remove(&part.version);
            return Ok(Looked::Done);
        }
        let full = self.suspects.len() >= SUSPECTS_MAX;
        let (now, met, older) = (step.now, self.stats.passes, self.opening);
        let suspect = match self.suspects.get_mut(&part.version) {
            Some(suspect) => {
                suspect.met = met;
                *suspect
            }
            None => {
                let since = now;
                let suspect = Suspect { since, met, older };
                if !full {
                    self.suspects.insert(part.version, suspect);
                }
                suspect
            }
        };
        if let Some(until) = self.kept_until(part.version, suspect, step) {
            return Ok(Looked::Kept(until));
        }
        match remove(part, found.version, step.engine) {
            Ok(true) => {
                self.suspects.remove(&part.version);
                self.stats.swept += 1;
                Ok(Looked::Done)
            }
            Ok(false) => Ok(Looked::Kept(now + BUSY)),
            Err(EngineError::Busy(_)) => Ok(Looked::Busy),
            Err(error) => Err(error),
        }
    }

    /// The time until which somebody may use a version that no head names; `None` where nobody does.
    fn kept_until(&self, version: u128, suspect: Suspect, step: &Step<'_>) -> Option<Instant> {
        let pace = &step.pace;
        let grace = match suspect.older {
            true => pace.writers.max(pace.brief),
            false => pace.brief,
        };
        let writer = self.uses.writer_keeps(version, pace.writers);
        // A writer that tells when it ends is asked again after a while.
        let writer = writer.map(|until| until.unwrap_or(step.now + pace.brief.max(BUSY)));
        let reader = self.uses.last_read(version);
        let reader = reader.map(|read| read + pace.readers);
        let until = writer.max(reader).max(Some(suspect.since + grace));
        until.filter(|until| *until > step.now)
    }
}

/// What one step goes by.
struct Step<'a> {
    pace: SweepPace,
    engine: &'a dyn Store,
    now: Instant,
    short: bool,
    /// Versions that it may still look at.
    left: usize,
}

impl Step<'_> {
    /// The first key of `range`.
    fn first_of(
        &self,
        snapshot: &dyn Snapshot,
        range: &KeyRange,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut scan = snapshot.scan(range, Direction::Up)?;
        scan.expect(1);
        scan.leave_values_out();
        Ok(scan.next()?.map(|(key, _)| key))
    }
}

/// Removes all parts of a version, unless its key was written since it had `looked_at` as version.
fn remove(part: Part<'_>, looked_at: Lsn, engine: &dyn Store) -> Result<bool, EngineError> {
    let mut batch = WriteBatch::new();
    batch.delete_range_any(&part.all())?;
    batch.guard(part.key, Guard::Unwritten(looked_at));
    Ok(engine.write(&batch, WriteOptions::default())?.applied)
}
