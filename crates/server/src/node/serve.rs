//! How a request finds its region, here or elsewhere, and what is done with it here.

use std::sync::Arc;

use argosy_base::KeyRange;
use argosy_base::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX};
use argosy_engine::batch::check_key;
use argosy_engine::long::{self, check_users};
use argosy_engine::{
    BusyReason, EngineError, Reach, Snapshot, WaitFor, WriteBatch, WriteOptions, Written,
};

use super::Node;
use super::context::Context;
use super::gate::{Reveals, Verdict};
use super::gather::{CountParts, ScanParts};
use super::look::{Look, Tell};
use super::many::{ManyKeys, look_up, values_of};
use super::page::{page, rest_of};
use super::refuse::{failed, not_written, overloaded, too_many_answers};
use super::region::{Driver, Region, send_all};
use super::room::only_deletes;
use super::serving::Serving;
use super::waiting::{Entry, Queued, Shown, Unkept};
use crate::activity::{Activity, Place};
use crate::service::{
    Begun, Failure, InfoSection, KeyList, Paging, Readiness, ReplySink, ReplyTo, Request, Response,
    Service, too_slow,
};

/// Bytes of keys and values in one page of a scan, or of values of several keys, at most; a single pair may
/// be longer.
pub(super) const PAGE_BYTES_MAX: usize = 512 << 10;

impl Service for Node {
    fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        match request {
            Request::Get { key } | Request::GetVersion { key } | Request::Expiry { key } => {
                if let Err(error) = check_key(key).and_then(|()| check_users(key)) {
                    let error = Failure::Invalid(error.to_string());
                    return Begun::Answered(Response::Failed(error));
                }
                self.call_region(self.views.map().index_of(key), request, reach, reply)
            }
            Request::GetMany { keys, wanted, at } => {
                let asked = ManyKeys {
                    keys,
                    wanted,
                    at,
                    reach,
                };
                self.get_all(asked, reply)
            }
            Request::Snapshot { id, lease } => self.lease_all((id, lease), reply),
            Request::Write { batch, options } => self.write_all(batch, options, reach, reply),
            Request::Maintain { what } => self.maintain_all(what, reply),
            Request::Count => {
                let regions = self.views.map().regions().len();
                let parts: Arc<dyn ReplySink> = CountParts::new(reply, regions, Response::Count);
                for index in 0..regions {
                    self.call_part(index, request, ReplyTo::new(&parts, 0));
                }
                Begun::Waits
            }
            Request::Scan { range, mut paging } => {
                let range = long::users(range.clone());
                if range.is_empty() || paging.pairs_max == 0 {
                    return Begun::Answered(Response::Page {
                        pairs: Vec::new(),
                        next: None,
                    });
                }
                if reach == Reach::Memory {
                    return Begun::NeedsDevice;
                }
                paging.bytes_max = paging.bytes_max.min(PAGE_BYTES_MAX);
                ScanParts::new(std::sync::Weak::clone(&self.me), reply, range, paging).go_on();
                Begun::Waits
            }
            Request::Ingest { batch } => self.ingest_all(batch, reply),
        }
    }

    fn get_each(&self, keys: &KeyList, replies: &[ReplyTo]) {
        if !keys.is_empty() {
            self.get_together(keys, replies);
        }
    }

    fn flush(&self) {
        let now = self.world.clock.now();
        self.set_now(now);
        self.world.ledger.turn_to(Activity::Request);
        self.pump_dirty();
        self.links.flush();
        self.world.ledger.settle(now);
        self.memory.collect(&self.world);
    }

    fn info(&self) -> Vec<InfoSection> {
        self.describe()
    }

    fn ready(&self) -> Readiness {
        self.readiness()
    }
}

impl Node {
    /// Ships what was appended by this and other threads. Returns whether anything was done.
    pub(crate) fn pump_dirty(&self) -> bool {
        let mut made = false;
        for region in self.regions.take_dirty() {
            made |= self.pump(region);
        }
        made
    }

