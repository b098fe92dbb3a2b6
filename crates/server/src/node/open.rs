//! A region that is open here, with its engine: what is done there with a request, and when it is answered.

use std::sync::Arc;

use argosy_base::{Instant, KeyRange};
use argosy_engine::composite::ElementsOf;
use argosy_engine::{EngineError, Reach, Snapshot, WaitFor};

use super::context::Context;
use super::examine::Examination;
use super::gate::{Reveals, Verdict};
use super::local::LocalRegion;
use super::look::{Look, Tell};
use super::many::ManyKeys;
use super::page::{Part, page, rest_of};
use super::refuse::{failed, overloaded, too_many_answers};
use super::region::Region;
use super::serving::Serving;
use super::snapshots::Leasing;
use super::waiting::{Entry, Queued, Shown, Unkept};
use super::write::Write;
use crate::service::{Begun, Paging, ReplyTo, Request, Response};

/// See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct OpenRegion<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) region: &'a Region,
    /// What serves it.
    pub(super) engine: &'a Arc<Serving>,
}

/// What a scan came to.
enum Paged {
    /// A page, which is shown when the gate says so.
    Shown(Shown),
    /// An answer that waits for nothing.
    Answered(Response),
}

impl Paged {
    /// The page `response`, which waits for `wait`.
    const fn found(response: Response, wait: WaitFor) -> Self {
        Self::Shown(Shown {
            reveals: Reveals::Page,
            wait,
            response,
        })
    }
}

