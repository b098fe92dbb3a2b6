//! What is done with a request: it is taken apart, called on the service if its region is served
//! here, and answered at once or when the answer comes.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::Outcome;
use argosy_engine::Reach;
use argosy_wire::api::Scratch;
use argosy_wire::native::{
    Flags, HEADER_BYTES, Op, Request, Status, put_failure, put_long, put_value,
};

use super::client::{Client, End};
use super::front::{Front, Routes};
use super::long::{begin_long, in_short, long_of, read_part, read_put_part};
use super::read::{Refused, read_batch, read_multi_get, read_of_all, read_scan, read_write};
use super::tally::Tally;
use crate::meter;
use crate::service::{Begun, Failure, ReplySink, ReplyTo, Request as Ask, Response, Service};
use crate::tasks::{Task, Tasks};

/// Bits of a token that name the place of a request among those of its client.
pub(super) const PLACE_BITS: u32 = 16;

/// What a thread carries requests out with.
pub(super) struct Desk {
    pub(super) service: Arc<dyn Service>,
    pub(super) sink: Arc<dyn ReplySink>,
    pub(super) front: Arc<Front>,
    /// The region map, as it was when the present step began.
    routes: Arc<Routes>,
    /// The payload that was taken last.
    pub(super) payload: Vec<u8>,
    pub(super) tally: Tally,
    /// Where what needs the device goes; without, it is waited for here.
    tasks: Option<Arc<Tasks>>,
    /// This thread's number there.
    thread: usize,
    /// Clients with tasks for which there is no room, in the order in which they came.
    stalled: VecDeque<usize>,
    scratch: Scratch,
}

impl Desk {
    pub(super) fn new(
        service: Arc<dyn Service>,
        sink: Arc<dyn ReplySink>,
        front: Arc<Front>,
        tasks: Option<Arc<Tasks>>,
    ) -> Self {
        Self {
            thread: tasks
                .as_ref()
                .map_or(0, |tasks| tasks.join(Arc::clone(&sink))),
            routes: front.routes(),
            service,
            sink,
            front,
            payload: Vec::new(),
            tally: Tally::default(),
            tasks,
            stalled: VecDeque::new(),
            scratch: Scratch::default(),
        }
    }

