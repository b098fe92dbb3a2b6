//! What is done with regions as a whole because a client has asked: their logs are flushed, their levels merged.
//!
//! 1. Every region is asked at once, wherever its primary is, and the request is answered when all are done.
//! 2. *Flush*: what was written before, that which waits for room included, is to be durable on every member.
//! 3. *Compact*: the engine merges until everything lies in one level. It is done when every member has applied
//!    the edit that came last of that. Backups that build levels of their own are asked to do the same, by a
//!    message, which one that was away gets when it is attached again; it is done when they have all said so.
//!
//! Nobody waits beyond the deadline, nor while a device is full. What was asked for goes on all the same, and
//! whoever asks again waits for the rest.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use argosy_base::{EditSeq, Instant, Lsn, Outcome, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::BusyReason;
use argosy_wire::message::Message;
use parking_lot::{Mutex, MutexGuard};

use super::local::LocalRegion;
use super::open::OpenRegion;
use super::refuse::overloaded;
use super::region::{Region, engine_of, send_all};
use super::serving::Serving;
use super::waiting::{Entry, Queued};
use crate::service::{Failure, Maintenance, ReplyTo, Response};

/// Most requests that wait for one region.
const WAITING_MAX: usize = 1024;

/// When a request is done.
#[derive(Clone, Copy)]
enum Goal {
    /// Everything up to here is durable on every member.
    Durable(Lsn),
    /// The engine has done what it was asked, and so have the others.
    Merged(Merged),
}

/// When everything is merged.
#[derive(Clone, Copy)]
struct Merged {
    /// What the engine was asked under this number is done.
    number: u64,
    /// The edit that came last of that, once it is: every member has applied it.
    edit: Option<EditSeq>,
    /// Backups that build their own levels have merged everything up to here.
    upto: Option<Lsn>,
}

/// A request that waits.
struct Waiter {
    goal: Goal,
    /// Whom it was asked of.
    engine: Weak<Serving>,
    reply: ReplyTo,
    deadline: Instant,
}

/// What backups that build their own levels have merged.
#[derive(Default)]
struct Backups {
    /// Up to where all of them are to, unless they have.
    asked: Option<Lsn>,
    /// Up to where each has.
    merged: BTreeMap<ServerId, Lsn>,
}

/// Requests about a region as a whole that were not answered.
#[derive(Default)]
pub(crate) struct Maintained {
    waiting: Mutex<Vec<Waiter>>,
    /// Taken with no other lock held but the driver's.
    backups: Mutex<Backups>,
}

impl Backups {
    /// Whether all of `members` have merged everything up to `upto`.
    fn have_merged(&self, upto: Lsn, mut members: impl Iterator<Item = ServerId>) -> bool {
        members.all(|member| self.merged.get(&member).is_some_and(|to| *to >= upto))
    }
}

impl Waiter {
    /// Whether `engine`, of which it was asked, and the backups are done with it.
    fn is_done(&mut self, engine: &Serving, backups: impl FnOnce(Lsn) -> bool) -> bool {
        match &mut self.goal {
            Goal::Durable(upto) => engine.marked_lsn() >= *upto,
            Goal::Merged(Merged { number, edit, upto }) => {
                *edit = edit.or_else(|| engine.compacted(*number));
                edit.is_some_and(|edit| engine.is_everywhere(edit)) && upto.is_none_or(backups)
            }
        }
    }

    /// What is said at the deadline, where the region lacks something or not.
    fn too_late(&self, region: &Region, lacks: Option<&str>) -> String {
        let lacks = lacks.map_or_else(String::new, |lacks| format!(" ({lacks})"));
        let what = match self.goal {
            Goal::Durable(_) => "is being made durable",
            Goal::Merged(..) => "is being merged into one level",
        };
        format!(
            "{} {what} still{lacks}; it goes on in the background: ask again to wait for it",
            region.id()
        )
    }
}

