//! What is done with a request: it is taken apart, called on the service if its region is served
//! here, and answered at once or when the answer comes.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::codec::Reader;
use argosy_base::{Direction, KeyRange, Outcome};
use argosy_engine::long::check_users;
use argosy_engine::{Condition, Wanted, WriteBatch, WriteOptions};
use argosy_wire::call::{Call, FailureKind, When};
use argosy_wire::native::{
    Flags, HEADER_BYTES, MapRegion, Op, Request, Status, keys_of, put_failure, put_value,
    split_pair,
};

use super::client::{Client, End};
use super::front::{Front, Routes};
use super::snapshots::read_lease;
use super::tally::Tally;
use super::tasks::{Task, Tasks, Work};
use super::whole::{is_range, users_only, whole_only};
use crate::meter;
use crate::node::{encode_response, snapshot_of, write_of};
use crate::service::{
    Begun, KeyList, Paging, ReplySink, Request as Ask, Response, Service, ServiceError,
};

/// Bits of a token that name the place of a request among those of its client.
pub(super) const PLACE_BITS: u32 = 16;

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
    keys: KeyList,
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
            keys: KeyList::default(),
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
            Op::MultiGet if keys_of(&payload).is_ok_and(|(keys, _)| keys.is_empty()) => {
                self.end(client, &request, End::of(Status::Values));
                Ok(false)
            }
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
        let region = || {
            let region = routes.region(request.region, request.epoch);
            region.ok_or(Refused::WrongServer)
        };
        let ask = match request.op {
            Op::Get => Ask::Get {
                key: within(routes, region()?, payload)?,
            },
            Op::Look => Ask::Expiry {
                key: within(routes, region()?, payload)?,
            },
            Op::GetVersion => Ask::GetVersion {
                key: within(routes, region()?, payload)?,
            },
            Op::Write => read_call((routes, region()?), payload, &mut self.batch)?,
            Op::Snapshot => read_lease(&request, payload).map_err(Refused::Invalid)?,
            Op::MultiGet => read_keys(routes, &request, payload, &mut self.keys)?,
            Op::Scan => read_scan(region()?, &request, payload, &mut self.range)?,
            _ => read_write((routes, region()?), &request, payload, &mut self.batch)?,
        };
        client.snapshots.asked(&ask);
        let place = client.keep(request);
        let token = token(number, place);
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
            let token = task.token();
            let (_, place) = parts_of(token);
            self.tally.answered(token);
            let error = ServiceError::Busy {
                what: "the client went before there was room".to_owned(),
                outcome: Outcome::NotApplied,
            };
            self.take_answer(client, place, Response::Failed(error));
        }
    }

    /// Takes the answer to what waits at `place`.
    pub(super) fn take_answer(&mut self, client: &mut Client, place: usize, response: Response) {
        let request = client.take(place);
        self.answer(client, &request, response);
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
        let response = whole_only(response);
        if request.op == Op::Snapshot {
            let (here, answer) = (client.is_here(), (request, &response));
            client.snapshots.answered(answer, here, &*self.service);
        }
        match response {
            Response::Value(Some(value)) => {
                client.answer(request, End::of(Status::Value), map, &[&value]);
                self.tally.count(request.op, meter::Outcome::Ok);
            }
            Response::Value(None) => self.end(client, request, End::of(Status::Absent)),
            Response::Values(values) => {
                let out = put_values(&values, room_of(request));
                client.answer(request, End::of(Status::Values), map, &[&out]);
                self.tally.count(request.op, meter::Outcome::Ok);
            }
            Response::Written { .. } if request.op == Op::Write => {
                self.at_length(client, request, (Status::Answer, &response));
            }
            Response::Expiry { .. } | Response::Versioned { .. } | Response::Snapshot(_) => {
                self.at_length(client, request, (Status::Answer, &response));
            }
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
            Response::Page { .. } | Response::Count(_) => {
                self.at_length(client, request, (Status::Page, &response));
            }
        }
    }

    /// Writes `response` as servers tell it each other.
    fn at_length(
        &mut self,
        client: &mut Client,
        request: &Request,
        (status, response): (Status, &Response),
    ) {
        let mut out = Vec::new();
        encode_response(response, &mut out);
        client.answer(request, End::of(status), self.map(), &[&out]);
        self.tally.count(request.op, meter::Outcome::Ok);
    }
}

/// What names a request to the service.
const fn token(number: usize, place: usize) -> u64 {
    (number as u64) << PLACE_BITS | place as u64
}

