//! Wakes the background of a region at rest once reads may have given it something to do.
//!
//! Reads trigger merges, and what they have spent is looked at by the background. That of a region at rest is stepped
//! by nobody, so the first read that counts has to wake it. What is read while it goes to rest may be missed: then the
//! next read wakes it.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_device::Waker;

/// See the module documentation.
#[derive(Default)]
pub struct Rouser {
    /// The background rests until it is woken.
    at_rest: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Rouser {
    /// Whom to wake. Set once; without one nobody rests.
    pub(crate) fn set_waker(&self, waker: Waker) {
        // As with the region's own waker, the first stays.
        let _ = self.waker.set(waker);
    }

    /// From now on the background rests: the next read that counts wakes it.
    pub(crate) fn rest(&self) {
        self.at_rest.store(true, Ordering::Relaxed);
    }

    /// A read did something that counts.
    #[inline]
    pub(crate) fn note_read(&self) {
        if self.at_rest.load(Ordering::Relaxed) {
            self.rouse();
        }
    }

    #[cold]
    fn rouse(&self) {
        if self.at_rest.swap(false, Ordering::Relaxed)
            && let Some(waker) = self.waker.get()
        {
            waker();
        }
    }
}

impl fmt::Debug for Rouser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_rest = self.at_rest.load(Ordering::Relaxed);
        f.debug_struct("Rouser").field("at_rest", &at_rest).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn one_read_wakes_who_rests() {
        let rouser = Rouser::default();
        let woken = Arc::new(AtomicU64::new(0));
        rouser.set_waker({
            let woken = Arc::clone(&woken);
            Arc::new(move || _ = woken.fetch_add(1, Ordering::Relaxed))
        });
        for rests in 0..3 {
            assert_eq!(woken.load(Ordering::Relaxed), rests);
            rouser.rest();
            (0..3).for_each(|_| rouser.note_read());
        }
        assert_eq!(woken.load(Ordering::Relaxed), 3);
    }
}
