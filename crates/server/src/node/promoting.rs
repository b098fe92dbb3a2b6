//! What a primary's driver does in the background: to promote its copy, and to refill it. How it adopts another's
//! history before, and takes another group after.
//!
//! What a promotion rebuilds from the logs takes memory. Where many regions are promoted at one time they take turns
//! for it, and each step of a region that waits asks whether it has its turn.
//!
//! A promotion also waits for the device some times. No thread does that with it: the driver stays away from its region
//! ([`held`](super::held)) until a later step finds that the device is done. So one sync serves many promotions.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, Position, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::cut::Cut;
use argosy_engine::{NotPromoted, Observer};
use argosy_replication::primary::Event;

use super::context::Context;
use super::counters::Counted;
use super::local_copy::{Promoted, Promoting, Promotion};
use super::primary::PrimaryDriver;
use super::refilling::Unusable;
use super::role;
use super::stage::Stage;
use super::views::View;
use super::whole::WholeMark;

/// How long a promotion waits for the device without a thread. Then one waits with it: otherwise nobody would hear that
/// there is no room beneath the device, and a newer view would not be adapted to.
const ALONE_MAX: Duration = Duration::from_secs(10);

/// A promotion that waits for the device.
pub(crate) struct WaitingPromotion {
    promoting: Promoting,
    began: Instant,
}

/// What is to be done in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// The own copy is to be promoted.
    Promotion,
    /// The same, once it has the memory for that. It asks again at this moment, or when it is woken.
    PromotionInTurn(Instant),
    /// The own copy is to be refilled.
    Refill,
}

impl PrimaryDriver {
    /// An earlier primary may still answer: the region is not served before that is over.
    pub(super) const fn wait_for_lease(&mut self) {
        self.machine.wait_for_lease();
    }

    /// What is left where this server is the primary no more: the own copy or store, and the mark that it is whole.
    pub(super) fn into_parts(self) -> (Stage, Option<WholeMark>) {
        (self.stage, self.mark)
    }

    pub(super) fn do_at_device(&mut self, due: Due, context: &Context<'_>) {
        self.due = due;
        context.wake(self.region);
    }

    /// Whether there is something to do in the background, and it may be done now.
    pub(crate) fn has_work_at_device(&mut self, now: Instant, context: &Context<'_>) -> bool {
        if self.group.is_refused() {
            return false;
        }
        match (self.due, &mut self.stage) {
            (Due::Nothing, _) => false,
            (Due::Promotion | Due::PromotionInTurn(_), Stage::Opening(copy)) => {
                let waits = copy.take_memory(now, context);
                if let Some(waits) = waits {
                    self.due = Due::PromotionInTurn(now + waits);
                }
                waits.is_none()
            }
            _ => self.work_is_due_in(now).is_none_or(|later| later.is_zero()),
        }
    }

    /// Whether it waits for the memory that its promotion takes.
    pub(super) const fn waits_for_memory(&self) -> bool {
        matches!(self.due, Due::PromotionInTurn(_))
    }

    /// Begins to promote the own copy, or refills it, if that is due. Blocks: it reads logs, and a refill waits for the
    /// device.
    #[must_use]
    pub(crate) fn work_at_device(&mut self, context: &Context<'_>) -> Option<WaitingPromotion> {
        let at_device = match std::mem::replace(&mut self.due, Due::Nothing) {
            Due::Nothing => None,
            Due::Promotion | Due::PromotionInTurn(_) => self.promote(context),
            Due::Refill => {
                self.refill_now(context);
                None
            }
        };
        self.act(context);
        at_device
    }

    /// Goes on with a promotion that waits for the device, as far as that is possible without waiting. If it has waited
    /// for long, blocks.
    #[must_use]
    pub(super) fn promote_on(
        &mut self,
        at_device: WaitingPromotion,
        context: &Context<'_>,
    ) -> Option<WaitingPromotion> {
        let WaitingPromotion { promoting, began } = at_device;
        let step = match context.world.clock.now().since(began) < ALONE_MAX {
            true => promoting.step(),
            false => promoting.finish(),
        };
        let at_device = self.stepped(step, began, context);
        self.act(context);
        at_device
    }

