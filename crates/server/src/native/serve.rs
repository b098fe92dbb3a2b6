//! What is done with a request: it is taken apart, called on the service if its region is served
//! here, and answered at once or when the answer comes.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::codec::Reader;
use argosy_base::{Direction, KeyRange, Outcome};
use argosy_engine::{Condition, WriteBatch, WriteOptions};
use argosy_wire::call::{Call, FailureKind, When};
use argosy_wire::native::{
    Flags, HEADER_BYTES, MapRegion, Op, Request, Status, keys_of, put_failure, split_pair,
};

use super::client::{Client, End};
use super::front::{Front, Routes};
use super::gather::Gather;
use super::tally::Tally;
use super::tasks::{Task, Tasks, Work};
use crate::meter;
use crate::node::encode_response;
use crate::service::{Begun, Paging, ReplySink, Request as Ask, Response, Service, ServiceError};

/// Bits of a token that name the element of a request of several parts.
pub(super) const ELEMENT_BITS: u32 = 16;
/// Bits of a token that name the place of a request among those of its client.
pub(super) const PLACE_BITS: u32 = 16;

/// Most keys that one worker reads for one request, so that several share a long one.
const GETS_MAX: usize = 16;

/// Most pairs of one page.
const PAGE_PAIRS_MAX: u64 = 1 << 16;

/// Why a request is answered without a call.
enum Refused {
    /// It makes no sense, and why.
    Invalid(String),
    /// It is another server's.
    WrongServer,
}

/// What a thread carries requests out with.
pub(super) struct Desk {
    pub(super) service: Arc<dyn Service>,
    pub(super) sink: Arc<dyn ReplySink>,
    pub(super) front: Arc<Front>,
    /// The payload that was taken last.
    pub(super) payload: Vec<u8>,
    pub(super) tally: Tally,
    /// Where what needs the device goes; without, it is waited for here.
    tasks: Option<Arc<Tasks>>,
    /// This thread's number there.
    thread: usize,
    /// Clients with tasks for which there is no room, in the order in which they came.
    stalled: VecDeque<usize>,
    batch: WriteBatch,
    range: KeyRange,
}

impl Desk {
    pub(super) fn new(
        service: Arc<dyn Service>,
        sink: Arc<dyn ReplySink>,
        front: Arc<Front>,
        tasks: Option<Arc<Tasks>>,
    ) -> Self {
        Self {
            thread: tasks.as_ref().map_or(0, |tasks| tasks.join()),
            service,
            sink,
            front,
            payload: Vec::new(),
            tally: Tally::default(),
            tasks,
            stalled: VecDeque::new(),
            batch: WriteBatch::new(),
            range: KeyRange::all(),
        }
    }

    /// Carries out `request`, whose payload was taken last, of `client`, which is number `number`.
    /// Returns whether the service was called.
    pub(super) fn serve(&mut self, client: &mut Client, number: usize, request: Request) -> bool {
        let payload = std::mem::take(&mut self.payload);
        let called = match request.op {
            Op::Noop | Op::Ping => {
                self.end(client, &request, End::of(Status::Done));
                Ok(false)
            }
            Op::Map => {
                let encoded = self.front.routes.encoded();
                client.answer(&request, End::of(Status::Map), self.map(), &[encoded]);
                self.tally.count(request.op, meter::Outcome::Ok);
                Ok(false)
            }
            Op::MultiGet => self.multi_get(client, number, request, &payload),
            _ => self.single(client, number, request, &payload),
        };
        self.payload = payload;
        match called {
            Ok(called) => called,
            Err(Refused::WrongServer) => {
                self.end(client, &request, End::of(Status::WrongServer));
                false
            }
            Err(Refused::Invalid(why)) => {
                let failed = Response::Failed(ServiceError::Invalid(why));
                self.answer(client, &request, failed);
                false
            }
        }
    }

