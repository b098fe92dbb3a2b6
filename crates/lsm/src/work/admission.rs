//! How fast writers may go on while the background is behind.
//!
//! What the background has yet to do is a *debt*, and there are three: memtables wait to be flushed, L1 has more
//! runs than start a merge, or the region takes nearly as much space as it may. Each is told as a [`Share`] of the
//! way from where writers are to be slowed to where they would have to stop.
//!
//! 1. Without debt writers write as they like. With debt every byte that the background works off gives them a
//!    *credit* of some bytes: nobody has to know how much work a write makes, and there is no clock in it. The same
//!    history and the same steps admit the same writes.
//! 2. The more is owed, the less a byte is worth, by powers of two:
//!
//!    ```text
//!     debt in sevenths   0    1    2    3    4    5    6    7     8     ... 14
//!     credit             4    2    1   1/2  1/4  1/8  1/16 1/32  1/64       1/4096
//!    ```
//!
//!    So writers settle where a byte that they write makes as much work as it is paid for; a disturbance (a merge
//!    that takes long and frees nothing) moves them a little, and they never stop.
//! 3. The least credit counts, and gives the reason. Who writes without credit is sent away, and comes again when
//!    there is some. A write may take more than there is; what follows waits for it. One that is not taken for
//!    another reason costs nothing.
//!    A step in which the background can do nothing, because it waits itself, is worth a little, too: it makes
//!    one when it is woken, or has slept for some time.
//! 4. A background that has nothing to do asks for nothing, whatever the debt: it would not become less.

use argosy_engine::BusyReason;

/// How much is owed, in parts of [`Share::ALL`]; up to twice that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share(u32);

impl Share {
    /// As much as should ever be.
    pub(crate) const ALL: Self = Self(1024);

    /// How far `now` is on the way from `begin` to `end`, and beyond; at most twice as far.
    pub(crate) fn of(now: u64, begin: u64, end: u64) -> Self {
        let Some(way) = end.checked_sub(begin).filter(|way| *way > 0) else {
            return if now >= end { Self::ALL } else { Self(0) };
        };
        let gone = now.saturating_sub(begin);
        let parts = u128::from(gone) * u128::from(Self::ALL.0) / u128::from(way);
        Self(u32::try_from(parts).map_or(2 * Self::ALL.0, |parts| parts.min(2 * Self::ALL.0)))
    }
}

/// What is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Flushes, of memtables.
    pub(crate) memtables: Share,
    /// Merges, of L1.
    pub(crate) runs: Share,
    /// Garbage collection, of space that nothing lives in.
    pub(crate) space: Share,
}

impl Owed {
    /// The most of it, and what writers wait for then.
    fn most(&self) -> (Share, BusyReason) {
        let all = [
            (self.memtables, BusyReason::Memtable),
            (self.runs, BusyReason::CompactionDebt),
            (self.space, BusyReason::SpaceDebt),
        ];
        let most = all.into_iter().max_by_key(|(share, _)| *share);
        most.expect("there are three")
    }
}

/// What the background did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worked {
    /// Bytes that it worked off since it was last told.
    pub(crate) bytes: u64,
    /// It has more to do.
    pub(crate) has_more: bool,
}

/// Credit for a step of the background, in bytes, that could do nothing: what it waits for may wait for writes.
const TRICKLE: i64 = 4096;

/// Credit that is kept, in bytes.
const CREDIT_MAX: i64 = 1 << 20;

/// The credit for `worked` bytes at a debt of `share`: between powers of two on a straight line.
fn credit(worked: u64, share: Share) -> i64 {
    let (sevenths, into) = (share.0 * 7 / 1024, u64::from(share.0 * 7 % 1024));
    // From 4 down to 2 in the first seventh, and so on.
    let parts = 4 * 1024 - 2 * into;
    let earned = (u128::from(worked) * u128::from(parts)) >> (10 + sevenths);
    i64::try_from(earned).map_or(CREDIT_MAX, |earned| earned.min(CREDIT_MAX))
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Why writers need credit, if they do.
    limited: Option<BusyReason>,
    /// Bytes that may be written; below zero where a write took more.
    credit: i64,
}

impl Admission {
    /// The background has `worked` while so much was `owed`. Returns whether writers that were sent away have reason
    /// to come again.
    pub(crate) fn worked(&mut self, owed: &Owed, worked: Worked) -> bool {
        let (share, reason) = owed.most();
        let before = self.credit;
        if share == Share::default() || !worked.has_more {
            self.credit = self.credit.min(0);
            return self.limited.take().is_some();
        }
        self.limited = Some(reason);
        let earned = match worked.bytes {
            0 => TRICKLE,
            bytes => credit(bytes, share).max(1),
        };
        self.credit = before.saturating_add(earned).min(CREDIT_MAX);
        before <= 0 && self.credit > 0
    }

    /// Whether a write may be taken.
    ///
    /// # Errors
    /// Why there is no credit.
    pub(crate) fn admit(&self) -> Result<(), BusyReason> {
        match self.limited {
            Some(reason) if self.credit <= 0 => Err(reason),
            _ => Ok(()),
        }
    }

    /// A write of so many bytes was taken.
    pub(crate) fn admitted(&mut self, bytes: usize) {
        if self.limited.is_some() {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
