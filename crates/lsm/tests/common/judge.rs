//! What a damaged device may answer: what is right, or an error that names the damage.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use argosy_base::{Direction, KeyRange, Lsn, Remedy};
use argosy_device::{Device, DeviceError, MemoryDevice, Store, StoreSettings};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_engine::{EngineError, Store as _};
use argosy_lsm::inspect::{
    InspectedRegion, LeftWindows, Problem, add_cut, add_pin, owners, verify_owners, verify_pin,
    verify_region,
};
use argosy_lsm::pins::{self, FIRST_PIN, PinError, Pins};
use argosy_lsm::{Lsm, ReplicaError, Settings};
use argosy_memory::AnonymousWindows;

use super::REGION;

pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What became of opening a device and reading everything.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Every answer was right.
    Right,
    /// So many keys were answered with an error, this among them; all others were right.
    Told(usize, String),
    /// It was not opened.
    Refused(String),
}

/// Opens `device`, with what survived in `windows`, and reads every key of `expected` and everything in order.
/// `expected` is what has to be there after the last LSN that is found. Nothing may be wrong, and errors have to
/// name damage.
pub(crate) fn judge(
    device: &Arc<MemoryDevice>,
    windows: &AnonymousWindows,
    settings: &Settings,
    expected: &dyn Fn(Lsn) -> Pairs,
    what: &str,
) -> Verdict {
    let (pins, engine) = match open(device, windows, settings) {
        Ok(opened) => opened,
        Err(error) => {
            let repair = remedy(&*error) == Some(Remedy::Repair);
            assert!(
                repair,
                "{what}: is refused as if for something else: {error}"
            );
            return Verdict::Refused(error.to_string());
        }
    };
    let told = errors(&engine, &expected(engine.last_lsn()), what);
    let pinned = pins.list();
    let pinned = pinned.iter().filter_map(|pin| scan_pin(&engine, pin, what));
    let told: Vec<_> = told.into_iter().chain(pinned).collect();
    match told.first() {
        None => Verdict::Right,
        Some(first) => Verdict::Told(told.len(), first.clone()),
    }
}

/// Errors of reading every key of `expected`, and everything in order from either end. Nothing may be wrong.
pub(crate) fn errors(engine: &Lsm, expected: &Pairs, what: &str) -> Vec<String> {
    let mut told = Vec::new();
    for (key, value) in expected {
        let named = key.escape_ascii();
        match engine.get(key) {
            Ok(found) => assert!(
                found.value.as_ref() == Some(value),
                "{what}: {named} is wrong, or absent: {:?}",
                found.value.map(|value| value.len())
            ),
            Err(error) => told.push(damage(&error, what)),
        }
    }
    for direction in [Direction::Up, Direction::Down] {
        told.extend(scan(engine, expected, direction, what));
    }
    told
}

type Opened = (Pins, Lsm);

fn open(
    device: &Arc<MemoryDevice>,
    windows: &AnonymousWindows,
    settings: &Settings,
) -> Result<Opened, Box<dyn Error>> {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open(device, &StoreSettings::default())?;
    let pins = Pins::open(&store, REGION, settings)?;
    let engine = Lsm::open(&store, REGION, windows, settings, None)?;
    Ok((pins, engine))
}

/// What an error of opening asks for.
fn remedy(error: &(dyn Error + 'static)) -> Option<Remedy> {
    if let Some(error) = error.downcast_ref::<ReplicaError>() {
        return Some(error.remedy());
    }
    if let Some(error) = error.downcast_ref::<DeviceError>() {
        return Some(error.remedy());
    }
    match error.downcast_ref::<PinError>()? {
        PinError::Device(error) => Some(error.remedy()),
        PinError::Manifest(error) => Some(error.remedy()),
        PinError::Corrupt(..) => Some(Remedy::Repair),
        _ => None,
    }
}

fn damage(error: &EngineError, what: &str) -> String {
    assert_eq!(error.remedy(), Remedy::Repair, "{what}: {error}");
    error.to_string()
}

/// Everything in order, up to an error.
fn scan(engine: &Lsm, expected: &Pairs, direction: Direction, what: &str) -> Option<String> {
    let snapshot = engine.snapshot();
    let mut scan = match snapshot.scan(&KeyRange::all(), direction) {
        Ok(scan) => scan,
        Err(error) => return Some(damage(&error, what)),
    };
    let mut left: Box<dyn Iterator<Item = _>> = match direction {
        Direction::Up => Box::new(expected.iter()),
        Direction::Down => Box::new(expected.iter().rev()),
    };
    loop {
        match scan.next() {
            Err(error) => return Some(damage(&error, what)),
            Ok(None) => {
                let missing = left.next().map(|(key, _)| key.escape_ascii().to_string());
                assert_eq!(missing, None, "{what}: missing on the way {direction:?}");
                return None;
            }
            Ok(Some((key, value))) => {
                let wanted = left.next();
                let right = wanted.is_some_and(|(k, v)| *k == key && *v == value);
                assert!(
                    right,
                    "{what}: {direction:?}, {} is wrong",
                    key.escape_ascii()
                );
            }
        }
    }
}

/// Everything that a pin shows, up to an error.
fn scan_pin(engine: &Lsm, pin: &pins::Pin, what: &str) -> Option<String> {
    use argosy_engine::Snapshot as _;
    let snapshot = engine.snapshot_of(pin.version());
    let mut scan = match snapshot.scan(&KeyRange::all(), Direction::Up) {
        Ok(scan) => scan,
        Err(error) => return Some(damage(&error, what)),
    };
    loop {
        match scan.next() {
            Err(error) => return Some(damage(&error, what)),
            Ok(None) => return None,
            Ok(Some(_)) => {}
        }
    }
}

/// What `inspect verify` finds: problems, and notes on what a crash may have done as well.
pub(crate) fn problems(device: &Arc<MemoryDevice>, settings: &Settings) -> Vec<String> {
    let shared: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let mut told: Vec<String> = match Store::survey(&*shared) {
        Ok(blocks) => blocks
            .iter()
            .filter_map(|block| Some(format!("{}: {}", block.what, block.trouble.as_ref()?)))
            .collect(),
        Err(error) => vec![error.to_string()],
    };
    let store = match Store::open_read_only(shared) {
        Ok(store) => store,
        Err(error) => {
            told.push(error.to_string());
            return told;
        }
    };
    let entries = store.regions();
    let own = |entry: &&argosy_device::RegionEntry| kind_of(entry) == EntryKind::Region;
    let regions: Vec<InspectedRegion> = entries
        .iter()
        .filter(own)
        .map(|entry| InspectedRegion::read(&store, entry, settings))
        .collect();
    let mut problems: Vec<Problem> = Vec::new();
    let mut owned = owners(&regions);
    for entry in entries.iter().filter(|entry| entry.region >= FIRST_PIN) {
        match pins::read(&store, entry, REGION, settings) {
            Ok((_, version)) => {
                add_pin(&mut owned, entry, &version);
                problems.extend(verify_pin(&version, settings).1);
            }
            Err(error) => told.push(error.to_string()),
        }
    }
    entries.iter().for_each(|entry| add_cut(&mut owned, entry));
    problems.extend(verify_owners(&owned, store.total()));
    for region in &regions {
        problems.extend(region.problems.iter().cloned());
        if let Some(version) = &region.version {
            let (_, found, notes) = verify_region(version, &LeftWindows::default(), settings);
            problems.extend(found);
            told.extend(notes);
        }
    }
    told.extend(problems.iter().map(ToString::to_string));
    told
}