    /// A request that is one call.
    fn single(
        &mut self,
        client: &mut Client,
        number: usize,
        request: Request,
        payload: &[u8],
    ) -> Result<bool, Refused> {
        let routes = &self.front.routes;
        let region = routes.region(request.region, request.epoch);
        let region = region.ok_or(Refused::WrongServer)?;
        let ask = match request.op {
            Op::Get => Ask::Get {
                key: within(routes, region, payload)?,
            },
            Op::Scan => read_scan(region, &request, payload, &mut self.range)?,
            _ => read_write((routes, region), &request, payload, &mut self.batch)?,
        };
        let place = client.keep(request, None);
        let token = token(number, place, 0);
        let timed = self.tally.wants().then(|| meter::Op::of(&ask));
        match begin(
            &*self.service,
            self.tasks.is_some(),
            (ask, token),
            &self.sink,
        ) {
            Begun::Answered(response) => {
                client.take(place);
                self.answer(client, &request, response);
                timed
                    .into_iter()
                    .for_each(|op| self.tally.answered_at_once(op));
                return Ok(true);
            }
            Begun::Waits => {}
            Begun::Blocks => {
                let work = work_of(&ask, token, client);
                self.hand_over(client, number, work);
            }
        }
        if let Some(op) = timed {
            self.tally.waits(token, op);
        }
        Ok(true)
    }

    fn multi_get(
        &mut self,
        client: &mut Client,
        number: usize,
        request: Request,
        payload: &[u8],
    ) -> Result<bool, Refused> {
        let keys = keys_of(payload).map_err(|error| Refused::Invalid(error.to_string()))?;
        if keys.is_empty() {
            self.end(client, &request, End::of(Status::Values));
            return Ok(false);
        }
        if !keys.iter().all(|key| self.front.routes.serves(key)) {
            return Err(Refused::WrongServer);
        }
        let room = request.slot.bytes - HEADER_BYTES;
        let place = client.keep(request, Some(Box::new(Gather::new(keys.len(), room))));
        let mut missing = Vec::new();
        for (element, key) in keys.iter().enumerate() {
            let ask = Ask::Get { key };
            let token = token(number, place, element);
            let timed = self.tally.wants();
            match begin(
                &*self.service,
                self.tasks.is_some(),
                (ask, token),
                &self.sink,
            ) {
                Begun::Answered(response) => {
                    self.take_answer(client, place, element, response);
                    if timed {
                        self.tally.answered_at_once(meter::Op::Get);
                    }
                    continue;
                }
                Begun::Waits => {}
                Begun::Blocks => missing.push((token, key.to_vec())),
            }
            if timed {
                self.tally.waits(token, meter::Op::Get);
            }
        }
        while !missing.is_empty() {
            let behind = missing.split_off(missing.len().min(GETS_MAX));
            self.hand_over(client, number, Work::Gets(missing));
            missing = behind;
        }
        Ok(true)
    }

    /// Gives `work` for client `number` to the workers, or to the client's stalled tasks where their
    /// queue is full. While a client has such, nobody's tasks go past them.
    fn hand_over(&mut self, client: &mut Client, number: usize, work: Work) {
        let tasks = self.tasks.as_ref().expect("without workers nothing blocks");
        let sink = Arc::clone(&self.sink);
        let task = Task { work, sink };
        let refused = if self.stalled.is_empty() {
            tasks.push(self.thread, task).err()
        } else {
            Some(task)
        };
        let Some(task) = refused else {
            return;
        };
        tasks.count_refusal();
        if client.stalled.is_empty() {
            self.stalled.push_back(number);
        }
        client.stalled.push_back(task);
    }

    /// The client whose tasks have waited longest for room, if there may be some.
    pub(super) fn next_stalled(&self) -> Option<usize> {
        let number = *self.stalled.front()?;
        let is_full = self.tasks.as_ref().is_some_and(|tasks| tasks.is_full());
        (!is_full).then_some(number)
    }

    /// Hands over the tasks of `client`, which is the first of the stalled ones. Returns whether all
    /// have gone.
    pub(super) fn retry(&mut self, client: &mut Client) -> bool {
        let tasks = self.tasks.as_ref().expect("without workers nothing stalls");
        while let Some(task) = client.stalled.pop_front() {
            if let Err(task) = tasks.push(self.thread, task) {
                client.stalled.push_front(task);
                return false;
            }
        }
        self.stalled.pop_front();
        true
    }

    /// Gives up the stalled tasks of client `number`, which has gone.
    pub(super) fn forget_stalled(&mut self, client: &mut Client, number: usize) {
        if client.stalled.is_empty() {
            return;
        }
        self.stalled.retain(|stalled| *stalled != number);
        if let Some(tasks) = &self.tasks
            && self.stalled.is_empty()
        {
            tasks.give_up(self.thread);
        }
        for task in std::mem::take(&mut client.stalled) {
            for token in task.tokens() {
                let (_, place, element) = parts_of(token);
                self.tally.answered(token);
                let error = ServiceError::Busy {
                    what: "the client went before there was room".to_owned(),
                    outcome: Outcome::NotApplied,
                };
                self.take_answer(client, place, element, Response::Failed(error));
            }
        }
    }

