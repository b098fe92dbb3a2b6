//! Random numbers from a seed: SplitMix64. Each part of a run has a stream of its own, so that a
//! change in one does not shift what the others draw.

use std::time::Duration;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `seed` that is kept for `part`.
    #[must_use]
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let mut first = Self(seed);
        let mixed = first.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mut second = Self(mixed);
        second.next();
        second
    }

    /// The next number, of all 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).expect("it is below a usize")
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which are not none.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// An index by weight; not all weights are 0.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the number is below the sum")
    }

    /// A span from `low` to `high`, in microseconds.
    pub(crate) fn micros(&mut self, low: usize, high: usize) -> Duration {
        Duration::from_micros(self.between(low, high) as u64)
    }

    /// Puts `items` in a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |seed, part| {
            let mut random = Random::new(seed, part);
            [random.next(), random.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let mut random = Random::new(5, 0);
        let mut drawn = [0; 4];
        for _ in 0..1000 {
            drawn[random.weighted(&[1, 0, 8, 1])] += 1;
        }
        assert_eq!(drawn[1], 0);
        assert!(drawn[2] > drawn[0] && drawn[0] > 0 && drawn[3] > 0);
    }
}
