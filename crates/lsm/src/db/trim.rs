//! Which log segments an edit can take away.
//!
//! A segment of the recovery log is needed while it holds an LSN that replay would begin with; one
//! of the large log as long, and as long as a level points into it, or into one before it with a
//! value that may reach into it: a reference names the segment in which a value begins. The last
//! segment of a chain stays, and so does one that is not sealed. An edit is written first and
//! trimmed afterwards, so that the references that it takes away and adds are counted.

use std::collections::BTreeMap;

use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_base::{LogKind, Lsn, SegmentNumber};

use crate::edit::{Edit, LevelSegment};
use crate::version::Version;

/// The highest LSN in each sealed log segment, as far as it is known.
#[derive(Debug)]
pub(crate) struct LastLsns {
    known: BTreeMap<SegmentNumber, Lsn>,
    /// For segments from before the engine started: the last LSN of the history then.
    before: Lsn,
}

impl LastLsns {
    /// Nothing is known but that all segments end at or below `before`.
    pub(crate) const fn new(before: Lsn) -> Self {
        Self {
            known: BTreeMap::new(),
            before,
        }
    }

    /// No LSN in `number` is above `last`.
    pub(crate) fn set(&mut self, number: SegmentNumber, last: Lsn) {
        self.known.insert(number, last);
    }

    fn get(&self, number: SegmentNumber) -> Lsn {
        self.known.get(&number).copied().unwrap_or(self.before)
    }
}

/// How many segments of the large log a value may reach into behind the one in which it begins:
/// its bytes, a 16th for padding at the ends of windows, and headers.
pub(crate) const fn reach(segment_bytes: usize) -> u64 {
    (VALUE_BYTES_MAX + VALUE_BYTES_MAX / 8).div_ceil(segment_bytes) as u64
}

/// Adds to `edit`, which changes `version`, the removals that it makes possible. `removed` are the
/// level segments that it takes away, and `reach` is [`reach`] of the geometry.
pub(crate) fn trim<'a>(
    version: &Version,
    removed: impl Iterator<Item = &'a LevelSegment>,
    reach: u64,
    lasts: &mut LastLsns,
    edit: &mut Edit,
) {
    let replay_from = edit.replay_from.unwrap_or(version.replay_from());
    let change = changed_refs(removed, edit);
    for log in LogKind::ALL {
        let mut kept_to = None;
        let chain = version.log(log);
        for entry in &chain[..chain.len().saturating_sub(1)] {
            let segment = entry.segment;
            let number = segment.number;
            let (lost, gained) = change.get(&number).copied().unwrap_or_default();
            if log == LogKind::Large && version.log_refs(number) + gained > lost {
                kept_to = Some(segment.ordinal + reach);
            }
            let referenced = kept_to >= Some(segment.ordinal);
            if segment.end.is_some() && lasts.get(number) < replay_from && !referenced {
                edit.logs_removed.push((log, number));
                lasts.known.remove(&number);
            }
        }
    }
}

/// Bytes of references that an edit takes away and adds, by log segment.
fn changed_refs<'a>(
    removed: impl Iterator<Item = &'a LevelSegment>,
    edit: &Edit,
) -> BTreeMap<SegmentNumber, (u64, u64)> {
    let mut change: BTreeMap<SegmentNumber, (u64, u64)> = BTreeMap::new();
    for segment in removed {
        for (number, bytes) in &segment.log_refs {
            change.entry(*number).or_default().0 += bytes;
        }
    }
    for (_, _, segment) in &edit.added {
        for (number, bytes) in &segment.log_refs {
            change.entry(*number).or_default().1 += bytes;
        }
    }
    change
}
