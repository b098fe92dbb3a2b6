//! The suite that every engine passes, over every placement of values and over random settings.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use argosy_base::AddressMode;
use argosy_engine::conformance::{self, Choices, Mixture};
use argosy_lsm::{Placement, Settings};
use common::{Machine, random_settings, tiny, tiny_whole};

/// Segments of the test's device: enough that nothing is ever full.
const SEGMENTS: u64 = 4096;

fn suite(placement: Placement, addresses: AddressMode) {
    suite_with(Settings {
        placement,
        addresses,
        ..tiny()
    });
}

fn suite_with(settings: Settings) {
    let mut seed = 0;
    let make = || {
        seed += 1;
        Machine::new(settings.clone(), SEGMENTS, seed)
    };
    conformance::run(make, 6000, 11);
}

#[test]
fn hybrid() {
    suite(Placement::Hybrid, AddressMode::Logical);
}

#[test]
fn in_place() {
    suite(Placement::InPlace, AddressMode::Logical);
}

#[test]
fn separated() {
    suite(Placement::Separated, AddressMode::Logical);
}

#[test]
fn separated_by_place() {
    suite(Placement::Separated, AddressMode::Rewrite);
}

#[test]
fn whole_levels() {
    suite_with(tiny_whole());
}

#[test]
fn random_settings_and_histories() {
    for seed in 0..24 {
        let mut choices = Choices::new(seed);
        let settings = random_settings(&mut choices);
        let mixtures = [Mixture::SMALL, Mixture::MIXED, Mixture::OVERWRITES];
        let mixture = mixtures[usize::try_from(choices.below(3)).unwrap()];
        let mut machine = Machine::new(settings, SEGMENTS, seed);
        conformance::random(&mut machine, mixture, 2500, seed);
    }
}
