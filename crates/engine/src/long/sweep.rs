//! Removes parts, and elements of composites, that no head names: see [`long`](super).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::composite::{Composite, ElementsOf};
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
/// How many times as long as a pass takes there is none behind it: one over very many versions takes long.
const REST: u32 = 9;
/// What a step of a pass takes, at most: where the next one comes later the pass was held up.
const STEP_TAKES: Duration = BUSY;
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

/// A version of a key under which parts or elements are.
#[derive(Clone, Copy, Debug)]
struct Stored<'a> {
    key: &'a [u8],
    version: u128,
    what: What<'a>,
}

/// What is under a version.
#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Parts(Part<'a>),
    Elements(ElementsOf<'a>),
}

impl<'a> Stored<'a> {
    /// The version that a reserved key belongs to; `None`: nobody has written such a key.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if let Some(part) = Part::parse(bytes) {
            let Part { key, version, .. } = part;
            let what = What::Parts(part);
            return Some(Self { key, version, what });
        }
        let elements = ElementsOf::parse(bytes)?;
        let ElementsOf { key, version } = elements;
        let what = What::Elements(elements);
        Some(Self { key, version, what })
    }

    /// All keys of the version.
    fn all(self) -> KeyRange {
        match self.what {
            What::Parts(part) => part.all(),
            What::Elements(elements) => elements.all(),
        }
    }

    /// Whether `value`, which its key is bound to, is its head.
    fn is_named_by(self, value: &[u8]) -> bool {
        let version = match self.what {
            What::Parts(_) => Head::parse(value).map(|head| head.version),
            What::Elements(_) => Composite::parse(value).map(|head| head.version),
        };
        version == Some(self.version)
    }
}

/// A pass that is under way.
#[derive(Debug)]
struct UnderWay {
    /// Where it goes on.
    at: Vec<u8>,
    /// When its last step was.
    stepped: Instant,
    took: Duration,
}

impl UnderWay {
    /// One that has come to `at` in this step.
    const fn new(at: Vec<u8>, took: Duration, step: &Step<'_>) -> Self {
        let stepped = step.now;
        Self { at, stepped, took }
    }

    /// How long it has taken at `now`, in its next step. Time in which it was held up does not count.
    fn taken(&self, now: Instant) -> Duration {
        self.took + now.since(self.stepped).min(STEP_TAKES)
    }
}

/// A pass that came to the end.
#[derive(Clone, Copy, Debug)]
struct LastPass {
    ended: Instant,
    took: Duration,
}