    /// Takes the answer to part `element` of what waits at `place`.
    pub(super) fn take_answer(
        &mut self,
        client: &mut Client,
        place: usize,
        element: usize,
        response: Response,
    ) {
        let Some(gather) = &mut client.pending(place).gather else {
            let request = client.take(place).request;
            return self.answer(client, &request, response);
        };
        if !gather.take(element, response) {
            return;
        }
        let pending = client.take(place);
        let gather = pending.gather.expect("it was there a moment ago");
        let mut out = Vec::new();
        match gather.finish(&mut out) {
            Some(failed) => self.answer(client, &pending.request, failed),
            None => {
                let end = End::of(Status::Values);
                client.answer(&pending.request, end, self.map(), &[&out]);
                self.tally.count(pending.request.op, meter::Outcome::Ok);
            }
        }
    }

    fn map(&self) -> u32 {
        self.front.routes.fingerprint()
    }

    /// Answers without a payload.
    fn end(&mut self, client: &mut Client, request: &Request, end: End) {
        client.answer(request, end, self.map(), &[]);
        let outcome = match end.status {
            Status::WrongServer => meter::Outcome::Unavailable,
            _ => meter::Outcome::Ok,
        };
        self.tally.count(request.op, outcome);
    }

    /// Writes `response` as the answer to `request`.
    #[inline]
    fn answer(&mut self, client: &mut Client, request: &Request, response: Response) {
        let map = self.map();
        match response {
            Response::Value(Some(value)) => {
                client.answer(request, End::of(Status::Value), map, &[&value]);
                self.tally.count(request.op, meter::Outcome::Ok);
            }
            Response::Value(None) => self.end(client, request, End::of(Status::Absent)),
            Response::Written {
                applied, existed, ..
            } => {
                let status = if applied {
                    Status::Done
                } else {
                    Status::Refused
                };
                let existed = request.op != Op::Batch && existed.first() == Some(&true);
                let flags = Flags::default()
                    .with(Flags::APPLIED, applied)
                    .with(Flags::EXISTED, existed);
                self.end(client, request, End { status, flags });
            }
            Response::Failed(error) => {
                let mut out = Vec::new();
                let (kind, outcome, what) = words_of(&error);
                put_failure(kind, outcome, what, &mut out);
                client.answer(request, End::of(Status::Failed), map, &[&out]);
                self.tally.count(request.op, meter::Outcome::from(&error));
            }
            Response::Page { .. } | Response::Count(_) | Response::Expiry { .. } => {
                let mut out = Vec::new();
                encode_response(&response, &mut out);
                client.answer(request, End::of(Status::Page), map, &[&out]);
                self.tally.count(request.op, meter::Outcome::Ok);
            }
        }
    }
}

/// What names a part of a request to the service.
const fn token(number: usize, place: usize, element: usize) -> u64 {
    (number as u64) << (PLACE_BITS + ELEMENT_BITS) | (place as u64) << ELEMENT_BITS | element as u64
}

/// The number of the client, the place and the element that [`token`] was made of.
pub(super) fn parts_of(token: u64) -> (usize, usize, usize) {
    let part = |shift: u32, bits: u32| {
        let part = token >> shift & ((1 << bits) - 1);
        usize::try_from(part).expect("a few bits")
    };
    (
        part(PLACE_BITS + ELEMENT_BITS, 32),
        part(ELEMENT_BITS, PLACE_BITS),
        part(0, ELEMENT_BITS),
    )
}

