//! Gathers everything of a region that verifies, for a new copy of it: what a repair is made of.
//!
//! Pairs are handed out from the oldest source to the newest: level by level from the lowest up, in a level
//! run by run, then the logs in the order of their LSNs. Whoever applies them in this order has what a
//! reader would have found, but for what is damaged:
//!
//! - A leaf that cannot be read is passed over. Of its keys, which nobody knows, those that have an older
//!   value below show that one. Where a segment's index is damaged its leaves are looked for one by one.
//! - A key whose value cannot be read is handed out as removed, so that no older value takes its place.
//! - A log's damaged segment is read up to the damage, and the log goes on behind the segment: of a repaired
//!   copy the history may have a hole, and what lay in it is lost.
//!
//! All of that is told as [`Damage`].

use std::sync::Arc;

use argosy_base::range::successor;
use argosy_base::{KeyRange, LogId, Moment};
use argosy_device::{Buffer, DeviceError};
use argosy_log::verify::verify_sealed;
use argosy_log::{
    Geometry, Holes, LogWindows, ReadError, Recovery, Replayed, ValueRef, read_value, recover,
};
use argosy_memory::SharedMemory;

use super::logs::{chain_of, read_log, written_of};
use super::pointers::Source;
use super::{InSegment, LeftWindows, MEDIUM_LOG, ProblemKind};
use crate::edit::LogSegment;
use crate::level::verify::{FoundLeaf, leaves_of};
use crate::names::logs::{LARGE_LOG, LOGS, log_name};
use crate::names::{Entry, Form, Lasting};
use crate::scrub::{Damage, Pass, RANGES_MAX, next};
use crate::settings::Settings;
use crate::version::{LevelEntry, Version};

/// Most damages that are listed; more are counted.
pub const LISTED_MAX: usize = 1000;

/// A pair, or a key that is removed, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salvaged<'a> {
    /// The key; of a range the lowest.
    pub key: &'a [u8],
    /// All keys of this are removed.
    pub range: Option<&'a KeyRange>,
    /// Its value, and when that expires; `None`: it has none.
    pub value: Option<(&'a [u8], Option<Moment>)>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Salvage {
    /// Pairs and removals that were handed out.
    pub entries: u64,
    /// Keys that were found without their value.
    pub values_lost: u64,
    /// What is damaged: at most [`LISTED_MAX`].
    pub damages: Vec<Damage>,
    /// How many more damages there are.
    pub more: u64,
}

/// Hands everything of `version` that verifies to `give`, in the order of the module documentation; what of
/// its logs only windows have is taken from `windows`. Blocks for the device.
///
/// # Errors
/// Those of `give`, which end it.
pub fn salvage<E>(
    version: &Version,
    windows: &LeftWindows,
    settings: &Settings,
    give: &mut dyn FnMut(Salvaged<'_>) -> Result<(), E>,
) -> Result<Salvage, E> {
    let mut salvager = Salvager::new(version, windows, settings);
    let mut pass = Pass::new();
    while let Some(scrubbed) = next(version, settings.layout.log_geometry(), &mut pass) {
        for damage in scrubbed.damages {
            salvager.tell(damage);
        }
    }
    let mut runs: Vec<_> = version.runs().collect();
    runs.reverse();
    for (level, run) in runs {
        for entry in run.entries() {
            if matches!(entry.segment.form, Form::SelfContained | Form::Leaves) {
                salvager.segment(level, entry, give)?;
            }
        }
    }
    salvager.logs(windows, give)?;
    Ok(salvager.found)
}

struct Salvager<'a> {
    version: &'a Version,
    geometry: Geometry,
    source: Source<'a>,
    large: LogWindows,
    found: Salvage,
}

impl<'a> Salvager<'a> {
    fn new(version: &'a Version, windows: &LeftWindows, settings: &Settings) -> Self {
        let geometry = settings.layout.log_geometry();
        let left = &windows[LARGE_LOG.index()];
        let slot = |slot: usize| match left.get(slot).and_then(Option::as_ref) {
            Some(memory) => Arc::clone(memory),
            None => Arc::new(SharedMemory::anonymous(geometry.slot_bytes())),
        };
        let slots = (0..geometry.slots()).map(slot).collect();
        let large = LogWindows::new(version.region(), LARGE_LOG, geometry, slots);
        Self {
            version,
            geometry,
            source: Source::new(version),
            large: large.as_found(chain_of(version, LARGE_LOG)),
            found: Salvage::default(),
        }
    }

    fn tell(&mut self, damage: Damage) {
        if self.found.damages.len() < LISTED_MAX {
            self.found.damages.push(damage);
        } else {
            self.found.more += 1;
        }
    }

