//! Answers that wait for the commit LSN, and writes that wait for room.
//!
//! - An answer that depends on LSN n is given when n is committed (invariant I5: no reply reveals anything above the
//!   commit LSN). At its deadline it is given up: a write's outcome is then *unknown*, since it stands in the log; a
//!   read is *unavailable*.
//! - A write for which there was no room was not appended. It is tried again, in the order of arrival, and given up at
//!   its deadline as *not applied*. One that finds room waits for the commit LSN up to the same deadline. While one
//!   waits, later writes of the region queue up behind it, and so do reads of the keys that wait, so that each client
//!   sees its own writes in order. Deletes on a full device are the exception (see `room`).
//! - A write of another server that needs the device waits in the same queue for a worker, since the thread of the
//!   fabric reads no device. What comes from other servers meanwhile waits behind it, but for reads of other keys.
//!   This server's clients write past it, as long as they write other keys and none of their writes waits.
//!
//! Both queues are bounded (I8): over the bound a request is refused at once. What answers hold is part of the
//! server's memory budget (I9): those of all its regions share an [`Allowance`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::{Instant, Lsn, Outcome};
use argosy_engine::long::Uses;
use argosy_engine::{BusyReason, WaitFor, Wanted, WriteBatch, WriteOptions};
use argosy_wire::api::{Plan, Scratch};

use super::gate::Reveals;
use super::look::Tell;
use crate::service::{Failure, KeyList, ReplyTo, Request, Response};
use crate::tasks::scratch_bytes;

/// Answers that wait, at most, for one region.
pub(super) const ANSWERS_MAX: usize = 1 << 16;
/// Bytes of writes and reads that wait for room, at most, for one region.
pub(super) const QUEUED_BYTES_MAX: usize = 16 << 20;
/// Requests that wait, at most, where a write is compared with each of them.
const LOOKED_AT_MAX: usize = 64;

/// Bytes that answers may hold while they wait, those of all regions of a server together. A quarter
/// is kept for writes that were applied: theirs are short, and a writer that is refused its answer does
/// not know what became of the write.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    max: usize,
    /// Relaxed: a sum that nothing else depends on.
    taken: AtomicUsize,
}

impl Allowance {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            max,
            taken: AtomicUsize::new(0),
        }
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes what `response` holds, if there is so much.
    fn take(&self, response: &Response) -> bool {
        let kept = match response.tells_of_effect() {
            true => 0,
            false => self.max / 4,
        };
        let (bytes, max) = (answer_bytes(response), self.max - kept);
        let sum = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= max);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum)
            .is_ok()
    }

    /// `response` waits no more.
    fn give_back(&self, response: &Response) {
        let bytes = answer_bytes(response);
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What is answered, what that reveals, and what it waits for.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) reveals: Reveals,
    pub(crate) wait: WaitFor,
    pub(crate) response: Response,
}

/// An answer for which there is no room, and where it goes.
pub(crate) struct Unkept {
    pub(crate) shown: Shown,
    pub(crate) reply: ReplyTo,
}

/// An answer that waits.
struct Answer {
    wait: WaitFor,
    response: Response,
    reply: ReplyTo,
    deadline: Instant,
}

/// Bytes that `response` holds while it waits.
fn answer_bytes(response: &Response) -> usize {
    size_of::<Answer>() + response.bytes()
}

/// A request that waits for room.
pub(crate) enum Queued {
    /// A write that was not appended.
    Write {
        /// What to write.
        batch: WriteBatch,
        /// How.
        options: WriteOptions,
    },
    /// A read of a key that an earlier queued write writes.
    Get {
        /// The key.
        key: Vec<u8>,
        /// What of it.
        tell: Tell,
    },
    /// A read of several keys, one of which an earlier queued write writes.
    GetMany {
        /// The keys.
        keys: KeyList,
        /// What of them.
        wanted: Wanted,
    },
    /// A flush of what was written, that which waits in front of it included.
    Flush,
    /// Something else of another server, which follows what that has written.
    Other(Plan, Box<Scratch>),
}

impl Queued {
    /// `request`, of another server.
    pub(super) fn of_peer(request: Request<'_>) -> Self {
        if let Request::Write { batch, options } = request {
            let batch = batch.clone();
            return Self::Write { batch, options };
        }
        let mut scratch = Box::<Scratch>::default();
        Self::Other(scratch.keep(request), scratch)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Write { batch, .. } => batch.bytes() + 64 * batch.len(),
            Self::Get { key, .. } => key.len() + 64,
            Self::GetMany { keys, .. } => keys.bytes() + 64,
            Self::Flush => 64,
            Self::Other(_, scratch) => scratch_bytes(scratch) + 64,
        }
    }
}

