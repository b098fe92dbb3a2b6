//! Where a region's logs end, and what of them is in no level yet.

use std::collections::BTreeMap;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Lsn, Pointer, SegmentNumber};
use argosy_log::Binding;
use argosy_log::segment::SegmentPosition;
use argosy_log::{Replayed, Unflushed};

use super::LeftWindows;
use super::logs::recover_logs;
use crate::edit::LogSegment;
use crate::names::logs::{LARGE_LOG, LOGS};
use crate::settings::Settings;
use crate::version::Version;

/// Where a region's logs end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnds {
    /// The last LSN of the history without a gap.
    pub last: Lsn,
    /// The highest LSN that is declared durable.
    pub durable: Lsn,
    /// By [`LogId::index`](argosy_base::LogId::index): behind the last record; `None` where there is none.
    pub ends: [Option<SegmentPosition>; LOGS.len()],
    /// Bytes of the history that are in windows only, and closing marks that are nowhere: opening writes them.
    pub unflushed: Vec<Unflushed>,
    /// Pairs that were written, deletes and removed ranges that are in no level yet: opening replays them.
    pub replayed_records: u64,
    /// Those of them whose records begin in bytes that are in windows only.
    pub unflushed_records: u64,
    /// Bytes of pairs in segments of the large log that are not in the levels yet: opening binds them.
    pub unsettled: BTreeMap<SegmentNumber, u64>,
}

impl LogEnds {
    /// How many bytes of `segment` belong to the history.
    #[must_use]
    pub fn held(&self, segment: &LogSegment) -> u32 {
        let behind = match self.ends[segment.log.index()] {
            Some(end) if end.ordinal == segment.ordinal => end.offset,
            Some(end) if end.ordinal > segment.ordinal => u32::MAX,
            _ => 0,
        };
        segment.end.unwrap_or(behind)
    }

    /// Bytes of a segment of the large log that nothing leads to in `version`: values that were overwritten
    /// or deleted, as garbage collection counts them, with headers and padding. `None` for other logs.
    #[must_use]
    pub fn dead(&self, version: &Version, segment: &LogSegment) -> Option<u64> {
        let unsettled = self.unsettled.get(&segment.number);
        let lives = version.log_refs(segment.number) + unsettled.unwrap_or(&0);
        let held = u64::from(self.held(segment)).min(SEGMENT_SIZE as u64);
        (segment.log == LARGE_LOG).then(|| held.saturating_sub(lives))
    }

    /// Puts what only windows have of segment `number` into `bytes`, which begin it.
    pub(super) fn overlay(&self, number: SegmentNumber, bytes: &mut [u8]) {
        for part in self
            .unflushed
            .iter()
            .filter(|part| part.segment.number == number)
        {
            let from = (part.from as usize).min(bytes.len());
            let len = part.bytes.len().min(bytes.len() - from);
            bytes[from..from + len].copy_from_slice(&part.bytes[..len]);
        }
    }
}

/// Where the logs of `version` end: what a server would find that opens it.
///
/// # Errors
/// What is wrong with them, in words.
pub fn log_ends(
    version: &Version,
    windows: &LeftWindows,
    settings: &Settings,
) -> Result<LogEnds, String> {
    let mut unsettled: BTreeMap<SegmentNumber, u64> = BTreeMap::new();
    let mut replayed_records = 0;
    let visit = |replayed: Replayed<'_>| {
        replayed_records += u64::from(replayed.time().is_none());
        if let Binding::Logged { value_len } = replayed.binding {
            let bytes = replayed.key.len() as u64 + u64::from(value_len);
            *unsettled.entry(replayed.at.segment()).or_default() += bytes;
        }
    };
    let recovered = recover_logs(version, settings.layout.log_geometry(), windows, visit);
    let recovered = recovered.map_err(|error| error.to_string())?;
    let [recovery, large] = recovered.logs;
    let ends = [recovery.end, large.end];
    let unflushed: Vec<Unflushed> = [recovery, large]
        .into_iter()
        .flat_map(|log| log.unflushed.into_iter().chain(log.closing))
        .collect();
    let mut unflushed_records = 0;
    if !unflushed.is_empty() {
        // Only now it is known which bytes these are.
        let visit = |replayed: Replayed<'_>| {
            let is_there = unflushed.iter().any(|part| has(part, replayed.at));
            unflushed_records += u64::from(is_there && replayed.time().is_none());
        };
        let again = recover_logs(version, settings.layout.log_geometry(), windows, visit);
        again.map_err(|error| error.to_string())?;
    }
    Ok(LogEnds {
        last: recovered.last,
        durable: recovered.durable,
        ends,
        unflushed,
        replayed_records,
        unflushed_records,
        unsettled,
    })
}

/// Whether the record at `at` begins in `part`.
fn has(part: &Unflushed, at: Pointer) -> bool {
    let offset = at.offset() as usize;
    let from = part.from as usize;
    part.segment.number == at.segment() && (from..from + part.bytes.len()).contains(&offset)
}
