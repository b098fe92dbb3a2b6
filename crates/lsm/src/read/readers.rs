//! The index and filter of a level segment, open for reading.

use std::borrow::Cow;
use std::sync::Arc;

use argosy_base::RegionId;

use super::nodes::missed;
use super::sources::NO_TREE;
use crate::cache::{CacheKey, Lookup, NodeCache};
use crate::level::tree::LeafHome;
use crate::level::{ReadAt, SegmentReader};
use crate::names::{LevelError, SegmentName};
use crate::segments::fetch::{Fetch, Fetched};
use crate::version::{LevelEntry, RunTree};

/// The open reader of a level segment: pinned with the segment or, where there is no room, from
/// `cache`.
///
/// # Errors
/// When index, filter or footer cannot be read; [`LevelError::NotInMemory`] as `fetch` says.
#[inline]
pub(crate) fn reader<'a>(
    entry: &'a LevelEntry,
    region: RegionId,
    cache: &Arc<NodeCache>,
    fetch: Fetch<'_>,
) -> Result<Cow<'a, Arc<SegmentReader>>, LevelError> {
    let key = CacheKey::reader(region, entry.segment.number);
    let source = Fetched {
        stored: &entry.stored,
        fetch,
    };
    entry.stored.reader(key, cache, |_| {
        missed(Lookup::Reader, &source, Some(cache))?;
        open_reader(entry, region, &source)
    })
}

/// The reader of a segment that is gone through once, for a compaction: the pinned one, or one of
/// its own, which nobody keeps.
///
/// # Errors
/// As [`reader`].
pub(crate) fn passing_reader(
    entry: &LevelEntry,
    region: RegionId,
) -> Result<Arc<SegmentReader>, LevelError> {
    match entry.stored.pinned_reader() {
        Some(reader) => Ok(Arc::clone(reader)),
        None => open_reader(entry, region, &*entry.stored).map(Arc::new),
    }
}

fn open_reader(
    entry: &LevelEntry,
    region: RegionId,
    stored: &impl ReadAt,
) -> Result<SegmentReader, LevelError> {
    let segment = &entry.segment;
    let name = SegmentName {
        region,
        number: segment.number,
        epoch: segment.epoch,
    };
    let reader = SegmentReader::open(name, segment.len, stored)?;
    if reader.form() == segment.form {
        Ok(reader)
    } else {
        Err(name.corrupt(0, "the segment is not of the form that the manifest says"))
    }
}

/// The leaf segment `entry` of `tree`, whose bytes are read from `bytes`.
///
/// # Errors
/// Where there is no tree.
pub(crate) fn leaf_home<S>(
    entry: &LevelEntry,
    tree: Option<&RunTree>,
    region: RegionId,
    bytes: S,
) -> Result<LeafHome<S>, LevelError> {
    let name = SegmentName {
        region,
        number: entry.segment.number,
        epoch: entry.segment.epoch,
    };
    let tree = tree.ok_or_else(|| name.corrupt(0, NO_TREE))?;
    Ok(LeafHome {
        name,
        high_bits: tree.high_bits_of(&entry.stored),
        len: entry.segment.len,
        bytes,
    })
}
