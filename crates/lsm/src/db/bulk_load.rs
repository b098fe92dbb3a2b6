//! Bulk load: sorted pairs enter the levels in the background, without a log. All of them take this path.
//!
//! A *part* is loaded as a whole or not at all. Parts wait in a queue until the background takes them. There are
//! two kinds:
//!
//! - *Pairs* ([`Lsm::bulk_load`]): a bounded number, in a region that may have copies elsewhere. They are ordered
//!   with writes.
//! - *Built* segments ([`BulkLoader`](super::bulk_loader::BulkLoader)): made of any number of pairs, on the caller's
//!   thread. They shadow what is bound in their range.
//!
//! The steps of a part:
//!
//! 1. It waits until the merge under way ends, and no other merge begins before it. After a bulk load, a merge that is
//!    due goes first. Flushes run at any time. So many small parts do not starve merges or flushes, nor do merges
//!    starve parts.
//! 2. Pairs are refused if a key of their range is bound in what is visible, or if that cannot be read. Parts that
//!    continue where this one ends join it.
//! 3. A memtable with a key of the range, or with a tombstone in it, is flushed first. A built part is given up after
//!    `FREEZES_MAX` such flushes, since others keep writing into its range; no value is moved there meanwhile.
//! 4. Until the end no merge begins, and no garbage is collected. Writes into the range of pairs wait
//!    ([`BusyReason::BulkLoad`]), so that it stays empty. Writes into the range of a built part shadow its pairs.
//! 5. A build makes segments of the pairs. As with a merge, the observer ships them, and nobody knows them before an
//!    edit names them (I3).
//! 6. One edit adds the segments to the lowest level if no level has a key of the range, and otherwise to L1, as its
//!    newest run. The pairs are visible once the edit is durable here. The end is reported once every member has
//!    applied the edit.
//!
//! Pairs that wait or become segments are in the memory budget: the cache gives way to them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::range::successor;
use argosy_base::{EditSeq, KeyRange, Lsn};
use argosy_device::Purpose;
use argosy_engine::bulk_load::BulkLoadError;
pub use argosy_engine::bulk_load::{Taken, Ticket, check_part};
use argosy_engine::{BusyReason, Charge, EngineError, Store as _};
use parking_lot::{Mutex, MutexGuard};

use super::Lsm;
use super::background::{Ground, site};
use super::bulk_loader::{Fed, pair_bytes_max};
use super::edits::EditProgress;
use super::writer::Writer;
use crate::cache::{NodeCache, footprint};
use crate::compaction::below::Below;
use crate::compaction::build::{Build, Stepped};
use crate::edit::{Edit, LevelSegment, RunId};
use crate::memtable::Memtable;
use crate::merge::Source;
use crate::read::sources::MemtableSource;
use crate::settings::Settings;
use crate::storage::Storage;
use crate::version::Version;
use crate::work::jobs::Jobs;
use crate::work::stats::Counts;

/// Bytes of memory of parts that wait, at most; one part may have more, by itself.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// How often a memtable is frozen for a built part before that is given up.
const FREEZES_MAX: u32 = 16;

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
        let charge = cache.new_charge();
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

/// What a part brings.
enum Load {
    /// Pairs, which become segments. Nothing may be bound in their range.
    Pairs(Pairs),
    /// Segments of pairs that shadow what is bound in their range.
    Built(Vec<LevelSegment>),
}

impl Load {
    fn into_pairs(self) -> Pairs {
        match self {
            Self::Pairs(pairs) => pairs,
            Self::Built(_) => Vec::new(),
        }
    }

    fn into_built(self) -> Vec<LevelSegment> {
        match self {
            Self::Pairs(_) => Vec::new(),
            Self::Built(segments) => segments,
        }
    }
}

/// A part that waits.
struct Part {
    ticket: Ticket,
    /// From its first key to its last.
    range: KeyRange,
    load: Load,
    held: Held,
    /// How often a memtable was frozen for it. Built parts only.
    freezes: u32,
}

/// From the first key of `pairs`, of which there is one at least, to the last.
fn range_of(pairs: &Pairs) -> KeyRange {
    let key = |pair: Option<&(Vec<u8>, Vec<u8>)>| pair.expect("a part has pairs").0.clone();
    let last = successor(&key(pairs.last()));
    KeyRange::new(key(pairs.first()), Some(last))
}