    /// Hands out the leaves of a segment that can be read. What cannot was told by the pass.
    fn segment<E>(
        &mut self,
        level: u8,
        entry: &LevelEntry,
        give: &mut dyn FnMut(Salvaged<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let segment = &entry.segment;
        let mut bytes = Buffer::zeroed(segment.len as usize);
        if !entry.stored.is_on_device() || entry.stored.read(0, &mut bytes).is_err() {
            return Ok(());
        }
        let name = self.version.name_of(segment);
        let leaves: Vec<FoundLeaf> = match leaves_of(name, &bytes) {
            Ok(leaves) | Err(leaves) => leaves,
        };
        for leaf in leaves.iter().filter_map(|(_, leaf)| leaf.as_ref().ok()) {
            for pair in 0..leaf.count() {
                let key = leaf.key(pair);
                if segment.range.contains(&key) {
                    let part = format!("L{level}");
                    self.pair(&part, &key, leaf.entry(pair), give)?;
                }
            }
        }
        Ok(())
    }

    fn pair<E>(
        &mut self,
        part: &str,
        key: &[u8],
        entry: Entry<'_>,
        give: &mut dyn FnMut(Salvaged<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.found.entries += 1;
        let expiry = entry.expiry();
        let read;
        let value = match entry {
            Entry::Tombstone => None,
            Entry::Inline(value) | Entry::Until(_, Lasting::Inline(value)) => Some(value),
            Entry::Pointer { .. } | Entry::Until(_, Lasting::Pointer { .. }) => {
                read = self.value(part, key, entry);
                read.as_deref()
            }
        };
        give(Salvaged {
            key,
            range: None,
            value: value.map(|value| (value, expiry)),
        })
    }

    /// The value to which `entry` points.
    fn value(&mut self, part: &str, key: &[u8], entry: Entry<'_>) -> Option<Vec<u8>> {
        let (pointer, value_len) = entry.pointer()?;
        // Pointers of memtables name segments already.
        let at = match part == ALL_LOGS {
            true => Some(pointer),
            false => self.version.resolve(pointer),
        };
        if at.is_some_and(|at| self.version.is_evacuated(at.segment())) {
            // A newer entry shadows it.
            return None;
        }
        let found = match at {
            None => Err((0, "its pointer leads to nothing".to_owned())),
            Some(at) => {
                let wanted = ValueRef { at, value_len, key };
                match self.version.medium_log().get(&at.segment()) {
                    Some(entry) => self.source.medium_value(entry, &wanted),
                    None => read_value(&wanted, &self.large, &self.source).map_err(in_words),
                }
            }
        };
        let (offset, what) = match found {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        self.found.values_lost += 1;
        let number = at.map(|at| at.segment()).unwrap_or_default();
        let of = match self.version.medium_log().contains_key(&number) {
            true => MEDIUM_LOG.to_owned(),
            false => log_name(LARGE_LOG).to_owned(),
        };
        let range = KeyRange::new(key, Some(successor(key)));
        let damage = self.damage(&of, InSegment::at(number, offset), what, vec![range]);
        self.tell(damage);
        None
    }

    fn damage(&self, part: &str, at: InSegment, what: String, mut keys: Vec<KeyRange>) -> Damage {
        let InSegment { number, offset } = at;
        let place = self.version.stored(number).map(|stored| stored.place());
        let more_keys = keys.len().saturating_sub(RANGES_MAX);
        keys.truncate(RANGES_MAX);
        Damage {
            kind: ProblemKind::Damaged,
            region: self.version.region(),
            part: part.to_owned(),
            number,
            place: place.unwrap_or_default(),
            offset,
            what,
            keys,
            more_keys,
        }
    }

    /// Hands out what is not in the levels.
    fn logs<E>(
        &mut self,
        windows: &LeftWindows,
        give: &mut dyn FnMut(Salvaged<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let version = self.version;
        let chains = LOGS.map(|log| self.sound_chain(log));
        let recovery = Recovery {
            region: version.region(),
            geometry: self.geometry,
            chains: [&chains[0], &chains[1]],
            points: &[],
            windows: [&windows[0], &windows[1]],
            replay_from: version.replay_from(),
            durable: version.durable(),
            holes: Holes::Passed,
            written: &|segment| written_of(version, segment),
        };
        let read =
            |segment: &LogSegment, at: u32, out: &mut [u8]| read_log(version, segment, at, out);
        let mut ended = Ok(());
        let visit = |replayed: Replayed<'_>| {
            if ended.is_err() || replayed.time().is_some() {
                return;
            }
            ended = match replayed.range() {
                Some(range) => {
                    self.found.entries += 1;
                    give(Salvaged {
                        key: replayed.key,
                        range: Some(&range),
                        value: None,
                    })
                }
                None => self.pair(ALL_LOGS, replayed.key, Entry::of(&replayed), give),
            };
        };
        let recovered = recover(&recovery, read, visit);
        ended?;
        if let Err(error) = recovered {
            let what = format!("{error}: what was written later is lost");
            let number = chains[0].last().map(|last| last.number);
            let at = InSegment::start(number.unwrap_or_default());
            let damage = self.damage(ALL_LOGS, at, what, Vec::new());
            self.tell(damage);
        }
        Ok(())
    }

    /// The chain of `log`, in which segments that are damaged end in front of the damage, or are left out.
    fn sound_chain(&self, log: LogId) -> Vec<LogSegment> {
        let version = self.version;
        let mut chain = chain_of(version, log);
        chain.retain_mut(|segment| {
            if !version
                .stored(segment.number)
                .is_some_and(|s| s.is_on_device())
            {
                return false;
            }
            if segment.end.is_none() {
                return true;
            }
            // What a device has lost begins behind padding: it ends in front of the damage, and then of the padding.
            for _ in 0..2 {
                match self.fault_in(segment) {
                    Ok(None) => return true,
                    Ok(Some(at)) if at > 0 => segment.end = Some(at),
                    _ => return false,
                }
            }
            matches!(self.fault_in(segment), Ok(None))
        });
        chain
    }

    /// Where the first fault of a sealed segment is.
    fn fault_in(&self, segment: &LogSegment) -> Result<Option<u32>, DeviceError> {
        let version = self.version;
        let mut read =
            |segment: &LogSegment, at: u32, out: &mut [u8]| read_log(version, segment, at, out);
        let chain = std::slice::from_ref(segment);
        let found = verify_sealed(version.region(), self.geometry, chain, &mut read)?;
        Ok(found.faults.first().map(|fault| fault.offset))
    }
}

/// The logs together, as part of a region.
const ALL_LOGS: &str = "logs";

fn in_words(error: ReadError<DeviceError>) -> (u32, String) {
    match error {
        ReadError::Source(error) => (0, error.to_string()),
        ReadError::Corrupt { offset, what, .. } => (offset, what.to_owned()),
    }
}
