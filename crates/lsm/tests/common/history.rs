//! What happened to an engine, in order, and what an engine that was opened behind it may show: a prefix, with
//! expiries, parts that were bulk-loaded, and a pin.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Direction, KeyRange, Lsn, Moment};
use argosy_device::{Crash, Device, Store, StoreSettings};
use argosy_engine::{Snapshot, Store as _};
use argosy_lsm::Lsm;
use argosy_lsm::pins::Pins;

use super::judge::{Pairs, errors};
use super::{Machine, REGION};

/// The name of the pin.
pub(crate) const PIN: &str = "pin";

/// What keys are bound to, and when that expires.
pub(crate) type Bound = BTreeMap<Vec<u8>, (Vec<u8>, Option<Moment>)>;

#[derive(Clone, Debug)]
pub(crate) enum Did {
    Put(Vec<u8>, Vec<u8>, Option<Moment>),
    Gone(Vec<u8>),
    DeletedRange(KeyRange),
}

impl Did {
    pub(crate) fn change(&self, bound: &mut Bound) {
        match self {
            Self::Put(key, value, expiry) => {
                bound.insert(key.clone(), (value.clone(), *expiry));
            }
            Self::Gone(key) => {
                bound.remove(key);
            }
            Self::DeletedRange(range) => bound.retain(|key, _| !range.contains(key)),
        }
    }
}

/// What happened, in order.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A batch, with its first and last LSN.
    Batch(Lsn, Lsn, Vec<Did>),
    /// A part was bulk-loaded: its number.
    Part(usize),
}

/// What is known of the pin.
#[derive(Clone, Debug, Default)]
pub(crate) enum Pinned {
    #[default]
    No,
    Perhaps(Pairs),
    Yes(Pairs),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
    /// Parts that were handed in, and how many of them were told to be there.
    pub(crate) parts: Vec<Pairs>,
    pub(crate) told_parts: usize,
    /// The region's time as it was told up to an LSN.
    pub(crate) times: Vec<(Lsn, Moment)>,
    pub(crate) pin: Pinned,
    pub(crate) last: Lsn,
    /// Everything up to here was seen to be durable.
    pub(crate) durable: Lsn,
}

impl History {
    /// What keys are bound to after what has an LSN up to `lsn`, with the parts that are there.
    fn bound(&self, lsn: Lsn, has: &dyn Fn(&Pairs) -> bool) -> Bound {
        let mut bound = Bound::new();
        for event in &self.events {
            match event {
                Event::Batch(first, last, _) if *last > lsn => {
                    assert!(*first > lsn, "{lsn} is inside a batch");
                }
                Event::Batch(_, _, did) => did.iter().for_each(|did| did.change(&mut bound)),
                Event::Part(part) => {
                    let pairs = &self.parts[*part];
                    if *part < self.told_parts || has(pairs) {
                        let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| {
                            (key.clone(), (value.clone(), None))
                        };
                        bound.extend(pairs.iter().map(pair));
                    }
                }
            }
        }
        bound
    }

    /// The pairs that are there of these at `time`.
    pub(crate) fn pairs(&self, lsn: Lsn, time: Moment, has: &dyn Fn(&Pairs) -> bool) -> Pairs {
        let bound = self.bound(lsn, has).into_iter();
        let live = bound.filter(|(_, (_, expiry))| expiry.is_none_or(|expiry| expiry > time));
        live.map(|(key, (value, _))| (key, value)).collect()
    }

    /// Forgets what came after `lsn`. Returns what keys are bound to.
    pub(crate) fn cut(&mut self, lsn: Lsn) -> Bound {
        let stays = |event: &Event| !matches!(event, Event::Batch(_, last, _) if *last > lsn);
        self.events.retain(stays);
        self.times.retain(|(at, _)| *at <= lsn);
        self.bound(lsn, &|_| true)
    }

    /// Whether `engine`, opened after `crash`, has what it should.
    pub(crate) fn holds(&self, pins: &Pins, engine: &Lsm, crash: Option<Crash>, what: &str) -> Lsn {
        let lsn = engine.last_lsn();
        let least = match crash {
            Some(Crash::PowerLoss) => self.durable,
            Some(Crash::Kill) | None => self.last,
        };
        let range = least..=self.last;
        assert!(range.contains(&lsn), "{what}: {lsn}, expected {range:?}");
        let time = engine.committed_time();
        let told = self.times.iter().rev().find(|(at, _)| *at <= lsn);
        let told = told.map_or(Moment(0), |(_, told)| *told);
        assert!(time >= told, "{what}: {time:?}, but {told:?} was told");
        let has = |part: &Pairs| {
            let (key, value) = part.first_key_value().unwrap();
            engine.get(key).unwrap().value.as_ref() == Some(value)
        };
        let expected = self.pairs(lsn, time, &has);
        assert_eq!(errors(engine, &expected, what), [""; 0], "{what}");
        let (least, wanted) = match &self.pin {
            Pinned::No => (false, None),
            Pinned::Perhaps(pairs) => (false, Some(pairs)),
            Pinned::Yes(pairs) => (true, Some(pairs)),
        };
        match (pins.find(PIN), wanted) {
            (Err(_), _) => assert!(!least, "{what}: the pin is gone"),
            (Ok(_), None) => panic!("{what}: there is a pin"),
            (Ok(pin), Some(pairs)) => {
                let shown = shown(&engine.snapshot_of(pin.version()));
                assert!(shown == *pairs, "{what}: what is pinned");
            }
        }
        lsn
    }
}

pub(crate) fn shown(snapshot: &dyn Snapshot) -> Pairs {
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    std::iter::from_fn(|| scan.next().unwrap()).collect()
}

pub(crate) fn open(machine: &mut Machine, device: Arc<dyn Device>) -> (Pins, Lsm) {
    let settings = StoreSettings {
        reserve_segments: machine.settings.reserve_segments(1),
    };
    let store = Store::open(device, &settings).unwrap();
    let pins = Pins::open(&store, REGION, &machine.settings).unwrap();
    let engine = Lsm::open(&store, REGION, &machine.windows, &machine.settings, None).unwrap();
    machine.store = Some(store);
    (pins, engine)
}
