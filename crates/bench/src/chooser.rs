//! Which record an operation is about.
//!
//! The distributions are those of the YCSB paper and its generators:
//!
//! - *uniform*: every record alike.
//! - *zipf*: rank `r` with weight `1 / r^0.99`, by the constant-time method of Gray et al. ("Quickly
//!   generating billion-record synthetic databases", 1994). The ranks are drawn from ten billion
//!   items, hashed by FNV-1 over their eight bytes and reduced modulo the number of records, so
//!   that popular records lie scattered and growing the data does not move them.
//! - *latest*: the newest record that is surely there is the most popular, with the same weights
//!   over as many ranks as there are records.

use crate::rng::Rng;

/// The skew of every zipf distribution here.
const THETA: f64 = 0.99;

/// Ranks from which the scrambled distribution draws, and the sum of their weights.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// A distribution over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Every record alike.
    Uniform,
    /// A few records very often, scattered over the key space.
    Zipf,
    /// The newest records most often.
    Latest,
}

impl Distribution {
    /// The distribution's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Latest => "latest",
        }
    }
}

/// Draws ranks from 0, the most popular, to `items - 1`.
#[derive(Clone, Debug)]
struct Ranks {
    items: u64,
    zeta: f64,
    eta: f64,
    alpha: f64,
}

impl Ranks {
    fn new(items: u64, zeta: f64) -> Self {
        assert!(items > 0, "there is a record to choose");
        let zeta2 = 1.0 + 0.5_f64.powf(THETA);
        Self {
            items,
            zeta,
            eta: (1.0 - (2.0 / float(items)).powf(1.0 - THETA)) / (1.0 - zeta2 / zeta),
            alpha: 1.0 / (1.0 - THETA),
        }
    }

    /// Draws from `items` from now on, if that is more than before.
    fn grow(&mut self, items: u64) {
        if items > self.items {
            *self = Self::new(items, self.zeta + zeta(self.items, items));
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is not negative, and what is cut off is the fraction"
    )]
    fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1.min(self.items - 1);
        }
        let rank = float(self.items) * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// Chooses records for one client.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    records: u64,
    ranks: Ranks,
}

impl Chooser {
    /// A chooser among `records` records, which is at least one. For the latest, takes time by how
    /// many there are: make one and clone it.
    #[must_use]
    pub fn new(distribution: Distribution, records: u64) -> Self {
        let ranks = match distribution {
            Distribution::Latest => Ranks::new(records, zeta(0, records)),
            _ => Ranks::new(SCRAMBLED_ITEMS, SCRAMBLED_ZETA),
        };
        Self {
            distribution,
            records,
            ranks,
        }
    }

    /// The next record. It is below the number of records; of the latest, below `present()`, the
    /// number of records that are surely there by now.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng, present: impl FnOnce() -> u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => rng.below(self.records),
            Distribution::Zipf => fnv(self.ranks.draw(rng)) % self.records,
            Distribution::Latest => {
                let newest = present().max(1) - 1;
                self.ranks.grow(newest + 1);
                newest - self.ranks.draw(rng) % (newest + 1)
            }
        }
    }
}

/// The sum of the weights of ranks `from..to`.
fn zeta(from: u64, to: u64) -> f64 {
    (from..to)
        .map(|rank| 1.0 / float(rank + 1).powf(THETA))
        .sum()
}

/// FNV-1 over the eight bytes of `x`, lowest first, without its sign as the YCSB generator has it.
fn fnv(x: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for octet in x.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.cast_signed().unsigned_abs()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of records stay far below 2^53"
)]
const fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// How often each record is drawn in `draws` draws, the most frequent first.
    fn frequencies(distribution: Distribution, records: u64, draws: u64) -> Vec<(u64, u64)> {
        let mut chooser = Chooser::new(distribution, records);
        let mut rng = Rng::new(42, 0);
        let mut counts = BTreeMap::new();
        for _ in 0..draws {
            *counts
                .entry(chooser.next(&mut rng, || records))
                .or_insert(0_u64) += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        counts
    }

    #[test]
    fn zipf_gives_the_weights_of_the_definition() {
        let counts = frequencies(Distribution::Zipf, 1_000_000, 200_000);
        // Rank 1 has 1 / zeta = 3.78 % of the draws and rank 2 half of that, give or take.
        let (first, second) = (counts[0].1, counts[1].1);
        assert!((7_200..7_950).contains(&first), "{first}");
        assert!((3_500..4_100).contains(&second), "{second}");
        assert_eq!(counts[0].0, fnv(0) % 1_000_000);
        assert_eq!(counts[1].0, fnv(1) % 1_000_000);
    }

    #[test]
    fn latest_prefers_the_newest_record() {
        let counts = frequencies(Distribution::Latest, 1000, 100_000);
        assert_eq!((counts[0].0, counts[1].0), (999, 998));
        assert!(counts.iter().all(|&(record, _)| record < 1000));
    }

    #[test]
    fn latest_never_asks_for_what_is_not_there_and_follows_what_comes() {
        let mut chooser = Chooser::new(Distribution::Latest, 100);
        let mut rng = Rng::new(42, 0);
        for present in (0..100).chain(50..5_000).chain([60, 2]) {
            let mut newest = 0;
            for _ in 0..20 {
                let record = chooser.next(&mut rng, || present);
                assert!(record < present.max(1), "{record} of {present}");
                newest = newest.max(record);
            }
            // Of twenty draws one hits the newest hundredth but for once in many thousand times.
            assert!(newest >= present / 2, "{newest} of {present}");
        }
        let grown = Ranks::new(5_000, zeta(0, 5_000));
        assert_eq!(chooser.ranks.items, grown.items - 1);
        assert!((chooser.ranks.zeta + 1.0 / 5_000_f64.powf(THETA) - grown.zeta).abs() < 1e-9);
    }

    #[test]
    fn uniform_favours_nobody() {
        let counts = frequencies(Distribution::Uniform, 10, 100_000);
        assert_eq!(counts.len(), 10);
        assert!(counts.iter().all(|&(_, n)| (9_500..10_500).contains(&n)));
    }

    #[test]
    fn one_record_can_be_chosen_from() {
        for distribution in [
            Distribution::Uniform,
            Distribution::Zipf,
            Distribution::Latest,
        ] {
            let mut chooser = Chooser::new(distribution, 1);
            assert_eq!(chooser.next(&mut Rng::new(3, 0), || 1), 0);
        }
    }

    #[test]
    fn the_sum_of_weights_is_the_published_one() {
        // The first million ranks of the ten billion carry most of it; the integral bounds the rest.
        let head = zeta(0, 1_000_000);
        let tail = (float(SCRAMBLED_ITEMS).powf(0.01) - 1e6_f64.powf(0.01)) / 0.01;
        assert!((head + tail - SCRAMBLED_ZETA).abs() < 1e-3, "{head} {tail}");
    }
}