impl<'a> OpenRegion<'a> {
    /// The region, open or not.
    pub(super) const fn local(&self) -> LocalRegion<'a> {
        LocalRegion::new(self.context, self.region)
    }

    /// Until when a request may wait whose answer goes to `reply`.
    pub(super) fn deadline_of(&self, reply: &ReplyTo) -> Instant {
        let waited = reply.deadline;
        waited.unwrap_or_else(|| self.context.deadline())
    }

    /// Carries out a request.
    pub(super) fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        let look = |key, tell| Look { key, tell, reach };
        match request {
            Request::Get { key } => look(key, Tell::Value).answer(self, reply),
            Request::GetVersion { key } => look(key, Tell::Version).answer(self, reply),
            Request::Expiry { key } => look(key, Tell::Expiry).answer(self, reply),
            Request::GetMany { keys, wanted, at } => {
                let asked = ManyKeys {
                    keys,
                    wanted,
                    at,
                    reach,
                };
                asked.answer(self, reply)
            }
            Request::Examine { keys, wanted } => {
                let asked = Examination {
                    keys,
                    wanted,
                    reach,
                };
                asked.answer(self, reply)
            }
            Request::Write { batch, options } => self.write(Write { batch, options }, reach, reply),
            Request::Snapshot { id, lease } => Begun::Answered(Leasing::answer(id, lease, self)),
            Request::Ingest { batch } => {
                let loads = self.region.bulk_loads();
                loads.begin(self, batch, reach, reply)
            }
            Request::Scan { range, paging } => {
                self.context.pump_dirty();
                match self.scan(range, paging, reach) {
                    Ok(Paged::Shown(shown)) => self.show(shown, reply).into(),
                    Ok(Paged::Answered(response)) => Begun::Answered(response),
                    Err(EngineError::NotInMemory) if reach == Reach::Memory => Begun::NeedsDevice,
                    Err(error) => Begun::Answered(failed(&error)),
                }
            }
            Request::Count => {
                let shown = Shown {
                    reveals: Reveals::Count,
                    // Everything that was appended counts.
                    wait: WaitFor::committed(self.engine.last_lsn()),
                    response: Response::Count(self.engine.count_estimate()),
                };
                self.show(shown, reply).into()
            }
            Request::Maintain { what } => self.region.maintained().begin(self, what, reply).into(),
        }
    }

    /// Where writes of one of `keys` wait for room: queues the read of them, which is `queued`, behind these. Returns
    /// the answer where there is no room in the queue.
    pub(super) fn wait_behind_writes<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        queued: impl FnOnce() -> Queued,
        reply: &ReplyTo,
    ) -> Option<Option<Response>> {
        let mut waiting = self.region.waiting();
        if !waiting.is_queueing() || !keys.into_iter().any(|key| waiting.writes(key)) {
            return None;
        }
        let entry = Entry {
            request: queued(),
            reply: reply.clone(),
            deadline: self.deadline_of(reply),
        };
        Some(waiting.queue(entry).err().map(|_| overloaded(self.region)))
    }

    /// A page of what is committed. Where that is less than was once acknowledged, since the region
    /// was just opened: of everything, once that is committed. So it is where a pair has expired by
    /// the clock alone and there is room to tell the time: what is shown waits for that, as a get does.
    fn scan(&self, range: &KeyRange, paging: Paging, reach: Reach) -> Result<Paged, EngineError> {
        let Self { region, engine, .. } = *self;
        // Elements of a composite are where its key is.
        let part = match ElementsOf::containing(range) {
            Some(_) => Part {
                here: range.clone(),
                rest: None,
            },
            None => Part {
                here: range.intersection(region.range()),
                rest: rest_of(region.range(), range, paging.direction),
            },
        };
        let page = |snapshot: &dyn Snapshot| page(snapshot, &part, paging, reach);
        if let Some(at) = paging.at {
            return Ok(Paged::Answered(match region.snapshots().view(at, self) {
                Ok(snapshot) => page(&*snapshot)?,
                Err(refused) => refused,
            }));
        }
        let tells_time = || {
            let told = engine.advance_ttl_clock();
            if told {
                region.dirty().raise();
            }
            told
        };
        let gate = region.gate();
        let is_shown = || gate.show_committed(engine, Reveals::Page) == Verdict::Now;
        if !gate.shows_uncommitted() && is_shown() {
            let snapshot = engine.snapshot();
            let found = page(&*snapshot);
            if !snapshot.shows_overdue() || !tells_time() {
                return Ok(Paged::found(found?, snapshot.wait()));
            }
        }
        let mut snapshot = engine.snapshot_of_all();
        let mut found = page(&*snapshot);
        if snapshot.shows_overdue() && tells_time() {
            snapshot = engine.snapshot_of_all();
            found = page(&*snapshot);
        }
        Ok(Paged::found(found?, snapshot.wait()))
    }

    /// Answers now where the gate says so, and otherwise once what the answer waits for is over.
    pub(super) fn show(&self, shown: Shown, reply: ReplyTo) -> Option<Response> {
        let gate = self.region.gate();
        if gate.show(self.engine, shown.reveals, shown.wait) == Verdict::Now {
            return Some(shown.response);
        }
        // A read, too, may just have written something: that a pair has expired.
        self.region.dirty().raise();
        self.answer_once(shown, reply)
    }

    /// Answers once what the answer waits for is over (I5).
    fn answer_once(&self, shown: Shown, reply: ReplyTo) -> Option<Response> {
        let Self { region, engine, .. } = *self;
        let (reveals, wait) = (shown.reveals, shown.wait);
        let is_over = || region.gate().show(engine, reveals, wait) == Verdict::Now;
        let keep = |shown: Shown, reply: ReplyTo| {
            let deadline = self.deadline_of(&reply);
            region.waiting().answer_once(shown, reply, deadline)
        };
        if let Err(unkept) = keep(shown, reply) {
            let Unkept { shown, reply } = *unkept;
            // What this thread has written itself may be all that the others wait for.
            self.local().pump();
            if is_over() {
                return Some(shown.response);
            }
            if let Err(unkept) = keep(shown, reply) {
                return Some(too_many_answers(region, &unkept.shown.response));
            }
        }
        // It may have been committed before the answer was there to be released.
        if is_over() {
            region.release();
        }
        None
    }
}
