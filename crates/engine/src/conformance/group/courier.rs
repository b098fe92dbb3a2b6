//! A group, and the courier between its members.

mod adopting;
mod building;
mod ending;
mod failover;
mod resting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use argosy_base::{
    EditSeq, Epoch, FlushRange, Instant, KeyRange, LogId, Lsn, SegmentNumber, SegmentPart, ServerId,
};

pub(super) use self::ending::Survivor;
pub(super) use self::failover::{Between, Fall};
use super::{Met, Pairs, value_of};
use crate::conformance::{Choices, Machine, STEPS_MAX, collect};
use crate::source::{LogPlace, Next, Piece};
use crate::{
    CopyError, CopyEvent, EditNotice, EngineError, Follower, LogEnd, Observer, Pin,
    PinnedCheckpoint, Promoted, SealedSegment, Service, Settings, Source, Store, WriteBatch,
    WriteOptions,
};

/// Writes at the end of a history that nothing follows, and no flush.
const UNFLUSHED: u64 = 5;

/// How often an edit is examined before all is here that it names.
const FETCHES: usize = 8;

/// Nanoseconds that a round takes.
const ROUND_NANOS: u64 = 20_000_000;

/// What the primary has told.
#[derive(Default)]
struct Heard {
    ends: BTreeMap<LogId, LogEnd>,
    last: Lsn,
    flushes: Vec<FlushRange>,
    edits: Vec<EditNotice>,
    built: Vec<SealedSegment>,
}

#[derive(Default)]
struct Recorder(Mutex<Heard>);

impl Recorder {
    fn heard<T>(&self, what: impl FnOnce(&mut Heard) -> T) -> T {
        what(&mut self.0.lock().expect("no holder of the lock panics"))
    }
}

impl Observer for Recorder {
    fn appended(&self, end: LogEnd, last: Lsn) {
        self.heard(|heard| {
            heard.ends.insert(end.log, end);
            heard.last = last;
        });
    }

    fn flush(&self, range: FlushRange) {
        self.heard(|heard| heard.flushes.push(range));
    }

    fn segment_built(&self, segment: &SealedSegment) -> bool {
        // Unless it is carried, the edit that names it has it fetched.
        self.heard(|heard| heard.built.push(segment.clone()));
        true
    }

    fn edit_committed(&self, edit: &EditNotice) {
        self.heard(|heard| heard.edits.push(edit.clone()));
    }
}

struct Backup {
    machine: Machine,
    copy: Box<dyn Follower>,
    /// Up to where each log has been written to its windows.
    at: BTreeMap<LogId, LogPlace>,
    edits: VecDeque<EditNotice>,
    applying: Option<EditSeq>,
    applied: EditSeq,
    /// Where it stood when that was asked last.
    stood: Lsn,
    /// Segments that came ahead of their edit and are stored.
    ahead: BTreeSet<SegmentNumber>,
    stage: Stage,
    /// Its windows have no memory.
    rests: bool,
}

/// Whether a backup is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Detached,
    Live,
}

impl Backup {
    /// What it reports, which never goes back.
    fn report(&mut self) {
        let lsn = self.copy.position().lsn;
        assert!(
            lsn >= self.stood,
            "a copy stood at {}, and now at {lsn}",
            self.stood
        );
        self.stood = lsn;
    }

    /// Gives it what `edit` names, and returns the parts; `None` where the primary has gone on.
    fn fetch(
        &mut self,
        source: &dyn Source,
        edit: &[u8],
        pins: &[Pin],
    ) -> Option<Vec<SegmentPart>> {
        let mut fetched = Vec::new();
        // What it has in the place of something else may lead it astray once.
        for _ in 0..FETCHES {
            let missing = self.copy.missing(edit).expect("an edit of the primary");
            if missing.is_empty() {
                return Some(fetched);
            }
            for part in &missing {
                self.fetch_part(source, *part, pins)?;
            }
            fetched.extend(missing);
        }
        panic!("what is missing does not come to an end: {fetched:?}");
    }

