//! Everything that decodes what somebody else has written: on a device, in shared memory, over a wire, in a file, by
//! hand. Two programs give it bytes: `fuzz/main.rs`, guided by coverage, and `crates/argosy/tests/decoders.rs`, an
//! ordinary test.
//!
//! The first byte of an input chooses the decoder and how it is asked. No input may make a target panic. Checksums are
//! left out, or nothing would get past them.

mod device;
mod edits;
mod engine;
mod levels;
mod logs;
mod rings;
mod sample;
mod sessions;
mod text;
mod wire;

/// Decoders of one kind.
pub(crate) struct Target {
    /// What `scripts/fuzz.sh` calls it.
    pub(crate) name: &'static str,
    /// Decodes an input. Whether something was found in it.
    pub(crate) run: fn(&[u8]) -> bool,
    /// Inputs in which something is found: at least one for each decoder.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub(crate) const ALL: [Target; 9] = [
    wire::TARGET,
    rings::TARGET,
    sessions::TARGET,
    text::TARGET,
    engine::TARGET,
    logs::TARGET,
    levels::TARGET,
    edits::TARGET,
    device::TARGET,
];

/// `bytes` as an input for the decoder that `which` chooses.
fn input(which: u8, bytes: &[u8]) -> Vec<u8> {
    [&[which], bytes].concat()
}
