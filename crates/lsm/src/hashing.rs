//! How the cache's keys are hashed: with the same result on every machine and in every run.

use std::hash::{BuildHasher, Hasher};

/// Makes hashers that answer the same on every machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(0)
    }
}

/// Folds words by a wide multiplication. Keys are numbers that no user chooses, so no defence
/// against chosen collisions is needed.
pub(crate) struct Mixer(u64);

impl Mixer {
    #[inline]
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        let (low, high) = (wide & u128::from(u64::MAX), wide >> 64);
        // Both halves have 64 bits.
        self.0 = u64::try_from(low ^ high).unwrap_or_default();
    }
}

impl Hasher for Mixer {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    #[inline]
    fn write_isize(&mut self, value: isize) {
        // The discriminant of an enum.
        self.mix(value.unsigned_abs() as u64);
    }
}
