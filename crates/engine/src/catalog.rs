//! What a device's catalog says beside where the manifests of regions lie. Every engine keeps to it.
//!
//! The two highest bits of an entry's id say what it is of:
//!
//! ```text
//! 00   a region
//! 01   cut segments: log segments that are kept from behind the end of a history that was cut.
//!      Bit 29 is the log, the bits below are the region
//! 10   a pin: a version that is kept under a name
//! 11   a copy that is set aside ([`set_aside`](crate::set_aside)); the bits below are the region
//! ```
//!
//! Of a copy, in use or set aside, the first of the entry's two words is a generation, which rises with each manifest.
//! Bits 8 to 15 of the second one are the copy's [`Standing`]. The other bits are the engine's.

use std::sync::Arc;

use argosy_base::limits::REGION_ID_MAX;
use argosy_base::{LogId, RegionId, Standing};
use argosy_device::{CatalogChange, DeviceError, RegionEntry, Store};

const CUT: u32 = 1 << 30;
const PIN: u32 = 2 << 30;
const SET_ASIDE: u32 = 3 << 30;
const KIND_BITS: u32 = 3 << 30;
const LOG_AT: u32 = 29;
const REGION_BITS: u32 = (1 << LOG_AT) - 1;
/// The logs that an id can name, by the value of their bit.
const LOGS: [LogId; 2] = [LogId::FIRST, LogId::new(2).expect("it is above 0")];
const _: () = assert!(REGION_ID_MAX == REGION_BITS);

/// The first id of a pin.
pub const FIRST_PIN: RegionId = RegionId(PIN);

/// What an entry of the catalog is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The copy of a region.
    Region,
    /// Cut segments of this log of the region.
    Cut(RegionId, LogId),
    /// A pin.
    Pin,
    /// A copy of this region that is set aside.
    SetAside(RegionId),
}

/// What `entry` is of.
#[must_use]
pub fn kind_of(entry: &RegionEntry) -> EntryKind {
    let id = entry.region.0;
    match id & KIND_BITS {
        CUT => {
            let log = LOGS[(id >> LOG_AT & 1) as usize];
            EntryKind::Cut(RegionId(id & REGION_BITS), log)
        }
        PIN => EntryKind::Pin,
        SET_ASIDE => EntryKind::SetAside(RegionId(id & !KIND_BITS)),
        _ => EntryKind::Region,
    }
}

/// The id of the cut segments of `log`; `None` where the id of the region leaves no room, or the log is
/// not one of the first two.
#[must_use]
pub fn id_of_cut(region: RegionId, log: LogId) -> Option<RegionId> {
    let log = (0..)
        .zip(LOGS)
        .find_map(|(bit, of)| (of == log).then_some(bit))?;
    let fits = region.0 & !REGION_BITS == 0;
    fits.then_some(RegionId(CUT | log << LOG_AT | region.0))
}

/// The id of the copy of `region` that is set aside.
#[must_use]
pub const fn id_of_set_aside(region: RegionId) -> RegionId {
    RegionId(region.0 | SET_ASIDE)
}

/// The generation of the copy in `entry`.
#[must_use]
pub const fn generation(entry: &RegionEntry) -> u64 {
    entry.words[0]
}

/// What a copy is certain to hold, as the second word of its entry says; `None` where that is of a later program.
#[must_use]
pub fn standing(word: u64) -> Option<Standing> {
    let standing = Standing::from_raw((word >> 8 & 0xff) as u8);
    standing.filter(|standing| *standing != Standing::Whole)
}

/// `word`, of a copy with this `standing`.
#[must_use]
pub const fn with_standing(word: u64, standing: Standing) -> u64 {
    word & !0xff00 | (standing as u64) << 8
}

/// The entries of cut segments of `region`.
pub fn cut_of(store: &Store, region: RegionId) -> impl Iterator<Item = RegionEntry> {
    let all = store.regions().into_iter();
    all.filter(move |entry| matches!(kind_of(entry), EntryKind::Cut(of, _) if of == region))
}

/// Gives up the cut segments of `region`: by command, or since its copy is begun anew. Returns how many there were.
/// Blocks until that is durable.
///
/// # Errors
/// The device's; they are kept then, or some are.
pub fn discard_cut(store: &Arc<Store>, region: RegionId) -> Result<usize, DeviceError> {
    give_up(store, cut_of(store, region))
}

/// Gives up the cut segments of all regions, for want of room. As [`discard_cut`].
///
/// # Errors
/// As [`discard_cut`].
pub fn discard_all_cut(store: &Arc<Store>) -> Result<usize, DeviceError> {
    let all = store.regions().into_iter();
    give_up(
        store,
        all.filter(|entry| matches!(kind_of(entry), EntryKind::Cut(..))),
    )
}

fn give_up(
    store: &Arc<Store>,
    entries: impl Iterator<Item = RegionEntry>,
) -> Result<usize, DeviceError> {
    let mut count = 0;
    // The catalog is written for all of them together.
    let changes: Vec<_> = entries
        .inspect(|entry| count += entry.manifest.len())
        .map(|entry| store.remove_region(entry.region))
        .collect();
    changes.iter().try_for_each(CatalogChange::wait)?;
    Ok(count)
}
