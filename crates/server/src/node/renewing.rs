//! How a passive copy takes its windows back and reports where it stands.
//!
//! The windows are revoked at once. The rest reads the logs, and is done in the background:
//! fresh memory is made, filled with what was in the old windows and is not durable, offered, and the
//! report is sent. A copy of no member says first, on the device, that it is being filled. Where there is
//! no room for that, or no memory for fresh windows, the report is owed: it is tried again, at growing
//! intervals, until the attempt is over. Nobody can write to the copy meanwhile, and the old windows
//! stay what a restart finds. Memory for windows that have rested is owed likewise. Fresh windows have none
//! either, where there was nothing in the old ones: they get it when the primary asks for that.

use std::fmt::Display;
use std::time::Duration;

use argosy_base::{Instant, RegionId};
use argosy_engine::CopyError;
use argosy_wire::message::Message;

use super::context::Context;
use super::local_copy::LocalCopy;

/// First and longest pause before memory is asked for again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What the primary waits for, under an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A report, from fresh windows.
    Report(u64),
    /// That the windows are awake.
    Awake(u64),
}

/// What is due, or for which there was no memory.
#[derive(Clone, Copy, Debug)]
struct Owed {
    what: What,
    /// When it is due.
    at: Instant,
    /// How long that is after the last time, where there was one.
    pause: Option<Duration>,
}

/// The report that a copy owes its primary, if it does.
#[derive(Debug, Default)]
pub(super) struct OwedReport(Option<Owed>);

impl OwedReport {
    /// Takes the windows back. Where the log ends is found, and told to the primary, in the background.
    pub(super) fn begin(&mut self, attempt: u64, copy: &mut LocalCopy, context: &Context<'_>) {
        if copy.keeps_grant(context) {
            return copy.report(attempt, context);
        }
        copy.revoke_windows(context);
        self.0 = Some(Owed {
            what: What::Report(attempt),
            at: context.now(),
            pause: None,
        });
        context.wake(copy.region);
    }

    /// Nobody waits for it any more.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Whether it is due at `now`.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.0.is_some_and(|owed| now >= owed.at)
    }

    /// How long it is until it is due.
    pub(super) fn is_due_in(&self, now: Instant) -> Option<Duration> {
        self.0.map(|owed| owed.at.since(now))
    }

    /// Fills fresh windows, finds where the log ends, and tells the primary. Blocks.
    ///
    /// # Errors
    /// What makes the copy fail.
    pub(super) fn make(
        &mut self,
        copy: &mut LocalCopy,
        context: &Context<'_>,
    ) -> Result<(), CopyError> {
        let attempt = match self.0.map(|owed| owed.what) {
            Some(What::Report(attempt)) => attempt,
            Some(What::Awake(attempt)) => {
                return self.wake_windows(attempt, copy, context);
            }
            None => return Ok(()),
        };
        let what = What::Report(attempt);
        match copy.begin_filling(context) {
            Err(error) if error.is_full() => {
                self.owe(what, &error, copy.region, context);
                return Ok(());
            }
            begun => begun?,
        }
        let fresh = match copy.detach(context)? {
            Ok(fresh) => fresh,
            Err(error) => {
                self.owe(what, &error, copy.region, context);
                return Ok(());
            }
        };
        self.0 = None;
        if let Err(error) = copy.grant(&fresh, context) {
            tracing::error!(region = copy.region.0, %error, "a window cannot be offered");
            context.reset_link(copy.primary, "a window cannot be offered");
            return Ok(());
        }
        copy.report(attempt, context);
        Ok(())
    }

    /// The windows are to have memory: now, or in the background where the device has to be read for that.
    ///
    /// # Errors
    /// What makes the copy fail.
    pub(super) fn awaken(
        &mut self,
        attempt: u64,
        copy: &mut LocalCopy,
        context: &Context<'_>,
    ) -> Result<(), CopyError> {
        if !copy.replica.is_bare() {
            return self.wake_windows(attempt, copy, context);
        }
        self.0 = Some(Owed {
            what: What::Awake(attempt),
            at: context.now(),
            pause: None,
        });
        context.wake(copy.region);
        Ok(())
    }

    /// Takes memory for windows that rest, and tells the primary; later, where there is none now.
    fn wake_windows(
        &mut self,
        attempt: u64,
        copy: &mut LocalCopy,
        context: &Context<'_>,
    ) -> Result<(), CopyError> {
        match copy.replica.wake() {
            Ok(()) => {}
            Err(CopyError::Windows(error)) => {
                self.owe(What::Awake(attempt), &error, copy.region, context);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.0 = None;
        copy.tell(&Message::Awake { attempt }, context);
        Ok(())
    }

    /// There is no memory for windows, or no room on the device: `what` is due later.
    fn owe(&mut self, what: What, error: &dyn Display, region: RegionId, context: &Context<'_>) {
        let before = self.0.and_then(|owed| owed.pause);
        if before.is_none() {
            tracing::warn!(
                region = region.0,
                %error,
                "there is no memory for windows now, or no room: the primary waits, and it is tried again"
            );
        }
        let pause = before.map_or(PAUSE_MIN, |pause| (2 * pause).min(PAUSE_MAX));
        self.0 = Some(Owed {
            what,
            at: context.now() + pause,
            pause: Some(pause),
        });
        // A message brought it here as a rule: the next step of the region learns when it is due.
        context.wake(region);
    }
}
