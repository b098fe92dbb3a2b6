//! Padding that no closing mark announces: what a device has lost, or what a crash has left of a range that held
//! nothing but the mark. In front of a log point a device has lost something, and the scan stops there. Behind the
//! point levels need nothing. If no LSN is missing from the start of replay on, recovery has the closing mark written
//! again.

use argosy_base::{Kind, Lsn, RegionId};

use super::super::record::Record;
use super::super::segment::identity;
use super::Unflushed;
use crate::chain::LogSegment;

/// What a device lacks of a log.
pub(crate) struct ToWrite {
    /// Bytes that are in windows only.
    pub(crate) unflushed: Vec<Unflushed>,
    /// Closing marks that are nowhere.
    pub(crate) closing: Vec<Unflushed>,
}

/// Whole blocks of padding up to the end of their window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unclosed {
    pub(super) segment: LogSegment,
    /// The first of them.
    pub(super) from: u32,
    /// The end of the window.
    pub(super) to: u32,
}

impl Unclosed {
    /// What the writer had put there.
    pub(super) fn closed(&self, region: RegionId) -> Unflushed {
        let here = identity(Kind::LogRecord, region, &self.segment, self.from);
        let mut bytes = Vec::new();
        Record::closing_mark(Lsn(0)).encode(here, self.segment.base_lsn, &mut bytes);
        bytes.resize((self.to - self.from) as usize, 0);
        Unflushed {
            segment: self.segment,
            from: self.from,
            bytes,
        }
    }
}

/// Puts paddings that are `closed` now into what is written of their window of `window` bytes anyway. Returns the
/// others.
pub(super) fn put_into(
    unflushed: &mut [Unflushed],
    closed: impl Iterator<Item = Unflushed>,
    window: u32,
) -> Vec<Unflushed> {
    let mut alone = Vec::new();
    for closed in closed {
        let mut parts = unflushed.iter_mut();
        let same = |part: &&mut Unflushed| {
            part.segment == closed.segment && part.from / window == closed.from / window
        };
        match parts.find(same) {
            None => alone.push(closed),
            Some(part) if part.from > closed.from => *part = closed,
            Some(part) => {
                let at = (closed.from - part.from) as usize;
                part.bytes[at..].copy_from_slice(&closed.bytes);
            }
        }
    }
    alone
}
