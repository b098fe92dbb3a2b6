//! How a passive copy takes its windows back and reports where it stands.
//!
//! The windows are revoked at once. The rest reads the logs, and is done in the background:
//! fresh memory is made, filled with what was in the old windows and is not durable, offered, and the
//! report is sent. Where there is no memory for fresh windows the report is owed: it is tried again, at
//! growing intervals, until the attempt is over. Nobody can write to the copy meanwhile, and the old
//! windows stay what a restart finds. Memory for windows that have rested is owed likewise.

use std::time::Duration;

use argosy_base::{Instant, Standing};
use argosy_memory::MemoryError;
use argosy_replication::backup::BackupEvent;
use argosy_wire::message::Message;

use super::context::Context;
use super::follower::Follower;
use super::windows::WindowsOf;

/// First and longest pause before memory is asked for again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What the primary waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A report, from fresh windows.
    Report,
    /// That the windows are awake.
    Awake,
}

/// What is due, or for which there was no memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwedReport {
    what: What,
    attempt: u64,
    /// When it is due.
    at: Instant,
    /// How long that is after the last time, where there was one.
    pause: Option<Duration>,
}

impl Follower {
    /// The primary has the copy prepare.
    pub(super) fn prepare(&mut self, message: &Message<'_>, context: &Context<'_>) {
        let Message::Prepare {
            attempt,
            addresses,
            refill,
        } = *message
        else {
            return;
        };
        if addresses != self.copy.replica.addresses() {
            return self.refuse_addresses(self.copy.primary, attempt, addresses, context);
        }
        // A copy that was begun anew and is still empty has no history.
        let is_new =
            self.copy.replica.standing() == Standing::BegunAnew && self.position().is_empty();
        if refill && !is_new {
            return self.refill_wanted(attempt, context);
        }
        self.begin_again(context);
        self.step_machine(BackupEvent::Prepare { attempt }, context);
    }

    /// Takes the windows back. Where the log ends is found, and told to the primary, in the background.
    pub(super) fn report(&mut self, attempt: u64, context: &Context<'_>) {
        if self.copy.keeps_grant(context) {
            return self.send_report(attempt, context);
        }
        self.copy.revoke_windows(context);
        let at = context.now();
        self.owed = Some(OwedReport {
            what: What::Report,
            attempt,
            at,
            pause: None,
        });
        context.wake(self.copy.region);
    }

    /// Whether a report is due at `now`.
    pub(crate) fn report_is_due(&self, now: Instant) -> bool {
        self.health.failed.is_none() && self.owed.is_some_and(|owed| now >= owed.at)
    }

    /// How long it is until a report is due, if one is owed.
    pub(crate) fn report_is_due_in(&self, now: Instant) -> Option<Duration> {
        let owed = self.owed.filter(|_| self.health.failed.is_none())?;
        Some(owed.at.since(now))
    }

    /// Fills fresh windows, finds where the log ends, and tells the primary, if that is due. Blocks.
    pub(crate) fn report_if_due(&mut self, context: &Context<'_>) {
        if !self.report_is_due(context.now()) {
            return;
        }
        let Some(OwedReport { what, attempt, .. }) = self.owed else {
            return;
        };
        if what == What::Awake {
            return self.allocate(attempt, context);
        }
        let of_region = WindowsOf {
            region: self.copy.region,
            logs: context.memory.engine().logs(),
        };
        let world = context.world;
        let fresh = match of_region.fresh(world) {
            Ok(fresh) => fresh,
            Err(error) => return self.owe(What::Report, attempt, &error, context),
        };
        if let Err(error) = self.copy.replica.detach(fresh.clone()) {
            return self.fail_by(&error, context);
        }
        if let Err(error) = of_region.keep(world) {
            return self.owe(What::Report, attempt, &error, context);
        }
        self.owed = None;
        if let Err(error) = of_region.register(&fresh, context.fabric()) {
            tracing::error!(region = self.copy.region.0, %error, "a window cannot be offered");
            return context.reset_link(self.copy.primary, "a window cannot be offered");
        }
        self.send_report(attempt, context);
    }

    fn send_report(&self, attempt: u64, context: &Context<'_>) {
        let position = self.position();
        let report = Message::Report {
            attempt,
            position,
            standing: self.copy.standing(),
        };
        context.send(self.copy.primary, self.copy.region, &report);
    }

    /// Takes memory for windows that rest, and tells the primary; later, where there is none now.
    pub(super) fn allocate(&mut self, attempt: u64, context: &Context<'_>) {
        if let Err(error) = self.copy.replica.wake() {
            return self.owe(What::Awake, attempt, &error, context);
        }
        self.owed = None;
        context.send(
            self.copy.primary,
            self.copy.region,
            &Message::Awake { attempt },
        );
    }

    /// There is no memory for windows: `what` is due later.
    fn owe(&mut self, what: What, attempt: u64, error: &MemoryError, context: &Context<'_>) {
        let before = self.owed.and_then(|owed| owed.pause);
        if before.is_none() {
            tracing::warn!(
                region = self.copy.region.0,
                %error,
                "there is no memory for windows now: the primary waits, and it is tried again"
            );
        }
        let pause = before.map_or(PAUSE_MIN, |pause| (2 * pause).min(PAUSE_MAX));
        self.owed = Some(OwedReport {
            what,
            attempt,
            at: context.now() + pause,
            pause: Some(pause),
        });
        // A message brought it here as a rule: the next step of the region learns when it is due.
        context.wake(self.copy.region);
    }
}