impl Maintained {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.waiting.lock()
    }

    fn backups(&self) -> MutexGuard<'_, Backups> {
        self.backups.lock()
    }

    /// Has `what` be done with the region, which is `open`.
    pub(super) fn begin(
        &self,
        open: &OpenRegion<'_>,
        what: Maintenance,
        reply: ReplyTo,
    ) -> Option<Response> {
        let deadline = open.context.deadline();
        match what {
            Maintenance::Flush => {
                let mut waiting = open.region.waiting();
                if !waiting.is_queueing() {
                    drop(waiting);
                    return self.begin_flush(open, reply, deadline);
                }
                let request = Queued::Flush;
                let queued = waiting.queue(Entry {
                    request,
                    reply,
                    deadline,
                });
                queued.err().map(|_| overloaded(open.region))
            }
            Maintenance::Compact => {
                let goal = Goal::Merged(Merged {
                    number: open.engine.compact_now(),
                    edit: None,
                    upto: self.compact_backups(open),
                });
                let engine = Arc::downgrade(open.engine);
                let waiter = Waiter {
                    goal,
                    engine,
                    reply,
                    deadline,
                };
                self.wait_for(waiter, open)
            }
        }
    }

    /// Has backups that build levels of their own merge everything that has been written. Returns up to where;
    /// `None` where there are no such backups.
    fn compact_backups(&self, open: &OpenRegion<'_>) -> Option<Lsn> {
        let (context, region) = (open.context, open.region.id());
        let builds = context.views.map().replication() == Replication::BuildIndex;
        if !builds || context.backups(region).next().is_none() {
            return None;
        }
        let upto = open.engine.last_lsn();
        {
            let mut backups = self.backups();
            backups.asked = backups.asked.max(Some(upto));
        }
        // They have in memtables what was flushed.
        open.engine.flush_now();
        for backup in context.backups(region) {
            context.send(backup, region, &Message::Compact { upto });
        }
        Some(upto)
    }

    /// What a backup that is attached is to be asked for: others may have done it before.
    pub(super) fn asked_of_backups(&self) -> Option<Lsn> {
        self.backups().asked
    }

    /// `backup` says that it has merged everything up to `upto` of the region, which is `local`.
    pub(super) fn backup_has_compacted(
        &self,
        local: &LocalRegion<'_>,
        backup: ServerId,
        upto: Lsn,
    ) {
        let mut backups = self.backups();
        let merged = backups.merged.entry(backup).or_default();
        *merged = upto.max(*merged);
        let members = local.context.backups(local.region.id());
        let asked = backups.asked;
        if asked.is_some_and(|asked| backups.have_merged(asked, members)) {
            backups.asked = None;
        }
    }

    /// Has everything that was appended to the region, which is `open`, be made durable.
    pub(super) fn begin_flush(
        &self,
        open: &OpenRegion<'_>,
        reply: ReplyTo,
        deadline: Instant,
    ) -> Option<Response> {
        let goal = Goal::Durable(open.engine.last_lsn());
        if open.context.settings.mutants.flush_early() {
            return Some(Response::Done);
        }
        open.engine.flush_and_mark();
        let engine = Arc::downgrade(open.engine);
        let waiter = Waiter {
            goal,
            engine,
            reply,
            deadline,
        };
        self.wait_for(waiter, open)
    }

    /// Answers `waiter` once the engine has reached its goal.
    fn wait_for(&self, mut waiter: Waiter, open: &OpenRegion<'_>) -> Option<Response> {
        if let Some(now) = self.outcome_of(&mut waiter, &open.local(), Some(open.engine)) {
            return Some(now);
        }
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING_MAX {
            return Some(overloaded(open.region));
        }
        waiting.push(waiter);
        None
    }

    /// The answer to `waiter`, if it is known: `engine` serves the region, which is `local`, now.
    fn outcome_of(
        &self,
        waiter: &mut Waiter,
        local: &LocalRegion<'_>,
        engine: Option<&Arc<Serving>>,
    ) -> Option<Response> {
        let LocalRegion { context, region } = *local;
        let outcome = Outcome::Unknown;
        let same =
            |engine: &&Arc<Serving>| std::ptr::eq(Arc::as_ptr(engine), waiter.engine.as_ptr());
        let Some(engine) = engine.filter(same) else {
            let what = format!("{} was opened anew meanwhile; ask again", region.id());
            let error = Failure::Unavailable { what, outcome };
            return Some(Response::Failed(error));
        };
        let members = context.backups(region.id());
        let backups = |upto| self.backups().have_merged(upto, members);
        if waiter.is_done(engine, backups) {
            return Some(Response::Done);
        }
        let broken = region.failure().map(str::to_owned);
        let broken = broken.or_else(|| Some(context.world.store.failure()?.to_string()));
        if let Some(why) = broken {
            let what = format!("{}: {why}", region.id());
            return Some(Response::Failed(Failure::Storage { what, outcome }));
        }
        if engine.is_full() && matches!(waiter.goal, Goal::Merged(..)) {
            let what = local.busy_text(engine, BusyReason::DeviceFull);
            return Some(Response::Failed(Failure::Busy { what, outcome }));
        }
        None
    }

    /// Answers what has come to its end in the region, which is `local`.
    pub(super) fn answer(&self, local: &LocalRegion<'_>) {
        // Without the lock from here on: who comes meanwhile is looked at the next time.
        let waiters = std::mem::take(&mut *self.waiting());
        if waiters.is_empty() {
            return;
        }
        let engine = engine_of(local.region);
        let (mut due, mut left) = (Vec::new(), Vec::new());
        for mut waiter in waiters {
            match self.outcome_of(&mut waiter, local, engine.as_ref()) {
                Some(response) => due.push((waiter.reply, response)),
                None => left.push(waiter),
            }
        }
        self.waiting().append(&mut left);
        send_all(due);
    }

    /// Gives up what is past its deadline in the region, which is `local`.
    pub(super) fn expire(
        &self,
        local: &LocalRegion<'_>,
        now: Instant,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        let is_late = |waiter: &mut Waiter| waiter.deadline <= now;
        let late: Vec<_> = self.waiting().extract_if(.., is_late).collect();
        if late.is_empty() {
            return;
        }
        let lacks = local.lacks();
        due.extend(late.into_iter().map(|waiter| {
            let what = waiter.too_late(local.region, lacks.as_deref());
            let outcome = Outcome::Unknown;
            let error = Failure::Unavailable { what, outcome };
            (waiter.reply, Response::Failed(error))
        }));
    }
}

#[cfg(test)]
#[path = "maintenance_tests.rs"]
mod tests;