/// The number of the client and the place that [`token`] was made of.
pub(super) fn parts_of(token: u64) -> (usize, usize) {
    let part = |part: u64| usize::try_from(part).expect("a few bits");
    (
        part(token >> PLACE_BITS),
        part(token & ((1 << PLACE_BITS) - 1)),
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
        Ask::Get { key } => Work::Get {
            token,
            key: key.to_vec(),
        },
        Ask::Expiry { key } => Work::Look {
            token,
            key: key.to_vec(),
        },
        Ask::GetVersion { key } => Work::GetVersion {
            token,
            key: key.to_vec(),
        },
        Ask::GetMany { keys, wanted, at } => Work::GetMany {
            token,
            keys: keys.clone(),
            wanted,
            at,
        },
        Ask::Snapshot { id, lease } => Work::Snapshot { token, id, lease },
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
        Ask::Count => unreachable!("the protocol has no request for it"),
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

/// Whether a range that begins in `region` ends there, too.
fn ends_within(region: &MapRegion, to: Option<&[u8]>) -> bool {
    match (&region.range.to, to) {
        (None, _) => true,
        (Some(end), Some(to)) => to <= end.as_slice(),
        (Some(_), None) => false,
    }
}

/// Several keys, in `keys`.
fn read_keys<'a>(
    routes: &Routes,
    request: &Request,
    payload: &[u8],
    keys: &'a mut KeyList,
) -> Result<Ask<'a>, Refused> {
    let (named, at) = keys_of(payload).map_err(|error| Refused::Invalid(error.to_string()))?;
    let checked = named.iter().try_for_each(|key| check_users(key));
    checked.map_err(|error| Refused::Invalid(error.to_string()))?;
    if !named.iter().all(|key| routes.serves(key)) {
        return Err(Refused::WrongServer);
    }
    keys.clear();
    named.into_iter().for_each(|key| keys.push(key));
    let wanted = Wanted::Values(room_of(request));
    let at = snapshot_of(at);
    Ok(Ask::GetMany { keys, wanted, at })
}

/// Bytes for which the reply's slot has room.
const fn room_of(request: &Request) -> usize {
    request.slot.bytes - HEADER_BYTES
}

/// The first of `values`, as many as there is room for, and one in any case, as they travel.
fn put_values(values: &[Option<Vec<u8>>], room: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        let before = out.len();
        put_value(value.as_deref(), &mut out);
        if out.len() > room && before > 0 {
            out.truncate(before);
            break;
        }
    }
    out
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

/// A write on terms, in `batch`.
fn read_call<'a>(
    (routes, region): (&Routes, &MapRegion),
    payload: &[u8],
    batch: &'a mut WriteBatch,
) -> Result<Ask<'a>, Refused> {
    let call = Call::decode(&mut Reader::new("a write", payload));
    let call = call.map_err(|error| Refused::Invalid(error.to_string()))?;
    let Call::Write {
        when,
        previous,
        change,
        mut ops,
        until,
    } = call
    else {
        return Err(Refused::Invalid("a write that is none".to_owned()));
    };
    for (at, (key, value)) in ops.iter().enumerate() {
        within(routes, region, key)?;
        let to = value.filter(|to| !to.is_empty());
        if is_range(&until, at) && !ends_within(region, to) {
            return Err(Refused::WrongServer);
        }
    }
    users_only(&mut ops, &until).map_err(Refused::Invalid)?;
    let write = write_of(when, (previous, change), (ops, until));
    let (read, options) = write.map_err(|error| Refused::Invalid(error.what().to_owned()))?;
    *batch = read;
    Ok(Ask::Write { batch, options })
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
        at,
    } = call
    else {
        return Err(Refused::Invalid("a scan that is none".to_owned()));
    };
    if request.flags.has(Flags::REVERSE) != (direction == Direction::Down) {
        let why = "a scan whose header says another direction than its payload";
        return Err(Refused::Invalid(why.to_owned()));
    }
    *range = KeyRange::new(from, to.map(<[u8]>::to_vec));
    let inside = region.range.from <= range.from && ends_within(region, range.to.as_deref());
    if !inside {
        return Err(Refused::WrongServer);
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let paging = Paging {
        direction,
        pairs_max: usize::try_from(pairs_max.min(PAGE_PAIRS_MAX)).expect("bounded"),
        bytes_max: bytes_max.min(request.slot.bytes),
        keys_only,
        at: snapshot_of(at),
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

#[cfg(test)]
mod tests {
    use argosy_wire::native::Values;

    use super::*;

    #[test]
    fn as_many_values_are_sent_as_fit_and_one_in_any_case() {
        let values = [Some(vec![1; 90]), None, Some(vec![3; 90])];
        let told = |room| {
            let out = put_values(&values, room);
            let mut left = Values::of(&out);
            let mut told = Vec::new();
            while !left.is_over() {
                told.push(left.next_value().unwrap().map(<[u8]>::to_vec));
            }
            told
        };
        assert_eq!(told(1000), values);
        assert_eq!(told(180), values[..2]);
        assert_eq!(told(10), values[..1]);
    }
}