#[derive(Default)]
struct State {
    last: Ticket,
    waiting: VecDeque<Part>,
    /// Of memory that these take.
    bytes: usize,
    /// Segments of parts that were taken back.
    taken_back: Vec<LevelSegment>,
    /// What has come to an end, and the edit that has to be usable before that is told.
    ended: VecDeque<(Ticket, Taken, EditSeq)>,
}

impl State {
    /// Has a new part wait.
    fn push(&mut self, range: KeyRange, load: Load, held: Held) -> Ticket {
        self.last += 1;
        self.bytes += held.bytes;
        self.waiting.push_back(Part {
            ticket: self.last,
            range,
            load,
            held,
            freezes: 0,
        });
        self.last
    }
}

/// The parts of an engine that wait, and those of which it is to be told what became of them.
#[derive(Default)]
pub(super) struct BulkLoadQueue(Mutex<State>);

impl BulkLoadQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.0.lock()
    }

    /// Takes in `pairs`, which wait from now on. See [`bulk_load`](argosy_engine::Store::bulk_load).
    pub(super) fn take(
        &self,
        pairs: Pairs,
        settings: &Settings,
        cache: &Arc<NodeCache>,
    ) -> Result<Ticket, BulkLoadError> {
        check_part(&pairs, pair_bytes_max(settings))?;
        let bytes = memory_of(&pairs);
        let mut state = self.lock();
        if state.bytes > 0 && state.bytes + bytes > WAITING_BYTES_MAX {
            return Err(EngineError::Busy(BusyReason::BulkLoad).into());
        }
        let range = range_of(&pairs);
        Ok(state.push(range, Load::Pairs(pairs), Held::new(bytes, cache)))
    }

    /// Takes in segments of pairs of `range`, which wait from now on.
    pub(super) fn take_built(
        &self,
        segments: Vec<LevelSegment>,
        range: KeyRange,
        cache: &Arc<NodeCache>,
    ) -> Ticket {
        let held = Held::new(0, cache);
        self.lock().push(range, Load::Built(segments), held)
    }

    /// The parts selected by `which` that have ended. Each is returned once.
    pub(super) fn ended(
        &self,
        edits: &EditProgress,
        which: impl Fn(Ticket) -> bool,
    ) -> Vec<(Ticket, Taken)> {
        let mut state = self.lock();
        if state.ended.is_empty() {
            return Vec::new();
        }
        // Nothing but the edit says that the part is there.
        let usable = edits.usable();
        let mut told = Vec::new();
        state.ended.retain(|(ticket, taken, edit)| {
            let is_over = *edit <= usable || !matches!(taken, Taken::Done);
            let is_told = is_over && which(*ticket);
            told.extend(is_told.then(|| (*ticket, taken.clone())));
            !is_told
        });
        told
    }

    /// Takes a part back. Returns whether nothing of it was begun: then nothing ever will be.
    pub(super) fn take_back(&self, ticket: Ticket) -> bool {
        let mut state = self.lock();
        let at = state.waiting.iter().position(|part| part.ticket == ticket);
        let Some(part) = at.and_then(|at| state.waiting.remove(at)) else {
            return false;
        };
        state.bytes -= part.held.bytes;
        if let Load::Built(segments) = part.load {
            state.taken_back.extend(segments);
        }
        true
    }

    /// Lets go of the parts that wait: the engine has ended, and nobody is told.
    pub(super) fn forget_waiting(&self) {
        let mut state = self.lock();
        state.bytes = 0;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }

    pub(super) fn waits(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Whether memtables were frozen for the first part that waits.
    pub(super) fn has_frozen(&self) -> bool {
        let state = self.lock();
        state.waiting.front().is_some_and(|part| part.freezes > 0)
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

/// The segments of parts on their way into the levels.
enum Segments {
    Making(Box<Build<Fed>>),
    Made(Vec<LevelSegment>),
}

/// Parts on their way into the levels.
struct BulkLoad {
    segments: Segments,
    range: KeyRange,
    tickets: Vec<Ticket>,
    /// What its pairs take, those that are segments already among them.
    _held: Vec<Held>,
    /// The one that puts them into the levels, once it is on its way.
    edit: Option<EditSeq>,
}

/// What the background loads, if anything.
#[derive(Default)]
pub(super) struct BulkLoadJob(Option<BulkLoad>);

/// What a step of that came to.
pub(super) enum BulkLoadStep {
    /// Nothing could be done.
    Nothing,
    /// Something was done.
    Some,
    /// Parts are in the levels, once this edit is committed.
    All(Box<Edit>),
}

impl BulkLoadJob {
    /// The edit with this number is committed. Returns the parts that it has bulk-loaded.
    pub(super) fn committed(&mut self, seq: EditSeq, jobs: &mut Jobs) -> Option<Vec<Ticket>> {
        let done = self.0.take_if(|load| load.edit == Some(seq))?;
        jobs.bulk_load_committed();
        Some(done.tickets)
    }

    /// Begins with parts, or goes on with those that were begun.
    pub(super) fn step(&mut self, at: &mut Ground<'_>) -> Result<BulkLoadStep, EngineError> {
        let lsm = at.lsm;
        let taken_back = std::mem::take(&mut lsm.bulk_loads.lock().taken_back);
        abandon(&taken_back, at.storage);
        if at.jobs.is_bulk_loading() {
            return self.build(at);
        }
        if lsm.is_full()
            && let Some(part) = lsm.bulk_loads.pop(|_| true)
        {
            end_unbegun(at, part, Taken::Full);
            return Ok(BulkLoadStep::Some);
        }
        // Where no merge is due, L1 becomes no shorter by waiting.
        let behind = at.storage.l1_runs() >= lsm.settings.levels.l1_runs_max && !at.jobs.at_rest;
        if !at.jobs.may_bulk_load(lsm.bulk_loads.waits() && !behind) {
            return Ok(BulkLoadStep::Nothing);
        }
        Ok(match self.begin(at) {
            true => BulkLoadStep::Some,
            false => BulkLoadStep::Nothing,
        })
    }

    /// Takes the first part. Returns whether anything was done.
    fn begin(&mut self, at: &mut Ground<'_>) -> bool {
        let Some(part) = at.lsm.bulk_loads.pop(|_| true) else {
            return false;
        };
        match &part.load {
            Load::Pairs(_) => self.begin_pairs(at, part),
            Load::Built(_) => self.begin_built(at, part),
        }
    }

    /// Begins with pairs, and with those that go on behind them.
    fn begin_pairs(&mut self, at: &mut Ground<'_>, first: Part) -> bool {
        let lsm = at.lsm;
        let refused = match lsm.is_unbound(&first.range) {
            Ok(unbound) if unbound || lsm.settings.mutants.bulk_load_over() => None,
            Ok(_) => Some(Taken::NotEmpty),
            // It is the part's misfortune, not the region's: others go on.
            Err(error) => Some(Taken::Unreadable(error)),
        };
        if let Some(refused) = refused {
            end_unbegun(at, first, refused);
            return true;
        }
        let mut range = first.range.clone();
        let mut parts = vec![first];
        while let Some(next) = lsm.bulk_loads.pop(|next| goes_on(&range, next)) {
            let joined = KeyRange::new(range.from.clone(), next.range.to.clone());
            // Where that cannot be read, the part is told when it is the first.
            let fits = lsm.is_unbound(&joined).unwrap_or(false);
            parts.push(next);
            if !fits {
                lsm.bulk_loads.put_back(parts.split_off(parts.len() - 1));
                break;
            }
            range = joined;
        }
        let hold = |writer: &mut Writer| writer.hold(Some(range.clone()));
        if let Err(concerned) = clear(lsm, &range, hold) {
            if concerned.active {
                lsm.freeze_now();
            }
            lsm.bulk_loads.put_back(parts);
            return false;
        }
        let tickets = parts.iter().map(|part| part.ticket).collect();
        let (mut pairs, mut held) = (VecDeque::new(), Vec::new());
        for part in parts {
            pairs.extend(part.load.into_pairs());
            held.push(part.held);
        }
        let target = site(at.storage, lsm).bulk_load_target();
        let build = Build::new(Fed::of(pairs), target, Below::default());
        self.0 = Some(BulkLoad {
            segments: Segments::Making(Box::new(build)),
            range,
            tickets,
            _held: held,
            edit: None,
        });
        at.jobs.bulk_load_begun();
        true
    }

    /// Begins with segments that are built.
    fn begin_built(&mut self, at: &mut Ground<'_>, mut part: Part) -> bool {
        let lsm = at.lsm;
        if let Err(concerned) = clear(lsm, &part.range, |_| {}) {
            // One flush at a time: what is written again after that counts.
            if !concerned.frozen {
                if part.freezes == FREEZES_MAX {
                    end_unbegun(at, part, Taken::Contended);
                    return true;
                }
                part.freezes += u32::from(lsm.freeze_now());
            }
            lsm.bulk_loads.put_back(vec![part]);
            return false;
        }
        self.0 = Some(BulkLoad {
            segments: Segments::Made(part.load.into_built()),
            range: part.range,
            tickets: vec![part.ticket],
            _held: vec![part.held],
            edit: None,
        });
        at.jobs.bulk_load_begun();
        true
    }

    /// Goes on with the segments.
    fn build(&mut self, at: &mut Ground<'_>) -> Result<BulkLoadStep, EngineError> {
        let Some(load) = self.0.as_mut().filter(|load| load.edit.is_none()) else {
            return Ok(BulkLoadStep::Nothing);
        };
        let lsm = at.lsm;
        let mut site = site(at.storage, lsm);
        let segments = match &mut load.segments {
            Segments::Made(segments) => std::mem::take(segments),
            Segments::Making(build) => {
                let stepped = build.step(&mut site.tools(Purpose::Write))?;
                Counts::add(&lsm.counts.worked_bytes, build.take_worked());
                match stepped {
                    Stepped::Progress => return Ok(BulkLoadStep::Some),
                    Stepped::Waiting => return Ok(BulkLoadStep::Nothing),
                    Stepped::DeviceFull => {
                        build.abandon(site.storage);
                        self.give_up(at, Taken::Full);
                        return Ok(BulkLoadStep::Some);
                    }
                    Stepped::Done => build.take_outputs(),
                }
            }
        };
        let (level, run) = place(site.storage.head(), &load.range, at.jobs);
        let mut edit = site.storage.next_edit(lsm.serving.epoch());
        load.edit = Some(edit.seq);
        let placed = segments
            .iter()
            .map(|segment| site.placed(segment, level, run));
        edit.added.extend(placed);
        at.jobs.last_edit = edit.seq;
        Ok(BulkLoadStep::All(Box::new(edit)))
    }

    /// Gives up what was begun.
    fn give_up(&mut self, at: &mut Ground<'_>, taken: Taken) {
        let tickets = self.0.take().map(|load| load.tickets).unwrap_or_default();
        at.jobs.bulk_load_given_up();
        at.lsm.lock().hold(None);
        at.lsm.bulk_loads.end(&tickets, taken, EditSeq(0));
    }
}

/// Gives `segments` back, which no edit will name.
fn abandon(segments: &[LevelSegment], storage: &mut Storage) {
    for segment in segments {
        storage.abandon(segment.number);
    }
}

/// Ends a part with which nothing was begun.
fn end_unbegun(at: &mut Ground<'_>, part: Part, taken: Taken) {
    abandon(&part.load.into_built(), at.storage);
    at.lsm.bulk_loads.end(&[part.ticket], taken, EditSeq(0));
}

/// Which memtables have keys of a range, or remove some.
struct Concerned {
    active: bool,
    frozen: bool,
}

/// Calls `then` under the writer lock if no memtable has anything in `range`.
fn clear(lsm: &Lsm, range: &KeyRange, then: impl FnOnce(&mut Writer)) -> Result<(), Concerned> {
    let concerns = |table: &Arc<Memtable>| {
        let range_tombstones = table.range_tombstones();
        let deleted = range_tombstones
            .as_ref()
            .map_or(&[][..], |tombstones| tombstones.union());
        deleted.iter().any(|deleted| deleted.overlaps(range))
            || MemtableSource::new(table, Lsn(u64::MAX), range)
                .key()
                .is_some()
    };
    let mut writer = lsm.lock();
    // What is shown changes under the lock only.
    let view = lsm.shown.view_to_keep();
    let mut concerned = view.memtables.iter().map(concerns);
    let active = concerned.next().unwrap_or(false);
    let frozen = concerned.any(|is| is);
    if active || frozen {
        return Err(Concerned { active, frozen });
    }
    then(&mut writer);
    Ok(())
}

/// Whether `part` is pairs that begin where `range` ends, or behind that.
fn goes_on(range: &KeyRange, part: &Part) -> bool {
    let end = range.to.as_deref().unwrap_or_default();
    matches!(part.load, Load::Pairs(_)) && part.range.from.as_slice() >= end
}

/// Where segments go that stand for keys of `range`.
fn place(head: &Version, range: &KeyRange, jobs: &mut Jobs) -> (u8, RunId) {
    let mut runs = head.runs();
    if runs.any(|(_, run)| run.overlapping(range).len() > 0) {
        return (1, jobs.take_run());
    }
    (head.deepest().max(2), RunId(0))
}
