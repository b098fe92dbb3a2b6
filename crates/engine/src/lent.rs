//! Lends to the cache what another part of the memory budget does not take.
//!
//! Parts that are there for bursts, as what clients send and are sent, are empty most of the time. A cache that is
//! made larger by such a part is charged what is *kept* for it: what it takes, rounded up, and a step ahead. Whoever
//! has taken more says so at once. The step ahead covers what is taken until then, and the cache gives way to the next
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cache::{Cache, Charge};

/// What is kept moves by such a part of the share.
const STEPS: usize = 32;

/// A part of the budget that the cache has while nobody takes it.
#[derive(Debug)]
pub struct Lent {
    /// Most bytes that are lent.
    share: usize,
    /// Bytes by which what is kept moves.
    step: usize,
    /// Bytes that are kept, as they were charged last.
    kept: AtomicUsize,
    charge: Mutex<Charge>,
}

impl Lent {
    /// A part of `share` bytes, of which nothing is taken, and by which the budget of `cache` is larger.
    #[must_use]
    pub fn new(cache: Arc<dyn Cache>, share: usize) -> Self {
        let lent = Self {
            share,
            step: (share / STEPS).max(1),
            kept: AtomicUsize::new(0),
            charge: Mutex::new(Charge::of(cache)),
        };
        lent.keep(&|| 0);
        lent
    }

    /// Bytes that the cache has of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.share - self.kept.load(Ordering::Relaxed)
    }

    /// To be called whenever what is taken has changed, which `taken` tells.
    #[inline]
    pub fn follow(&self, taken: impl Fn() -> usize) {
        if self.is_off(taken()) {
            self.keep(&taken);
        }
    }

    /// Whether something else is to be kept. What is kept is given back later than it was taken, so that it does not
    /// go to and fro.
    #[inline]
    fn is_off(&self, taken: usize) -> bool {
        // Relaxed: whoever changes what is taken looks afterwards, and `keep` looks under its lock.
        let kept = self.kept.load(Ordering::Relaxed);
        kept < taken.min(self.share) || self.wanted(taken) + self.step < kept
    }

    fn wanted(&self, taken: usize) -> usize {
        let steps = taken.div_ceil(self.step) + 1;
        (steps * self.step).min(self.share)
    }

    #[cold]
    fn keep(&self, taken: &impl Fn() -> usize) {
        let charge = self.charge.lock();
        // Others may have changed it meanwhile.
        let wanted = self.wanted(taken());
        charge.set(wanted);
        self.kept.store(wanted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CacheStats;

    /// Counts how often it was charged anew.
    #[derive(Debug, Default)]
    struct Counting {
        charges: AtomicUsize,
        charged: AtomicUsize,
    }

    impl Cache for Counting {
        fn charge(&self, charged: &AtomicUsize, bytes: usize) {
            self.charges.fetch_add(1, Ordering::Relaxed);
            self.charged.store(bytes, Ordering::Relaxed);
            charged.store(bytes, Ordering::Relaxed);
        }

        fn gives_at_most(&self) -> usize {
            usize::MAX
        }

        fn stats(&self) -> CacheStats {
            CacheStats::default()
        }
    }

    #[test]
    fn the_cache_has_what_nobody_takes() {
        let cache = Arc::new(Counting::default());
        let lent = Lent::new(Arc::<Counting>::clone(&cache), 3200);
        let charged = || cache.charged.load(Ordering::Relaxed);
        assert_eq!((charged(), lent.bytes()), (100, 3100), "a step ahead");
        for taken in (0..=3300).chain((0..=3300).rev()) {
            lent.follow(|| taken);
            assert!(charged() >= taken.min(3200), "{taken}");
            assert!(charged() <= (taken + 300).min(3200), "{taken}");
            assert_eq!(lent.bytes(), 3200 - charged());
        }
        let charges = cache.charges.load(Ordering::Relaxed);
        assert!(charges < 4 * STEPS, "{charges} for 6600 changes");
        let before = cache.charges.load(Ordering::Relaxed);
        for taken in [100, 101].into_iter().cycle().take(100) {
            lent.follow(|| taken);
        }
        let charges = cache.charges.load(Ordering::Relaxed) - before;
        assert!(charges <= 1, "to and fro: {charges}");
    }

    #[test]
    fn what_several_threads_take_is_kept_in_the_end() {
        let cache = Arc::new(Counting::default());
        let lent = Lent::new(Arc::<Counting>::clone(&cache), 1 << 20);
        let taken = AtomicUsize::new(0);
        let read = || taken.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        taken.fetch_add(200, Ordering::Relaxed);
                        lent.follow(read);
                    }
                });
            }
        });
        assert!(cache.charged.load(Ordering::Relaxed) >= 800_000);
        assert_eq!(
            lent.bytes(),
            (1 << 20) - cache.charged.load(Ordering::Relaxed)
        );
    }
}
