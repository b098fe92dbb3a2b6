//! Sorted pairs that a client has taken straight into the levels ([`argosy_engine::bulk_load`]).
//!
//! 1. What lies in several regions is split: each takes its pairs whole or not at all.
//! 2. Where members hold the same levels, the primary's engine makes segments of them, which travel like those
//!    of a merge. The answer is given when every member has applied the edit that names them.
//! 3. Where backups build levels of their own from the log, or the engine has no bulk load, the pairs are written
//!    as a batch, on the condition that nothing is bound in their range.
//!
//! At its deadline a part that was not begun is taken back and *not applied*; of one that was, the outcome is
//! *unknown*.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::limits::BATCH_BYTES_MAX;
use argosy_base::range::successor;
use argosy_base::{Instant, KeyRange, Outcome};
use argosy_coordinator::Replication;
use argosy_engine::bulk_load::{BulkLoadError, Taken, Ticket, check_part};
use argosy_engine::{Condition, Reach, WaitFor, WriteBatch, WriteOptions};
use parking_lot::{Mutex, MutexGuard};

use super::gate::Reveals;
use super::local::LocalRegion;
use super::open::OpenRegion;
use super::refuse::{failed, not_written};
use super::region::{Region, engine_of};
use super::serving::Serving;
use super::waiting::Shown;
use super::write::Write;
use crate::service::{Begun, Failure, ReplySink, ReplyTo, Response};

/// Keys and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// Where answers go, and until when.
type Waiting = BTreeMap<Ticket, (ReplyTo, Instant)>;

/// Parts that the engine of a region has been handed, and that were not answered.
#[derive(Default)]
pub(crate) struct BulkLoads(Mutex<Waiting>);

impl BulkLoads {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock()
    }

    /// Has the region, which is `open`, bulk-load pairs that all lie in it.
    pub(super) fn begin(
        &self,
        open: &OpenRegion<'_>,
        batch: &WriteBatch,
        reach: Reach,
        reply: ReplyTo,
    ) -> Begun {
        let by_log = goes_by_log(open);
        if by_log && reach == Reach::Memory {
            return Begun::NeedsDevice;
        }
        let pairs = batch
            .puts()
            .map(|(key, value)| (key.to_vec(), value.to_vec()));
        let pairs: Pairs = pairs.collect();
        if by_log {
            return load_by_log(open, batch, &pairs, reply).into();
        }
        // Locked meanwhile, so that nothing is told of the part before it is known whom to tell.
        let mut waiting = self.lock();
        match open.engine.bulk_load(pairs) {
            Ok(ticket) => {
                let before = waiting.insert(ticket, (reply, open.context.deadline()));
                drop(waiting);
                if let Some((reply, _)) = before {
                    reply.send(engine_is_gone(open.region));
                }
                Begun::Waits
            }
            Err(error) => Begun::Answered(refused(&error)),
        }
    }

    /// Answers requests whose pairs the engine of the region, which is `local`, has bulk-loaded or refused.
    pub(super) fn answer(&self, local: &LocalRegion<'_>) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        let Some(engine) = engine_of(local.region) else {
            return;
        };
        let mut ended = Vec::new();
        for (ticket, taken) in engine.bulk_loads_ended() {
            // One that is past its deadline has been answered.
            let asked = waiting.remove(&ticket);
            ended.extend(asked.map(|(reply, deadline)| {
                let deadline = Some(deadline);
                (taken, ReplyTo { deadline, ..reply })
            }));
        }
        drop(waiting);
        let open = local.open(&engine);
        for (taken, reply) in ended {
            let answer = open.show(shown(&engine, taken), reply.clone());
            if let Some(answer) = answer {
                reply.send(answer);
            }
        }
    }

    /// Gives up what is past its deadline in `region`.
    pub(super) fn expire(&self, region: &Region, now: Instant, due: &mut Vec<(ReplyTo, Response)>) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        let engine = engine_of(region);
        let over = waiting.extract_if(.., |_, (_, deadline)| *deadline <= now);
        due.extend(over.map(|(ticket, (reply, _))| {
            let back = engine
                .as_ref()
                .is_some_and(|engine| engine.take_back(ticket));
            let outcome = match back {
                true => Outcome::NotApplied,
                false => Outcome::Unknown,
            };
            let what = format!(
                "{} does not keep up with what it is to bulk-load; retry",
                region.id()
            );
            let error = Failure::Unavailable { what, outcome };
            (reply, Response::Failed(error))
        }));
    }
}

