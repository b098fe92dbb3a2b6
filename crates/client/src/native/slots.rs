//! Room for replies: pieces of the reply buffer, taken and given back in any order.
//!
//! The free pieces are kept in their order, and neighbours joined; a slot is taken from the front of
//! the first piece that is long enough, from where the last one was taken.

use argosy_wire::native::{HEADER_BYTES, Slot};

/// The free pieces of a reply buffer.
#[derive(Debug)]
pub(super) struct Slots {
    /// Begin and length of each, in rising order, never touching.
    free: Vec<(usize, usize)>,
    /// Where to look first.
    next: usize,
}

impl Slots {
    /// All of a buffer of `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            free: vec![(0, bytes)],
            next: 0,
        }
    }

    /// A slot of at least `bytes`, if there is one.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Slot> {
        let bytes = bytes.max(Slot::BYTES_MIN).next_multiple_of(HEADER_BYTES);
        let pieces = self.free.len();
        let first = self.next.min(pieces);
        let at = (first..pieces)
            .chain(0..first)
            .find(|at| self.free[*at].1 >= bytes)?;
        let (offset, len) = self.free[at];
        if len == bytes {
            self.free.remove(at);
        } else {
            self.free[at] = (offset + bytes, len - bytes);
        }
        self.next = at;
        Some(Slot { offset, bytes })
    }

    /// Takes a slot back.
    pub(super) fn give_back(&mut self, slot: Slot) {
        let at = self
            .free
            .partition_point(|(offset, _)| *offset < slot.offset);
        let joins_next = self
            .free
            .get(at)
            .is_some_and(|(offset, _)| slot.offset + slot.bytes == *offset);
        let joins_last = at > 0 && {
            let (offset, len) = self.free[at - 1];
            offset + len == slot.offset
        };
        match (joins_last, joins_next) {
            (true, true) => {
                let (_, len) = self.free.remove(at);
                self.free[at - 1].1 += slot.bytes + len;
            }
            (true, false) => self.free[at - 1].1 += slot.bytes,
            (false, true) => {
                let len = self.free[at].1;
                self.free[at] = (slot.offset, slot.bytes + len);
            }
            (false, false) => self.free.insert(at, (slot.offset, slot.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_buffer_is_used_up_and_is_whole_again() {
        let mut slots = Slots::new(256);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(64)).collect();
        assert_eq!(taken.len(), 4);
        for at in [2, 0, 3, 1] {
            slots.give_back(taken[at]);
        }
        assert_eq!(slots.free, [(0, 256)]);
        assert_eq!(slots.take(257), None);
    }

    proptest! {
        #[test]
        fn slots_never_overlap(steps in proptest::collection::vec((any::<bool>(), 1usize..900), 1..200)) {
            let mut slots = Slots::new(8192);
            let mut taken: Vec<Slot> = Vec::new();
            for (take, number) in steps {
                if take {
                    if let Some(slot) = slots.take(number) {
                        prop_assert!(slot.bytes >= number && slot.offset + slot.bytes <= 8192);
                        let apart = |other: &Slot| other.offset + other.bytes <= slot.offset
                            || slot.offset + slot.bytes <= other.offset;
                        prop_assert!(taken.iter().all(apart));
                        taken.push(slot);
                    }
                } else if !taken.is_empty() {
                    slots.give_back(taken.swap_remove(number % taken.len()));
                }
                let free: usize = slots.free.iter().map(|(_, len)| len).sum();
                let used: usize = taken.iter().map(|slot| slot.bytes).sum();
                prop_assert_eq!(free + used, 8192);
            }
        }
    }
}
