//! Cut segments: log segments with whole records behind the place at which an opening ended the history.
//!
//! They are normal after a loss of power: what no flush had made durable reaches the device in any order. But they may
//! also lie behind a record that was durable and is damaged, where nothing says that it was. So an opening that cuts a
//! log keeps two segments of it: the first and the last one with such records. Only `argosy inspect` reads them.
//! Nothing depends on them, so they are kept as long as there is room.
//!
//! Of each log that has any, the catalog has an entry beside that of the region:
//!
//! ```text
//! entry := region: u32   [`catalog`](argosy_engine::catalog)
//!          manifest      device segments of the log, at most KEPT_MAX, in the order of the log
//!          words         the first LSN that was cut off; the shape of the region
//! ```
//!
//! The store counts one more reference to each of them. Versions and edits know nothing of it: it is a matter of one
//! member. The header of a segment says what the segment is. A damaged header is written anew as soon as the cut is
//! durable: then nobody else reads the segment from there on.
//!
//! The life of cut segments:
//!
//! 1. `Storage::keep_cut`: the catalog names them, in place of those that an earlier cut of the log left. Only then is
//!    the history cut. A crash in between leaves both what is named and what was not cut; the next opening finds the
//!    same again.
//! 2. `Storage::mend_cut`: damaged headers are written anew.
//! 3. [`list`], [`visit`]: they are looked at, on a stopped server.
//! 4. [`discard_cut`](argosy_engine::catalog::discard_cut): they are given up, by command, or since the
//!    copy is begun anew. `CutSegments`: the device is full.

use std::ops::ControlFlow;
use std::sync::Arc;

use argosy_base::{BLOCK_SIZE, DeviceSegment, LogId, Lsn, RegionId};
use argosy_device::{Buffer, CatalogChange, DeviceError, Store};
use argosy_engine::catalog::{EntryKind, cut_of, kind_of};
use argosy_log::scan::visit_behind;
use argosy_log::segment::{HeaderError, decode_segment_header};
use argosy_log::{Geometry, LogLayout, Record};

use crate::edit::LogSegment;
use crate::names::logs::LOGS;
use crate::version::Version;

/// Most segments of a log that are kept.
pub const KEPT_MAX: usize = 2;

/// The cut segments of a region that is open, until the device is full.
#[derive(Default)]
pub(crate) struct CutSegments {
    /// There are some.
    are_kept: bool,
    /// The catalog forgets them.
    leaving: Vec<CatalogChange>,
}

impl CutSegments {
    /// Those of `region`.
    pub(crate) fn of(store: &Store, region: RegionId) -> Self {
        Self {
            are_kept: cut_of(store, region).next().is_some(),
            leaving: Vec::new(),
        }
    }

    /// Begins to give them up. Returns how many.
    pub(crate) fn give_up(&mut self, store: &Arc<Store>, region: RegionId) -> usize {
        let mut count = 0;
        if std::mem::take(&mut self.are_kept) {
            for entry in cut_of(store, region) {
                count += entry.manifest.len();
                self.leaving.push(store.remove_region(entry.region));
            }
        }
        count
    }

    /// Whether they are being given up: there will be room soon. Of an error the next write hears.
    pub(crate) fn are_leaving(&mut self) -> bool {
        self.leaving.retain(|change| change.poll().is_none());
        !self.leaving.is_empty()
    }
}

/// Where the cut segments of `region` lie. Its logs may have them, too.
pub(crate) fn places(store: &Store, region: RegionId) -> impl Iterator<Item = DeviceSegment> {
    cut_of(store, region).flat_map(|entry| entry.manifest)
}

/// A segment that is kept, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCut {
    /// The log.
    pub log: LogId,
    /// Where it lies.
    pub place: DeviceSegment,
    /// The first LSN that was cut off.
    pub cut_at: Lsn,
    /// What it is; or why that cannot be told.
    pub segment: Result<LogSegment, String>,
    /// How many whole records of it were cut off.
    pub records: u64,
    /// The lowest and the highest LSN of these.
    pub lsns: Option<(Lsn, Lsn)>,
    /// Why some of it cannot be read.
    pub unreadable: Option<String>,
}

/// The cut segments of `region`, of the recovery log first. `version` is the region's, if that can be read. Blocks for
/// the device.
#[must_use]
pub fn list(
    store: &Store,
    region: RegionId,
    version: Option<&Version>,
    geometry: Geometry,
) -> Vec<KeptCut> {
    let mut list = Vec::new();
    for entry in cut_of(store, region) {
        let EntryKind::Cut(_, log) = kind_of(&entry) else {
            continue;
        };
        for place in &entry.manifest {
            let mut kept = KeptCut {
                log,
                place: *place,
                cut_at: Lsn(entry.words[0]),
                segment: named(store, region, version, *place),
                records: 0,
                lsns: None,
                unreadable: None,
            };
            let mut count = (0, None);
            let visited = visit(
                store,
                LogLayout { region, geometry },
                &kept,
                &mut |_, record| {
                    let (lowest, highest) = count.1.unwrap_or((record.lsn, record.lsn));
                    count.0 += 1;
                    count.1 = Some((record.lsn.min(lowest), record.lsn.max(highest)));
                    ControlFlow::Continue(())
                },
            );
            (kept.records, kept.lsns) = count;
            kept.unreadable = visited.err().map(|error| error.to_string());
            list.push(kept);
        }
    }
    list
}

/// Which log segment of `region` lies in `place`: as its log says, while that has it; then as its header does.
fn named(
    store: &Store,
    region: RegionId,
    version: Option<&Version>,
    place: DeviceSegment,
) -> Result<LogSegment, String> {
    let logs = LOGS.iter();
    let mut chains = logs.flat_map(|log| version.into_iter().flat_map(|of| of.log(*log)));
    if let Some(found) = chains.find(|entry| entry.stored.place() == place) {
        return Ok(LogSegment {
            end: None,
            ..found.segment
        });
    }
    let mut block = Buffer::zeroed(BLOCK_SIZE);
    let read = store.read(place, 0, &mut block);
    read.map_err(|error| error.to_string())?;
    match decode_segment_header(&block) {
        Ok((of, segment)) if of == region => Ok(segment),
        Err(error @ HeaderError::Version(_)) => Err(error.to_string()),
        _ => Err("its header is damaged".to_owned()),
    }
}

/// Shows `visit` the whole records of `kept` that were cut off, each with the byte at which it begins, until that has
/// had enough. Blocks for the device.
///
/// # Errors
/// The device's.
pub fn visit(
    store: &Store,
    of: LogLayout,
    kept: &KeptCut,
    visit: &mut dyn FnMut(u32, Record<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, DeviceError> {
    let Ok(segment) = &kept.segment else {
        return Ok(ControlFlow::Continue(()));
    };
    let mut read = |_: &LogSegment, at: u32, out: &mut [u8]| {
        let mut bytes = Buffer::zeroed(out.len());
        store.read(kept.place, at, &mut bytes)?;
        out.copy_from_slice(&bytes);
        Ok(())
    };
    visit_behind(of, segment, kept.cut_at, &mut read, visit)
}
