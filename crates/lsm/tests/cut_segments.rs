//! Whole records behind the place at which an opening ends the history: a bounded part of them is kept, can be read,
//! and is in nobody's way.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use argosy_base::{DeviceSegment, LogId, Lsn};
use argosy_device::{Crash, Device, Store, StoreSettings};
use argosy_engine::catalog::{EntryKind, discard_cut, kind_of};
use argosy_engine::conformance::Host;
use argosy_engine::{BusyReason, EngineError, Store as _, WriteBatch, WriteOptions};
use argosy_log::LogLayout;
use argosy_lsm::cut_segments::{self, KEPT_MAX, KeptCut};
use argosy_lsm::db::promote::fresh_windows;
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::names::logs::{LARGE_LOG, LOGS, RECOVERY_LOG};
use argosy_lsm::replica::Replica;
use argosy_lsm::set_aside::claim;
use argosy_lsm::{Lsm, Mutants, Settings};
use argosy_memory::WindowStore;

use crate::common::judge::{Pairs, errors, problems};
use crate::common::watched::{Memory, Watched};
use crate::common::{Machine, REGION, tiny};

/// Steps after which what has not happened does not happen any more.
const PATIENCE: usize = 20_000;

fn settings() -> Settings {
    tiny().with(|of| {
        of.memtables.bytes = 1 << 20;
        of.memtables.log_bytes = 4 << 20;
    })
}

fn pair(life: u64, number: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let key = format!("life {life} key {number:05}").into_bytes();
    let mut value = format!("value {life} {number} ").into_bytes();
    value.resize(len, b'.');
    (key, value)
}

/// An engine on a machine, what it has to hold, and how often the power went.
struct Rig {
    machine: Machine,
    model: Pairs,
    life: u64,
}

impl Rig {
    fn new(settings: Settings, segments: u64) -> Self {
        Self {
            machine: Machine::new(settings, segments, 3),
            model: Pairs::new(),
            life: 0,
        }
    }

    /// One life: `count` pairs are written, or as many as open segments take, and flushed, with values of the lengths
    /// of `len` in turn. The power goes before anything says so, and a bit of the record of pair `hurt` has flipped.
    /// Those in front of it are what has to be there.
    fn lose_power(&mut self, count: u64, len: &[usize], hurt: u64) {
        self.life += 1;
        let places = self.write(count, len, hurt);
        self.flip(&places, &pair(self.life, hurt, 0).0);
    }

    /// That life up to the loss of power. Returns where the log segments lie.
    fn write(&mut self, count: u64, len: &[usize], hurt: u64) -> Vec<DeviceSegment> {
        let engine = self.machine.open();
        // Until logs have segments in store.
        for _ in 0..100 {
            self.machine.step(&engine);
        }
        for number in 0..count {
            let len = len[usize::try_from(number).unwrap() % len.len()];
            let (key, value) = pair(self.life, number, len);
            let mut batch = WriteBatch::new();
            batch.put(&key, &value).unwrap();
            match engine.write(&batch, WriteOptions::default()) {
                Ok(_) => {}
                // Of a segment that is full and sealed nothing is cut.
                Err(EngineError::Busy(BusyReason::LogWindows)) => break,
                Err(error) => panic!("{error}"),
            }
            if number < hurt {
                self.model.insert(key, value);
            }
        }
        while engine.durable_lsn() < engine.last_lsn() {
            self.machine.step(&engine);
        }
        let places = places(&engine);
        self.machine.end(engine, Crash::PowerLoss);
        places
    }

    /// Flips a bit of the record with `key`, which is in one of `places`.
    fn flip(&self, places: &[DeviceSegment], key: &[u8]) {
        for place in places {
            let bytes = crate::common::blocks::bytes_at(
                &self.machine.device,
                place.start(),
                self.machine.settings.layout.segment_bytes as u64,
            );
            let found = bytes.windows(key.len()).position(|bytes| bytes == key);
            if let Some(at) = found {
                self.machine.device.flip_bit(place.start() + at as u64, 3);
                return;
            }
        }
        panic!("{} is nowhere", key.escape_ascii());
    }