    /// A step begins: from now on the region map counts that there is now.
    #[inline]
    pub(super) fn look_at_map(&mut self) {
        if !self.front.has(&self.routes) {
            self.routes = self.front.routes();
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
                let encoded = self.routes.encoded();
                client.answer(&request, End::of(Status::Map), self.map(), &[encoded]);
                self.tally.count(request.op, meter::MeteredOutcome::Ok);
                Ok(false)
            }
            Op::Begin => self.begin(client, &request, &payload).map(|()| false),
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
                let failed = Response::Failed(Failure::Invalid(why));
                self.answer(client, &request, failed);
                false
            }
        }
    }

    /// Answers with a version for a value in parts.
    fn begin(
        &mut self,
        client: &mut Client,
        request: &Request,
        payload: &[u8],
    ) -> Result<(), Refused> {
        let here = self.routes.here(request)?;
        let long = begin_long(here, payload, &self.front.versions)?;
        client.answer(
            request,
            End::of(Status::Long),
            self.map(),
            &[&long.encode()],
        );
        self.tally.count(request.op, meter::MeteredOutcome::Ok);
        Ok(())
    }

    /// A request that is one call.
    fn single(
        &mut self,
        client: &mut Client,
        number: usize,
        request: Request,
        payload: &[u8],
    ) -> Result<bool, Refused> {
        let here = || self.routes.here(&request);
        let scratch = &mut self.scratch;
        let ask = match request.op {
            Op::Get => Ask::Get {
                key: here()?.key(payload)?,
            },
            Op::Look => Ask::Expiry {
                key: here()?.key(payload)?,
            },
            Op::GetVersion => Ask::GetVersion {
                key: here()?.key(payload)?,
            },
            Op::Write => read_write(here()?, &request, payload, scratch)?,
            Op::GetPart => read_part(here()?, payload, scratch)?,
            Op::PutPart => read_put_part(here()?, payload, scratch)?,
            Op::Snapshot | Op::Maintain => read_of_all(&request, payload, scratch)?,
            Op::MultiGet => read_multi_get(&self.routes, &request, payload, scratch)?,
            Op::Scan => read_scan(here()?, &request, payload, scratch)?,
            _ => read_batch(here()?, &request, payload, scratch)?,
        };
        if matches!(ask, Ask::GetMany { keys, .. } if keys.is_empty()) {
            self.end(client, &request, End::of(Status::Values));
            return Ok(false);
        }
        client.snapshots.asked(&ask);
        let place = client.keep(request);
        let token = token(number, place);
        let timed = self.tally.wants().then(|| meter::Op::of(&ask));
        let reach = match self.tasks {
            Some(_) => Reach::Memory,
            None => Reach::Device,
        };
        let reply = ReplyTo::new(&self.sink, token);
        match self.service.call(ask, reach, reply) {
            Begun::Answered(response) => {
                client.take(place);
                self.answer(client, &request, response);
                timed
                    .into_iter()
                    .for_each(|op| self.tally.answered_at_once(op));
                return Ok(true);
            }
            Begun::Waits | Begun::Sent => {}
            Begun::NeedsDevice => {
                let away = matches!(ask, Ask::Write { .. }).then(|| client.send_away());
                let task = Task::new(ask, ReplyTo::new(&self.sink, token)).with_away(away);
                self.hand_over(client, number, task);
            }
        }
        if let Some(op) = timed {
            self.tally.waits(token, op);
        }
        Ok(true)
    }

    /// Gives `task` of client `number` to the workers, or to the client's stalled tasks where their
    /// queue is full. While a client has such, nobody's tasks go past them.
    fn hand_over(&mut self, client: &mut Client, number: usize, task: Task) {
        let tasks = self
            .tasks
            .as_ref()
            .expect("without workers nothing is out of reach");
        let refused = if self.stalled.is_empty() {
            tasks.push_in_turn(self.thread, task)
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

    /// Wakes a worker for what was handed over.
    pub(super) fn ring(&self) {
        if let Some(tasks) = &self.tasks {
            tasks.ring();
        }
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
            if let Some(task) = tasks.push_in_turn(self.thread, task) {
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
        let stalled = std::mem::take(&mut client.stalled);
        for token in stalled.into_iter().map(|task| task.reply.token) {
            let (_, place) = parts_of(token);
            self.tally.answered(token);
            let error = Failure::Busy {
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
        self.routes.fingerprint()
    }

    /// Answers without a payload.
    fn end(&mut self, client: &mut Client, request: &Request, end: End) {
        client.answer(request, end, self.map(), &[]);
        let outcome = match end.status {
            Status::WrongServer => meter::MeteredOutcome::Unavailable,
            _ => meter::MeteredOutcome::Ok,
        };
        self.tally.count(request.op, outcome);
    }

    /// Writes `response` as the answer to `request`.
    #[inline]
    fn answer(&mut self, client: &mut Client, request: &Request, response: Response) {
        let map = self.map();
        let (response, long) = in_short(request, response);
        let flags = Flags::default().with(Flags::LONG, long);
        if request.op == Op::Snapshot {
            let (here, service) = (client.is_here(), &*self.service);
            client.snapshots.answered(request, &response, here, service);
        }
        match response {
            Response::Value(Some(value)) => {
                let status = if long { Status::Long } else { Status::Value };
                client.answer(request, End::of(status), map, &[&value]);
                self.tally.count(request.op, meter::MeteredOutcome::Ok);
            }
            Response::Value(None) => self.end(client, request, End::of(Status::Absent)),
            Response::Done => self.end(client, request, End::of(Status::Done)),
            Response::Values(values) => {
                let out = put_values(&values, room_of(request));
                client.answer(request, End::of(Status::Values), map, &[&out]);
                self.tally.count(request.op, meter::MeteredOutcome::Ok);
            }
            Response::Written { .. } if request.op == Op::Write => {
                let status = Status::Answer;
                self.at_length(client, request, End { status, flags }, &response);
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
                put_failure(&error, &mut out);
                client.answer(request, End::of(Status::Failed), map, &[&out]);
                self.tally
                    .count(request.op, meter::MeteredOutcome::from(&error));
            }
            Response::Page { .. } | Response::Count(_) => {
                let status = Status::Page;
                self.at_length(client, request, End { status, flags }, &response);
            }
            response => {
                let status = Status::Answer;
                self.at_length(client, request, End { status, flags }, &response);
            }
        }
    }

    /// Writes `response` as servers tell it each other.
    fn at_length(&mut self, client: &mut Client, request: &Request, end: End, response: &Response) {
        let mut out = Vec::new();
        response.encode(&mut out);
        client.answer(request, end, self.map(), &[&out]);
        self.tally.count(request.op, meter::MeteredOutcome::Ok);
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

/// Bytes for which the reply's slot has room.
pub(super) const fn room_of(request: &Request) -> usize {
    request.slot.bytes - HEADER_BYTES
}

/// The first of `values`, as many as there is room for, and one in any case, as they travel.
fn put_values(values: &[Option<Vec<u8>>], room: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        let before = out.len();
        match value.as_deref().and_then(long_of) {
            Some(long) => put_long(&long, &mut out),
            None => put_value(value.as_deref(), &mut out),
        }
        if out.len() > room && before > 0 {
            out.truncate(before);
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use argosy_wire::native::{OneValue, Values};

    use super::*;

    #[test]
    fn as_many_values_are_sent_as_fit_and_one_in_any_case() {
        let values = [Some(vec![1; 90]), None, Some(vec![3; 90])];
        let told = |room| {
            let out = put_values(&values, room);
            let mut left = Values::of(&out);
            let mut told = Vec::new();
            while !left.is_over() {
                told.push(match left.next_value().unwrap() {
                    OneValue::Absent => None,
                    OneValue::Whole(value) => Some(value.to_vec()),
                    OneValue::Long(_) => panic!("there is none"),
                });
            }
            told
        };
        assert_eq!(told(1000), values);
        assert_eq!(told(180), values[..2]);
        assert_eq!(told(10), values[..1]);
    }
}
