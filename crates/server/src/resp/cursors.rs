//! What a `SCAN` cursor means. Clients want a 64-bit number, and a number cannot hold a key: a table
//! remembers for each cursor handed out at which key the scan goes on.
//!
//! ```text
//! cursor := 0: u1  stamp: u23  count: u40        never 0, which begins and ends a scan
//! ```
//!
//! The table is bounded, and the cursor that was used least recently is forgotten first. A cursor
//! that is not in the table is refused and the client told to begin again: it is never taken for
//! another position, so no key is skipped silently. That holds across restarts and servers too,
//! since the stamp is made of the server's number and incarnation, and of a random number of its start:
//! on a new device incarnations begin anew.

use std::collections::BTreeMap;

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{Incarnation, ServerId};

/// Most cursors that are remembered.
pub const CURSORS_MAX: usize = 64 << 10;

/// Most bytes of keys that are remembered.
pub const CURSOR_BYTES_MAX: usize = 8 << 20;

const COUNT_BITS: u32 = 40;
const STAMP_BITS: u32 = 23;

const _: () = assert!(CURSOR_BYTES_MAX > KEY_BYTES_MAX + 1, "one key always fits");

/// The cursors of one server.
#[derive(Debug)]
pub struct Cursors {
    stamp: u64,
    count: u64,
    /// Per cursor the key to go on at, and when it was used last.
    keys: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Per use the cursor, the longest unused first.
    uses: BTreeMap<u64, u64>,
    clock: u64,
    bytes: usize,
}

impl Cursors {
    /// No cursors yet; those of other servers and of earlier starts will not be taken for ours.
    #[must_use]
    pub fn new(server: ServerId, incarnation: Incarnation, random: u64) -> Self {
        let mut mixed = (u64::from(server.0) << 48) ^ incarnation.0 ^ random;
        // The finaliser of splitmix64: a bijection that spreads every bit over all.
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self {
            stamp: (mixed ^ (mixed >> 31)) >> (u64::BITS - STAMP_BITS),
            count: 0,
            keys: BTreeMap::new(),
            uses: BTreeMap::new(),
            clock: 0,
            bytes: 0,
        }
    }

    /// A new cursor for a scan that goes on at `key`.
    pub fn issue(&mut self, key: Vec<u8>) -> u64 {
        if self.count + 1 == 1 << COUNT_BITS {
            self.count = 0;
            self.stamp = (self.stamp + 1) & ((1 << STAMP_BITS) - 1);
        }
        self.count += 1;
        let cursor = self.stamp << COUNT_BITS | self.count;
        self.bytes += key.len();
        self.clock += 1;
        self.uses.insert(self.clock, cursor);
        self.keys.insert(cursor, (key, self.clock));
        while self.keys.len() > CURSORS_MAX || self.bytes > CURSOR_BYTES_MAX {
            self.forget_oldest();
        }
        cursor
    }

    /// The key at which the scan of `cursor` goes on, or `None` where the cursor is not known.
    pub fn resolve(&mut self, cursor: u64) -> Option<Vec<u8>> {
        let (key, used) = self.keys.get_mut(&cursor)?;
        self.uses.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.uses.insert(self.clock, cursor);
        Some(key.clone())
    }

    fn forget_oldest(&mut self) {
        let (_, oldest) = self.uses.pop_first().expect("over a bound, so not empty");
        let (key, _) = self.keys.remove(&oldest).expect("both maps hold the same");
        self.bytes -= key.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursors(server: u32, incarnation: u64) -> Cursors {
        Cursors::new(ServerId(server), Incarnation(incarnation), 0)
    }

    #[test]
    fn a_cursor_stands_for_its_key_as_often_as_it_is_asked() {
        let mut cursors = cursors(1, 1);
        let first = cursors.issue(b"a".to_vec());
        let second = cursors.issue(b"b".to_vec());
        assert_ne!(first, second);
        for _ in 0..2 {
            assert_eq!(cursors.resolve(first), Some(b"a".to_vec()));
            assert_eq!(cursors.resolve(second), Some(b"b".to_vec()));
        }
        assert_eq!(cursors.resolve(0), None);
    }

    #[test]
    fn the_least_recently_used_is_forgotten() {
        let mut cursors = cursors(1, 1);
        let kept = cursors.issue(b"kept".to_vec());
        let lost = cursors.issue(b"lost".to_vec());
        for _ in 0..CURSORS_MAX - 1 {
            cursors.resolve(kept);
            cursors.issue(b"more".to_vec());
        }
        assert_eq!(cursors.resolve(lost), None);
        assert_eq!(cursors.resolve(kept), Some(b"kept".to_vec()));
        assert_eq!(cursors.keys.len(), CURSORS_MAX);
        assert_eq!(cursors.uses.len(), CURSORS_MAX);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut cursors = cursors(1, 1);
        for _ in 0..2 * CURSOR_BYTES_MAX / KEY_BYTES_MAX {
            cursors.issue(vec![b'k'; KEY_BYTES_MAX]);
        }
        assert!(cursors.bytes <= CURSOR_BYTES_MAX);
        let held: usize = cursors.keys.values().map(|(key, _)| key.len()).sum();
        assert_eq!(held, cursors.bytes);
    }

    #[test]
    fn no_other_start_and_no_other_server_takes_a_cursor_for_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for server in 0..20 {
            for incarnation in 1..20 {
                seen.insert(cursors(server, incarnation).issue(b"k".to_vec()));
            }
        }
        // On a new device.
        let mut again = Cursors::new(ServerId(1), Incarnation(1), 0x5eed);
        assert!(!seen.contains(&again.issue(b"k".to_vec())));
        assert_eq!(seen.len(), 20 * 19);
        assert!(seen.iter().all(|cursor| *cursor > 0 && cursor >> 63 == 0));
    }
}