    /// Opens the engine, and holds it against the model.
    fn open(&mut self, what: &str) -> Lsm {
        let engine = self.machine.open();
        assert_eq!(errors(&engine, &self.model, what), [""; 0]);
        self.machine.assert_no_leak(&engine);
        engine
    }

    /// Opens the engine, has all that is in logs go into levels, and closes it again.
    fn reopen(&mut self, what: &str) {
        let engine = self.open(what);
        engine.freeze_now();
        self.machine.step(&engine);
        while engine.background_pending() > 0 {
            self.machine.step(&engine);
        }
        engine.close().unwrap();
        self.machine.end(engine, Crash::PowerLoss);
    }

    fn kept(&self) -> Vec<KeptCut> {
        kept(&self.machine)
    }
}

/// Where the log segments of `engine` lie.
fn places(engine: &Lsm) -> Vec<DeviceSegment> {
    let version = engine.version();
    let logs = LOGS.iter().flat_map(|log| version.log(*log));
    logs.map(|entry| entry.stored.place()).collect()
}

fn store_of(machine: &Machine) -> Arc<Store> {
    let device: Arc<dyn Device> = machine.device.clone();
    Store::open_read_only(device).unwrap()
}

/// What a device keeps, as `inspect` shows it.
fn kept(machine: &Machine) -> Vec<KeptCut> {
    let store = store_of(machine);
    let region = InspectedRegion::read(&store, &store.regions()[0], &machine.settings);
    let geometry = machine.settings.layout.log_geometry();
    cut_segments::list(&store, REGION, region.version.as_ref(), geometry)
}

/// The pairs that cut segments have, as `inspect` shows them.
fn records(machine: &Machine) -> BTreeMap<Lsn, (Vec<u8>, Vec<u8>)> {
    let store = store_of(machine);
    let of = LogLayout {
        region: REGION,
        geometry: machine.settings.layout.log_geometry(),
    };
    let mut pairs = BTreeMap::new();
    for kept in kept(machine) {
        let visited = cut_segments::visit(&store, of, &kept, &mut |_, record| {
            pairs.insert(record.lsn, (record.key.to_vec(), record.value.to_vec()));
            ControlFlow::Continue(())
        });
        assert!(visited.unwrap().is_continue());
    }
    pairs
}

/// What is kept of `log`: how many segments, and the LSNs of the records in each.
fn of_log(kept: &[KeptCut], log: LogId) -> Vec<(Lsn, Lsn)> {
    let of_log = kept.iter().filter(|kept| kept.log == log);
    of_log.map(|kept| kept.lsns.unwrap()).collect()
}

#[test]
fn records_behind_a_damaged_one_are_kept_and_can_be_read() {
    let mut rig = Rig::new(settings(), 256);
    rig.lose_power(500, &[30], 10);
    assert_eq!(rig.kept(), []);
    let engine = rig.open("cut");
    assert_eq!(engine.last_lsn(), Lsn(10));
    let cut = engine.cut().unwrap();
    assert_eq!((cut.records, cut.kept), (489, 1));
    rig.machine.end(engine, Crash::PowerLoss);
    // And however often it is opened and closed, after the log has let go of the segment, too.
    for _ in 0..3 {
        let kept = rig.kept();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!((kept[0].records, kept[0].cut_at), (489, Lsn(11)));
        assert_eq!(kept[0].lsns, Some((Lsn(12), Lsn(500))));
        let found = records(&rig.machine);
        assert_eq!(found.len(), 489);
        for number in 11..500 {
            let expected = pair(1, number, 30);
            assert_eq!(found.get(&Lsn(number + 1)), Some(&expected), "{number}");
        }
        let told = problems(&rig.machine.device, &rig.machine.settings);
        assert_eq!(told, [""; 0]);
        rig.reopen("kept");
    }
}

