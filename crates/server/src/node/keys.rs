//! Names of the memories that a server offers to its peers, and of those that outlive it.
//!
//! ```text
//! key := kind: u8  region: u32  log or 0: u8  slot or peer: u16      (from the highest byte down)
//!
//! The log of the mark that says that a copy is whole is 0xff.
//! ```
//!
//! The same number names a memory in the fabric and in the store of windows.

use std::ops::RangeInclusive;

use argosy_base::limits::LOGS_MAX;
use argosy_base::{LogId, RegionId, ServerId};
use argosy_fabric::MemoryKey;

const INBOX: u64 = 1;
const LANDING: u64 = 2;
const WINDOW: u64 = 3;
const STOPPED: u64 = 4;
/// Stands for the log in the name of the mark that says that a copy is whole.
const WHOLE: u8 = 0xff;
const _: () = assert!(LOGS_MAX < WHOLE as usize);

const fn key(kind: u64, region: u32, log: u8, last: u16) -> MemoryKey {
    MemoryKey(kind << 56 | (region as u64) << 24 | (log as u64) << 16 | last as u64)
}

fn peer_bits(peer: ServerId) -> u16 {
    u16::try_from(peer.0).expect("a cluster has under 2^16 servers; the region map is checked")
}

/// What `peer` writes its messages into.
pub(crate) fn inbox(peer: ServerId) -> MemoryKey {
    key(INBOX, 0, 0, peer_bits(peer))
}

/// What `peer` writes segments into.
pub(crate) fn landing(peer: ServerId) -> MemoryKey {
    key(LANDING, 0, 0, peer_bits(peer))
}

/// One slot of the windows of a region's log.
pub(crate) fn window(region: RegionId, log: LogId, slot: usize) -> MemoryKey {
    let slot = u16::try_from(slot).expect("a log has a handful of window slots");
    key(WINDOW, region.0, log.raw(), slot)
}

/// What says that this server's copy of a region is whole. It goes the way of the windows.
pub(crate) const fn whole(region: RegionId) -> MemoryKey {
    key(WINDOW, region.0, WHOLE, 0)
}

/// What says that this server has stopped and owes nothing.
pub(crate) const fn stopped() -> MemoryKey {
    key(STOPPED, 0, 0, 0)
}

/// The names of all windows of a region, and of the mark beside them.
pub(crate) const fn windows_of(region: RegionId) -> RangeInclusive<u64> {
    let first = key(WINDOW, region.0, 0, 0).0;
    first..=first | 0xff_ffff
}

/// Whether a surviving memory of this name is a window, of whichever region.
pub(crate) const fn is_window(name: u64) -> bool {
    name >> 56 == WINDOW
}

/// Whether a memory of this name is a window of a log, and not the mark beside it.
#[must_use]
pub const fn is_log_window(name: u64) -> bool {
    is_window(name) && name >> 16 & 0xff != WHOLE as u64
}

/// From which byte on whoever reads the memory of this name checks what a peer wrote there, before it is believed.
/// `None` for windows: what a writer counts as written lies there as it was written, or the member is damaged.
#[must_use]
pub const fn checked_from(key: MemoryKey) -> Option<usize> {
    match key.0 >> 56 {
        INBOX => Some(super::inbox::RING),
        LANDING => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_memories_share_a_name() {
        let mut names = vec![stopped().0];
        for server in [0, 1, 65_535] {
            names.push(inbox(ServerId(server)).0);
            names.push(landing(ServerId(server)).0);
        }
        for region in [1, u32::MAX] {
            for log in LogId::all() {
                for slot in 0..3 {
                    let name = window(RegionId(region), log, slot).0;
                    assert!(is_window(name) && is_log_window(name));
                    names.push(name);
                }
            }
            let mark = whole(RegionId(region)).0;
            assert!(is_window(mark) && !is_log_window(mark));
            names.push(mark);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
