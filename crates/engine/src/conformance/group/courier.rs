//! A group, and the courier between its members.
//!
//! A [`Group`] is its [`Primary`], its [`Backup`]s and the [`History`] of what was written. In each round the primary
//! makes a step, the courier carries what it has reported, each backup makes a step, and the primary is told what all
//! backups have.
//!
//! Read `primary`, `backup` and `history` first; then this file; then `resting` (what the members of a group at rest
//! have) and `failover` (members fall, and the group goes on or ends).

mod adopting;
mod backup;
mod failover;
mod history;
mod primary;
mod resting;

use std::collections::{BTreeSet, VecDeque};

use argosy_base::{Epoch, FlushRange, Instant, KeyRange, Lsn, ServerId};

use self::backup::{Backup, NextEdit};
pub(super) use self::failover::{Between, Survivor};
use self::history::{Draft, History};
pub(super) use self::primary::Fall;
use self::primary::Primary;
use super::{Met, Pairs, value_of};
use crate::conformance::{Choices, Machine, STEPS_MAX, collect};
use crate::{CopyEvent, Settings};

/// Writes at the end of a history that nothing follows, and no flush.
const UNFLUSHED: u64 = 5;

/// Nanoseconds that a round takes.
const ROUND_NANOS: u64 = 20_000_000;