    fn promote(&mut self, context: &Context<'_>) -> Option<WaitingPromotion> {
        if !matches!(self.stage, Stage::Opening(_)) {
            // Its copy has failed.
            return None;
        }
        let closed = Stage::Closed("the region is being opened".into());
        let Stage::Opening(copy) = std::mem::replace(&mut self.stage, closed) else {
            return None;
        };
        let outbox = Arc::clone(&self.outbox) as Arc<dyn Observer>;
        let observer = context.is_replicated().then_some(outbox);
        let began = context.world.clock.now();
        self.stepped(copy.promote(context, observer), began, context)
    }

    /// What follows from a step of the promotion that `began` then.
    fn stepped(
        &mut self,
        promotion: Result<Promotion, Box<NotPromoted>>,
        began: Instant,
        context: &Context<'_>,
    ) -> Option<WaitingPromotion> {
        match promotion {
            Ok(Promotion::Waits(promoting)) => return Some(WaitingPromotion { promoting, began }),
            Ok(Promotion::Done(promoted)) => self.promoted(promoted, began, context),
            Err(not) if not.error.is_damage() => {
                let NotPromoted { error, left } = *not;
                self.own_damaged(Unusable::damaged(error.to_string(), left), context);
            }
            Err(not) => {
                let error = not.error;
                tracing::error!(region = self.region.0, %error, "the region cannot be opened");
                self.fail(format!("the region cannot be opened: {error}"), context);
            }
        }
        None
    }

    /// The own copy is a store, and serves.
    fn promoted(&mut self, promoted: Promoted, began: Instant, context: &Context<'_>) {
        let Promoted {
            engine,
            cut,
            mut mark,
        } = promoted;
        mark.set(&context.world.store);
        self.mark = Some(mark);
        let (edit, lsn) = (engine.edit(), engine.last_lsn());
        let position = Position {
            edit,
            lsn,
            ..Position::default()
        };
        self.written.opened_at(lsn);
        context.count(Counted::Promotions);
        if self.group.opens_cut() {
            context.count(Counted::CutPromotions);
        }
        if let Some(cut) = cut {
            self.tell_of_cut(&cut, context);
        }
        self.stage = Stage::Serving(Arc::clone(&engine));
        self.keep_log(&context.view(self.region), context);
        context.serve(self.region, engine, self.group.since());
        let took = context.world.clock.now().since(began);
        tracing::info!(region = self.region.0, lsn = lsn.0, ?took, "region open");
        self.machine
            .step(Event::Opened { position }, &mut self.actions);
    }

    fn tell_of_cut(&self, cut: &Cut, context: &Context<'_>) {
        let counters = context.telling.counters();
        counters.add(Counted::CutRecords, cut.records);
        let kept = match cut.kept {
            0 => "there was no room to keep them",
            _ => {
                "`argosy inspect dump` shows what is kept of them while this server is stopped, and \
                 `argosy inspect discard-cut` frees it"
            }
        };
        let (region, records) = (self.region.0, cut.records);
        tracing::warn!(region, records, kept = cut.kept, "{}; {kept}", cut.words);
    }

    /// Whether the own copy is being filled.
    pub(super) fn is_being_filled(&self) -> bool {
        matches!(&self.stage, Stage::Opening(copy) if copy.is_being_filled())
    }

    /// How long it is until the own copy is refilled, after there was no room for it, or asks for memory again.
    pub(super) fn work_is_due_in(&self, now: Instant) -> Option<Duration> {
        match (&self.stage, self.due) {
            (Stage::Damaged(copy), Due::Refill) => Some(copy.again_at.since(now)),
            (Stage::Opening(_), Due::PromotionInTurn(again)) => Some(again.since(now)),
            _ => None,
        }
    }

