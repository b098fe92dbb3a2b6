//! A passive copy that has failed: what becomes of it, and how its primary hears of it.
//!
//! A copy fails when its device does, when what is stored of it is damaged, or when something that it was sent can
//! neither be applied nor be sent again. It stays failed until its server is started again, or, where it is damaged,
//! until it is refilled ([`refilling`](super::super::refilling)):
//!
//! - Its windows are revoked, so that the primary's writes into them fail. Nothing is acknowledged
//!   that this copy would lack.
//! - Landing slots into which its primary has shipped are given back, at once and from then on. They
//!   belong to the link: other regions of the same two servers need them.
//! - Its primary is told, at once and whenever it asks the copy to prepare.

use std::fmt::Display;

use argosy_base::{AddressMode, ServerId};
use argosy_engine::CopyError;
use argosy_replication::backup::BackupEvent;
use argosy_wire::message::Message;

use super::super::arriving::Landed;
use super::super::context::Context;
use super::super::failing::Failed;
use super::super::refilling::Unusable;
use super::super::role;
use super::Follower;

impl Follower {
    /// Why the copy has stopped following, if it has.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.health.failed()
    }

    /// Whether it has failed for damage, and may be refilled.
    pub(crate) fn is_damaged(&self) -> bool {
        self.health.is_damaged()
    }

    /// The attempt under which it is to be refilled, if it is.
    pub(crate) const fn due_refill(&self) -> Option<u64> {
        self.health.due_refill()
    }

    /// Closes a copy that has failed for damage, and returns what is kept of it.
    pub(crate) fn into_unusable(self) -> Unusable {
        let why = self.health.into_why();
        let left = self.copy.replica.set_aside();
        Unusable::damaged(why, left).with(self.fetching.left())
    }

    /// The copy fails because of an error of its storage.
    pub(in super::super) fn fail_by(&mut self, error: &CopyError, context: &Context<'_>) {
        if error.is_damage() {
            return self.fail_for_damage(error, context);
        }
        self.fail(error, context);
    }

    /// The copy fails because of `error`: what is stored of it is damaged.
    pub(crate) fn fail_for_damage(&mut self, error: &dyn Display, context: &Context<'_>) {
        self.health.found_damage();
        self.fail(error, context);
    }

    /// The copy fails because of `error`. See the module documentation.
    pub(crate) fn fail(&mut self, error: &dyn Display, context: &Context<'_>) {
        if self.health.has_failed() {
            return;
        }
        tracing::error!(region = self.copy.region.0, %error, "this copy stops following");
        self.health.fail(error);
        if self.copy.primary != context.id {
            context.turn(self.copy.region, role::Event::Failed);
        }
        if context.settings.mutants.fail_silently() {
            return;
        }
        self.copy.revoke_windows(context);
        let attempt = self.machine.attempt();
        self.begin_again(context);
        self.forget_work();
        self.machine.step(BackupEvent::LinkDown, &mut self.actions);
        self.actions.clear();
        if let Some(attempt) = attempt {
            let failed = Failed {
                attempt,
                damaged: self.is_damaged(),
                why: error,
            };
            failed.tell(self.copy.primary, self.copy.region, context);
        }
    }

    /// A message of another member, after the copy has failed: all that is still done is to give
    /// slots back and to say that it has failed.
    pub(crate) fn handle_failed(
        &mut self,
        from: ServerId,
        message: &Message<'_>,
        context: &Context<'_>,
    ) {
        match *message {
            Message::Prepare {
                attempt,
                refill: true,
                ..
            } if from == self.copy.primary && self.is_damaged() => {
                self.health.want_refill(attempt);
                context.wake(self.copy.region);
            }
            Message::Prepare { attempt, .. } if from == self.copy.primary => {
                self.health.take_refill_back();
                let failed = Failed {
                    attempt,
                    damaged: self.is_damaged(),
                    why: &self.health.failed().unwrap_or_default(),
                };
                failed.tell(from, self.copy.region, context);
            }
            Message::Ship { attempt, slot, .. } => {
                let landed = Landed { attempt, slot };
                context.send(from, self.copy.region, &landed.stored());
            }
            Message::Fetched { slot, .. } => self.fetching.give_back(from, slot, context),
            _ => {}
        }
    }

    /// The primary asks for a copy to be refilled that can be used: its history is another one.
    pub(super) fn refill_wanted(&mut self, attempt: u64, context: &Context<'_>) {
        self.fail_for_damage(&"its history is not that of its region", context);
        let prepare = Message::Prepare {
            attempt,
            addresses: self.copy.replica.addresses(),
            refill: true,
        };
        self.handle_failed(self.copy.primary, &prepare, context);
    }

    /// The primary's pointers name something else than this copy's: nothing of it can be taken.
    pub(super) fn refuse_addresses(
        &mut self,
        primary: ServerId,
        attempt: u64,
        theirs: AddressMode,
        context: &Context<'_>,
    ) {
        let own = self.copy.replica.addresses();
        let why = format!(
            "{primary}, the primary, has address mode {theirs}, and this server {own}: all members \
             of a cluster have the same"
        );
        self.fail(&why, context);
        let failed = Failed {
            attempt,
            damaged: false,
            why: &why,
        };
        failed.tell(primary, self.copy.region, context);
    }
}