/// Without its header nothing of a segment can be told from what another one left there.
#[test]
fn a_damaged_header_takes_nothing_from_what_is_kept() {
    let mut rig = Rig::new(settings(), 256);
    rig.life = 1;
    let places = rig.write(500, &[30], 0);
    for place in &places {
        rig.machine.device.flip_bit(place.start() + 21, 1);
    }
    for _ in 0..3 {
        rig.reopen("without a header");
        assert_eq!(of_log(&rig.kept(), RECOVERY_LOG), [(Lsn(1), Lsn(500))]);
        assert_eq!(records(&rig.machine).len(), 500);
    }
}

/// Where a device gives out what an earlier owner left, its header may stand there instead.
#[test]
fn the_header_of_an_earlier_owner_takes_nothing_from_what_is_kept() {
    let mut rig = Rig::new(settings(), 256);
    rig.life = 1;
    let places = rig.write(1200, &[90], 0);
    assert!(places.len() > 2);
    let other = crate::common::blocks::bytes_at(&rig.machine.device, places[1].start(), 4096);
    rig.machine.device.poke(places[0].start(), &other);
    rig.reopen("with another header");
    for _ in 0..3 {
        let kept = rig.kept();
        assert_eq!(kept[0].place, places[0]);
        assert!(kept[0].records > 0 && kept[0].segment.is_ok(), "{kept:?}");
        rig.reopen("again");
    }
}

#[test]
fn of_many_segments_of_each_log_the_first_and_the_last_are_kept() {
    let mut rig = Rig::new(settings(), 256);
    // Those of over a quarter of a leaf are in the large log.
    let lens = [90, 90, 300, 300];
    rig.lose_power(1200, &lens, 4);
    rig.reopen("cut");
    let kept = rig.kept();
    for log in LOGS {
        let lsns = of_log(&kept, log);
        let [(first, _), (_, last)] = lsns[..] else {
            panic!("{log:?}: {lsns:?}");
        };
        assert!(first <= Lsn(8) && last >= Lsn(1198), "{log:?}: {lsns:?}");
    }
    assert_eq!(kept.len(), 2 * KEPT_MAX);
    let records: u64 = kept.iter().map(|kept| kept.records).sum();
    assert!(records < 1100, "not all of them: {records}");
}

#[test]
fn a_later_cut_takes_the_place_of_an_earlier_one() {
    let mut rig = Rig::new(settings(), 256);
    rig.lose_power(500, &[30], 10);
    rig.reopen("first");
    let before = rig.kept();
    // Stops that cut nothing leave what is kept.
    let last = rig.machine.open().last_lsn();
    rig.lose_power(300, &[30], 20);
    rig.reopen("second");
    let kept = rig.kept();
    let expected = (Lsn(last.0 + 22), Lsn(last.0 + 300));
    assert_eq!(of_log(&kept, RECOVERY_LOG), [expected]);
    assert!(before[0].place != kept[0].place);
    // One of the other log leaves them, too.
    rig.lose_power(20, &[1200], 5);
    rig.reopen("third");
    assert_eq!(of_log(&rig.kept(), RECOVERY_LOG), [expected]);
    assert_eq!(of_log(&rig.kept(), LARGE_LOG).len(), 1);
}

/// Without that there are more and more of them.
#[test]
fn a_cut_that_is_kept_for_ever_is_found() {
    let planted = Mutants {
        keep_every_cut: true,
        ..Mutants::default()
    };
    for (mutants, expected) in [(Mutants::default(), 1), (planted, 4)] {
        let mut rig = Rig::new(settings().with(|of| of.mutants = mutants), 256);
        for life in 0..4 {
            rig.lose_power(100, &[30], 10);
            rig.reopen(&format!("cut {life}"));
        }
        let kept = rig.kept();
        assert_eq!(kept.len(), expected, "{kept:?}");
        assert_eq!(kept.len() <= KEPT_MAX, expected == 1);
    }
}

