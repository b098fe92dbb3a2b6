//! A log that is written faster than edits become durable gets several segments with one edit, in a region that is
//! large enough for that.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::{Machine, tiny};
use argosy_device::{Crash, Device, Store};
use argosy_engine::conformance::Host;
use argosy_engine::{Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::names::logs::LARGE_LOG;

/// Segments that are filled.
const SEGMENTS: usize = 600;

#[test]
fn one_edit_declares_several_segments_of_a_log_that_is_written_fast() {
    // A window is a segment, and a request writes one: an edit takes several requests.
    let settings = tiny().with(|of| {
        of.memtables.bytes = 8 << 20;
        of.memtables.log_bytes = 64 << 20;
        of.layout.segment_bytes = 64 << 10;
        of.layout.window_bytes = 64 << 10;
        of.layout.window_slots = 20;
        of.levels.number_block = 1024;
    });
    let segment_bytes = settings.layout.segment_bytes;
    let mut machine = Machine::new(settings, 1024, 1);
    let engine = machine.open();
    machine.step(&engine);
    let value = vec![7; 4 << 10];
    for number in 0..u64::try_from(SEGMENTS * segment_bytes / value.len()).unwrap() {
        let mut batch = WriteBatch::new();
        batch.put(number.to_le_bytes(), &value).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
    }
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    let device: Arc<dyn Device> = machine.device.clone();
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], &machine.settings);
    let edits = region.edits.iter().map(|record| &record.edit);
    let added = edits.filter(|edit| !edit.checkpoint && !edit.logs.added.is_empty());
    let added: Vec<_> = added.map(|edit| edit.logs.added.len()).collect();
    let (most, all) = (*added.iter().max().unwrap(), added.iter().sum::<usize>());
    assert!(most >= 4, "{added:?}");
    assert!(2 * all >= 3 * added.len(), "{added:?}");
    // What was declared beside what is used is little: a segment takes 15 records.
    let used = SEGMENTS * 16 / 15;
    let version = region.version.unwrap();
    let declared = version.log(LARGE_LOG).len();
    assert!(declared <= used + 8 + 1, "{declared}");
}

/// A write that is made durable alone takes a block of the log. What a memtable stands for counts with that, so the log
/// stays as short as the settings say.
#[test]
fn writes_that_are_flushed_one_by_one_keep_the_log_short() {
    let settings = tiny().with(|of| {
        of.memtables.bytes = 8 << 20;
        of.memtables.log_bytes = 256 << 10;
    });
    let (segment, most) = (
        settings.layout.segment_bytes as u64,
        settings.memtables.log_bytes,
    );
    let mut machine = Machine::new(settings, 1024, 1);
    let engine = machine.open();
    let mut longest = 0;
    for number in 0..2000_u64 {
        let mut batch = WriteBatch::new();
        batch.put(number.to_le_bytes(), b"value").unwrap();
        engine.write(&batch, WriteOptions::default()).unwrap();
        let mut idle = 0;
        while idle < 10 {
            idle = if machine.step(&engine) { 0 } else { idle + 1 };
        }
        let logs = engine.stats().logs.into_iter();
        longest = longest.max(logs.map(|log| log.bytes).sum());
    }
    assert!(longest <= most + 2 * segment, "{longest}");
}
