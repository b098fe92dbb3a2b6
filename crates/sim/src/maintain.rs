//! A client that has all regions flushed and compacted, beside the load: one request at a time. From a stream of its
//! own.
//!
//! 1. Each is answered as done, or by a failure that says to ask again, soon after its deadline.
//! 2. What was answered before a flush was asked for that was answered as done survives a loss of power, also of
//!    single copies.
//!
//! Nothing of it is done on small devices, whose merges are judged by what they do by themselves.

use argosy_base::Instant;
use argosy_server::service::{Failure, Maintenance, Response};

use crate::coverage::Coverage;
use crate::load::Wrong;
use crate::plan::Plan;
use crate::random::Random;

/// What tokens of this client have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 44;

/// A request under way.
struct Waits {
    token: u64,
    server: usize,
    session: u32,
    what: Maintenance,
    asked: Instant,
}

/// See the module documentation.
pub(crate) struct Maintainer {
    random: Random,
    /// Of 1000 ticks, in how many something is asked.
    permille: usize,
    waits: Option<Waits>,
    tokens: u64,
    /// What was answered by then is durable.
    flushed: Instant,
}

impl Maintainer {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 24);
        let permille = random.pick(&[0, 0, 2, 8]);
        Self {
            permille: if plan.devices.small.is_none() && plan.devices.many.is_none() {
                permille
            } else {
                0
            },
            random,
            waits: None,
            tokens: TOKEN,
            flushed: Instant::default(),
        }
    }

    /// A server to ask, of so many; `None`: nothing is to be asked now.
    pub(crate) fn whom(&mut self, servers: usize) -> Option<usize> {
        let asks =
            self.permille > 0 && self.waits.is_none() && self.random.below(1000) < self.permille;
        asks.then(|| self.random.below(servers))
    }

    /// What is asked of `server`, whose process is `session`.
    pub(crate) fn next(
        &mut self,
        server: usize,
        session: u32,
        asked: Instant,
    ) -> (u64, Maintenance) {
        let what = match self.random.chance(60) {
            true => Maintenance::Flush,
            false => Maintenance::Compact,
        };
        let token = self.tokens;
        self.tokens += 1;
        self.waits = Some(Waits {
            token,
            server,
            session,
            what,
            asked,
        });
        (token, what)
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32) {
        self.waits.take_if(|waits| waits.session == session);
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) const fn is_busy(&self) -> bool {
        self.waits.is_some()
    }

    /// What was answered by then survives a loss of power.
    #[must_use]
    pub(crate) const fn flushed(&self) -> Instant {
        self.flushed
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn answer(
        &mut self,
        token: u64,
        response: &Response,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        // Whoever asked may have been given up with the process that was asked.
        let Some(waits) = self.waits.take_if(|waits| waits.token == token) else {
            return Ok(());
        };
        match (response, waits.what) {
            (Response::Done, Maintenance::Flush) => {
                coverage.add("flushes that were asked for", 1);
                // What was answered at that very moment may have come behind it.
                let before = Instant::from_nanos(waits.asked.as_nanos().saturating_sub(1));
                self.flushed = self.flushed.max(before);
                Ok(())
            }
            (Response::Done, Maintenance::Compact) => {
                coverage.add("compactions that were asked for", 1);
                Ok(())
            }
            (Response::Failed(Failure::Invalid(why)), _) => Err(format!("refused: {why}")),
            (Response::Failed(_), _) => {
                coverage.add("maintenance that was not done", 1);
                Ok(())
            }
            (odd, what) => Err(format!("{what:?} was answered by {odd:?}")),
        }
    }

    /// Which server was asked what is under way, and when.
    #[must_use]
    pub(crate) fn pending(&self) -> Option<(usize, Instant)> {
        let waits = self.waits.as_ref()?;
        Some((waits.server, waits.asked))
    }
}