/// A queued request, where its answer goes, and when it is given up.
pub(crate) struct Entry {
    pub(crate) request: Queued,
    pub(crate) reply: ReplyTo,
    pub(crate) deadline: Instant,
}

impl Entry {
    /// Where the answer goes once the request is carried out: its deadline stays what it is.
    pub(crate) fn reply(&self) -> ReplyTo {
        ReplyTo {
            deadline: Some(self.deadline),
            ..self.reply.clone()
        }
    }
}

/// What waits for one region.
pub(crate) struct Waiting {
    /// By the LSN that they wait for, rising.
    answers: VecDeque<Answer>,
    /// What all of them hold is taken from it.
    allowance: Arc<Allowance>,
    /// The oldest first.
    queue: VecDeque<Arc<Entry>>,
    queue_bytes: usize,
    /// A thread carries out the first of the queue.
    in_hand: bool,
    /// A write of a client waits: no client's write overtakes it, whatever it is about.
    strict: bool,
    /// A worker has been asked to carry on with it.
    asked: bool,
    /// Why the first of the queue found no room when it was last tried.
    pub(crate) busy: Option<BusyReason>,
    /// Is told of parts that are given up.
    uses: Arc<Uses>,
}

impl Waiting {
    /// Nothing waits; what answers hold will be taken from `allowance`. What is given up is told to `uses`.
    pub(crate) fn new(allowance: Arc<Allowance>, uses: Arc<Uses>) -> Self {
        Self {
            answers: VecDeque::new(),
            allowance,
            queue: VecDeque::new(),
            queue_bytes: 0,
            in_hand: false,
            strict: false,
            asked: false,
            busy: None,
            uses,
        }
    }

    /// Keeps an answer until what it waits for is over. Gives it back where too many wait already, or where
    /// those that wait hold too much.
    pub(crate) fn answer_once(
        &mut self,
        shown: Shown,
        reply: ReplyTo,
        deadline: Instant,
    ) -> Result<(), Box<Unkept>> {
        let kept = self.answers.len() < ANSWERS_MAX;
        if !kept || !self.allowance.take(&shown.response) {
            return Err(Box::new(Unkept { shown, reply }));
        }
        let Shown { wait, response, .. } = shown;
        let answer = Answer {
            wait,
            response,
            reply,
            deadline,
        };
        let is_later = |other: &Answer| other.wait.lsn() > wait.lsn();
        if self.answers.back().is_none_or(|last| !is_later(last)) {
            self.answers.push_back(answer);
        } else {
            let at = self.answers.partition_point(|other| !is_later(other));
            self.answers.insert(at, answer);
        }
        Ok(())
    }