/// Removes parts and elements that no head names. See [`long`](super).
#[derive(Debug)]
pub struct Sweeper {
    pace: SweepPace,
    uses: Arc<Uses>,
    /// The pass that is under way.
    at: Option<UnderWay>,
    /// The last one that came to the end.
    last: Option<LastPass>,
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
            last: None,
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
            let Some(stored) = Stored::parse(&found) else {
                range.from = successor(&found);
                continue;
            };
            match self.look(stored, step)? {
                Looked::Busy => return Ok(Looked::Busy),
                Looked::Kept(until) => {
                    all = Looked::Kept(match all {
                        Looked::Kept(first) => first.min(until),
                        _ => until,
                    });
                }
                Looked::Done => {}
            }
            match stored.all().to {
                Some(next) if step.left > 0 => range.from = next,
                // The pass finds the rest.
                _ => break,
            }
        }
        Ok(all)
    }

    /// Goes on with the pass over all parts.
    fn pass(&mut self, step: &mut Step<'_>) -> Result<Option<Duration>, EngineError> {
        let (mut at, took) = match self.at.take() {
            Some(pass) => {
                let took = pass.taken(step.now);
                (pass.at, took)
            }
            None => {
                if let Some(wait) = self.wait(step) {
                    return Ok(self.idle(step).then_some(wait));
                }
                self.seen = step.engine.last_lsn();
                self.any = false;
                (RESERVED.to_vec(), Duration::ZERO)
            }
        };
        let snapshot = step.engine.snapshot();
        while step.left > 0 {
            let range = KeyRange::new(at.clone(), None);
            let Some(key) = step.first_of(&*snapshot, &range)? else {
                return Ok(self.end_pass(took, step));
            };
            let Some(stored) = Stored::parse(&key) else {
                // Nobody has written it.
                at = successor(&key);
                continue;
            };
            if self.look(stored, step)? == Looked::Busy {
                self.at = Some(UnderWay::new(at, took, step));
                return Ok(Some(self.pause(step)));
            }
            self.met += 1;
            match stored.all().to {
                Some(next) => at = next,
                None => return Ok(self.end_pass(took, step)),
            }
        }
        self.at = Some(UnderWay::new(at, took, step));
        Ok(Some(Duration::ZERO))
    }

    /// Whether a version may be without a head that was not when the last pass went by.
    fn idle(&self, step: &Step<'_>) -> bool {
        let wrote = step.engine.last_lsn() != self.seen;
        !self.suspects.is_empty() || self.any && wrote
    }

    /// How long no pass begins; `None`: one does now.
    fn wait(&self, step: &Step<'_>) -> Option<Duration> {
        let last = self.last?;
        let versions = u32::try_from(self.stats.versions).unwrap_or(u32::MAX);
        let gap = match self.idle(step) {
            false => self.pace.every,
            true if step.short => SOON,
            true => SOON_VERSION.saturating_mul(versions).max(SOON),
        };
        let gap = gap.min(self.pace.every);
        let due = last.ended + gap.max(last.took.saturating_mul(REST));
        (step.now < due).then(|| due - step.now)
    }

    fn end_pass(&mut self, took: Duration, step: &Step<'_>) -> Option<Duration> {
        let pass = self.stats.passes;
        self.suspects.retain(|_, suspect| suspect.met == pass);
        self.uses
            .forget(step.now, self.pace.writers, self.pace.readers);
        self.stats.passes += 1;
        self.stats.versions = std::mem::take(&mut self.met);
        self.any |= self.stats.versions > 0;
        self.opening = false;
        self.last = Some(LastPass {
            ended: step.now,
            took,
        });
        let wait = self.wait(step);
        self.idle(step).then(|| wait.unwrap_or_default())
    }

    /// Removes what is stored under a version if that is due.
    fn look(&mut self, stored: Stored<'_>, step: &mut Step<'_>) -> Result<Looked, EngineError> {
        step.left = step.left.saturating_sub(1);
        let found = step.engine.get(stored.key)?;
        let value = found.value.as_deref();
        if value.is_some_and(|value| stored.is_named_by(value)) {
            self.suspects.remove(&stored.version);
            return Ok(Looked::Done);
        }
        let full = self.suspects.len() >= SUSPECTS_MAX;
        let (now, met, older) = (step.now, self.stats.passes, self.opening);
        let suspect = match self.suspects.get_mut(&stored.version) {
            Some(suspect) => {
                suspect.met = met;
                *suspect
            }
            None => {
                let since = now;
                let suspect = Suspect { since, met, older };
                if !full {
                    self.suspects.insert(stored.version, suspect);
                }
                suspect
            }
        };
        if let Some(until) = self.kept_until(stored.version, suspect, step) {
            return Ok(Looked::Kept(until));
        }
        match remove(stored, found.version, step) {
            Ok(true) => {
                self.suspects.remove(&stored.version);
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

    /// The keys of `range`, committed or not, if they are few.
    fn few_of(&self, range: &KeyRange) -> Result<Option<Vec<Vec<u8>>>, EngineError> {
        let snapshot = self.engine.snapshot_of_all();
        let mut scan = snapshot.scan(range, Direction::Up)?;
        scan.expect(SINGLE_MAX + 1);
        scan.leave_values_out();
        let mut keys = Vec::new();
        while let Some((key, _)) = scan.next()? {
            if keys.len() == SINGLE_MAX {
                return Ok(None);
            }
            keys.push(key);
        }
        Ok(Some(keys))
    }
}

/// Elements of a version that are removed one by one, at most: memtables keep each range until they go to the levels.
const SINGLE_MAX: usize = 32;

/// Removes all that is stored under a version, unless its key was written since it had `looked_at` as version.
fn remove(stored: Stored<'_>, looked_at: Lsn, step: &Step<'_>) -> Result<bool, EngineError> {
    let mut batch = WriteBatch::new();
    let all = stored.all();
    let few = match stored.what {
        What::Parts(_) => None,
        What::Elements(_) => step.few_of(&all)?,
    };
    match few {
        Some(keys) if keys.is_empty() => return Ok(true),
        Some(keys) => keys.iter().try_for_each(|key| batch.delete_any(key))?,
        None => batch.delete_range_any(&all)?,
    }
    batch.guard(stored.key, Guard::Unwritten(looked_at));
    Ok(step.engine.write(&batch, WriteOptions::default())?.applied)
}
