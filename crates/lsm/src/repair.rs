//! A damaged segment is written again with the bytes that another member has.
//!
//! 1. [`wanted`] says what to ask another member for: all of the segment, by its number. Levels that a member
//!    built for itself have no equal copy, and a log segment that is not sealed is left to the recovery
//!    that reads it next.
//! 2. [`begin`] checks what has come as whatever comes from a device is checked, puts this member's
//!    places into its pointers where those hold places, and writes it where the segment lies.
//!    What other members send lacks the pointers that do not count any more, and a snapshot of an older version may
//!    need them. So, where pointers hold places, leaves and index nodes that are not damaged stay as they are.
//! 3. [`Repair::poll`] reads the segment when it is written ([`check`]). If all of it is right it counts as damaged no
//!    more, and merges read it again.
//!
//! It is written in its own place, in either address mode. That needs no record in the manifest, and is safe at
//! any instant: the parts of the segment that were right are written with the same bytes, so a write that is torn, or
//! read while it is under way, harms nothing. The other parts are either repaired or found damaged again (I1: what a
//! segment says never changes). Pins and snapshots that keep the segment are repaired with it. The segment's
//! place is kept while it is written, whatever becomes of the region's version.

use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{SegmentNumber, SegmentPart};
use argosy_device::Buffer;
use argosy_log::Geometry;
use argosy_log::verify::verify_sealed;

use crate::addresses::{Addressing, Translation, as_gone, level_error};
use crate::edit::LogSegment;
use crate::level::form_and_refs;
use crate::level::pointers::keep_whole_nodes;
use crate::level::verify::paired_children;
use crate::names::logs::LARGE_LOG;
use crate::names::{Form, LevelError, SegmentName};
use crate::scrub::{check_segment, faults_of};
use crate::segments::StoredSegment;
use crate::version::Version;

pub use argosy_engine::repair::{Repair, RepairError};

/// What another member has to be asked for, to repair segment `number` of `version`: all of it. `None` where no
/// other member can have it, or it is not part of the version any more.
#[must_use]
pub fn wanted(version: &Version, number: SegmentNumber) -> Option<SegmentPart> {
    let len = match version.log_segment(number) {
        Some(entry) => {
            let block = u32::try_from(BLOCK_SIZE).ok()?;
            entry.segment.end?.next_multiple_of(block)
        }
        None if number.is_own() => return None,
        None => version.finished_segment(number)?.segment.len,
    };
    (len > 0).then_some(SegmentPart {
        number,
        from: 0,
        to: len,
    })
}

/// Begins to write `bytes` over segment `number` of `version`, if they are right. Blocks for reads of the device
/// where pointers hold places.
pub(crate) fn begin(
    version: &Version,
    geometry: Geometry,
    number: SegmentNumber,
    mut bytes: Buffer,
) -> Result<Repair, RepairError> {
    let wrong = |what: String| RepairError::Wrong { number, what };
    let stored = version.stored(number);
    let stored = stored.ok_or_else(|| wrong("it is not part of the region".to_owned()))?;
    match version.log_segment(number) {
        Some(entry) => check_log(version, geometry, &entry.segment, &bytes).map_err(wrong)?,
        None => check_level(version, stored, number, &mut bytes).map_err(wrong)?,
    }
    let range = 0..bytes.len();
    let written = stored.write(0, Arc::new(bytes), range);
    let kept: Arc<StoredSegment> = Arc::clone(stored);
    Ok(Repair::new(number, written, kept))
}

/// Whether segment `number` of `version`, which was written again, is right. Blocks for the device.
pub(crate) fn check(
    version: &Version,
    geometry: Geometry,
    number: SegmentNumber,
) -> Result<(), RepairError> {
    let found = check_segment(version, number, geometry);
    match found.into_iter().flat_map(|found| found.damages).next() {
        Some(damage) => Err(RepairError::StillDamaged {
            number,
            what: damage.what,
        }),
        None => Ok(()),
    }
}