#[test]
fn what_is_given_up_is_free() {
    let mut rig = Rig::new(settings(), 256);
    rig.lose_power(500, &[30], 10);
    rig.reopen("cut");
    rig.reopen("the log has let go of it");
    assert_eq!(rig.kept().len(), 1);
    let other = Arc::new(rig.machine.device.crash_clone(Crash::Kill, 1));
    let device: Arc<dyn Device> = rig.machine.device.clone();
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    assert_eq!(discard_cut(&store, REGION).unwrap(), 1);
    assert_eq!(discard_cut(&store, REGION).unwrap(), 0);
    drop(store);
    assert_eq!(rig.kept(), []);
    let used = [Arc::clone(&rig.machine.device), other].map(|device| {
        rig.machine.device = device;
        drop(rig.open("given up, or not"));
        rig.machine.store.take().unwrap().used()
    });
    assert_eq!(used[0], used[1] - 1);
}

/// A power loss or kill before any request of an opening that cuts, or of the giving up, ends.
#[test]
fn a_crash_leaves_what_is_kept_or_what_is_not_cut() {
    let mut rig = Rig::new(settings(), 256);
    rig.lose_power(200, &[30], 10);
    rig.reopen("first");
    rig.lose_power(300, &[30, 30, 30, 30, 30, 1200], 20);
    let before = rig.kept();
    let crashes = crashes(&rig, |store| {
        let windows = argosy_memory::AnonymousWindows::new();
        drop(Lsm::open(store, REGION, &windows, &settings(), None).unwrap());
    });
    let mut seen = [0, 0];
    for (request, machine) in crashes {
        let what = format!("the opening, before request {request}");
        let now = kept(&machine);
        seen[usize::from(now == before)] += 1;
        let mut again = Rig {
            machine,
            model: rig.model.clone(),
            life: 0,
        };
        again.reopen(&what);
        let kept = again.kept();
        for log in LOGS {
            let lsns = of_log(&kept, log);
            assert!((1..=KEPT_MAX).contains(&lsns.len()), "{what}: {lsns:?}");
        }
        // LSNs go on behind those that the first cut left.
        let records = records(&again.machine);
        assert_eq!(records.len(), 279, "{what}");
        for number in 21..300 {
            let (key, _) = pair(2, number, 30);
            assert_eq!(records[&Lsn(10 + number + 1)].0, key, "{what}");
        }
    }
    assert!(seen[0] > 3 && seen[1] > 3, "{seen:?}");

    rig.reopen("second");
    let kept_before = rig.kept();
    let crashes = self::crashes(&rig, |store| {
        assert!(discard_cut(store, REGION).unwrap() > 1);
    });
    let mut seen = [0, 0];
    for (request, machine) in crashes {
        let what = format!("the giving up, before request {request}");
        let now = kept(&machine);
        // The two logs go one after the other.
        assert!(now.iter().all(|kept| kept_before.contains(kept)), "{what}");
        seen[usize::from(now == kept_before)] += 1;
        let mut again = Rig {
            machine,
            model: rig.model.clone(),
            life: 0,
        };
        again.reopen(&what);
        assert_eq!(again.kept(), now, "{what}");
    }
    assert!(seen[0] > 3 && seen[1] > 1, "{seen:?}");
}

/// The machines that crashes leave of that of `rig` while something is done with its store.
fn crashes(rig: &Rig, done: impl FnOnce(&Arc<Store>)) -> Vec<(u64, Machine)> {
    let device = Arc::new(rig.machine.device.crash_clone(Crash::Kill, 1).lazy());
    let watched = Arc::new(Watched::new(&device, 0, Box::new(Memory::new)));
    let shared: Arc<dyn Device> = Arc::<Watched>::clone(&watched);
    let store = Store::open(shared, &StoreSettings::default()).unwrap();
    done(&store);
    let left = watched.take().into_iter();
    left.map(|left| (left.request, left.machine(&rig.machine.settings)))
        .collect()
}

