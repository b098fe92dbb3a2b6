//! The suite that every engine passes, over every placement of values and over random settings.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::sorted::bulk_load;
use crate::common::wall::Wall;
use crate::common::{Machine, random_settings, tiny, tiny_whole};
use argosy_base::{AddressMode, Clock, Moment};
use argosy_engine::conformance::{self, Choices, FullHost, Host, Mixture};
use argosy_lsm::{Lsm, Placement, Settings};

/// Segments of the test's device: enough that nothing is ever full.
const SEGMENTS: u64 = 4096;

/// A machine with a clock.
struct Clocked {
    machine: Machine,
    wall: Arc<Wall>,
}

impl Clocked {
    fn new(settings: Settings, seed: u64) -> Self {
        Self {
            machine: Machine::new(settings, SEGMENTS, seed),
            wall: Arc::default(),
        }
    }
}

impl Host for Clocked {
    type Engine = Lsm;

    fn open(&mut self) -> Lsm {
        let engine = self.machine.open();
        engine.set_clock(Arc::clone(&self.wall) as Arc<dyn Clock>);
        engine
    }

    fn step(&mut self, engine: &Lsm) -> bool {
        self.machine.step(engine)
    }

    fn close(&mut self, engine: Lsm) {
        self.machine.close(engine);
    }

    fn kill(&mut self, engine: Lsm) {
        self.machine.kill(engine);
    }
}

impl FullHost for Clocked {
    fn set_time(&mut self, now: Moment) {
        self.wall.set(now.0);
    }

    fn bulk_load(&mut self, engine: &Lsm, pairs: &BTreeMap<Vec<u8>, Vec<u8>>) {
        bulk_load(engine, pairs, || _ = self.machine.step(engine));
    }
}

fn suite(placement: Placement, addresses: AddressMode) {
    suite_with(tiny().with(|of| {
        of.values.placement = placement;
        of.layout.addresses = addresses;
    }));
}

fn suite_with(settings: Settings) {
    let mut seed = 0;
    let make = || {
        seed += 1;
        Clocked::new(settings.clone(), seed)
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
        let mut machine = Clocked::new(settings, seed);
        conformance::random(&mut machine, mixture, 2500, seed);
    }
}
