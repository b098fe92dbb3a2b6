//! Random numbers from a seed, the same on every machine.
//!
//! [`mix`] is a bijection of 64-bit numbers whose output bits all depend on all input bits
//! (multiply, shift, exclusive-or, three rounds). [`Rng`] counts up by an odd constant and mixes
//! the counter, so any two seeds give unrelated sequences and a sequence never repeats early.

/// Step of the counter: the odd number nearest to 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of `x`. A bijection, so equal outputs mean equal inputs.
#[inline]
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number that [`mix`] makes `x` of.
#[must_use]
pub const fn unmix(x: u64) -> u64 {
    // The steps of `mix` backwards: the inverse of each shift, and of each factor modulo 2^64.
    let x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of `seed`; `stream` tells apart the sequences of, say, several clients.
    #[must_use]
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(STEP))))
    }

    /// The next number.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, each about equally likely (the error is at most `bound / 2^64`).
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "nothing is below zero");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the high half of a product is under 2^64")
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what the number has"
    )]
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_streams_differ() {
        let take = |mut rng: Rng| -> Vec<u64> { (0..8).map(|_| rng.next_u64()).collect() };
        assert_eq!(take(Rng::new(1, 0)), take(Rng::new(1, 0)));
        assert_ne!(take(Rng::new(1, 0)), take(Rng::new(1, 1)));
        assert_ne!(take(Rng::new(1, 0)), take(Rng::new(2, 0)));
    }

    #[test]
    fn mixing_can_be_undone() {
        let mut rng = Rng::new(1, 0);
        for x in (0..1000).flat_map(|small| [small, rng.next_u64()]) {
            assert_eq!(unmix(mix(x)), x);
            assert_eq!(mix(unmix(x)), x);
        }
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut rng = Rng::new(7, 0);
        let mut seen = [0_u32; 6];
        for _ in 0..6000 {
            seen[usize::try_from(rng.below(6)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
    }
}