    /// Carries a region's driver on, and sends the answers that are due.
    pub(crate) fn pump(&self, region: &Region) -> bool {
        let context = Context { node: self };
        let before = self.world.ledger.at(region.place());
        let (made, has_more) = match &mut *region.driver() {
            Driver::Primary(driver) => {
                let made = driver.pump(&context);
                self.publish(region, driver);
                (made, driver.has_more())
            }
            Driver::Backup(copy) => (copy.step(&context), copy.has_more()),
            Driver::AtDevice(_) | Driver::Failed(_) => (false, false),
        };
        debug_assert!(region.role_fits(), "{:?} {}", region.role(), region.id());
        if !made {
            self.world.ledger.at(before);
        }
        if region.release() || has_more {
            region.active().raise();
        }
        self.answer_ingested(region);
        self.answer_maintained(region);
        made
    }

    /// Asks the first region of `range` for a page of it.
    pub(crate) fn call_first_region(
        &self,
        range: &KeyRange,
        paging: Paging,
        reply: ReplyTo,
    ) -> Begun {
        let index = self.views.map().first_of(range, paging.direction);
        let request = Request::Scan { range, paging };
        self.call_region(index, request, Reach::Device, reply)
    }

    /// Asks the region in place `index` of the map for its part of a request, and sends what it answers at once.
    pub(super) fn call_part(&self, index: usize, request: Request<'_>, reply: ReplyTo) {
        let begun = self.call_region(index, request, Reach::Device, reply.clone());
        if let Begun::Answered(response) = begun {
            reply.send(response);
        }
    }