/// See the module documentation.
pub(super) struct Group {
    primary: Primary,
    backups: Vec<Backup>,
    /// Those that are no members at present.
    away: Vec<Backup>,
    /// Flushes that not all backups have, and those that do.
    flushes: VecDeque<(FlushRange, BTreeSet<usize>)>,
    history: History,
    choices: Choices,
    now: Instant,
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
        let copy = machine.open();
        Self {
            primary: Primary::new(machine, copy, Epoch(1)),
            backups: Vec::new(),
            away: Vec::new(),
            flushes: VecDeque::new(),
            history: History::default(),
            choices: Choices::new(seed),
            now: Instant::default(),
            ahead_percent: 0,
            tally: Tally::default(),
        }
    }

    /// One backup more, empty at first, that has caught up when this returns.
    pub(super) fn add_backup(&mut self, settings: &dyn Settings) {
        let machine = Machine::new(settings, self.choices.bits());
        self.add(machine);
    }

    /// A backup more, as [`add_backup`](Self::add_backup), with levels of its own if the engine has levels.
    pub(super) fn add_builder(&mut self, settings: &dyn Settings) {
        let seed = self.choices.bits();
        let server = ServerId(2 + u32::try_from(self.backups.len()).expect("there are few"));
        self.add(Machine::new(settings, seed).with_own_levels(server));
    }

    fn add(&mut self, mut machine: Machine) {
        let copy = machine.open();
        self.backups.push(Backup::new(machine, copy));
        self.attach(self.backups.len() - 1);
    }

    /// The backup `index` is no member any more.
    pub(super) fn take_away(&mut self, index: usize) {
        let backup = self.backups.remove(index);
        self.away.push(backup);
        for (_, done) in &mut self.flushes {
            // Those behind it count one less.
            let moved = done.iter().filter(|member| **member != index);
            *done = moved
                .map(|member| member - usize::from(*member > index))
                .collect();
        }
        self.tell();
    }

    /// All that are away come back, and are caught up.
    pub(super) fn bring_back(&mut self) {
        for mut backup in std::mem::take(&mut self.away) {
            backup.detach();
            backup.allow_less();
            self.backups.push(backup);
            self.attach(self.backups.len() - 1);
        }
    }

    /// From now on about so many of 100 segments come ahead of their edits.
    pub(super) const fn send_ahead(&mut self, percent: u64) {
        self.ahead_percent = percent;
    }

    /// Takes the windows of a backup back.
    pub(super) fn detach(&mut self, index: usize) {
        self.backups[index].detach();
    }

    /// Catches a backup up by a checkpoint.
    pub(super) fn attach(&mut self, index: usize) {
        self.listen();
        for _ in 0..STEPS_MAX {
            if self.primary.source.covers_flushed() {
                break;
            }
            self.step_primary();
        }
        let backup = &mut self.backups[index];
        self.tally.met.spared += backup.catch_up(&self.primary);
        let position = backup.copy.position();
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
                let shown = collect(self.primary.store.snapshot().as_ref(), &KeyRange::all());
                let confirmed: Vec<_> = self.history.confirmed().clone().into_iter().collect();
                assert!(shown == confirmed, "a snapshot shows what is confirmed");
            }
            self.ship();
            let committed = self.primary.store.committed_lsn();
            assert!(committed >= lsn, "all backups have it");
            self.history.confirm_last();
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
            let ends = self.primary.recorder.heard(|heard| heard.ends.clone());
            for end in ends.values() {
                self.backups[index].write_log(&*self.primary.source, end);
            }
        }
    }

    /// Writes a random batch, once there is room. Returns its last LSN.
    fn write_unconfirmed(&mut self) -> Lsn {
        let draft = Draft::random(&mut self.choices);
        for _ in 0..STEPS_MAX {
            if let Some(lsns) = self.primary.write(&draft.batch) {
                self.history.push(draft, lsns);
                return lsns.last;
            }
            self.round();
        }
        panic!("the primary stays busy");
    }

    /// What the region held when `lsn` was its last LSN; `None` where that is in the middle of a write, or was never
    /// given.
    fn pairs_at(&self, lsn: Lsn) -> Option<Pairs> {
        let is_given = lsn <= self.primary.store.last_lsn();
        self.history.pairs_at(lsn).filter(|_| is_given)
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

    /// The time of the next step.
    fn tick(&mut self) -> Instant {
        self.now = Instant::from_nanos(self.now.as_nanos() + ROUND_NANOS);
        self.now
    }

    fn step_primary(&mut self) {
        self.step_alone();
        self.listen();
    }

    fn step_alone(&mut self) {
        let now = self.tick();
        self.primary.step(now);
    }

    /// One step of everybody.
    fn round(&mut self) {
        self.step_primary();
        self.ship();
        for index in 0..self.backups.len() {
            self.next_edit(index);
            let backup = &mut self.backups[index];
            backup.build(self.now);
            let events = backup.copy.step();
            for event in events.expect("a device without faults") {
                match event {
                    CopyEvent::SegmentStored(number) => {
                        self.tally.met.ahead += 1;
                        backup.came_ahead(number);
                    }
                    CopyEvent::EditApplied(seq) => backup.edit_applied(seq),
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
        match self.backups[index].submit_next(&*self.primary.source) {
            NextEdit::None => {}
            NextEdit::Submitted => self.tally.edits += 1,
            // The copy begins with a checkpoint.
            NextEdit::Gone => {
                self.detach(index);
                self.attach(index);
            }
        }
    }

    /// Hears what the primary has told.
    fn listen(&mut self) {
        let (flushes, edits) = self.primary.recorder.heard(|heard| {
            let flushes = std::mem::take(&mut heard.flushes);
            (flushes, std::mem::take(&mut heard.edits))
        });
        self.ship_segments();
        for edit in edits {
            for backup in &mut self.backups {
                backup.queue(&edit);
            }
        }
        if !flushes.is_empty() {
            self.ship();
        }
        for range in flushes {
            let backups = self.backups.iter_mut();
            let backups = backups.filter(|backup| backup.is_live());
            backups.for_each(|backup| backup.copy.flush(range));
            self.flushes.push_back((range, BTreeSet::new()));
        }
    }

    /// Carries finished segments.
    fn ship_segments(&mut self) {
        let Primary {
            recorder, epoch, ..
        } = &self.primary;
        let built = recorder.heard(|heard| std::mem::take(&mut heard.built));
        for segment in built {
            for backup in &mut self.backups {
                let takes = backup.is_live() && !backup.copy.builds_levels();
                if self.choices.chance(self.ahead_percent) && takes {
                    backup.take_ahead(&segment, *epoch);
                }
            }
        }
    }

    /// Writes to all windows what was appended, and confirms it.
    fn ship(&mut self) {
        let Primary {
            recorder,
            source,
            store,
            ..
        } = &self.primary;
        let (ends, last) = recorder.heard(|heard| (heard.ends.clone(), heard.last));
        for backup in self.backups.iter_mut().filter(|backup| backup.is_live()) {
            backup.wake();
            for end in ends.values() {
                backup.write_log(&**source, end);
            }
            backup.copy.commit(last);
        }
        if self.backups.iter().all(Backup::is_live) {
            store.commit(last);
        }
    }

    /// Tells the primary what all backups have.
    fn tell(&mut self) {
        let source = &self.primary.source;
        if let Some(seq) = self.backups.iter().map(Backup::applied).min() {
            source.edit_applied_everywhere(seq);
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
                source.flushed_everywhere(log, segment, range.to);
            }
        }
    }
}
