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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use argosy_base::{EditSeq, Instant, Lsn, Outcome, RegionId, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::BusyReason;
use argosy_wire::message::Message;

use super::Node;
use super::context::Context;
use super::gather::CountParts;
use super::refuse::overloaded;
use super::region::{Driver, Region, engine_of, send_all};
use super::serving::Serving;
use super::waiting::{Entry, Queued};
use crate::service::{Begun, Failure, Maintenance, ReplySink, ReplyTo, Request, Response};

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

impl Maintained {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backups(&self) -> MutexGuard<'_, Backups> {
        self.backups.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

impl Node {
    /// Has `what` be done with every region.
    pub(super) fn maintain_all(&self, what: Maintenance, reply: ReplyTo) -> Begun {
        let regions = self.views.map().regions().len();
        let parts: Arc<dyn ReplySink> = CountParts::new(reply, regions, |_| Response::Done);
        for index in 0..regions {
            self.call_part(index, Request::Maintain { what }, ReplyTo::new(&parts, 0));
        }
        Begun::Waits
    }

    /// Has `what` be done with `region`, which `engine` serves here.
    pub(super) fn maintain_here(
        &self,
        region: &Arc<Region>,
        engine: &Arc<Serving>,
        what: Maintenance,
        reply: ReplyTo,
    ) -> Option<Response> {
        let deadline = self.deadline();
        match what {
            Maintenance::Flush => {
                let mut waiting = region.waiting();
                if !waiting.is_queueing() {
                    drop(waiting);
                    return self.begin_flush(region, engine, (reply, deadline));
                }
                let request = Queued::Flush;
                let queued = waiting.queue(Entry {
                    request,
                    reply,
                    deadline,
                });
                queued.err().map(|_| overloaded(region))
            }
            Maintenance::Compact => {
                let goal = Goal::Merged(Merged {
                    number: engine.compact_now(),
                    edit: None,
                    upto: self.compact_backups(region, engine),
                });
                self.wait_for(region, engine, goal, (reply, deadline))
            }
        }
    }

    /// Has backups that build levels of their own merge everything that has been written. Returns up to where;
    /// `None` where there are no such backups.
    fn compact_backups(&self, region: &Region, engine: &Serving) -> Option<Lsn> {
        let context = Context { node: self };
        let builds = self.views.map().replication() == Replication::BuildIndex;
        if !builds || !context.is_replicated(region.id()) {
            return None;
        }
        let upto = engine.last_lsn();
        {
            let mut backups = region.maintained().backups();
            backups.asked = backups.asked.max(Some(upto));
        }
        // They have in memtables what was flushed.
        engine.flush_now();
        for backup in context.backups(region.id()) {
            context.send(backup, region.id(), &Message::Compact { upto });
        }
        Some(upto)
    }

    /// `backup` is attached to a region of this server: it is asked for what others may have done before.
    pub(super) fn ask_to_compact(&self, region: RegionId, backup: ServerId) {
        let asked = self
            .region(region)
            .and_then(|region| region.maintained().backups().asked);
        if let Some(upto) = asked {
            Context { node: self }.send(backup, region, &Message::Compact { upto });
        }
    }

    /// `backup` says that it has merged everything up to `upto`.
    pub(super) fn backup_has_compacted(&self, region: &Region, backup: ServerId, upto: Lsn) {
        let mut backups = region.maintained().backups();
        let merged = backups.merged.entry(backup).or_default();
        *merged = upto.max(*merged);
        let members = Context { node: self }.backups(region.id());
        let asked = backups.asked;
        if asked.is_some_and(|asked| backups.have_merged(asked, members)) {
            backups.asked = None;
        }
    }

    /// Has everything that was appended to `region` be made durable.
    pub(super) fn begin_flush(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        reply: (ReplyTo, Instant),
    ) -> Option<Response> {
        let goal = Goal::Durable(engine.last_lsn());
        engine.flush_and_mark();
        self.wait_for(region, engine, goal, reply)
    }

    /// Answers once `engine` has reached `goal`.
    fn wait_for(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        goal: Goal,
        (reply, deadline): (ReplyTo, Instant),
    ) -> Option<Response> {
        let mut waiter = Waiter {
            goal,
            engine: Arc::downgrade(engine),
            reply,
            deadline,
        };
        if let Some(now) = self.outcome_of(&mut waiter, region, Some(engine)) {
            return Some(now);
        }
        let mut waiting = region.maintained().waiting();
        if waiting.len() >= WAITING_MAX {
            return Some(overloaded(region));
        }
        waiting.push(waiter);
        None
    }

    /// The answer to `waiter`, if it is known: `engine` serves `region` now.
    fn outcome_of(
        &self,
        waiter: &mut Waiter,
        region: &Region,
        engine: Option<&Arc<Serving>>,
    ) -> Option<Response> {
        let outcome = Outcome::Unknown;
        let same =
            |engine: &&Arc<Serving>| std::ptr::eq(Arc::as_ptr(engine), waiter.engine.as_ptr());
        let Some(engine) = engine.filter(same) else {
            let what = format!("{} was opened anew meanwhile; ask again", region.id());
            let error = Failure::Unavailable { what, outcome };
            return Some(Response::Failed(error));
        };
        let members = Context { node: self }.backups(region.id());
        let backups = |upto| region.maintained().backups().have_merged(upto, members);
        if waiter.is_done(engine, backups) {
            return Some(Response::Done);
        }
        let broken = region.failure().map(str::to_owned);
        let broken = broken.or_else(|| Some(self.world.store.failure()?.to_string()));
        if let Some(why) = broken {
            let what = format!("{}: {why}", region.id());
            return Some(Response::Failed(Failure::Storage { what, outcome }));
        }
        if engine.is_full() && matches!(waiter.goal, Goal::Merged(..)) {
            let what = self.busy_text(region, engine, BusyReason::DeviceFull);
            return Some(Response::Failed(Failure::Busy { what, outcome }));
        }
        None
    }

    /// Answers what has come to its end in `region`.
    pub(super) fn answer_maintained(&self, region: &Region) {
        // Without the lock from here on: who comes meanwhile is looked at the next time.
        let waiters = std::mem::take(&mut *region.maintained().waiting());
        if waiters.is_empty() {
            return;
        }
        let engine = engine_of(region);
        let (mut due, mut left) = (Vec::new(), Vec::new());
        for mut waiter in waiters {
            match self.outcome_of(&mut waiter, region, engine.as_ref()) {
                Some(response) => due.push((waiter.reply, response)),
                None => left.push(waiter),
            }
        }
        region.maintained().waiting().append(&mut left);
        send_all(due);
    }

    /// Gives up what is past its deadline.
    pub(super) fn expire_maintenance(
        &self,
        region: &Region,
        now: Instant,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        let is_late = |waiter: &mut Waiter| waiter.deadline <= now;
        let late: Vec<_> = region
            .maintained()
            .waiting()
            .extract_if(.., is_late)
            .collect();
        if late.is_empty() {
            return;
        }
        let lacks = match &*region.driver() {
            Driver::Primary(driver) => driver.lacks(&Context { node: self }),
            Driver::Backup(_) | Driver::AtDevice(_) | Driver::Failed(_) => None,
        };
        due.extend(late.into_iter().map(|waiter| {
            let what = waiter.too_late(region, lacks.as_deref());
            let outcome = Outcome::Unknown;
            let error = Failure::Unavailable { what, outcome };
            (waiter.reply, Response::Failed(error))
        }));
    }
}

#[cfg(test)]
#[path = "maintenance_tests.rs"]
mod tests;
