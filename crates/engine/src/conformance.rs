//! The tests that every engine passes.
//!
//! An engine's own tests implement [`Host`] (where the engine lives, and how it ends) and call
//! [`run`]. Each case opens an engine of its own on a fresh host, works on it through nothing but
//! the [`Store`] contract, and panics with a sentence where the contract is broken. [`random()`]
//! compares thousands of random operations with a map in memory; its seed makes it repeatable.
//!
//! Cases: `basics` (what one engine does while it runs), `changes` (writes that depend on values),
//! `ranges` (many keys removed at once), `reopening` (what survives a clean end and a kill), [`random()`]
//! (everything together, with pairs that expire, versions and sorted pairs). [`group`] is a suite of its own, for
//! engines whose regions have copies.

mod basics;
mod changes;
pub mod group;
mod machine;
mod model;
mod random;
mod ranges;
mod reopening;
pub mod toy;

pub use machine::Machine;
pub use random::Mixture;

use std::collections::BTreeMap;

use argosy_base::{Direction, KeyRange, Moment};

use crate::{
    BusyReason, EngineError, Expiry, Op, Scan, Snapshot, Store, WriteBatch, WriteOptions, Written,
};

/// Where an engine under test lives.
pub trait Host {
    /// The engine.
    type Engine: Store;

    /// Opens the engine on what the previous one left behind; the first time, an empty one.
    fn open(&mut self) -> Self::Engine;

    /// Does one background step, with a clock that moves on by itself, and lets requests to the
    /// device end. Returns whether anything was done.
    fn step(&mut self, engine: &Self::Engine) -> bool;

    /// Ends the engine in good order.
    fn close(&mut self, engine: Self::Engine);

    /// Ends the engine as `kill -9` does: what reached the log must survive.
    fn kill(&mut self, engine: Self::Engine);
}

/// One whose clock the suite sets, and that takes sorted pairs.
pub trait FullHost: Host {
    /// What the clock on the wall shows from now on, to this engine and those that are opened later.
    fn set_time(&mut self, now: Moment);

    /// Hands in sorted pairs, and steps until they are in the engine.
    fn bulk_load(&mut self, engine: &Self::Engine, pairs: &BTreeMap<Vec<u8>, Vec<u8>>);
}

/// Most steps that a case waits for room, or for the engine to come to rest.
const STEPS_MAX: usize = 200_000;

/// Runs every case. `make` makes a fresh host, `operations` is the length of each random history,
/// and `seed` decides them.
///
/// # Panics
/// Where the engine breaks the contract.
pub fn run<H: FullHost>(mut make: impl FnMut() -> H, operations: usize, seed: u64) {
    basics::run(&mut make);
    changes::run(&mut make);
    ranges::run(&mut make);
    reopening::run(&mut make);
    for mixture in [Mixture::SMALL, Mixture::MIXED, Mixture::OVERWRITES] {
        random(&mut make(), mixture, operations, seed);
    }
}

/// Runs one random history of `operations` against a map in memory.
///
/// # Panics
/// Where the engine and the map disagree; the message names the operation's number.
pub fn random<H: FullHost>(host: &mut H, mixture: Mixture, operations: usize, seed: u64) {
    random::history(host, mixture, operations, seed);
}

/// A repeatable source of choices (splitmix64).
#[derive(Clone, Debug)]
pub struct Choices(u64);

impl Choices {
    /// Choices decided by `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// True `percent` times in a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A batch of `ops`.
fn batch(ops: &[Op<'_>]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in ops {
        match op {
            Op::Put { key, value, expiry } => batch.put_any(key, value, *expiry),
            Op::Delete { key } => batch.delete_any(key),
            Op::DeleteRange { .. } => batch.delete_range_any(&op.range().unwrap_or_default()),
        }
        .expect("test operations are within the limits");
    }
    batch
}

/// Writes `batch`, stepping while the engine is busy.
fn write<H: Host>(
    host: &mut H,
    engine: &H::Engine,
    batch: &WriteBatch,
    options: WriteOptions,
) -> Written {
    let mut reason = BusyReason::Memtable;
    for _ in 0..STEPS_MAX {
        let before = engine.last_lsn();
        match engine.write(batch, options) {
            Ok(written) => return written,
            Err(EngineError::Busy(why)) => {
                assert_eq!(engine.last_lsn(), before, "a busy engine appends nothing");
                reason = why;
            }
            Err(other) => panic!("a write failed: {other}"),
        }
        host.step(engine);
    }
    panic!("the engine stayed busy ({reason:?}) for {STEPS_MAX} steps");
}

fn put<H: Host>(host: &mut H, engine: &H::Engine, key: &[u8], value: &[u8]) -> Written {
    write(
        host,
        engine,
        &batch(&[Op::Put {
            key,
            value,
            expiry: Expiry::Never,
        }]),
        WriteOptions::default(),
    )
}

fn delete<H: Host>(host: &mut H, engine: &H::Engine, key: &[u8]) -> Written {
    write(
        host,
        engine,
        &batch(&[Op::Delete { key }]),
        WriteOptions::default(),
    )
}

fn get(engine: &(impl Store + ?Sized), key: &[u8]) -> Option<Vec<u8>> {
    match engine.get(key) {
        Ok(found) => found.value,
        Err(error) => panic!("a get failed: {error}"),
    }
}

/// Steps until the engine comes to rest.
fn settle<H: Host>(host: &mut H, engine: &H::Engine) {
    for _ in 0..STEPS_MAX {
        if !host.step(engine) {
            return;
        }
    }
    panic!("the engine did not come to rest in {STEPS_MAX} steps");
}

/// Every pair of `range`, through `snapshot`: the same from both ends.
fn collect(snapshot: &dyn Snapshot, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let up = drain(scan(snapshot, range, Direction::Up).as_mut());
    let mut down = drain(scan(snapshot, range, Direction::Down).as_mut());
    down.reverse();
    let differ = up.iter().zip(&down).find(|(up, down)| up != down);
    assert!(
        differ.is_none(),
        "a scan of {range} sees other pairs on its way down: {differ:?}"
    );
    assert_eq!(
        up.len(),
        down.len(),
        "pairs of {range}, upwards and downwards"
    );
    up
}

fn scan(snapshot: &dyn Snapshot, range: &KeyRange, direction: Direction) -> Box<dyn Scan> {
    match snapshot.scan(range, direction) {
        Ok(scan) => scan,
        Err(error) => panic!("a scan failed: {error}"),
    }
}

fn drain(scan: &mut dyn Scan) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    loop {
        match scan.next() {
            Ok(Some(pair)) => pairs.push(pair),
            Ok(None) => return pairs,
            Err(error) => panic!("a scan failed after {} pairs: {error}", pairs.len()),
        }
    }
}

/// A value of `len` bytes that depends on `mark`, so that a wrong one is noticed.
fn value_of(mark: u64, len: usize) -> Vec<u8> {
    let mut choices = Choices::new(mark);
    let mut value = Vec::with_capacity(len + 8);
    while value.len() < len {
        value.extend_from_slice(&choices.bits().to_le_bytes());
    }
    value.truncate(len);
    value
}

/// A key of 8 bytes that sorts as `number` does.
fn key_of(number: u64) -> Vec<u8> {
    let mut key = number.to_le_bytes();
    key.reverse();
    key.to_vec()
}
