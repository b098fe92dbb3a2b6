//! A backup that crashes at every request of its device, and comes back.
//!
//! A history runs on a primary and its backup: values of all sizes, flushes, compactions, log
//! segments that come and go, links that break, ends of processes and of power, and the loss of the
//! primary. Before each request of the backup's device completes, and once none waits, the backup is
//! *forked*: what a kill and what a loss of power would leave of it at that moment is opened and
//! looked at, attached to the primary, given what it lacks, crashed again, and looked at again. The
//! original goes on. Of a further fork a bit of the last append of its manifest is flipped, and all that is
//! free is overwritten. What must hold of a fork:
//!
//! - Opened, it has a version that is one of the primary's, no earlier than what the primary was told
//!   (I3, I6); it holds the pairs of a prefix of the history, whole batches, no shorter than what the
//!   primary was told is durable, nor, after a kill, than what was shipped (I7). All segment numbers that the
//!   primary has used are below the mark in that version.
//! - Every byte and every reference is right, as `inspect` checks it; what is in use on the device is
//!   what the manifest names.
//! - If the link breaks while it is attached, it can send what it offers.
//! - Attached and come to rest, it holds the primary's pairs, now and after one more crash.

use argosy_base::{Direction, KeyRange, SegmentPart};
use argosy_engine::Snapshot;

use super::*;
use crate::inspect::{
    self, InspectedRegion, LeftWindows, Member, Problem, owners, verify_owners, verify_region,
};
use crate::manifest::tests::{damage_last_append, overwrite_free};

/// What a batch did: puts, and deletes without a value.
pub(super) type Ops = Vec<(Vec<u8>, Option<Vec<u8>>)>;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

const KINDS: [Crash; 2] = [Crash::Kill, Crash::PowerLoss];

