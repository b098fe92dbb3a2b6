//! Counts the pointers in parts of level segments that range tombstones cut off unread.
//!
//! A range tombstone takes keys out of levels without reading them ([`cut`](super::cut)), so nobody knows
//! then into which log segments their entries point. The parts stay in the version as
//! [uncounted](crate::version::Version::uncounted): no reader sees them, and what they point to stays. Later,
//! one segment at a time, [`edit_of`] reads the leaves, and one edit lets the parts go and drops their
//! pointers. Bounded: a segment is 2 MiB.

use std::collections::BTreeMap;

use argosy_base::{KeyRange, SegmentNumber};
use argosy_device::Buffer;

use crate::edit::{Edit, Place, Reference, RunId, UNCOUNTED};
use crate::level::verify::leaves_of;
use crate::names::LevelError;
use crate::version::{LevelEntry, Version};

/// Writes into `edit`, which changes `version`, that the uncounted parts of segment `number` go, and that
/// their pointers are dropped. Blocks for the device. With `beyond` pointers outside of the parts are counted,
/// too, which is a planted mistake.
///
/// # Errors
/// What cannot be read: nothing was written into `edit`.
pub(crate) fn edit_of(
    version: &Version,
    number: SegmentNumber,
    beyond: bool,
    edit: &mut Edit,
) -> Result<(), LevelError> {
    let Some(rest) = version.uncounted().get(&number) else {
        return Ok(());
    };
    let all = KeyRange::all();
    let parts = rest.parts.iter();
    let ranges: Vec<_> = match beyond {
        true => vec![&all],
        false => parts.map(|part| &part.segment.range).collect(),
    };
    let mut counts = BTreeMap::new();
    count(version, &rest.parts[0], &ranges, &mut counts)?;
    edit.removed.push(Place {
        level: UNCOUNTED,
        run: RunId(0),
        number,
    });
    let dropped = counts.into_iter();
    edit.references = dropped
        .map(|(number, dropped)| Reference {
            number,
            added: 0,
            dropped,
        })
        .collect();
    Ok(())
}

/// Adds to `counts` the bytes of keys and values behind the pointers of the segment of `entry`, one with
/// leaves, whose keys are in one of `ranges`: by segment of the large or the medium log. Blocks for the device.
///
/// # Errors
/// A leaf cannot be read, or a pointer leads to a place where `version` has nothing.
pub(crate) fn count(
    version: &Version,
    entry: &LevelEntry,
    ranges: &[&KeyRange],
    counts: &mut BTreeMap<SegmentNumber, u64>,
) -> Result<(), LevelError> {
    let name = version.name_of(&entry.segment);
    let mut bytes = Buffer::zeroed(entry.segment.len as usize);
    entry.stored.read(0, &mut bytes)?;
    let leaves = leaves_of(name, &bytes);
    let leaves = leaves.map_err(|_| name.corrupt(0, "the segment's footer or index"))?;
    for (_, leaf) in leaves {
        let leaf = leaf?;
        for pair in 0..leaf.count() {
            let Some((at, value_len)) = leaf.entry(pair).pointer() else {
                continue;
            };
            let key = leaf.key(pair);
            if ranges.iter().any(|range| range.contains(&key)) {
                let what = "a pointer leads to a place where the region has nothing";
                let at = version.resolve(at).ok_or(name.corrupt(0, what))?;
                let bytes = key.len() as u64 + u64::from(value_len);
                *counts.entry(at.segment()).or_default() += bytes;
            }
        }
    }
    Ok(())
}