    /// The own copy is too damaged to be used.
    pub(super) fn own_damaged(&mut self, unusable: Unusable, context: &Context<'_>) {
        tracing::error!(
            region = self.region.0,
            why = unusable.why,
            "the copy of this server is damaged"
        );
        let alone = context.backups(self.region).next().is_none();
        if self.was_refilled || alone || !unusable.is_damaged() {
            let why = format!("this server's copy is damaged: {}", unusable.why);
            return self.fail(why, context);
        }
        self.stage = Stage::Damaged(Box::new(unusable));
        self.machine.step(Event::OwnDamaged, &mut self.actions);
        self.act(context);
    }

    /// Refills the own copy. Blocks.
    pub(super) fn refill_now(&mut self, context: &Context<'_>) {
        if !self.machine.refills_own() {
            // The copy that is whole was lost.
            return;
        }
        let closed = Stage::Closed("its copy is begun anew".into());
        let mut unusable = match std::mem::replace(&mut self.stage, closed) {
            Stage::Damaged(unusable) => unusable,
            // It was put back, and another one is whole.
            Stage::Opening(copy) => Box::new(copy.into_unusable()),
            other => {
                self.stage = other;
                return;
            }
        };
        match unusable.begin_anew(self.region, context) {
            Ok(copy) => {
                self.was_refilled = true;
                context.turn(self.region, role::Event::Refilled);
                let position = copy.position();
                self.stage = Stage::Opening(Box::new(copy));
                self.machine
                    .step(Event::Refilled { position }, &mut self.actions);
                self.act(context);
            }
            Err(error) if error.is_full() => {
                unusable.try_later(&error, context);
                self.stage = Stage::Damaged(unusable);
                // The machine may still count on it, where it was put back.
                self.machine.step(Event::OwnDamaged, &mut self.actions);
                self.act(context);
            }
            Err(error) => {
                tracing::error!(region = self.region.0, %error, "this copy cannot be begun anew");
                self.fail(format!("its copy cannot be begun anew: {error}"), context);
            }
        }
    }

    pub(super) fn adopt(&mut self, from: ServerId, context: &Context<'_>) {
        let Stage::Opening(copy) = &mut self.stage else {
            // Its copy has failed.
            return;
        };
        tracing::info!(
            region = self.region.0,
            from = from.0,
            "adopting a longer history"
        );
        context.count(Counted::Adoptions);
        copy.adopt(from, context);
    }

    /// Tells the machine once an adoption has ended.
    pub(super) fn adopt_on(&mut self, context: &Context<'_>) {
        let Stage::Opening(copy) = &mut self.stage else {
            return;
        };
        if let Some(position) = copy.take_adoption() {
            self.machine
                .step(Event::Adopted { position }, &mut self.actions);
            self.act(context);
        }
    }

    /// Its group is another one, under the same promotion.
    pub(super) fn regroup(&mut self, view: &View, context: &Context<'_>) {
        let known: Vec<ServerId> = self.machine.members().map(|member| member.id).collect();
        let group = self.group.regrouped(view);
        self.keep_log(view, context);
        if let Stage::Serving(engine) = &self.stage {
            // Whose device counts is another matter, too.
            context
                .device_care
                .set_room_of_members(self.region, engine, context);
        }
        self.machine.step(Event::Group { group }, &mut self.actions);
        let now: Vec<ServerId> = self.machine.members().map(|member| member.id).collect();
        for member in now.into_iter().filter(|id| !known.contains(id)) {
            if context.link(member).is_open() {
                self.machine
                    .step(Event::LinkUp { member }, &mut self.actions);
            }
        }
        self.act(context);
    }

    /// Has the store keep its log while a copy may return that comes back by it: one that builds its own levels, where
    /// the group of `view` has fewer members than it is to have.
    fn keep_log(&self, view: &View, context: &Context<'_>) {
        let map = context.views.map();
        let builds = map.replication() == Replication::BuildIndex;
        let copies = usize::try_from(map.copies()).unwrap_or(usize::MAX);
        if let Some(source) = self.stage.source() {
            source.keep_log(builds && view.members().len() < copies);
        }
    }
}

#[cfg(test)]
#[path = "promoting_tests.rs"]
mod tests;
