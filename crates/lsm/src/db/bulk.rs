//! Sorted pairs that become level segments in the background: bulk ingest for a region with copies elsewhere.
//!
//! Pairs come in *parts*, each bounded, each all or nothing. A part waits in a queue until the background takes
//! it, with those behind it that go on where it ends:
//!
//! 1. Nothing may be bound in their range, by what is visible; else the part is refused, as it is where that
//!    cannot be read. No memtable may have a key of it, a tombstone either: what has is flushed first.
//! 2. From then on writes into the range wait ([`BusyReason::Ingest`]), until step 4. No merge begins, and no
//!    dead value is collected, so what was found stays true.
//! 3. A build makes segments of the pairs. Like those of a merge they are offered to the observer, which
//!    ships them, and nobody knows them before an edit names them (I3).
//! 4. One edit puts them where no level has a key of the range: the lowest level; else they become the newest
//!    run of L1. When every member has applied it, the part is told to be done.
//!
//! Pairs that wait or become segments are in the memory budget: the cache gives way to them.
//!
//! So a part is either in front of a write into its range, or behind it, and there is no write to the log for
//! it. It is visible once its edit is durable here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argosy_base::range::successor;
use argosy_base::{EditSeq, KeyRange, Lsn};
use argosy_device::Purpose;
use argosy_engine::ingest::IngestError;
pub use argosy_engine::ingest::{Taken, Ticket, check_part};
use argosy_engine::{BusyReason, EngineError};

use super::Lsm;
use super::background::{Ground, site};
use super::edits::EditProgress;
use super::ingest::{Fed, pair_bytes_max, place};
use crate::cache::{Charge, NodeCache, footprint};
use crate::compaction::below::Below;
use crate::compaction::build::{Build, Pointers, Shape, Stepped};
use crate::edit::{Edit, LEVELS_MAX};
use crate::memtable::Memtable;
use crate::merge::Source;
use crate::read::sources::MemtableSource;
use crate::settings::Settings;
use crate::work::jobs::Jobs;
use crate::work::stats::Counts;

/// Bytes of memory of parts that wait, at most; one part may have more, by itself.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// Keys and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Of the process, as the allocator is. Relaxed: nothing is ordered by it.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory of all parts of this process that wait or become segments.
#[must_use]
pub fn held_bytes() -> usize {
    HELD_BYTES.load(Ordering::Relaxed)
}

/// What the pairs of a part take of memory.
fn memory_of(pairs: &Pairs) -> usize {
    let pair = |(key, value): &(Vec<u8>, Vec<u8>)| {
        size_of::<(Vec<u8>, Vec<u8>)>() + footprint(key.len()) + footprint(value.len())
    };
    pairs.iter().map(pair).sum()
}

/// Memory to which the cache gives way until this is dropped.
struct Held {
    _charge: Charge,
    bytes: usize,
}

