//! Removes parts that no head names: see [`long`](super).

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_base::range::successor;
use argosy_base::{Direction, Instant, KeyRange, Lsn};

use super::{Head, Part, RESERVED};
use crate::batch::{Guard, WriteBatch};
use crate::traits::{Engine, EngineError, WriteOptions};

/// How parts without a head are looked for.
#[derive(Clone, Copy, Debug)]
pub struct SweepPace {
    /// From the end of one pass over all parts to the next.
    pub every: Duration,
    /// How long no head has to have named a version for its parts to be removed: readers may still be at it,
    /// or its writer may still come to the head.
    pub grace: Duration,
}

impl Default for SweepPace {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(60),
            grace: Duration::from_secs(300),
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

/// Removes parts that no head names. See [`long`](super).
#[derive(Debug, Default)]
pub struct Sweeper {
    pace: SweepPace,
    /// Where the pass goes on; `None`: none is under way.
    at: Option<Vec<u8>>,
    /// When the next one begins.
    due: Option<Instant>,
    /// Versions that no head names: since when, as far as is known, and in which pass they were last met.
    suspects: BTreeMap<u128, (Instant, u64)>,
    /// Versions that this pass has met.
    met: u64,
    stats: SweepStats,
}

/// What came of a look at a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// There is nothing more to be done now.
    Done,
    /// It is to be removed, and the engine takes no write at present.
    Busy,
}

impl Sweeper {
    /// One that keeps to `pace`.
    #[must_use]
    pub fn new(pace: SweepPace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> SweepStats {
        self.stats
    }

    /// Looks at some versions. Returns how long there is nothing to look at; `None` where there will be
    /// nothing until somebody writes.
    ///
    /// # Errors
    /// The engine's: the next pass begins from the start. Where it is busy, this one goes on soon.
    pub fn step(
        &mut self,
        engine: &dyn Engine,
        now: Instant,
    ) -> Result<Option<Duration>, EngineError> {
        let stepped = self.go_on(engine, now);
        if stepped.is_err() {
            self.due = Some(now + self.pace.every);
        }
        stepped
    }

    fn go_on(
        &mut self,
        engine: &dyn Engine,
        now: Instant,
    ) -> Result<Option<Duration>, EngineError> {
        let mut at = match (self.at.take(), self.due) {
            (Some(at), _) => at,
            (None, Some(due)) if now < due => return Ok(self.idle(due - now)),
            (None, _) => RESERVED.to_vec(),
        };
        let snapshot = engine.snapshot();
        for _ in 0..STEP_VERSIONS {
            let mut scan = snapshot.scan(&KeyRange::new(at.clone(), None), Direction::Up)?;
            scan.expect(1);
            scan.leave_values_out();
            let Some((key, _)) = scan.next()? else {
                return Ok(self.end_pass(now));
            };
            drop(scan);
            let Some(part) = Part::parse(&key) else {
                // Nobody has written it.
                at = successor(&key);
                continue;
            };
            if self.look(engine, part, now)? == Looked::Busy {
                self.at = Some(at);
                return Ok(Some(BUSY));
            }
            self.met += 1;
            match part.all().to {
                Some(next) => at = next,
                None => return Ok(self.end_pass(now)),
            }
        }
        self.at = Some(at);
        Ok(Some(Duration::ZERO))
    }

    fn idle(&self, left: Duration) -> Option<Duration> {
        (!self.suspects.is_empty()).then_some(left)
    }

    fn end_pass(&mut self, now: Instant) -> Option<Duration> {
        let pass = self.stats.passes;
        self.suspects.retain(|_, (_, met)| *met == pass);
        self.stats.passes += 1;
        self.stats.versions = std::mem::take(&mut self.met);
        self.due = Some(now + self.pace.every);
        self.idle(self.pace.every)
    }

    /// Removes the parts of a version if that is due.
    fn look(
        &mut self,
        engine: &dyn Engine,
        part: Part<'_>,
        now: Instant,
    ) -> Result<Looked, EngineError> {
        let found = engine.get(part.key)?;
        let head = found.value.as_deref().and_then(Head::parse);
        if head.is_some_and(|head| head.version == part.version) {
            self.suspects.remove(&part.version);
            return Ok(Looked::Done);
        }
        let full = self.suspects.len() >= SUSPECTS_MAX;
        let since = match self.suspects.get_mut(&part.version) {
            Some((since, pass)) => {
                *pass = self.stats.passes;
                *since
            }
            None if full => return Ok(Looked::Done),
            None => {
                let suspect = (now, self.stats.passes);
                self.suspects.insert(part.version, suspect);
                now
            }
        };
        if now.since(since) < self.pace.grace {
            return Ok(Looked::Done);
        }
        match self.remove(engine, part, found.version) {
            Ok(true) => {
                self.suspects.remove(&part.version);
                self.stats.swept += 1;
            }
            Ok(false) => {}
            Err(EngineError::Busy(_)) => return Ok(Looked::Busy),
            Err(error) => return Err(error),
        }
        Ok(Looked::Done)
    }

    /// Removes all parts of a version, unless its key was written since it had `looked_at` as version.
    fn remove(
        &self,
        engine: &dyn Engine,
        part: Part<'_>,
        looked_at: Lsn,
    ) -> Result<bool, EngineError> {
        let mut batch = WriteBatch::new();
        batch.delete_range_any(&part.all())?;
        batch.guard(part.key, Guard::Unwritten(looked_at));
        Ok(engine.write(&batch, WriteOptions::default())?.applied)
    }
}
