//! Servers that stop as they should where groups change, as the program does when it is told to:
//!
//! 1. A server says that it leaves, and serves until others have its regions, for [`LEAVE_WITHIN`] at most.
//! 2. Then it takes no requests any more. It gives its leases up, and waits until nobody has one of it, for
//!    [`HAND_BACK`] at most.
//! 3. It ends. Where it owed nothing, that is recorded, and its next start need not wait.

use std::time::Duration;

use argosy_base::Instant;
use argosy_server::membership::{Leaver, Membership};
use argosy_server::node::Node;

use crate::load::Wrong;
use crate::run::Run;

/// How long a server waits until others lead its regions.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long it waits for leases to be handed back.
const HAND_BACK: Duration = Duration::from_millis(100);
/// Between two looks how far that is.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Servers that have stopped so.
pub(crate) const LEFT: &str = "servers that have left";
/// Those of them that owed nothing.
pub(crate) const OWED_NOTHING: &str = "servers that have left and owed nothing";

/// How far a server is that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It serves until then, at most.
    Serves(Instant),
    /// It has given its leases up, and waits until then, at most.
    HandsBack(Instant),
    /// It may end. Whether it owes nothing.
    Done(bool),
}

/// A server that leaves. See the module documentation.
pub(crate) struct Leaving {
    leaver: Leaver,
    stage: Stage,
}

impl Leaving {
    /// That of `membership`, from `now` on by its server's clock.
    pub(crate) fn begin(membership: &Membership, now: Instant) -> Self {
        let leaver = membership.leaver();
        leaver.leave();
        Self {
            leaver,
            stage: Stage::Serves(now + LEAVE_WITHIN),
        }
    }

    /// Goes on. Returns whether others have its regions.
    pub(crate) fn step(&mut self, node: &Node, now: Instant) -> bool {
        let has_left = self.leaver.has_left();
        match self.stage {
            Stage::Serves(until) if has_left || until <= now => {
                self.stage = Stage::HandsBack(now + HAND_BACK);
            }
            Stage::HandsBack(until) => {
                let owes_nothing = node.end_leases();
                if owes_nothing || until <= now {
                    self.stage = Stage::Done(owes_nothing);
                }
            }
            Stage::Serves(_) | Stage::Done(_) => {}
        }
        has_left
    }

    /// Whether it takes requests.
    pub(crate) const fn takes_requests(&self) -> bool {
        matches!(self.stage, Stage::Serves(_))
    }

    /// Whether it is to end now; if so, whether it owes nothing.
    pub(crate) const fn is_done(&self) -> Option<bool> {
        match self.stage {
            Stage::Done(owes_nothing) => Some(owes_nothing),
            Stage::Serves(_) | Stage::HandsBack(_) => None,
        }
    }
}

/// Who has servers leave.
pub(crate) struct Leavers<'r> {
    run: &'r mut Run,
}

impl<'r> Leavers<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// `server` begins to leave, if it does anything.
    pub(crate) fn begin(&mut self, server: usize) {
        if self.run.cluster.leave(server) {
            self.run.say(format_args!("server {server} leaves"));
        }
    }

    /// `server` ends if it is time.
    pub(crate) fn go_on(&mut self, server: usize) -> Result<(), Wrong> {
        let leaving = self.run.cluster.leaving(server);
        match leaving.and_then(Leaving::is_done) {
            Some(owes_nothing) => self.end(server, owes_nothing),
            None => Ok(()),
        }
    }

    /// `server` ends if it leaves, however far it is.
    pub(crate) fn hurry(&mut self, server: usize) -> Result<(), Wrong> {
        match self.run.cluster.leaving(server) {
            Some(_) => self.end(server, false),
            None => Ok(()),
        }
    }

    fn end(&mut self, server: usize, owes_nothing: bool) -> Result<(), Wrong> {
        self.run.answers()?;
        let coverage = &mut self.run.cluster.coverage;
        coverage.add(LEFT, 1);
        coverage.add(OWED_NOTHING, u64::from(owes_nothing));
        let ended = self.run.cluster.close(server);
        self.run.ended(server, ended, "has left");
        Ok(())
    }
}
