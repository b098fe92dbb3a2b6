//! What has to be so before an answer may be given.

use argosy_base::Lsn;

/// What has to be so before an answer may be given. An engine says it, and whoever answers waits for it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitFor {
    /// Nothing.
    #[default]
    Nothing,
    /// Everything up to this LSN is committed (invariant I5).
    Committed(Lsn),
}

impl WaitFor {
    /// Everything up to `lsn` is committed. Of LSN 0, which no write has, nothing.
    #[must_use]
    pub const fn committed(lsn: Lsn) -> Self {
        match lsn {
            Lsn(0) => Self::Nothing,
            lsn => Self::Committed(lsn),
        }
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::committed(self.lsn().max(other.lsn()))
    }

    /// Whether it is so, once everything up to `committed` is committed.
    #[must_use]
    pub fn is_over(self, committed: Lsn) -> bool {
        self.lsn() <= committed
    }

    /// The LSN up to which everything has to be committed; 0 for [`Nothing`](Self::Nothing).
    #[must_use]
    pub const fn lsn(self) -> Lsn {
        match self {
            Self::Nothing => Lsn(0),
            Self::Committed(lsn) => lsn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_later_of_two() {
        let (early, late) = (WaitFor::committed(Lsn(3)), WaitFor::committed(Lsn(5)));
        assert_eq!(early.and(late), late);
        assert_eq!(late.and(WaitFor::Nothing), late);
        assert!(late.is_over(Lsn(5)) && !late.is_over(Lsn(4)));
        assert_eq!(WaitFor::committed(Lsn(0)), WaitFor::Nothing);
        assert!(WaitFor::Nothing.is_over(Lsn(0)));
    }
}