    /// Asks the regions in these places of the map for their parts of a request, and has `whole` put the answers
    /// together, under the places of the parts as tokens. Within [`Reach::Memory`] the first of this server's regions
    /// says whether the device is needed.
    pub(super) fn call_parts(
        &self,
        parts: &[(usize, Request<'_>)],
        reach: Reach,
        whole: &Arc<dyn ReplySink>,
    ) -> Begun {
        let parts = (0..).zip(parts);
        let here = parts
            .clone()
            .find(|(_, (index, _))| self.served_here(*index).is_some());
        if let Some((token, (index, request))) = here {
            match self.call_region(*index, *request, reach, ReplyTo::new(whole, token)) {
                Begun::NeedsDevice => return Begun::NeedsDevice,
                Begun::Answered(response) => whole.deliver(token, response),
                Begun::Waits | Begun::Sent => {}
            }
        }
        let first = here.map(|(token, _)| token);
        for (token, (index, request)) in parts.filter(|(token, _)| Some(*token) != first) {
            self.call_part(*index, *request, ReplyTo::new(whole, token));
        }
        Begun::Sent
    }

    /// Carries a request for the region in place `index` of the map out here, or sends it to its primary.
    pub(super) fn call_region(
        &self,
        index: usize,
        request: Request<'_>,
        reach: Reach,
        reply: ReplyTo,
    ) -> Begun {
        if let Some(region) = self.served_here(index) {
            return self.call_here(region, request, reach, reply);
        }
        self.world.ledger.at(Place::NONE);
        let refused = self.forward(&self.views.map().regions()[index], &request, reply);
        refused.map_or(Begun::Sent, Begun::Answered)
    }

    /// The region in place `index` of the map, if this server is its primary.
    pub(super) fn served_here(&self, index: usize) -> Option<&Arc<Region>> {
        let map = self.views.map();
        let region = &map.regions()[index];
        (region.primary == self.id).then(|| self.region(region.id).expect("a primary is a member"))
    }

    /// Carries out a request for a region whose primary this server is.
    pub(crate) fn call_here(
        &self,
        region: &Arc<Region>,
        request: Request<'_>,
        reach: Reach,
        reply: ReplyTo,
    ) -> Begun {
        self.world.ledger.at(region.place());
        let guard = region.engine();
        let Some(engine) = &*guard else {
            return Begun::Answered(self.not_open(region));
        };
        let look = |key, tell| Look { key, tell, reach };
        match request {
            Request::Get { key } => self.get(region, engine, look(key, Tell::Value), reply),
            Request::GetVersion { key } => {
                self.get(region, engine, look(key, Tell::Version), reply)
            }
            Request::Expiry { key } => self.get(region, engine, look(key, Tell::Expiry), reply),
            Request::GetMany { keys, wanted, at } => {
                let asked = ManyKeys {
                    keys,
                    wanted,
                    at,
                    reach,
                };
                self.get_many(region, engine, asked, reply)
            }
            Request::Write { batch, options } => {
                self.write(region, engine, (batch, options), (reply, reach))
            }
            Request::Snapshot { id, lease } => {
                Begun::Answered(self.lease_here(region, engine, (id, lease)))
            }
            Request::Ingest { batch } => self.ingest_here(region, engine, batch, reply).into(),
            Request::Scan { range, paging } => {
                self.pump_dirty();
                self.scan(region, engine, (range, paging), reply).into()
            }
            Request::Count => {
                let shown = Shown {
                    reveals: Reveals::Count,
                    // Everything that was appended counts.
                    wait: WaitFor::committed(engine.last_lsn()),
                    response: Response::Count(engine.count_estimate()),
                };
                self.show(region, engine, shown, reply).into()
            }
            Request::Maintain { what } => self.maintain_here(region, engine, what, reply).into(),
        }
    }

    /// A page of what is committed. Where that is less than was once acknowledged, since the region
    /// was just opened: of everything, once that is committed. So it is where a pair has expired by
    /// the clock alone and there is room to tell the time: what is shown waits for that, as a get does.
    fn scan(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        (range, paging): (&KeyRange, Paging),
        reply: ReplyTo,
    ) -> Option<Response> {
        let here = range.intersection(region.range());
        let rest = rest_of(region.range(), range, paging.direction);
        let page = |snapshot: &dyn Snapshot| page(snapshot, &here, rest.clone(), paging);
        if let Some(at) = paging.at {
            return Some(match self.open_snapshot(region, at) {
                Ok(snapshot) => page(&*snapshot).unwrap_or_else(|error| failed(&error)),
                Err(refused) => refused,
            });
        }
        let tells_time = || {
            let told = engine.advance_ttl_clock();
            if told {
                region.dirty().raise();
            }
            told
        };
        if region.gate().show_committed(engine, Reveals::Page) == Verdict::Now {
            let snapshot = engine.snapshot();
            let shown = page(&*snapshot);
            if !snapshot.shows_overdue() || !tells_time() {
                return Some(shown.unwrap_or_else(|error| failed(&error)));
            }
        }
        let mut snapshot = engine.snapshot_of_all();
        let mut shown = page(&*snapshot);
        if snapshot.shows_overdue() && tells_time() {
            snapshot = engine.snapshot_of_all();
            shown = page(&*snapshot);
        }
        match shown {
            Ok(response) => {
                let shown = Shown {
                    reveals: Reveals::Page,
                    wait: snapshot.wait(),
                    response,
                };
                self.show(region, engine, shown, reply)
            }
            Err(error) => Some(failed(&error)),
        }
    }

    /// Writes a batch whose keys all lie in `region`.
    pub(super) fn write(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        (batch, options): (&WriteBatch, WriteOptions),
        (reply, reach): (ReplyTo, Reach),
    ) -> Begun {
        let overtakes = engine.is_full() && only_deletes(batch);
        let queueing = {
            let waiting = region.waiting();
            waiting.is_queueing() && (!overtakes || waiting.concerns(batch))
        };
        let result = match queueing {
            true => None,
            false => Some(self.write_noted(region, engine, (batch, options), reach)),
        };
        let answer = match result {
            Some(Err(EngineError::NotInMemory)) => return Begun::NeedsDevice,
            Some(Ok(written)) => self.wrote(region, engine, written, reply),
            None | Some(Err(EngineError::Busy(_))) => {
                if let Some(Err(EngineError::Busy(reason))) = result {
                    region.waiting().busy = Some(reason);
                }
                if self.full_for_long(region, engine) && !only_deletes(batch) {
                    region.uses().refused(batch);
                    return Begun::Answered(self.refuse_full(region, engine));
                }
                region.dirty().raise();
                let request = Queued::Write {
                    batch: batch.clone(),
                    options,
                };
                let entry = Entry {
                    request,
                    reply,
                    deadline: self.deadline(),
                };
                let queued = region.waiting().queue(entry);
                self.wake(region.id());
                queued.err().map(|_| overloaded(region))
            }
            Some(Err(error)) => Some(not_written(&error)),
        };
        answer.into()
    }

    fn wrote(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        written: Written,
        reply: ReplyTo,
    ) -> Option<Response> {
        let Written {
            applied,
            unguarded,
            wait,
            previous,
            existed,
            changed,
        } = written;
        let response = match unguarded {
            true => Response::Failed(too_slow()),
            false => Response::Written {
                applied,
                existed,
                previous,
                changed,
            },
        };
        let reveals = match applied {
            true => Reveals::Write,
            false => Reveals::FailedCondition,
        };
        let shown = Shown {
            reveals,
            wait,
            response,
        };
        self.show(region, engine, shown, reply)
    }

    /// Answers now where the gate says so, and otherwise once what the answer waits for is over.
    pub(super) fn show(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        shown: Shown,
        reply: ReplyTo,
    ) -> Option<Response> {
        if region.gate().show(engine, shown.reveals, shown.wait) == Verdict::Now {
            return Some(shown.response);
        }
        // A read, too, may just have written something: that a pair has expired.
        region.dirty().raise();
        self.answer_once(region, engine, shown, reply)
    }

    /// Answers once what the answer waits for is over (I5).
    fn answer_once(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        shown: Shown,
        reply: ReplyTo,
    ) -> Option<Response> {
        let (reveals, wait) = (shown.reveals, shown.wait);
        let is_over = || region.gate().show(engine, reveals, wait) == Verdict::Now;
        let keep = |shown: Shown, reply: ReplyTo| {
            let deadline = reply.deadline.unwrap_or_else(|| self.deadline());
            region.waiting().answer_once(shown, reply, deadline)
        };
        if let Err(unkept) = keep(shown, reply) {
            let Unkept { shown, reply } = *unkept;
            // What this thread has written itself may be all that the others wait for.
            self.pump(region);
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

    /// Carries out what waits for room, oldest first. What may read the device is done without the lock
    /// of what waits, which readers take.
    pub(crate) fn retry_queued(&self, region: &Arc<Region>) -> bool {
        let Some(engine) = super::region::engine_of(region) else {
            return false;
        };
        let mut made = false;
        loop {
            let Some(entry) = region.waiting().take_in_hand(self.now()) else {
                return made;
            };
            let reply = entry.reply();
            let response = match &entry.request {
                Queued::Write { batch, options } => {
                    let written =
                        self.write_noted(region, &engine, (batch, *options), Reach::Device);
                    if let Err(EngineError::Busy(reason)) = written {
                        region.waiting().found_no_room(reason);
                        return made;
                    }
                    region.waiting().carried_out();
                    match written {
                        Ok(written) => self.wrote(region, &engine, written, reply),
                        Err(error) => Some(not_written(&error)),
                    }
                }
                // A read that had to wait behind a write of its key.
                Queued::Get { key, tell } => {
                    let found = tell.of(&engine, key, Reach::Device);
                    region.waiting().carried_out();
                    match found {
                        Ok(shown) => self.show(region, &engine, shown, reply),
                        Err(error) => Some(failed(&error)),
                    }
                }
                Queued::GetMany { keys, wanted } => {
                    let found = look_up(&engine, keys, *wanted, Reach::Device);
                    region.waiting().carried_out();
                    match found {
                        Ok(found) => {
                            let shown = values_of(found, Reach::Device);
                            self.show(region, &engine, shown, reply)
                        }
                        Err(error) => Some(failed(&error)),
                    }
                }
                Queued::Flush => {
                    region.waiting().carried_out();
                    self.begin_flush(region, &engine, (reply, entry.deadline))
                }
            };
            made = true;
            if let Some(response) = response {
                entry.reply.clone().send(response);
            }
        }
    }

    /// Gives up requests that are past their deadline. Looked at a few times a second.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        if !self.requests.begin_sweep(now, self.settings.deadline / 20) {
            return;
        }
        self.sweep_snapshots();
        let mut due = Vec::new();
        self.sweep_calls(now, &mut due);
        for region in self.regions.iter() {
            region.expire_ingests(now, &mut due);
            self.expire_maintenance(region, now, &mut due);
            if region.waiting().len() > 0 {
                let why = match &*region.driver() {
                    Driver::Primary(driver) => driver.lacks(&Context { node: self }),
                    _ => None,
                };
                let why = why.unwrap_or_else(|| "the region does not keep up".into());
                let why = format!("{}: {why}; retry", region.id());
                let reason = region.waiting().busy.unwrap_or(BusyReason::LogWindows);
                let busy = super::region::engine_of(region).map_or_else(
                    || why.clone(),
                    |engine| self.busy_text(region, &engine, reason),
                );
                let before = due.len();
                region.waiting().expire(now, (&why, &busy), &mut due);
                if due.len() > before {
                    region.health().gave_up(now);
                }
            }
        }
        send_all(due);
    }
}

const _: () = assert!(PAGE_BYTES_MAX + BATCH_BYTES_MAX + KEY_BYTES_MAX < 2 << 20);