/// Writers get the room before they are turned away.
#[test]
fn a_device_that_is_full_keeps_nothing() {
    let mut rig = Rig::new(settings(), 160);
    rig.lose_power(2000, &[120], 10);
    rig.reopen("cut");
    assert_eq!(rig.kept().len(), KEPT_MAX);
    let engine = rig.open("to be filled");
    let mut next = 0;
    let mut write = |rig: &mut Rig, engine: &Lsm| {
        next += 1;
        let (key, value) = pair(9, next, 900);
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).unwrap();
        for _ in 0..PATIENCE {
            match engine.write(&batch, WriteOptions::default()) {
                Ok(_) => {
                    rig.model.insert(key, value);
                    return true;
                }
                Err(EngineError::Busy(_)) => _ = rig.machine.step(engine),
                Err(error) => panic!("{error}"),
            }
            let given_up = engine.stats().log_work.cut_segments_given_up;
            assert!(!engine.is_full() || given_up == 2, "turned away before");
        }
        false
    };
    while write(&mut rig, &engine) {}
    assert_eq!(engine.stats().log_work.cut_segments_given_up, 2);
    engine.close().unwrap();
    rig.machine.end(engine, Crash::PowerLoss);
    assert_eq!(rig.kept(), []);
    drop(rig.open("full"));
}

/// An opening may need the room itself.
#[test]
fn a_device_that_is_full_is_opened_without() {
    let mut rig = Rig::new(settings(), 256);
    rig.lose_power(300, &[30], 10);
    rig.reopen("first");
    assert_eq!(rig.kept().len(), 1);
    rig.lose_power(300, &[30], 20);
    let device: Arc<dyn Device> = rig.machine.device.clone();
    let full = StoreSettings {
        reserve_segments: 250,
    };
    let store = Store::open(device, &full).unwrap();
    let engine = Lsm::open(&store, REGION, &rig.machine.windows, &settings(), None).unwrap();
    assert!(store.room().is_full());
    let cut = engine.cut().unwrap();
    assert_eq!((cut.records, cut.kept), (279, 0));
    assert_eq!(errors(&engine, &rig.model, "full"), [""; 0]);
    drop(store);
    rig.machine.end(engine, Crash::PowerLoss);
    assert_eq!(rig.kept(), []);
}

/// A copy that is set aside has its log segments, and the one that is begun in its place keeps nothing of it.
#[test]
fn a_copy_that_is_begun_anew_keeps_none() {
    let mut rig = Rig::new(settings(), 256);
    rig.lose_power(500, &[30], 10);
    let engine = rig.open("cut");
    rig.machine.end(engine, Crash::PowerLoss);
    let place = rig.kept()[0].place;
    let device: Arc<dyn Device> = rig.machine.device.clone();
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let entry = store.regions()[0].clone();
    let bytes = u32::try_from(rig.machine.settings.layout.segment_bytes).unwrap();
    let left = claim(&store, &entry, bytes);
    store.finish_recovery();
    let mut left = left.put_aside().unwrap().unwrap();
    assert_eq!(
        store.references(place),
        2,
        "that of the copy, and the catalog's"
    );
    let windows: &dyn WindowStore = &rig.machine.windows;
    let windows = fresh_windows(windows, REGION, &rig.machine.settings).unwrap();
    let copy = Replica::create(&store, REGION, windows, &rig.machine.settings).unwrap();
    assert!(
        store
            .regions()
            .iter()
            .all(|entry| !matches!(kind_of(entry), EntryKind::Cut(..)))
    );
    assert_eq!(
        store.references(place),
        1,
        "that of the copy that is set aside"
    );
    drop(copy);
    left.discard().unwrap();
    assert_eq!(store.references(place), 0);
}