    /// Whether requests wait for room.
    pub(crate) fn is_queueing(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a queued request is about a key that `batch` writes.
    pub(crate) fn concerns(&self, batch: &WriteBatch) -> bool {
        // What lies in a range nobody looks up here.
        if batch.ranges_len() > 0 {
            return self.is_queueing();
        }
        batch.ops().any(|op| {
            let read = |entry: &Arc<Entry>| match &entry.request {
                Queued::Write { .. } | Queued::Flush | Queued::Other(..) => false,
                Queued::Get { key, .. } => key == op.key(),
                Queued::GetMany { keys, .. } => keys.iter().any(|key| key == op.key()),
            };
            self.writes(op.key()) || self.queue.iter().any(read)
        })
    }

    /// Whether a queued write writes `key`.
    pub(crate) fn writes(&self, key: &[u8]) -> bool {
        self.queue.iter().any(|entry| match &entry.request {
            Queued::Write { batch, .. } => batch.ops().any(|op| op.concerns(key)),
            Queued::Get { .. } | Queued::GetMany { .. } | Queued::Flush | Queued::Other(..) => {
                false
            }
        })
    }

    /// Whether what waits does so for the device alone, and not for room.
    pub(crate) fn is_for_device(&self) -> bool {
        self.is_queueing() && !self.strict
    }

    /// Whether a client may write `batch` before what waits.
    pub(crate) fn may_overtake(&self, batch: &WriteBatch) -> bool {
        let short = self.queue.len() <= LOOKED_AT_MAX;
        self.is_for_device() && short && !self.concerns(batch)
    }

    /// A worker is about to be asked to carry on. False where one has been, and has not begun.
    pub(crate) fn ask_worker(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// The worker that was asked begins, or is not coming.
    pub(crate) fn worker_comes(&mut self) {
        self.asked = false;
    }

    /// Queues a client's request, which later writes do not overtake. Gives it back where too much waits already.
    pub(crate) fn queue_write(&mut self, entry: Entry) -> Result<(), ReplyTo> {
        self.queue(entry)?;
        self.strict = true;
        Ok(())
    }

    /// Queues a request. Gives it back where too much waits already.
    pub(crate) fn queue(&mut self, entry: Entry) -> Result<(), ReplyTo> {
        if self.queue_bytes + entry.request.bytes() > QUEUED_BYTES_MAX {
            return Err(entry.reply);
        }
        self.queue_bytes += entry.request.bytes();
        self.queue.push_back(Arc::new(entry));
        Ok(())
    }

    /// The oldest queued request, to be carried out without this lock. It keeps its place meanwhile, so
    /// that nothing overtakes it. `None` where there is none, another thread has it in hand, or it is past its
    /// deadline `now` and will be given up.
    pub(crate) fn take_in_hand(&mut self, now: Instant) -> Option<Arc<Entry>> {
        let first = self.queue.front().filter(|_| !self.in_hand)?;
        if first.deadline <= now {
            return None;
        }
        self.in_hand = true;
        Some(Arc::clone(first))
    }

    /// What was [taken in hand](Self::take_in_hand) has been carried out.
    pub(crate) fn carried_out(&mut self) {
        assert!(
            std::mem::take(&mut self.in_hand),
            "it was taken in hand before"
        );
        self.drop_first();
    }

    /// What was [taken in hand](Self::take_in_hand) still finds no room.
    pub(crate) fn found_no_room(&mut self, reason: BusyReason) {
        self.in_hand = false;
        self.strict = true;
        self.busy = Some(reason);
    }

    /// What was [taken in hand](Self::take_in_hand) needs the device, which is out of reach.
    pub(crate) fn needs_device(&mut self) {
        self.in_hand = false;
    }

    fn drop_first(&mut self) -> Option<Arc<Entry>> {
        let entry = self.queue.pop_front()?;
        self.queue_bytes -= entry.request.bytes();
        self.strict &= self.is_queueing();
        Some(entry)
    }

    /// Whether answers wait.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The answers that are due once everything up to `committed` is committed.
    pub(crate) fn release(&mut self, committed: Lsn, due: &mut Vec<(ReplyTo, Response)>) {
        let is_over = |answer: &mut Answer| answer.wait.is_over(committed);
        while let Some(answer) = self.answers.pop_front_if(is_over) {
            self.allowance.give_back(&answer.response);
            due.push((answer.reply, answer.response));
        }
    }

    /// Gives up what is past its deadline; `why` says what answers waited for, and `busy` what
    /// writes did.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        why: &str,
        busy: &str,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        if self.answers.iter().any(|answer| answer.deadline <= now) {
            for answer in std::mem::take(&mut self.answers) {
                if answer.deadline <= now {
                    self.allowance.give_back(&answer.response);
                    let outcome = match answer.response.tells_of_effect() {
                        true => Outcome::Unknown,
                        false => Outcome::NotApplied,
                    };
                    // One that has waited for room had less time than others.
                    let what = match answer.reply.deadline {
                        Some(_) => format!("{why} (the request had waited before)"),
                        None => why.to_owned(),
                    };
                    let error = Failure::Unavailable { what, outcome };
                    due.push((answer.reply, Response::Failed(error)));
                } else {
                    self.answers.push_back(answer);
                }
            }
        }
        let is_over = |entry: &Arc<Entry>| entry.deadline <= now;
        // What is in hand is answered by whoever has it.
        while !self.in_hand && self.queue.front().is_some_and(is_over) {
            let entry = self.drop_first().expect("there is a first one");
            if let Queued::Write { batch, .. } = &entry.request {
                self.uses.refused(batch);
            }
            let outcome = Outcome::NotApplied;
            let error = Failure::Busy {
                what: busy.to_owned(),
                outcome,
            };
            due.push((entry.reply.clone(), Response::Failed(error)));
        }
    }

    /// Gives up everything that waits, because of `why`: the region is served here no more. What a thread has in hand
    /// it answers itself.
    pub(crate) fn give_up(&mut self, why: &str, due: &mut Vec<(ReplyTo, Response)>) {
        let failed = |outcome| {
            let what = why.to_owned();
            Response::Failed(Failure::Unavailable { what, outcome })
        };
        for answer in std::mem::take(&mut self.answers) {
            self.allowance.give_back(&answer.response);
            let outcome = match answer.response.tells_of_effect() {
                true => Outcome::Unknown,
                false => Outcome::NotApplied,
            };
            due.push((answer.reply, failed(outcome)));
        }
        while self.queue.len() > usize::from(self.in_hand) {
            let Some(entry) = self.queue.pop_back() else {
                break;
            };
            self.queue_bytes -= entry.request.bytes();
            if let Queued::Write { batch, .. } = &entry.request {
                self.uses.refused(batch);
            }
            due.push((entry.reply.clone(), failed(Outcome::NotApplied)));
        }
    }

    /// Requests that wait for room.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of what waits for room.
    pub(super) const fn queued_bytes(&self) -> usize {
        self.queue_bytes
    }

    /// Requests that wait, of either kind.
    pub(crate) fn len(&self) -> usize {
        self.answers.len() + self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ReplySink;

    /// Counts answers.
    #[derive(Default)]
    struct Sink(AtomicUsize);

    impl ReplySink for Sink {
        fn deliver(&self, _: u64, _: Response) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn value(bytes: usize) -> Response {
        Response::Value(Some(vec![0; bytes]))
    }

    fn written() -> Response {
        Response::Written {
            applied: true,
            existed: vec![],
            previous: vec![],
            changed: None,
        }
    }

    struct Bench {
        sink: Arc<dyn ReplySink>,
        allowance: Arc<Allowance>,
        regions: [Waiting; 2],
    }

    impl Bench {
        fn new(max: usize) -> Self {
            let allowance = Arc::new(Allowance::new(max));
            Self {
                sink: Arc::new(Sink::default()),
                regions: [(); 2].map(|()| Waiting::new(Arc::clone(&allowance), Arc::default())),
                allowance,
            }
        }

        /// Whether it was kept.
        fn keep(&mut self, region: usize, lsn: u64, response: Response) -> bool {
            let reply = ReplyTo::new(&self.sink, lsn);
            let deadline = Instant::from_nanos(1000 + lsn);
            let wait = WaitFor::committed(Lsn(lsn));
            let shown = Shown {
                reveals: Reveals::Values,
                wait,
                response,
            };
            let kept = self.regions[region].answer_once(shown, reply, deadline);
            kept.is_ok()
        }
    }

    #[test]
    fn answers_are_bounded_in_bytes_over_all_regions() {
        const MAX: usize = 64 << 10;
        let mut bench = Bench::new(MAX);
        let one = answer_bytes(&value(1000));
        let mut kept = 0;
        while bench.keep(kept % 2, kept as u64, value(1000)) {
            kept += 1;
            assert_eq!(bench.allowance.taken(), kept * one);
        }
        assert_eq!(kept, (MAX - MAX / 4) / one, "a quarter is kept for writes");
        assert!(
            !bench.keep(1, 999, value(1000)),
            "a refused answer takes nothing"
        );

        let small = answer_bytes(&written());
        let mut writes = 0;
        while bench.keep(0, 1000, written()) {
            writes += 1;
        }
        assert_eq!(writes, (MAX - kept * one) / small);
        assert!(bench.allowance.taken() <= MAX);

        // What is answered or given up makes room.
        let mut due = Vec::new();
        bench.regions[0].release(Lsn(999), &mut due);
        assert_eq!(due.len(), kept.div_ceil(2));
        assert_eq!(bench.allowance.taken(), kept / 2 * one + writes * small);
        for waiting in &mut bench.regions {
            waiting.expire(Instant::from_nanos(9000), "", "", &mut due);
        }
        assert_eq!((due.len(), bench.allowance.taken()), (kept + writes, 0));
    }

    #[test]
    fn what_is_in_hand_keeps_its_place() {
        let mut bench = Bench::new(0);
        let reply = ReplyTo::new(&bench.sink, 0);
        let waiting = &mut bench.regions[0];
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").expect("it is short");
        let write = Queued::Write {
            batch: batch.clone(),
            options: WriteOptions::default(),
        };
        let get = Queued::Get {
            key: b"a".to_vec(),
            tell: Tell::Value,
        };
        for request in [write, get] {
            let deadline = Instant::from_nanos(5);
            let reply = reply.clone();
            let entry = Entry {
                request,
                reply,
                deadline,
            };
            assert!(waiting.queue(entry).is_ok());
        }
        let (early, late) = (Instant::from_nanos(1), Instant::from_nanos(9));
        let mut due = Vec::new();

        assert!(waiting.take_in_hand(late).is_none(), "it is given up");
        let first = waiting.take_in_hand(early).expect("it is the first");
        assert!(matches!(first.request, Queued::Write { .. }));
        assert!(waiting.take_in_hand(early).is_none(), "one thread has it");
        assert!(waiting.is_queueing() && waiting.writes(b"a") && waiting.concerns(&batch));
        waiting.expire(late, "", "", &mut due);
        assert_eq!((due.len(), waiting.queued()), (0, 2), "it is under way");

        waiting.found_no_room(BusyReason::Memtable);
        assert_eq!(
            (waiting.queued(), waiting.busy),
            (2, Some(BusyReason::Memtable))
        );
        assert!(waiting.take_in_hand(early).is_some());
        waiting.carried_out();
        assert!(
            !waiting.writes(b"a") && waiting.concerns(&batch),
            "the read is left"
        );
        waiting.expire(late, "", "", &mut due);
        assert_eq!(
            (due.len(), waiting.queued(), waiting.queue_bytes),
            (1, 0, 0)
        );
    }
}
