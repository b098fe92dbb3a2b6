//! How long leases and promises last: all arithmetic of drift is here.
//!
//! 1. The *term* is a span of true time, the same for the whole cluster.
//! 2. A clock drifts by at most `drift_ppm`: while true time goes on by a span `s`, it goes on by something between
//!    `s(1 - d)` and `s(1 + d)`, where `d` is `drift_ppm` millionths.
//! 3. A lease lasts for `term(1 - d)` on the holder's clock, rounded down: less than a term of true time.
//!    A promise lasts for `term(1 + d)` on the granter's clock, rounded up: a term of true time at least.
//!
//! Each side reckons with the drift of its own clock alone, so only the term has to be the same on both.
//!
//! Invariants: `TERM_MIN <= term <= TERM_MAX` and `drift_ppm <= DRIFT_PPM_MAX`. So a lease is never empty,
//! and no product overflows: an hour is below 2^42 nanoseconds, and the factor is below 2^21.

use core::fmt;
use core::time::Duration;

/// The shortest term. Renewals that are a third of it apart are still far longer than a round trip.
pub const TERM_MIN: Duration = Duration::from_millis(1);

/// The longest term. A region whose primary is lost stays closed for so long.
pub const TERM_MAX: Duration = Duration::from_secs(3600);

/// The largest drift that can be set: a tenth. A quartz keeps within 200.
pub const DRIFT_PPM_MAX: u32 = 100_000;

const MILLION: u64 = 1_000_000;

const _: () = assert!(TERM_MAX.as_nanos() < 1 << 42);
const _: () = assert!(MILLION + (DRIFT_PPM_MAX as u64) < 1 << 21);

/// The term of leases, and the bound of drift. See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    term_nanos: u64,
    drift_ppm: u32,
}

/// Why terms cannot be used: the setting has to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermsError {
    /// The term is not between [`TERM_MIN`] and [`TERM_MAX`].
    Term(Duration),
    /// The drift is above [`DRIFT_PPM_MAX`].
    Drift(u32),
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Term(term) => write!(
                f,
                "a lease of {term:?} is not between {TERM_MIN:?} and {TERM_MAX:?}"
            ),
            Self::Drift(ppm) => write!(
                f,
                "a drift of {ppm} millionths is above {DRIFT_PPM_MAX} millionths"
            ),
        }
    }
}

impl core::error::Error for TermsError {}

impl LeaseTerms {
    /// Leases of `term`, on clocks that drift by at most `drift_ppm` millionths.
    ///
    /// # Errors
    ///
    /// Where one of them is out of bounds.
    pub fn new(term: Duration, drift_ppm: u32) -> Result<Self, TermsError> {
        if !(TERM_MIN..=TERM_MAX).contains(&term) {
            return Err(TermsError::Term(term));
        }
        if drift_ppm > DRIFT_PPM_MAX {
            return Err(TermsError::Drift(drift_ppm));
        }
        let term_nanos = u64::try_from(term.as_nanos()).map_err(|_| TermsError::Term(term))?;
        Ok(Self {
            term_nanos,
            drift_ppm,
        })
    }

    /// The term: a span of true time.
    #[must_use]
    pub const fn term(self) -> Duration {
        Duration::from_nanos(self.term_nanos)
    }

    /// The bound of each clock's drift, in millionths.
    #[must_use]
    pub const fn drift_ppm(self) -> u32 {
        self.drift_ppm
    }

    /// How long a lease lasts on its holder's clock. Rounded down.
    #[must_use]
    pub const fn lease(self) -> Duration {
        let factor = MILLION - self.drift_ppm as u64;
        Duration::from_nanos(self.term_nanos * factor / MILLION)
    }

    /// How long a promise lasts on the granter's clock. Rounded up.
    #[must_use]
    pub const fn promise(self) -> Duration {
        let factor = MILLION + self.drift_ppm as u64;
        Duration::from_nanos((self.term_nanos * factor).div_ceil(MILLION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_kept() {
        let long = TERM_MAX + Duration::from_nanos(1);
        let short = TERM_MIN - Duration::from_nanos(1);
        assert_eq!(LeaseTerms::new(long, 0), Err(TermsError::Term(long)));
        assert_eq!(LeaseTerms::new(short, 0), Err(TermsError::Term(short)));
        let drift = DRIFT_PPM_MAX + 1;
        assert_eq!(
            LeaseTerms::new(TERM_MIN, drift),
            Err(TermsError::Drift(drift))
        );
        let most = LeaseTerms::new(TERM_MAX, DRIFT_PPM_MAX).expect("within the bounds");
        assert_eq!(most.lease(), Duration::from_secs(3240));
        assert_eq!(most.promise(), Duration::from_secs(3960));
    }

    /// A nanosecond that does not divide goes to the promise, and is taken from the lease.
    #[test]
    fn leases_are_rounded_down_and_promises_up() {
        let odd = Duration::from_nanos(1_000_001);
        let terms = LeaseTerms::new(odd, 1).expect("within the bounds");
        assert_eq!(terms.lease().as_nanos(), 999_999);
        assert_eq!(terms.promise().as_nanos(), 1_000_003);
        let none = LeaseTerms::new(odd, 0).expect("within the bounds");
        assert_eq!([none.lease(), none.promise()], [odd, odd]);
    }
}