fn check_level(
    version: &Version,
    stored: &StoredSegment,
    number: SegmentNumber,
    bytes: &mut Buffer,
) -> Result<(), String> {
    let entry = version.finished_segment(number);
    let entry = entry.ok_or("it is no finished segment")?;
    if bytes.len() != entry.segment.len as usize {
        return Err("it has another length".to_owned());
    }
    if version.addresses().rewrites(&entry.segment) {
        let name = version.name_of(&entry.segment);
        let own = read_own(stored, bytes.len());
        let translation = match entry.segment.form {
            Form::Index(height) => {
                let children = children_here(version, &own, name, height, bytes);
                Translation::new(Vec::new(), children.map_err(|error| error.to_string())?)
            }
            _ => Translation::new(logs_here(version), Vec::new()),
        };
        let in_words = |error| level_error(name, error).to_string();
        let rewritten = translation.rewrite(name, bytes, |_, _| false);
        rewritten.map_err(in_words)?;
        let mut kept = Buffer::from_slice(bytes);
        keep_whole_nodes(name, &own, &mut kept).map_err(in_words)?;
        // A node of which the checksum is right may be what is wrong here.
        if faults_of(version, entry, &kept).is_empty() {
            *bytes = kept;
            return Ok(());
        }
    }
    match faults_of(version, entry, bytes).into_iter().next() {
        Some(fault) => Err(fault.what().to_owned()),
        None => Ok(()),
    }
}

/// What can be read of the segment's `len` bytes here, and zeros in place of the rest.
fn read_own(stored: &StoredSegment, len: usize) -> Buffer {
    let mut own = Buffer::for_reading(len);
    if stored.read(0, &mut own).is_ok() {
        return own;
    }
    let mut own = Buffer::zeroed(len);
    for (block, into) in own.chunks_mut(BLOCK_SIZE).enumerate() {
        let mut bytes = Buffer::for_reading(into.len());
        let at = u32::try_from(block * BLOCK_SIZE).expect("a segment has at most 2 MiB");
        if stored.read(at, &mut bytes).is_ok() {
            into.copy_from_slice(&bytes);
        }
    }
    own
}

/// What pointers into logs begin with here, by number.
fn logs_here(version: &Version) -> Vec<(SegmentNumber, SegmentNumber)> {
    let large = version.log(LARGE_LOG).iter();
    let large = large.map(|entry| entry.segment.number);
    let logs = large.chain(version.medium_log().keys().copied());
    logs.filter_map(|number| Some((number, version.high_bits_of(number)?)))
        .collect()
}

/// What pointers to the children of an index segment begin with here, by number; `bytes` are what came for it. A child
/// may have left the version. Then its pointers stay what they are in the nodes that are not damaged: an older
/// version may still have it.
fn children_here(
    version: &Version,
    own: &[u8],
    name: SegmentName,
    height: u8,
    bytes: &[u8],
) -> Result<Vec<(SegmentNumber, SegmentNumber)>, LevelError> {
    let paired = paired_children(name, height, own, bytes);
    let (_, children) = form_and_refs(name, bytes)?;
    let here = |(number, _): (SegmentNumber, u64)| {
        let here = version.high_bits_of(number);
        let here = here.or_else(|| paired.get(&number).copied());
        (number, here.unwrap_or_else(|| as_gone(number)))
    };
    Ok(children.into_iter().map(here).collect())
}

fn check_log(
    version: &Version,
    geometry: Geometry,
    segment: &LogSegment,
    bytes: &Buffer,
) -> Result<(), String> {
    let mut read = |_: &LogSegment, offset: u32, out: &mut [u8]| {
        // A scan reads whole windows, and looks at nothing behind the end.
        let from = (offset as usize).min(bytes.len());
        let there = &bytes[from..(from + out.len()).min(bytes.len())];
        out[..there.len()].copy_from_slice(there);
        out[there.len()..].fill(0);
        Ok::<(), std::convert::Infallible>(())
    };
    let end = segment.end.ok_or("it is not sealed")?;
    if bytes.len() < end as usize {
        return Err("it is too short".to_owned());
    }
    let chain = std::slice::from_ref(segment);
    let Ok(found) = verify_sealed(version.region(), geometry, chain, &mut read);
    match found.faults.into_iter().next() {
        Some(fault) => Err(fault.what.to_owned()),
        None => Ok(()),
    }
}
