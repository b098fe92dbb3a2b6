//! Writes that a device says it has done, and has done at another place.

use argosy_base::limits::BLOCK_SIZE;

use super::MemoryDevice;

/// A write that landed elsewhere; the right place kept what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misdirected {
    /// Where it should have begun, in bytes.
    pub at: u64,
    /// Where it began.
    pub landed: u64,
    /// Bytes of it.
    pub len: usize,
}

/// Where a write lands instead.
#[derive(Clone, Copy, Debug)]
enum Landing {
    /// So many bytes from where it should.
    By(i64),
    /// At this byte of the device.
    At(u64),
}

/// Which write lands elsewhere, or did.
#[derive(Debug, Default)]
pub(super) struct Misdirect {
    /// How many more land where they should before one does not, and where it does.
    planned: Option<(u64, Landing)>,
    done: Option<Misdirected>,
}

impl Misdirect {
    fn plan(&mut self, count: u64, landing: Landing) {
        let (bytes, moved) = match landing {
            Landing::By(by) => (by.unsigned_abs(), by != 0),
            Landing::At(at) => (at, true),
        };
        let blocks = bytes.is_multiple_of(BLOCK_SIZE as u64);
        assert!(blocks && moved, "it lands whole blocks away");
        self.planned = Some((count, landing));
    }

    const fn done(&self) -> Option<Misdirected> {
        self.done
    }

    /// Where a write of `len` bytes at `at` lands on a device of `device_len`.
    pub(super) fn landing(&mut self, device_len: u64, at: u64, len: usize) -> u64 {
        match &mut self.planned {
            None => at,
            Some((0, landing)) => {
                let places = device_len - len as u64 + BLOCK_SIZE as u64;
                let to = match landing {
                    Landing::By(by) => at.wrapping_add_signed(*by),
                    Landing::At(to) => *to,
                };
                let landed = to % places;
                self.planned = None;
                self.done = Some(Misdirected { at, landed, len });
                landed
            }
            Some((count, _)) => {
                *count -= 1;
                at
            }
        }
    }
}

impl MemoryDevice {
    /// Lets `count` more writes land where they should; the one after them lands `by` bytes further on,
    /// wrapped at the device's end, and nobody is told.
    ///
    /// # Panics
    /// Unless `by` is whole blocks, and not none.
    pub fn misdirect_after(&self, count: u64, by: i64) {
        self.state().faults.misdirect.plan(count, Landing::By(by));
    }

    /// The same, but that it lands at byte `to`, wherever it should.
    ///
    /// # Panics
    /// Unless `to` is where a block begins.
    pub fn misdirect_to_after(&self, count: u64, to: u64) {
        self.state().faults.misdirect.plan(count, Landing::At(to));
    }

    /// The write that landed elsewhere, if one has.
    #[must_use]
    pub fn misdirected(&self) -> Option<Misdirected> {
        self.state().faults.misdirect.done()
    }

    /// Where the blocks begin in which something is stored, in bytes of the device, rising.
    #[must_use]
    pub fn stored_blocks(&self) -> Vec<u64> {
        let state = self.state();
        let blocks = state.blocks.keys();
        blocks.map(|index| index * BLOCK_SIZE as u64).collect()
    }
}