    fn fetch_part(&mut self, source: &dyn Source, part: SegmentPart, pins: &[Pin]) -> Option<()> {
        let number = part.number;
        assert!(!self.ahead.contains(&number), "{number} came ahead");
        let bytes = source.read(part, pins)?;
        let bytes = Arc::new(bytes.expect("a whole segment"));
        match self.copy.put_part(part.number, part.from, &bytes) {
            // What it points to comes later in the list.
            Ok(()) | Err(CopyError::Unplaced { .. }) => Some(()),
            Err(error) => panic!("{part:?} was asked for: {error}"),
        }
    }
}

/// A write, and what it bound.
struct PastWrite {
    first: Lsn,
    lsn: Lsn,
    bound: Bound,
}

/// What a write binds keys to; `None`: nothing.
type Bound = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl PastWrite {
    fn apply(&self, pairs: &mut Pairs) {
        for (key, value) in &self.bound {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
    }
}

/// See the module documentation.
pub(super) struct Group {
    /// That of the primary.
    machine: Machine,
    store: Arc<dyn Store>,
    source: Arc<dyn Source>,
    recorder: Arc<Recorder>,
    epoch: Epoch,
    backups: Vec<Backup>,
    /// Those that are no members at present.
    away: Vec<Backup>,
    /// Flushes that not all backups have, and those that do.
    flushes: VecDeque<(FlushRange, BTreeSet<usize>)>,
    /// What the region holds as of the last write that is confirmed.
    pairs: Pairs,
    /// All writes, confirmed or not.
    history: Vec<PastWrite>,
    choices: Choices,
    now: u64,
    /// Of 100 segments that the primary finishes, how many a backup gets ahead of their edit.
    ahead_percent: u64,
    tally: Tally,
}

/// What a group has met.
#[derive(Default)]
struct Tally {
    /// Flushes that all backups had, and edits that they were given.
    flushed: u64,
    edits: u64,
    met: Met,
}

impl Group {
    /// A primary without backups.
    pub(super) fn new(settings: &dyn Settings, seed: u64) -> Self {
        Self::of(Machine::new(settings, seed), seed)
    }

    /// A primary without backups that builds levels of its own where it is a backup, if the engine has levels.
    pub(super) fn new_builder(settings: &dyn Settings, seed: u64) -> Self {
        let machine = Machine::new(settings, seed).with_own_levels(ServerId(1));
        Self::of(machine, seed)
    }

    fn of(mut machine: Machine, seed: u64) -> Self {
        let recorder = Arc::new(Recorder::default());
        let promoted = promote(machine.open(), Epoch(1), Some(&recorder));
        Self {
            machine,
            epoch: Epoch(1),
            away: Vec::new(),
            store: promoted.store,
            source: promoted.source.expect("a store that can be copied"),
            recorder,
            backups: Vec::new(),
            flushes: VecDeque::new(),
            pairs: Pairs::new(),
            history: Vec::new(),
            choices: Choices::new(seed),
            now: 0,
            ahead_percent: 0,
            tally: Tally::default(),
        }
    }

    /// One backup more, empty at first, that has caught up when this returns.
    pub(super) fn add_backup(&mut self, settings: &dyn Settings) {
        let machine = Machine::new(settings, self.choices.bits());
        self.add(machine);
    }

    fn add(&mut self, mut machine: Machine) {
        let copy = machine.open();
        self.backups.push(Backup::new(machine, copy));
        self.attach(self.backups.len() - 1);
    }

    /// Takes the windows of a backup back.
    pub(super) fn detach(&mut self, index: usize) {
        let backup = &mut self.backups[index];
        let fresh = backup.machine.renew_windows();
        let position = backup.copy.detach(fresh).expect("logs that are whole");
        backup.rests = false;
        backup.stage = Stage::Detached;
        backup.ahead.clear();
        assert_eq!(position, backup.copy.position(), "what a detach returns");
        backup.report();
    }

    /// Catches a backup up by a checkpoint.
    pub(super) fn attach(&mut self, index: usize) {
        self.listen();
        for _ in 0..STEPS_MAX {
            if self.source.covers_flushed() {
                break;
            }
            self.step_primary();
        }
        let PinnedCheckpoint { checkpoint, pin } = self.source.checkpoint();
        let backup = &mut self.backups[index];
        backup.edits.clear();
        backup.applying = None;
        backup.applied = EditSeq(0);
        backup.copy.learn_places(&self.source.places());
        let had = backup.copy.stored();
        let fetched = backup.fetch(&*self.source, &checkpoint.bytes, &[pin]);
        let fetched = fetched.expect("it is pinned");
        if !backup.copy.builds_levels() {
            let has = self.store.stored();
            self.tally.met.spared += failover::check_fetched(&fetched, &*had, &*has);
        }
        drop(had);
        let seq = backup.copy.submit(&checkpoint.bytes);
        assert_eq!(seq.expect("nothing is missing"), checkpoint.seq);
        let applied = CopyEvent::EditApplied(checkpoint.seq);
        let mut steps =
            (0..STEPS_MAX).map(|_| backup.copy.step().expect("a device without faults"));
        assert!(steps.any(|events| events.contains(&applied)), "it ends");
        backup.report();
        backup.stage = Stage::Live;
        backup.applied = checkpoint.seq;
        let position = backup.copy.position();
        let logs = position.logs.iter();
        backup.at = logs
            .map(|(log, at)| {
                let (ordinal, offset) = (at.ordinal, at.end);
                (log, LogPlace { ordinal, offset })
            })
            .collect();
        self.ship();
        for (range, done) in &mut self.flushes {
            done.remove(&index);
            if range.covered_by(&position) {
                done.insert(index);
            } else {
                self.backups[index].copy.flush(*range);
            }
        }
        self.tell();
    }

    /// Writes `count` random batches, each confirmed. Before that no snapshot shows it (I5).
    pub(super) fn write_some(&mut self, count: u64) {
        for number in 0..count {
            let lsn = self.write_unconfirmed();
            if number.is_multiple_of(16) {
                let shown = collect(self.store.snapshot().as_ref(), &KeyRange::all());
                let confirmed: Vec<_> = self.pairs.clone().into_iter().collect();
                assert!(shown == confirmed, "a snapshot shows what is confirmed");
            }
            self.ship();
            assert!(self.store.committed_lsn() >= lsn, "all backups have it");
            let last = self.history.last().expect("it was just written");
            last.apply(&mut self.pairs);
            // The last ones are in windows only.
            if number + UNFLUSHED < count {
                self.round();
            }
        }
    }

    /// Writes `count` random batches, and brings them to the windows of one backup alone.
    pub(super) fn write_to_one(&mut self, count: u64, index: usize) {
        for _ in 0..count {
            self.write_unconfirmed();
            let ends = self.recorder.heard(|heard| heard.ends.clone());
            for end in ends.values() {
                ship_log(&*self.source, &mut self.backups[index], end);
            }
        }
    }

    fn write_unconfirmed(&mut self) -> Lsn {
        let (batch, bound) = self.some_write();
        let [first, lsn] = self.write(&batch);
        self.history.push(PastWrite { first, lsn, bound });
        lsn
    }

    /// A random write, and what it binds.
    fn some_write(&mut self) -> (WriteBatch, Bound) {
        let (mut batch, mut bound) = (WriteBatch::new(), Vec::new());
        for _ in 0..=self.choices.below(3) {
            let key = format!("key{:04}", self.choices.below(300)).into_bytes();
            if self.choices.chance(20) {
                batch.delete(&key).expect("within the limits");
                bound.push((key, None));
            } else {
                let len = match self.choices.below(4) {
                    0 => 8,
                    1 => 60,
                    2 => 300,
                    _ => 1500,
                };
                let value = value_of(self.choices.bits(), len);
                batch.put(&key, &value).expect("within the limits");
                bound.push((key, Some(value)));
            }
        }
        (batch, bound)
    }

    /// What the region held when `lsn` was its last LSN; `None` where that is in the middle of a write, or was never
    /// given. What the engine appends between writes, to move values, changes nothing.
    pub(super) fn pairs_at(&self, lsn: Lsn) -> Option<Pairs> {
        let mut pairs = Pairs::new();
        let mut writes = self.history.iter().peekable();
        while let Some(write) = writes.next_if(|write| write.lsn <= lsn) {
            write.apply(&mut pairs);
        }
        let begun = writes.peek().is_some_and(|next| next.first <= lsn);
        (!begun && lsn <= self.store.last_lsn()).then_some(pairs)
    }

    pub(super) const fn met(&self) -> Met {
        self.tally.met
    }

    /// A history of hundreds of writes flushes windows, and has edits.
    pub(super) fn judge(&self, writes: u64) {
        let (flushed, edits) = (self.tally.flushed, self.tally.edits);
        assert!(
            writes < 300 || flushed > 4 && edits > 4,
            "{writes} writes met {flushed} flushes and {edits} edits"
        );
    }

    /// Returns the first LSN of the write, and the last one.
    fn write(&mut self, batch: &WriteBatch) -> [Lsn; 2] {
        for _ in 0..STEPS_MAX {
            let first = self.store.last_lsn().next();
            match self.store.write(batch, WriteOptions::default()) {
                Ok(written) => return [first, written.wait.lsn()],
                Err(EngineError::Busy(_)) => self.round(),
                Err(error) => panic!("a write failed: {error}"),
            }
        }
        panic!("the primary stays busy");
    }

    fn step_primary(&mut self) {
        self.step_alone();
        self.listen();
    }

    fn step_alone(&mut self) {
        self.now += ROUND_NANOS;
        let step = self.store.step(Instant::from_nanos(self.now));
        step.expect("a device without faults");
    }

    /// A write of which nobody hears. Returns false where the primary has no room for it.
    fn write_unheard(&mut self) -> bool {
        let (batch, bound) = self.some_write();
        let first = self.store.last_lsn().next();
        match self.store.write(&batch, WriteOptions::default()) {
            Ok(written) => {
                let lsn = written.wait.lsn();
                self.history.push(PastWrite { first, lsn, bound });
                true
            }
            Err(EngineError::Busy(_)) => false,
            Err(error) => panic!("a write failed: {error}"),
        }
    }

    /// One step of everybody.
    fn round(&mut self) {
        self.step_primary();
        self.ship();
        for index in 0..self.backups.len() {
            self.next_edit(index);
            self.backups[index].build(self.now);
            let events = self.backups[index].copy.step();
            for event in events.expect("a device without faults") {
                match event {
                    CopyEvent::SegmentStored(number) => self.came_ahead(index, number),
                    CopyEvent::EditApplied(seq) => {
                        let backup = &mut self.backups[index];
                        assert_eq!(backup.applying.take(), Some(seq), "it was submitted");
                        backup.applied = seq;
                    }
                    CopyEvent::Flushed(range) => {
                        let mut flushes = self.flushes.iter_mut();
                        if let Some((_, done)) = flushes.find(|(flush, _)| *flush == range) {
                            done.insert(index);
                        }
                    }
                    CopyEvent::FlushRefused(range) => panic!("{range:?} is in the windows"),
                }
            }
        }
        self.tell();
    }

    fn next_edit(&mut self, index: usize) {
        // An edit may come to a member long after what is written behind it.
        if self.choices.chance(90) {
            return;
        }
        let backup = &mut self.backups[index];
        if backup.applying.is_some() {
            return;
        }
        let Some(edit) = backup.edits.pop_front() else {
            return;
        };
        if edit.seq <= backup.applied {
            return;
        }
        if backup.fetch(&*self.source, &edit.bytes, &[]).is_none() {
            // The primary has gone on: the copy begins with a checkpoint.
            self.detach(index);
            return self.attach(index);
        }
        self.tally.edits += 1;
        let seq = backup.copy.submit(&edit.bytes);
        backup.applying = Some(seq.expect("nothing is missing"));
    }

    /// Hears what the primary has told.
    fn listen(&mut self) {
        let (flushes, edits) = self.recorder.heard(|heard| {
            let flushes = std::mem::take(&mut heard.flushes);
            (flushes, std::mem::take(&mut heard.edits))
        });
        self.ship_segments();
        for edit in edits {
            for backup in &mut self.backups {
                backup.copy.learn_places(&edit.log_places);
                backup.edits.push_back(edit.clone());
            }
        }
        if !flushes.is_empty() {
            self.ship();
        }
        for range in flushes {
            let backups = self.backups.iter_mut();
            let backups = backups.filter(|backup| backup.stage == Stage::Live);
            backups.for_each(|backup| backup.copy.flush(range));
            self.flushes.push_back((range, BTreeSet::new()));
        }
    }

    /// Writes to all windows what was appended, and confirms it.
    fn ship(&mut self) {
        let (ends, last) = self
            .recorder
            .heard(|heard| (heard.ends.clone(), heard.last));
        let live = |backup: &&mut Backup| backup.stage == Stage::Live;
        for backup in self.backups.iter_mut().filter(live) {
            backup.wake();
            for end in ends.values() {
                ship_log(&*self.source, backup, end);
            }
            backup.copy.commit(last);
        }
        if self
            .backups
            .iter()
            .all(|backup| backup.stage == Stage::Live)
        {
            self.store.commit(last);
        }
    }

    /// Tells the primary what all backups have.
    fn tell(&mut self) {
        let applied = self.backups.iter().map(|backup| backup.applied).min();
        if let Some(seq) = applied {
            self.source.edit_applied_everywhere(seq);
        }
        let all = self.backups.len();
        while self
            .flushes
            .front()
            .is_some_and(|(_, done)| done.len() == all)
        {
            if let Some((range, _)) = self.flushes.pop_front() {
                let (log, segment) = (range.log, range.segment);
                self.tally.flushed += 1;
                self.source.flushed_everywhere(log, segment, range.to);
            }
        }
    }
}

/// Promotes `copy`, in `epoch`, with a recorder where it has backups.
fn promote(copy: Box<dyn Follower>, epoch: Epoch, recorder: Option<&Arc<Recorder>>) -> Promoted {
    let observer =
        recorder.map(|recorder| -> Arc<dyn Observer> { Arc::<Recorder>::clone(recorder) });
    let service = Service {
        epoch,
        since: epoch,
        observer,
        ..Service::default()
    };
    let promoted = copy.promote(service);
    promoted.unwrap_or_else(|no| panic!("a whole copy is promoted: {}", no.error))
}

/// Writes one log to the windows of `backup`, up to `end`.
fn ship_log(source: &dyn Source, backup: &mut Backup, end: &LogEnd) {
    let upto = LogPlace {
        ordinal: end.ordinal,
        offset: end.end,
    };
    let mut piece = Piece::default();
    loop {
        let at = backup.at.entry(end.log).or_default();
        match source.piece(end.log, *at, upto, &mut piece) {
            Next::End => return,
            Next::Skip(next) => *at = next,
            Next::Gone => panic!("{at:?} is needed, and no window has it"),
            Next::Write => {
                *at = piece.next;
                let logs = backup.machine.windows().iter();
                let mut of_log = logs.filter(|slots| slots.log == end.log);
                let slots = &of_log.next().expect("a log of the engine").slots;
                if !piece.header.is_empty() {
                    slots[piece.slot].write(0, &piece.header);
                }
                slots[piece.slot].write(piece.at, &piece.bytes);
            }
        }
    }
}
