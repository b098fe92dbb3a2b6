//! A log that is written faster than edits become durable gets several segments with one edit, in a region that is
//! large enough for that.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use argosy_engine::conformance::Host;
use argosy_engine::{Engine, WriteBatch, WriteOptions};
use argosy_lsm::Settings;
use common::{Machine, tiny};

/// Segments that are filled.
const SEGMENTS: u64 = 600;

#[test]
fn one_edit_declares_several_segments_of_a_log_that_is_written_fast() {
    // A window is a segment, and a request writes one: an edit takes several requests.
    let settings = Settings {
        l0_bytes: 8 << 20,
        l0_log_bytes: 64 << 20,
        segment_bytes: 64 << 10,
        window_bytes: 64 << 10,
        window_slots: 20,
        number_block: 1024,
        ..tiny()
    };
    let segment_bytes = settings.segment_bytes as u64;
    let mut machine = Machine::new(settings, 1024, 1);
    let engine = machine.open();
    machine.step(&engine);
    let before = engine.stats().edits;
    let value = vec![7; 4 << 10];
    for number in 0..SEGMENTS * segment_bytes / value.len() as u64 {
        let mut batch = WriteBatch::new();
        batch.put(&number.to_le_bytes(), &value).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
    }
    let edits = engine.stats().edits - before;
    assert!(
        3 * edits <= 2 * SEGMENTS,
        "{edits} edits for {SEGMENTS} segments"
    );
    machine.settle(&engine);
    // What was declared beside is little: no more than one edit declares.
    let logs = engine.stats().logs;
    let held: u64 = logs.iter().map(|log| log.segments as u64).sum();
    assert!(held <= SEGMENTS + 2 * 8 + 4, "{held} segments");
}