impl Held {
    fn new(bytes: usize, cache: &Arc<NodeCache>) -> Self {
        let charge = cache.charge();
        charge.set(bytes);
        HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
        Self {
            _charge: charge,
            bytes,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A part that waits.
struct Part {
    ticket: Ticket,
    pairs: Pairs,
    held: Held,
}

impl Part {
    fn range(&self) -> KeyRange {
        let key = |pair: Option<&(Vec<u8>, Vec<u8>)>| pair.expect("a part has pairs").0.clone();
        let last = successor(&key(self.pairs.last()));
        KeyRange::new(key(self.pairs.first()), Some(last))
    }
}

#[derive(Default)]
struct State {
    last: Ticket,
    waiting: VecDeque<Part>,
    /// Of memory that these take.
    bytes: usize,
    /// What has come to an end, and the edit that has to be usable before that is told.
    ended: VecDeque<(Ticket, Taken, EditSeq)>,
}

/// The parts of an engine that wait, and those of which it is to be told what became of them.
#[derive(Default)]
pub(super) struct Bulk(Mutex<State>);

impl Bulk {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in `pairs`, which wait from now on. See [`Lsm::ingest_part`].
    pub(super) fn take(
        &self,
        pairs: Pairs,
        settings: &Settings,
        cache: &Arc<NodeCache>,
    ) -> Result<Ticket, IngestError> {
        check_part(&pairs, pair_bytes_max(settings))?;
        let bytes = memory_of(&pairs);
        let mut state = self.lock();
        if state.bytes > 0 && state.bytes + bytes > WAITING_BYTES_MAX {
            return Err(EngineError::Busy(BusyReason::Ingest).into());
        }
        state.last += 1;
        state.bytes += bytes;
        let ticket = state.last;
        state.waiting.push_back(Part {
            ticket,
            pairs,
            held: Held::new(bytes, cache),
        });
        Ok(ticket)
    }

    /// Parts that have come to an end, each told once.
    pub(super) fn ended(&self, edits: &EditProgress) -> Vec<(Ticket, Taken)> {
        let mut state = self.lock();
        if state.ended.is_empty() {
            return Vec::new();
        }
        // Nothing but the edit says that the part is there.
        let usable = edits.usable();
        let mut told = Vec::new();
        state.ended.retain(|(ticket, taken, edit)| {
            let is_over = *edit <= usable || !matches!(taken, Taken::Done);
            told.extend(is_over.then(|| (*ticket, taken.clone())));
            !is_over
        });
        told
    }

    /// Takes a part back. Returns whether nothing of it was begun: then nothing ever will be.
    pub(super) fn take_back(&self, ticket: Ticket) -> bool {
        let mut state = self.lock();
        let at = state.waiting.iter().position(|part| part.ticket == ticket);
        let part = at.and_then(|at| state.waiting.remove(at));
        state.bytes -= part.as_ref().map_or(0, |part| part.held.bytes);
        part.is_some()
    }

    pub(super) fn waits(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// The first that waits, if it is as `which` says.
    fn pop(&self, which: impl FnOnce(&Part) -> bool) -> Option<Part> {
        let mut state = self.lock();
        let mut which = Some(which);
        let part = (state.waiting).pop_front_if(|part| which.take().is_some_and(|is| is(part)))?;
        state.bytes -= part.held.bytes;
        Some(part)
    }

    /// They go on waiting, in front of all others.
    fn put_back(&self, parts: Vec<Part>) {
        let mut state = self.lock();
        for part in parts.into_iter().rev() {
            state.bytes += part.held.bytes;
            state.waiting.push_front(part);
        }
    }

    pub(super) fn end(&self, tickets: &[Ticket], taken: Taken, edit: EditSeq) {
        let ended = tickets.iter().map(|ticket| (*ticket, taken.clone(), edit));
        self.lock().ended.extend(ended);
    }
}

/// Parts that are becoming segments.
struct Ingesting {
    build: Build<Fed>,
    range: KeyRange,
    tickets: Vec<Ticket>,
    /// What its pairs take, those that are segments already among them.
    _held: Vec<Held>,
    /// The one that puts them into the levels, once it is on its way.
    edit: Option<EditSeq>,
}

/// What the background ingests, if anything.
#[derive(Default)]
pub(super) struct Ingestion(Option<Ingesting>);

/// What a step of that came to.
pub(super) enum Ingested {
    /// Nothing could be done.
    Nothing,
    /// Something was done.
    Some,
    /// Parts are in the levels, once this edit is committed.
    All(Box<Edit>),
}

impl Ingestion {
    /// The edit with this number is committed. Returns the parts that it has ingested.
    pub(super) fn committed(&mut self, seq: EditSeq, jobs: &mut Jobs) -> Option<Vec<Ticket>> {
        let done = self.0.take_if(|bulk| bulk.edit == Some(seq))?;
        jobs.ingest_committed();
        Some(done.tickets)
    }

    /// Begins with parts, or goes on with those that were begun.
    pub(super) fn step(&mut self, at: &mut Ground<'_>) -> Result<Ingested, EngineError> {
        let lsm = at.lsm;
        if at.jobs.is_ingesting() {
            return self.build(at);
        }
        if lsm.is_full()
            && let Some(part) = lsm.bulk.pop(|_| true)
        {
            lsm.bulk.end(&[part.ticket], Taken::Full, EditSeq(0));
            return Ok(Ingested::Some);
        }
        let behind = at.storage.l1_runs() >= lsm.settings.l1_runs_max;
        if behind || !lsm.bulk.waits() || !at.jobs.may_ingest() {
            return Ok(Ingested::Nothing);
        }
        Ok(match self.begin(at) {
            true => Ingested::Some,
            false => Ingested::Nothing,
        })
    }

    /// Takes the first part, and those that go on behind it. Returns whether anything was done.
    fn begin(&mut self, at: &mut Ground<'_>) -> bool {
        let lsm = at.lsm;
        let Some(first) = lsm.bulk.pop(|_| true) else {
            return false;
        };
        let mut range = first.range();
        let refused = match lsm.is_unbound(&range) {
            Ok(unbound) if unbound || lsm.settings.mutants.ingest_over() => None,
            Ok(_) => Some(Taken::NotEmpty),
            // It is the part's misfortune, not the region's: others go on.
            Err(error) => Some(Taken::Unreadable(error)),
        };
        if let Some(refused) = refused {
            lsm.bulk.end(&[first.ticket], refused, EditSeq(0));
            return true;
        }
        let mut parts = vec![first];
        while let Some(next) = lsm.bulk.pop(|next| is_behind(&range, next)) {
            let joined = KeyRange::new(range.from.clone(), next.range().to);
            // Where that cannot be read, the part is told when it is the first.
            let fits = lsm.is_unbound(&joined).unwrap_or(false);
            parts.push(next);
            if !fits {
                lsm.bulk.put_back(parts.split_off(parts.len() - 1));
                break;
            }
            range = joined;
        }
        if !hold(lsm, &range) {
            lsm.bulk.put_back(parts);
            return false;
        }
        let tickets = parts.iter().map(|part| part.ticket).collect();
        let (pairs, held): (Vec<_>, _) = parts
            .into_iter()
            .map(|part| (part.pairs, part.held))
            .unzip();
        let pairs = pairs.into_iter().flatten().collect();
        let site = site(at.storage, lsm);
        let target = site.target(LEVELS_MAX, Shape::SelfContained, Pointers::Numbers);
        self.0 = Some(Ingesting {
            build: Build::new(Fed::of(pairs), target, Below::default()),
            range,
            tickets,
            _held: held,
            edit: None,
        });
        at.jobs.ingest_begun();
        true
    }

    /// Goes on with the segments.
    fn build(&mut self, at: &mut Ground<'_>) -> Result<Ingested, EngineError> {
        let Ground { storage, jobs, lsm } = at;
        let Some(bulk) = self.0.as_mut().filter(|bulk| bulk.edit.is_none()) else {
            return Ok(Ingested::Nothing);
        };
        let mut site = site(storage, lsm);
        let stepped = bulk.build.step(&mut site.tools(Purpose::Write))?;
        Counts::add(&lsm.counts.worked_bytes, bulk.build.take_worked());
        match stepped {
            Stepped::Progress => return Ok(Ingested::Some),
            Stepped::Waiting => return Ok(Ingested::Nothing),
            Stepped::DeviceFull => {
                bulk.build.abandon(storage);
                let tickets = std::mem::take(&mut bulk.tickets);
                self.0 = None;
                jobs.ingest_given_up();
                lsm.lock().hold(None);
                lsm.bulk.end(&tickets, Taken::Full, EditSeq(0));
                return Ok(Ingested::Some);
            }
            Stepped::Done => {}
        }
        let (level, run) = place(site.storage.head(), &bulk.range, jobs);
        let mut edit = site.storage.next_edit(lsm.epoch);
        bulk.edit = Some(edit.seq);
        for segment in bulk.build.outputs() {
            edit.added.push(site.placed(segment, (level, run)));
        }
        jobs.last_edit = edit.seq;
        Ok(Ingested::All(Box::new(edit)))
    }
}

/// From now on writes into `range` wait. `false`: a memtable has keys of it, or removes some; it is on its
/// way to be flushed.
fn hold(lsm: &Lsm, range: &KeyRange) -> bool {
    let concerns = |table: &Arc<Memtable>| {
        let erasures = table.erasures();
        let erased = erasures.as_ref().map_or(&[][..], |erased| erased.union());
        erased.iter().any(|erased| erased.overlaps(range))
            || MemtableSource::new(table, Lsn(u64::MAX), range)
                .key()
                .is_some()
    };
    let mut writer = lsm.lock();
    // What is shown changes under the lock only.
    let view = lsm.view.load_full();
    let mut concerned = view.memtables.iter().map(concerns);
    let active = concerned.next().unwrap_or(false);
    if !active && !concerned.any(|is| is) {
        writer.hold(Some(range.clone()));
        return true;
    }
    drop(writer);
    if active {
        lsm.freeze_now();
    }
    false
}

/// Whether `part` begins where `range` ends, or behind that.
fn is_behind(range: &KeyRange, part: &Part) -> bool {
    let end = range.to.as_deref().unwrap_or_default();
    part.pairs
        .first()
        .is_some_and(|(key, _)| key.as_slice() >= end)
}