/// Asks the service, so that it does not wait for the device where there are workers.
#[inline]
fn begin(
    service: &dyn Service,
    has_workers: bool,
    (ask, token): (Ask<'_>, u64),
    sink: &Arc<dyn ReplySink>,
) -> Begun {
    if has_workers {
        service.call_now(ask, sink, token)
    } else {
        service.call(ask, sink, token).into()
    }
}

/// What a worker has to be told to carry out `ask` of `client`.
fn work_of(ask: &Ask<'_>, token: u64, client: &mut Client) -> Work {
    match *ask {
        Ask::Get { key } => Work::Gets(vec![(token, key.to_vec())]),
        Ask::Scan { range, paging } => Work::Scan {
            token,
            range: range.clone(),
            paging,
        },
        Ask::Write { batch, options } => Work::Write {
            token,
            batch: batch.clone(),
            options,
            away: client.send_away(),
        },
        Ask::Count | Ask::Expiry { .. } => unreachable!("the protocol has no request for it"),
    }
}

/// `key`, if it lies in `region`.
#[inline]
fn within<'a>(routes: &Routes, region: &MapRegion, key: &'a [u8]) -> Result<&'a [u8], Refused> {
    if routes.region_of(key).id == region.id {
        Ok(key)
    } else {
        Err(Refused::WrongServer)
    }
}

/// A write, in `batch`.
fn read_write<'a>(
    (routes, region): (&Routes, &MapRegion),
    request: &Request,
    payload: &[u8],
    batch: &'a mut WriteBatch,
) -> Result<Ask<'a>, Refused> {
    let malformed = |error: argosy_base::codec::Malformed| Refused::Invalid(error.to_string());
    let limit = |error: argosy_engine::batch::BatchError| Refused::Invalid(error.to_string());
    batch.clear();
    match request.op {
        Op::Put => {
            let (key, value) = split_pair(payload).map_err(malformed)?;
            batch
                .put(within(routes, region, key)?, value)
                .map_err(limit)?;
        }
        Op::Delete => batch
            .delete(within(routes, region, payload)?)
            .map_err(limit)?,
        _ => {
            let call = Call::decode(&mut Reader::new("a batch", payload)).map_err(malformed)?;
            // What else the grammar has is for servers among each other.
            let Call::Write {
                when: When::Always,
                previous: false,
                change: None,
                ops,
                until,
            } = call
            else {
                return Err(Refused::Invalid("a batch that is none".to_owned()));
            };
            if !until.is_empty() {
                return Err(Refused::Invalid("a batch whose pairs expire".to_owned()));
            }
            for (key, value) in ops {
                let key = within(routes, region, key)?;
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
                .map_err(limit)?;
            }
        }
    }
    let condition = match request.flags {
        flags if flags.has(Flags::IF_ABSENT) => Condition::Absent,
        flags if flags.has(Flags::IF_PRESENT) => Condition::Present,
        _ => Condition::Always,
    };
    Ok(Ask::Write {
        batch,
        options: WriteOptions {
            condition,
            return_previous: false,
        },
    })
}

/// A page of a range, in `range`.
fn read_scan<'a>(
    region: &MapRegion,
    request: &Request,
    payload: &[u8],
    range: &'a mut KeyRange,
) -> Result<Ask<'a>, Refused> {
    let call = Call::decode(&mut Reader::new("a scan", payload));
    let call = call.map_err(|error| Refused::Invalid(error.to_string()))?;
    let Call::Scan {
        from,
        to,
        direction,
        pairs_max,
        bytes_max,
        keys_only,
    } = call
    else {
        return Err(Refused::Invalid("a scan that is none".to_owned()));
    };
    if request.flags.has(Flags::REVERSE) != (direction == Direction::Down) {
        let why = "a scan whose header says another direction than its payload";
        return Err(Refused::Invalid(why.to_owned()));
    }
    *range = KeyRange::new(from, to.map(<[u8]>::to_vec));
    let inside = region.range.from <= range.from
        && match (&region.range.to, &range.to) {
            (None, _) => true,
            (Some(end), Some(to)) => to <= end,
            (Some(_), None) => false,
        };
    if !inside {
        return Err(Refused::WrongServer);
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let paging = Paging {
        direction,
        pairs_max: usize::try_from(pairs_max.min(PAGE_PAIRS_MAX)).expect("bounded"),
        bytes_max: bytes_max.min(request.slot.bytes),
        keys_only,
    };
    Ok(Ask::Scan { range, paging })
}

fn words_of(error: &ServiceError) -> (FailureKind, Outcome, &str) {
    match error {
        ServiceError::Invalid(what) => (FailureKind::Invalid, Outcome::NotApplied, what),
        ServiceError::Unavailable { what, outcome } => (FailureKind::Unavailable, *outcome, what),
        ServiceError::Busy { what, outcome } => (FailureKind::Busy, *outcome, what),
        ServiceError::Storage { what, outcome } => (FailureKind::Storage, *outcome, what),
    }
}
