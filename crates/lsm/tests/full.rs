//! A device without room: writers are told, readers are not disturbed, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use argosy_device::Crash;
use argosy_engine::conformance::Host;
use argosy_engine::{BusyReason, Engine, EngineError, WriteBatch, WriteOptions};
use common::{Machine, tiny};

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

#[test]
fn a_full_device_turns_writers_away_and_nobody_else() {
    let mut machine = Machine::new(tiny(), 64, 1);
    let mut engine = machine.open();
    let mut written = 0;
    let mut reason = None;
    'full: loop {
        let mut batch = WriteBatch::new();
        batch.put(&key(written), &[7; 400]).unwrap();
        for _ in 0..20_000 {
            match engine.write(&batch, WriteOptions::default()) {
                Ok(_) => {
                    written += 1;
                    continue 'full;
                }
                Err(EngineError::Busy(why)) => reason = Some(why),
                Err(error) => panic!("{error}"),
            }
            machine.step(&engine);
        }
        break;
    }
    assert_eq!(reason, Some(BusyReason::DeviceFull));
    assert!(written > 1000, "{written}");
    for crash in [Crash::Kill, Crash::PowerLoss, Crash::Kill] {
        for number in 0..written {
            let found = engine.get(&key(number)).unwrap().value;
            assert_eq!(found.as_deref(), Some(&[7; 400][..]), "{number}");
        }
        engine.close().unwrap();
        machine.end(engine, crash);
        // The cut takes from the reserve where the manifest has to grow.
        engine = match machine.try_open() {
            Ok(engine) => engine,
            Err(error) => panic!("a full region does not open: {error}"),
        };
    }
}