/// What crashes have come to.
#[derive(Default)]
pub(super) struct Forks {
    /// Requests before which it was tried.
    pub(super) requests: u64,
    crashes: u64,
    /// Forks that were attached again.
    attached: u64,
    /// Of those, forks whose link broke before all bytes of their logs had come.
    broken_off: u64,
    /// Forks with a damaged last append that were refused.
    refused: u64,
    /// Such forks that were opened, and lacked nothing that the primary was told.
    gone_back: u64,
    /// What was wrong first.
    pub(super) wrong: Option<String>,
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn holds(what: &str, condition: bool) -> Result<(), String> {
    condition.then_some(()).ok_or_else(|| what.to_owned())
}

fn all_windows(machine: &Machine) -> LeftWindows {
    let slots = |slots: &Vec<Arc<SharedMemory>>| slots.iter().cloned().map(Some).collect();
    machine.slots.each_ref().map(slots)
}

/// What `inspect verify` says of a stopped machine.
fn verify(machine: &Machine, windows: &LeftWindows, settings: &Settings) -> Result<(), String> {
    let device: Arc<dyn Device> = machine.device.clone();
    let store = Store::open_read_only(device).map_err(words)?;
    let regions: Vec<InspectedRegion> = store
        .regions()
        .iter()
        .map(|entry| InspectedRegion::read(&store, entry, settings))
        .collect();
    let mut problems = verify_owners(&owners(&regions), store.total());
    for region in &regions {
        // The append that was under way may be torn, anywhere in it, and so may a witness.
        let torn = |problem: &&Problem| {
            let what = ["the last append is ", "a witness is "];
            !what.iter().any(|torn| problem.what.starts_with(torn))
        };
        problems.extend(region.problems.iter().filter(torn).cloned());
        let version = region.version.as_ref().ok_or("it cannot be read")?;
        problems.extend(verify_region(version, windows, settings).1);
    }
    match problems.first() {
        None => Ok(()),
        Some(problem) => Err(format!("verification finds {problem}")),
    }
}

fn scan(snapshot: &dyn Snapshot) -> Result<Pairs, String> {
    let mut scan = snapshot
        .scan(&KeyRange::all(), Direction::Up)
        .map_err(words)?;
    let mut pairs = Pairs::new();
    while let Some((key, value)) = scan.next().map_err(words)? {
        pairs.insert(key, value);
    }
    Ok(pairs)
}

/// Nothing is in use but what the manifest names.
fn no_leak(replica: &Replica) -> Result<(), String> {
    let used = replica.storage.store().used() as usize;
    let named = 1 + replica.storage.device_segments();
    match used == named {
        true => Ok(()),
        false => Err(format!(
            "{used} segments are in use, the manifest names {named}"
        )),
    }
}

impl Pair {
    /// The pairs after the batches up to `lsn`, which must not be inside one.
    fn pairs_at(&self, lsn: Lsn) -> Result<Pairs, String> {
        let inside = |(first, last, _): &(Lsn, Lsn, Ops)| *first <= lsn && lsn < *last;
        if self.history.iter().any(inside) {
            return Err(format!("{lsn} is inside a batch"));
        }
        let mut pairs = Pairs::new();
        let batches = self.history.iter().take_while(|(_, last, _)| *last <= lsn);
        for (key, value) in batches.flat_map(|(_, _, ops)| ops) {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
        Ok(pairs)
    }

    /// A fork holds the pairs of the history up to the last LSN that it has.
    fn same_pairs(&self, machine: &Machine, replica: &Replica) -> Result<(), String> {
        let lsn = replica.position().lsn;
        let cache = Arc::new(NodeCache::new(64 << 10));
        let found = match replica.snapshot(&cache) {
            Some(snapshot) => scan(&*snapshot)?,
            None => {
                // One that takes levels has pairs once it is promoted.
                let mut copy = machine.crashed(Crash::Kill, lsn.0);
                let service = Service {
                    epoch: self.epoch.max(replica.version().epoch()),
                    ..Service::default()
                };
                let copy = copy.open(&self.settings, true).map_err(words)?;
                let engine = Lsm::promote(copy, &cache, service).map_err(words)?;
                scan(&*engine.snapshot())?
            }
        };
        let expected = self.pairs_at(lsn)?;
        let keys = found.keys().chain(expected.keys());
        let mut differ = keys.filter(|key| found.get(*key) != expected.get(*key));
        match differ.next() {
            None => Ok(()),
            Some(key) => Err(format!("as of {lsn} it differs at {}", key.escape_ascii())),
        }
    }

    /// What must hold of a fork that was just opened, after `kind` of crash.
    fn sound(&self, machine: &Machine, replica: &Replica, kind: Crash) -> Result<(), String> {
        let position = replica.position();
        let told = format!("{} was told as applied", self.applied);
        holds(&told, position.edit >= self.applied)?;
        let told = format!("{} was told as durable, it has {}", self.told, position.lsn);
        holds(&told, position.lsn >= self.told)?;
        let (used, mark) = (self.given_out, replica.version().mark());
        let twice = format!("{used} is in use, numbers from {mark} on would be used twice");
        holds(&twice, used < mark)?;
        let shipped = kind == Crash::PowerLoss || !self.live || position.lsn >= self.shipped;
        holds("a kill loses nothing that was shipped", shipped)?;
        replica.version().check().map_err(words)?;
        no_leak(replica)?;
        verify(machine, &all_windows(machine), &self.settings)?;
        self.same_pairs(machine, replica)
    }

    /// Crashes the backup in both ways before its device completes another request.
    pub(super) fn crash_before_request(&mut self) {
        let Some(mut forks) = self.forks.take() else {
            return;
        };
        if self.live {
            self.told = self.told.max(self.primary.durable_lsn());
        }
        if forks.wrong.is_none() && self.backup_machine.device.in_flight() > 0 {
            forks.requests += 1;
            for kind in KINDS {
                forks.crashes += 1;
                let seed = self.random.below(u64::MAX);
                let survived = self.survive(kind, seed, &mut forks);
                let damaged = self.survive_damage(kind, seed, &mut forks);
                let damaged = damaged.map_err(|wrong| format!("its last append damaged, {wrong}"));
                let survived = survived.and(damaged);
                forks.wrong = forks.wrong.or(survived.err().map(|wrong| {
                    let number = forks.requests;
                    format!("{kind:?} before request {number}: {wrong}")
                }));
            }
        }
        self.forks = Some(forks);
    }

    /// As [`survive`](Self::survive), and the last append is damaged, and all that is free by it is overwritten: it is
    /// refused, or nothing that the primary was told is gone.
    fn survive_damage(&self, kind: Crash, seed: u64, forks: &mut Forks) -> Result<(), String> {
        let mut machine = self.backup_machine.crashed(kind, seed);
        let segment_bytes = self.settings.layout.segment_bytes as u32;
        overwrite_free(&machine.device, self.backup.storage.store(), segment_bytes);
        if !damage_last_append(&machine.device, segment_bytes, seed) {
            return Ok(());
        }
        match machine.open(&self.settings, kind == Crash::Kill) {
            Err(error) if error.remedy() == Remedy::Repair => forks.refused += 1,
            Err(error) => return Err(format!("refused as if for something else: {error}")),
            Ok(replica) => {
                forks.gone_back += 1;
                self.sound(&machine, &replica, kind)?;
            }
        }
        Ok(())
    }

    fn survive(&self, kind: Crash, seed: u64, forks: &mut Forks) -> Result<(), String> {
        let mut machine = self.backup_machine.crashed(kind, seed);
        // What is left is whole before anyone opens it.
        let windows = match kind {
            Crash::Kill => all_windows(&machine),
            Crash::PowerLoss => LeftWindows::default(),
        };
        verify(&machine, &windows, &self.settings)?;
        let replica = machine.open(&self.settings, kind == Crash::Kill);
        let mut replica = replica.map_err(words)?;
        self.sound(&machine, &replica, kind)?;
        if !self.primary.covers_flushed() {
            // The primary offers no checkpoint at such a time.
            return Ok(());
        }
        forks.attached += 1;
        if seed.is_multiple_of(2) {
            forks.broken_off += u64::from(self.break_off(&mut machine, &mut replica)?);
        }
        self.attach(&machine, &mut replica)
            .map_err(|wrong| format!("attached, {wrong}"))?;
        self.at_rest(&machine, &mut replica)
            .map_err(|wrong| format!("attached, {wrong}"))?;
        let again = KINDS[(seed % 2) as usize];
        let mut machine = machine.crashed(again, seed);
        let replica = machine.open(&self.settings, again == Crash::Kill);
        self.sound(&machine, &replica.map_err(words)?, again)
            .map_err(|wrong| format!("attached, and after one more {again:?}, {wrong}"))
    }

    /// Begins to bring a fork up to date. The first part that its logs lack does not arrive, and the link breaks. Then
    /// the fork can send all that it offers. Returns whether its logs lacked anything.
    fn break_off(&self, machine: &mut Machine, replica: &mut Replica) -> Result<bool, String> {
        let PinnedCheckpoint { checkpoint, pin } = self.primary.checkpoint();
        let bytes = checkpoint.bytes;
        let edit = Edit::decode(&bytes).map_err(words)?;
        replica.learn_places(&self.primary.places());
        replica.expect_checkpoint();
        let mut parts = replica.missing(&bytes).map_err(words)?;
        parts.retain(|part| edit.logs.added.iter().any(|log| log.number == part.number));
        let Some(behind_first) = parts.get(1..) else {
            return Ok(false);
        };
        self.put_parts(behind_first, &pin, replica)?;
        machine.slots = fresh_slots(&self.settings);
        replica.detach(machine.slots.clone()).map_err(words)?;
        for LogPoint { number, to, .. } in replica.whole_edit().logs.points {
            let sent = replica.read(number, 0, block_up(to));
            sent.map_err(|error| format!("it offers {number} up to byte {to}: {error}"))?;
        }
        Ok(true)
    }

    fn put_parts(
        &self,
        parts: &[SegmentPart],
        pin: &Pin,
        replica: &mut Replica,
    ) -> Result<(), String> {
        for part in parts {
            let read = self.primary.read(*part, std::slice::from_ref(pin));
            let gone = || format!("pinned segment {} is gone", part.number.0);
            let bytes = read.ok_or_else(gone)?.map_err(words)?;
            let put = replica.put_part(part.number, part.from, &Arc::new(bytes));
            put.map_err(words)?;
        }
        Ok(())
    }

    /// Brings a fork up to date with the primary, and leaves the primary unchanged.
    fn attach(&self, machine: &Machine, replica: &mut Replica) -> Result<(), String> {
        let PinnedCheckpoint { checkpoint, pin } = self.primary.checkpoint();
        let Checkpoint { seq, bytes } = checkpoint;
        replica.learn_places(&self.primary.places());
        replica.expect_checkpoint();
        let parts = replica.missing(&bytes).map_err(words)?;
        self.put_parts(&parts, &pin, replica)?;
        replica.submit_edit(&bytes).map_err(words)?;
        let applied = CopyEvent::EditApplied(seq);
        while !replica.step().map_err(words)?.contains(&applied) {
            holds("the checkpoint is never applied", machine.device.run_one())?;
        }
        self.copy_windows(&machine.slots);
        replica.commit(self.primary.last_lsn());
        Ok(())
    }

    /// Flushes everything, builds what there is to build, and looks.
    fn at_rest(&self, machine: &Machine, replica: &mut Replica) -> Result<(), String> {
        self.flush_everything(replica);
        let mut rounds = 0;
        while !replica.is_idle() || replica.is_building() {
            rounds += 1;
            holds("it does not come to rest", rounds <= 5000)?;
            machine.device.run_all();
            replica.build(Instant::from_nanos(rounds)).map_err(words)?;
            for event in replica.step().map_err(words)? {
                if let CopyEvent::FlushRefused(range) = event {
                    return Err(format!("{range:?} was refused"));
                }
            }
        }
        no_leak(replica)?;
        replica.version().check().map_err(words)?;
        let ours = all_windows(machine);
        verify(machine, &ours, &self.settings)?;
        self.compare(machine)
    }

    /// Asks a fork for the flush of all that was shipped, as the primary will.
    fn flush_everything(&self, replica: &mut Replica) {
        let at = replica.position();
        let head = Arc::clone(replica.storage.head());
        for entry in head.open_logs() {
            let LogSegment {
                log,
                ordinal,
                number,
                ..
            } = entry.segment;
            let written = self.recorder.0.lock().unwrap().2[log.index()];
            let to = match written {
                Some(end) if end.segment == number => end.end,
                Some(end) if end.ordinal > ordinal => {
                    self.settings.layout.log_geometry().segment_bytes()
                }
                _ => 0,
            };
            let flushed = at.logs.get(log).filter(|at| at.segment == number);
            let from = flushed.map_or(0, |at| at.flushed);
            if from < to {
                replica.flush(FlushRange {
                    log,
                    ordinal,
                    segment: number,
                    from,
                    to,
                });
            }
        }
    }

    /// What `inspect compare` says of the primary and a fork, if both were stopped now.
    fn compare(&self, fork: &Machine) -> Result<(), String> {
        let mut stores = Vec::new();
        let mut regions = Vec::new();
        let machines = [
            self.primary_machine.crashed(Crash::Kill, 1),
            fork.crashed(Crash::Kill, 1),
        ];
        for machine in &machines {
            let device: Arc<dyn Device> = machine.device.clone();
            let store = Store::open_read_only(device).map_err(words)?;
            let entry = store.regions()[0].clone();
            regions.push(InspectedRegion::read(&store, &entry, &self.settings));
            stores.push(store);
        }
        let windows = machines.each_ref().map(all_windows);
        let member = |which: usize| Member {
            store: &stores[which],
            region: &regions[which],
            windows: &windows[which],
        };
        let compared = inspect::compare([member(0), member(1)], &self.settings);
        compared.map(drop).map_err(words)
    }

    /// The primary is lost: with its machine's power, or with all that it had. It comes back, adopts
    /// what the backup holds, and serves in a new epoch.
    pub(super) fn lose_primary(&mut self, with_device: bool) {
        self.listen();
        self.ship();
        self.live = false;
        self.detach_backup();
        while !self.backup.storage.is_idle() {
            while self.run_backup_request() {}
            self.backup.step().unwrap();
        }
        self.applying = None;
        self.detach_backup();
        let device = self.primary_machine.device.crash(Crash::PowerLoss);
        self.primary_machine = match with_device {
            true => Machine::new(self.random.below(1000)),
            false => Machine {
                device: Arc::new(device),
                slots: Slots::default(),
                ..Machine::new(0)
            },
        };
        let mut own = self.primary_machine.open(&self.settings, false).unwrap();
        let edit = own.adopt(self.backup.checkpoint().bytes).unwrap();
        loop {
            // What points to others comes after them.
            let missing = own.missing(&edit).unwrap();
            let Some(part) = missing.first() else {
                break;
            };
            let len = part.to - part.from;
            let bytes = self.backup.read(part.number, part.from, len).unwrap();
            own.put_part(part.number, part.from, &Arc::new(bytes))
                .unwrap();
        }
        own.submit_adopted(&edit).unwrap();
        while own.step().unwrap().is_empty() {
            assert!(self.primary_machine.device.run_one());
        }
        assert!(own.position().lsn >= self.shipped, "nothing is lost");
        self.promote_primary(own);
    }

    /// The primary's process is killed, and the backup takes over; the old primary becomes its
    /// backup, and builds levels if backups do.
    fn take_over(&mut self) {
        self.listen();
        self.ship();
        self.live = false;
        let device = self.primary_machine.device.crash(Crash::Kill);
        self.primary_machine.device = Arc::new(device);
        let builder = self.backup_machine.builds.take();
        self.primary_machine.builds = builder.map(|server| ServerId(server.0 + 1));
        let old = self.primary_machine.open(&self.settings, true).unwrap();
        let own = std::mem::replace(&mut self.backup, old);
        std::mem::swap(&mut self.primary_machine, &mut self.backup_machine);
        self.promote_primary(own);
    }

    pub(super) fn promote_primary(&mut self, own: Replica) {
        let before = own.position().edit;
        self.epoch = Epoch(self.epoch.0 + 1);
        self.recorder = Arc::new(Recorder::default());
        let cache = Arc::new(NodeCache::new(self.settings.cache_bytes));
        let service = Service {
            epoch: self.epoch,
            observer: Some(Arc::<Recorder>::clone(&self.recorder)),
            ..Service::default()
        };
        self.primary = Lsm::promote(own, &cache, service).unwrap();
        let bytes = self.primary.checkpoint().checkpoint.bytes;
        let edit = Edit::decode(&bytes).unwrap();
        let own = (edit.numbers.follows, edit.numbers.own_mark);
        assert_eq!(own, (None, None), "its edits are the group's from here on");
        assert!(edit.seq > before, "{} behind {before}", edit.seq);
        self.recorder.0.lock().unwrap().1 = self.primary.last_lsn();
        let last = self.history.last().map(|(_, last, _)| *last);
        assert!(Some(self.primary.last_lsn()) >= last);
        self.flushes.clear();
        self.edits.clear();
        self.applied = self.applied.min(self.backup.position().edit);
        self.catch_up();
    }

    pub(super) fn go_on(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.write();
            self.pump();
        }
    }
}

/// A history that has everything in it, with crashes before every request.
pub(super) fn crash_at_every_request(
    seed: u64,
    settings: Settings,
    builds: Option<ServerId>,
) -> Forks {
    let pair = Pair::with_backup(seed, settings, builds);
    live_through(pair)
}

fn live_through(mut pair: Pair) -> Forks {
    pair.forks = Some(Forks::default());
    for part in 0..8 {
        let rounds = 40 + pair.random.below(40);
        pair.go_on(rounds);
        match part {
            0 | 4 => {
                pair.crash_backup(KINDS[part / 4]);
                pair.go_on(20);
                pair.catch_up();
            }
            1 => {
                pair.detach_backup();
                pair.go_on(10);
                pair.catch_up();
            }
            2 => pair.lose_primary(false),
            3 => pair.primary.flush_now(),
            5 => pair.take_over(),
            6 => pair.lose_primary(true),
            _ => {}
        }
        if pair
            .forks
            .as_ref()
            .is_some_and(|forks| forks.wrong.is_some())
        {
            break;
        }
    }
    let mut forks = pair.forks.take().unwrap();
    if forks.wrong.is_none() {
        pair.settle();
        forks.wrong = pair.compare(&pair.backup_machine).err();
    }
    forks
}

/// How many seeds each mode is tried with: `ARGOSY_CRASH_SEEDS`, or as many as show both ways to
/// compact.
fn seeds() -> u64 {
    let said = std::env::var("ARGOSY_CRASH_SEEDS").ok();
    said.map_or(2, |said| {
        said.parse().expect("ARGOSY_CRASH_SEEDS is a number")
    })
}

fn survives_crashes(settings: &Settings, builds: Option<ServerId>) {
    for seed in 1..=seeds() {
        let forks = crash_at_every_request(seed, settings.clone(), builds);
        assert_eq!(forks.wrong, None, "seed {seed}");
        assert!(
            forks.requests > 200 && forks.attached > forks.crashes / 2,
            "seed {seed}: {} requests, {} crashes, {} attached",
            forks.requests,
            forks.crashes,
            forks.attached
        );
        let broken_off = forks.broken_off;
        assert!(broken_off > 100, "seed {seed}: {broken_off} broken off");
        assert!(
            forks.refused > 50 && forks.gone_back > 5,
            "seed {seed}: {} refused, {} gone back",
            forks.refused,
            forks.gone_back
        );
    }
}

#[test]
fn a_backup_that_takes_levels_survives_a_crash_at_every_request() {
    survives_crashes(&settings(), None);
}

#[test]
fn a_backup_that_rewrites_pointers_survives_a_crash_at_every_request() {
    survives_crashes(&in_places(), None);
}

#[test]
fn a_backup_that_builds_levels_survives_a_crash_at_every_request() {
    survives_crashes(&settings(), Some(ServerId(2)));
}

#[test]
fn a_backup_that_builds_levels_of_places_survives_a_crash_at_every_request() {
    survives_crashes(&in_places(), Some(ServerId(2)));
}

/// What is built describes itself: where members compact in different ways, each reads what the other
/// has built, and goes on in its own way with what it takes over.
#[test]
fn members_may_compact_in_different_ways() {
    let modes = [
        (1, settings(), None),
        (2, in_places(), None),
        (1, settings(), Some(ServerId(2))),
    ];
    for (seed, settings, builds) in modes {
        let mut pair = Pair::with_backup(seed, settings, builds);
        let other = match pair.settings.levels.compaction {
            Compaction::Partial => Compaction::WholeLevel,
            Compaction::WholeLevel => Compaction::Partial,
        };
        pair.backup_machine.compaction = Some(other);
        pair.crash_backup(Crash::Kill);
        pair.catch_up();
        let forks = live_through(pair);
        assert_eq!(forks.wrong, None, "seed {seed}");
    }
}

/// Seeds, settings, and who builds levels of its own.
fn backups_of_every_kind() -> [(u64, Settings, Option<ServerId>); 4] {
    [
        (1, settings(), None),
        (2, in_places(), None),
        (1, settings(), Some(ServerId(2))),
        (3, in_places(), Some(ServerId(2))),
    ]
}

/// What is overwritten is garbage-collected all the time, with backups of every kind.
#[test]
fn a_backup_survives_crashes_while_values_move() {
    for (seed, settings, builds) in backups_of_every_kind() {
        let settings = settings.with(|of| {
            of.memtables.log_bytes = of.layout.segment_bytes as u64;
            of.values.large_bytes = 200;
            of.space.amplification_max = 100;
            of.space.floor_bytes = Some(0);
        });
        let mut pair = Pair::with_backup(seed, settings, builds);
        for _ in 0..300 {
            pair.go_on(1);
            (0..6).for_each(|_| pair.pump());
        }
        let moved = pair.primary.stats().gc.moved;
        assert!(moved > 0, "seed {seed}: {:#?}", pair.primary.stats());
        let forks = live_through(pair);
        assert_eq!(forks.wrong, None, "seed {seed}");
    }
}

/// Most pairs are medium, and backups of every kind have a medium log, sent or built.
#[test]
fn a_backup_survives_crashes_while_values_go_apart_and_come_back() {
    for (seed, settings, builds) in backups_of_every_kind() {
        let mut pair = Pair::with_backup(seed, medium::medium(settings), builds);
        for _ in 0..300 {
            pair.go_on(1);
            (0..6).for_each(|_| pair.pump());
        }
        let stats = match builds {
            None => pair.primary.stats(),
            Some(_) => pair.backup.stats().expect("it builds"),
        };
        assert!(
            stats.medium.segments > 0 && stats.medium.freed > 0,
            "seed {seed}: {stats:#?}"
        );
        let forks = live_through(pair);
        assert_eq!(forks.wrong, None, "seed {seed}");
    }
}

/// The planted mistake: what the last append freed is used before another append lies behind it.
#[test]
fn a_backup_that_forgets_the_witness_is_noticed() {
    for builds in [None, Some(ServerId(2))] {
        let planted = settings().with(|of| {
            of.mutants = Mutants {
                forget_witness: true,
                ..Mutants::default()
            }
        });
        let forks = crash_at_every_request(1, planted, builds);
        let wrong = forks.wrong.expect("a crash shows it");
        assert!(wrong.contains("its last append damaged"), "{wrong}");
    }
}

/// The planted mistake: an edit is taken for durable before the segments that it names are.
#[test]
fn a_commit_ahead_of_its_data_is_noticed() {
    for builds in [None, Some(ServerId(2))] {
        let planted = settings().with(|of| {
            of.mutants = Mutants {
                commit_before_durable: true,
                ..Mutants::default()
            }
        });
        let forks = crash_at_every_request(1, planted, builds);
        let wrong = forks.wrong.expect("a crash shows it");
        // A fork that was killed may lose power later, and keep a witness of an append that it lost.
        let is_told = wrong.starts_with("PowerLoss") || wrong.ends_with("a record is damaged");
        assert!(is_told, "{wrong}");
    }
}