/// Whether pairs are written as a batch: backups of the region build levels of their own, or its engine has no
/// bulk load.
fn goes_by_log(open: &OpenRegion<'_>) -> bool {
    let map = open.context.views.map();
    // A member that is away comes back by the log.
    let copies = usize::try_from(map.copies()).unwrap_or(usize::MAX);
    let copies = copies.max(open.region.view().members().len());
    let builds = copies > 1 && map.replication() == Replication::BuildIndex;
    builds
        || open
            .engine
            .capabilities()
            .bulk_load_pair_bytes_max
            .is_none()
}

/// Writes pairs as a batch where nothing is bound in their range.
fn load_by_log(
    open: &OpenRegion<'_>,
    batch: &WriteBatch,
    pairs: &Pairs,
    reply: ReplyTo,
) -> Option<Response> {
    let engine = open.engine;
    let max = engine.capabilities().bulk_load_pair_bytes_max;
    let max = max.unwrap_or(BATCH_BYTES_MAX);
    if let Err(error) = check_part(pairs, max) {
        return Some(refused(&error));
    }
    match engine.is_unbound(&range_of(pairs)) {
        Ok(true) => {}
        Ok(false) => return open.show(shown(engine, Taken::NotEmpty), reply),
        Err(error) => return Some(failed(&error)),
    }
    // Whoever binds one of the keys from here on is noticed.
    let options = WriteOptions {
        condition: Condition::Absent,
        return_previous: false,
    };
    let sink: Arc<dyn ReplySink> = Arc::new(Unbound(reply));
    let write = Write { batch, options };
    let answered = open.write(write, Reach::Device, ReplyTo::new(&sink, 0));
    answered.answered().map(told)
}

/// The answer for a part of that number which an engine was handed that serves the region no more.
fn engine_is_gone(region: &Region) -> Response {
    Response::Failed(Failure::Unavailable {
        what: format!(
            "{} was opened anew before it had bulk-loaded these; retry",
            region.id()
        ),
        outcome: Outcome::Unknown,
    })
}

/// From the first to the last key of `pairs`, of which there is one at least.
fn range_of(pairs: &[(Vec<u8>, Vec<u8>)]) -> KeyRange {
    let key = |pair: Option<&(Vec<u8>, Vec<u8>)>| pair.map(|(key, _)| key.clone());
    let last = key(pairs.last()).map(|key| successor(&key));
    KeyRange::new(key(pairs.first()).unwrap_or_default(), last)
}

/// Waits for the answer to a write on the condition that nothing is bound.
struct Unbound(ReplyTo);

impl ReplySink for Unbound {
    fn deliver(&self, _: u64, response: Response) {
        self.0.clone().send(told(response));
    }
}

/// The answer to a bulk load for that to a write on the condition that nothing is bound.
fn told(response: Response) -> Response {
    match response {
        Response::Written { applied: false, .. } => answer(Taken::NotEmpty),
        Response::Written { .. } => answer(Taken::Done),
        failed => failed,
    }
}

/// The answer to a bulk load that ended like this, and what it waits for: a key that is in the way may be uncommitted.
fn shown(engine: &Serving, taken: Taken) -> Shown {
    let wait = match taken {
        Taken::NotEmpty => WaitFor::committed(engine.last_lsn()),
        _ => WaitFor::Nothing,
    };
    Shown {
        reveals: Reveals::BulkLoad,
        wait,
        response: answer(taken),
    }
}

/// The answer where the engine has come to this end.
fn answer(taken: Taken) -> Response {
    match taken {
        Taken::Done => Response::Written {
            applied: true,
            existed: Vec::new(),
            previous: Vec::new(),
            changed: None,
        },
        Taken::NotEmpty => {
            let what = "a key is bound between the first and the last of these pairs: write them, or \
                        remove the range before";
            Response::Failed(Failure::Invalid(what.to_owned()))
        }
        Taken::Contended => refused(&BulkLoadError::Contended),
        Taken::Full => {
            let what = "a device is full; delete keys to make room".to_owned();
            let outcome = Outcome::NotApplied;
            Response::Failed(Failure::Busy { what, outcome })
        }
        Taken::Unreadable(error) => {
            tracing::warn!(%error, "pairs were not bulk-loaded: what lies in their range cannot be read");
            not_written(&error)
        }
    }
}

/// The answer to what the engine did not take.
fn refused(error: &BulkLoadError) -> Response {
    match error {
        BulkLoadError::Engine(error) => failed(error),
        error => Response::Failed(Failure::Invalid(error.to_string())),
    }
}
