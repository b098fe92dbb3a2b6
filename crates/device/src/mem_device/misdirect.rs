//! Writes that a device says it has done, and has done at another place.

use argosy_base::limits::BLOCK_SIZE;

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

/// Which write lands elsewhere, or did.
#[derive(Debug, Default)]
pub(super) struct Misdirect {
    /// How many more land where they should before one does not, and how far from there it does.
    planned: Option<(u64, i64)>,
    done: Option<Misdirected>,
}

impl Misdirect {
    pub(super) fn plan(&mut self, count: u64, by: i64) {
        assert!(
            by != 0 && by.unsigned_abs().is_multiple_of(BLOCK_SIZE as u64),
            "it lands whole blocks away"
        );
        self.planned = Some((count, by));
    }

    pub(super) const fn done(&self) -> Option<Misdirected> {
        self.done
    }

    /// Where a write of `len` bytes at `at` lands on a device of `device_len`.
    pub(super) fn landing(&mut self, device_len: u64, at: u64, len: usize) -> u64 {
        match &mut self.planned {
            None => at,
            Some((0, by)) => {
                let places = device_len - len as u64 + BLOCK_SIZE as u64;
                let landed = at.wrapping_add_signed(*by) % places;
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
