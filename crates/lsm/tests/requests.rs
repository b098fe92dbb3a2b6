//! Writes that come again under the same name: over flushes, trimmed logs, restarts and crashes.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::wall::Wall;
use crate::common::{Machine, tiny};
use argosy_base::{ClientId, Clock, LogId, Lsn, Moment, RequestName};
use argosy_device::Crash;
use argosy_engine::conformance::Host;
use argosy_engine::{
    BatchError, Change, Changed, Condition, EngineError, Store, WriteBatch, WriteOptions, Written,
};
use argosy_lsm::duplicates::{CLIENTS_MAX, REQUESTS_MAX};
use argosy_lsm::{Lsm, Mutants};

const fn request(client: u64, seq: u64) -> RequestName {
    RequestName {
        client: ClientId(client),
        seq,
    }
}

/// Adds 1 to the counter, under this name.
fn add(engine: &Lsm, name: RequestName) -> Result<Written, EngineError> {
    let mut batch = WriteBatch::new();
    batch.change(b"counter", Change::Add(1), b"").unwrap();
    batch.name(name);
    engine.write(&batch, WriteOptions::default())
}

/// The same, once there is room.
fn add_in_time(machine: &mut Machine, engine: &Lsm, name: RequestName) -> Written {
    loop {
        match add(engine, name) {
            Err(EngineError::Busy(_)) => {}
            added => return added.unwrap(),
        }
        machine.step(engine);
    }
}

fn counter(engine: &Lsm) -> String {
    let found = engine.get(b"counter").unwrap().value;
    String::from_utf8(found.unwrap_or_default()).unwrap()
}

/// What is told of a request that was applied, up to this LSN.
fn assert_before(engine: &Lsm, name: RequestName, lsn: Lsn) {
    let last = engine.last_lsn();
    let written = add(engine, name).unwrap();
    assert!(written.before && written.applied, "{name}");
    assert_eq!(written.wait.lsn(), lsn, "{name}");
    assert_eq!((written.changed, engine.last_lsn()), (None, last));
}

fn assert_forgotten(engine: &Lsm, name: RequestName) {
    let last = engine.last_lsn();
    let refused = add(engine, name).unwrap_err();
    assert!(
        matches!(refused, EngineError::Forgotten(of) if of == name),
        "{refused}"
    );
    assert_eq!(engine.last_lsn(), last);
}

/// Writes others until the log in which everything lay that was written so far is gone.
fn trim(machine: &mut Machine, engine: &Lsm) {
    let first = |engine: &Lsm| {
        let version = engine.version();
        let first = version.log(LogId::FIRST).iter().next();
        first.map_or(0, |entry| entry.segment.ordinal)
    };
    let before = first(engine);
    for number in 0_u64.. {
        let mut batch = WriteBatch::new();
        batch
            .put(format!("{number:09}").as_bytes(), [7; 60])
            .unwrap();
        let _ = engine.write(&batch, WriteOptions::default());
        machine.step(engine);
        if first(engine) > before + 2 {
            return;
        }
        assert!(number < 100_000, "the log stays");
    }
}

#[test]
fn what_comes_again_is_not_done_again() {
    let mut machine = Machine::new(tiny(), 1024, 1);
    let engine = machine.open();
    let first = add_in_time(&mut machine, &engine, request(7, 1));
    assert_eq!(
        (first.before, first.changed),
        (false, Some(Changed::Number(1)))
    );
    assert_before(&engine, request(7, 1), first.wait.lsn());
    let second = add_in_time(&mut machine, &engine, request(7, 2));
    assert_eq!(second.changed, Some(Changed::Number(2)));
    assert_before(&engine, request(7, 1), first.wait.lsn());
    assert_before(&engine, request(7, 2), second.wait.lsn());
    assert_eq!(counter(&engine), "2");
}

#[test]
fn a_condition_that_fails_is_not_remembered() {
    let mut machine = Machine::new(tiny(), 1024, 1);
    let engine = machine.open();
    let only = |condition| WriteOptions {
        condition,
        return_previous: true,
    };
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"v").unwrap();
    batch.name(request(7, 1));
    let refused = engine.write(&batch, only(Condition::Present)).unwrap();
    assert!(!refused.applied && !refused.before);
    let written = engine.write(&batch, only(Condition::Absent)).unwrap();
    assert!(written.applied && !written.before);
    // It would fail by now.
    let again = engine.write(&batch, only(Condition::Absent)).unwrap();
    assert!(again.applied && again.before && again.previous.is_empty());
}

#[test]
fn a_batch_over_both_logs_has_one_name() {
    let mut machine = Machine::new(tiny(), 1024, 1);
    let mut engine = machine.open();
    let mut batch = WriteBatch::new();
    batch.put(b"large", [1; 3000]).unwrap();
    batch.put(b"small", b"v").unwrap();
    batch.name(request(7, 1));
    let written = engine.write(&batch, WriteOptions::default()).unwrap();
    for _ in 0..2 {
        assert_before(&engine, request(7, 1), written.wait.lsn());
        machine.kill(engine);
        engine = machine.open();
    }
}

#[test]
fn what_is_remembered_outlives_the_log() {
    for crash in [None, Some(Crash::Kill), Some(Crash::PowerLoss)] {
        let mut machine = Machine::new(tiny(), 4096, 1);
        let mut engine = machine.open();
        let first = add_in_time(&mut machine, &engine, request(7, 1));
        trim(&mut machine, &engine);
        assert_before(&engine, request(7, 1), first.wait.lsn());
        // Of a second one the log tells, and of a third one the window.
        let second = add_in_time(&mut machine, &engine, request(7, 2));
        engine.flush_and_mark();
        for _ in 0..200 {
            machine.step(&engine);
        }
        let third = add_in_time(&mut machine, &engine, request(8, 1));
        match crash {
            None => machine.close(engine),
            Some(crash) => machine.end(engine, crash),
        }
        engine = machine.open();
        let version = engine.version();
        assert!(!version.duplicates().is_empty(), "{crash:?}");
        assert_before(&engine, request(7, 1), first.wait.lsn());
        assert_before(&engine, request(7, 2), second.wait.lsn());
        match crash {
            Some(Crash::PowerLoss) => {
                let again = add_in_time(&mut machine, &engine, request(8, 1));
                assert!(!again.before, "what was lost with power is new");
            }
            _ => assert_before(&engine, request(8, 1), third.wait.lsn()),
        }
        assert_eq!(counter(&engine), "3");
        machine.assert_no_leak(&engine);
    }
}

/// Behind each of several restarts, which begin manifests anew, too.
#[test]
fn what_is_remembered_outlives_restarts() {
    let mut machine = Machine::new(tiny(), 4096, 3);
    let mut engine = machine.open();
    let mut applied = Vec::new();
    for seq in 1..=8 {
        let written = add_in_time(&mut machine, &engine, request(7, seq));
        applied.push((request(7, seq), written.wait.lsn()));
        if seq % 2 == 0 {
            machine.settle(&engine);
        }
        match seq % 3 {
            0 => machine.kill(engine),
            _ => machine.close(engine),
        }
        engine = machine.open();
        for (name, lsn) in &applied {
            assert_before(&engine, *name, *lsn);
        }
    }
    assert_eq!(counter(&engine), "8");
}

#[test]
fn who_was_forgotten_is_told_so() {
    let mut machine = Machine::new(tiny(), 4096, 1);
    let mut engine = machine.open();
    let clients = CLIENTS_MAX as u64 + 1;
    for client in 1..=clients {
        add_in_time(&mut machine, &engine, request(client, 1));
    }
    let requests = REQUESTS_MAX as u64 + 2;
    for seq in 2..=requests {
        add_in_time(&mut machine, &engine, request(clients, seq));
    }
    let total = clients + requests - 1;
    for life in 0..2 {
        // The first client, and the first two requests of the last one.
        assert_forgotten(&engine, request(1, 1));
        assert_forgotten(&engine, request(1, 2));
        assert_forgotten(&engine, request(clients, 1));
        assert_forgotten(&engine, request(clients, 2));
        assert!(add(&engine, request(clients, 3)).unwrap().before);
        assert!(add(&engine, request(2, 1)).unwrap().before);
        assert_eq!(counter(&engine), total.to_string());
        if life == 0 {
            machine.settle(&engine);
        }
        machine.kill(engine);
        engine = machine.open();
    }
    add_in_time(&mut machine, &engine, request(clients + 1, 1));
    assert_eq!(counter(&engine), (total + 1).to_string());
}

#[test]
fn an_id_from_the_future_is_refused() {
    let mut machine = Machine::new(tiny(), 1024, 1);
    let engine = machine.open();
    let wall = Arc::new(Wall::default());
    wall.set(1_000_000);
    engine.set_clock(Arc::clone(&wall) as Arc<dyn Clock>);
    let hour = 60 * 60 * 1000;
    let client = |ahead| ClientId::taken_at(Moment(1_000_000 + ahead), 5);
    let near = RequestName {
        client: client(hour),
        seq: 1,
    };
    add_in_time(&mut machine, &engine, near);
    let far = RequestName {
        client: client(hour + 1),
        seq: 1,
    };
    let refused = add(&engine, far).unwrap_err();
    let ahead = hour + 1;
    assert!(
        matches!(refused, EngineError::Limit(BatchError::ClientAhead(of)) if of == ahead),
        "{refused}"
    );
    // What was applied is known, whatever the clock says now.
    wall.set(1);
    assert!(add(&engine, near).unwrap().before);
}

/// Whoever has no names has no table.
#[test]
fn without_names_nothing_is_kept() {
    let mut machine = Machine::new(tiny(), 4096, 1);
    let engine = machine.open();
    trim(&mut machine, &engine);
    let version = engine.version();
    assert!(version.duplicates().is_empty());
    assert_eq!(version.duplicates().memory_bytes(), 0);
}

/// Where the table is lost whatever comes again is done again: the tests above would see it.
#[test]
fn a_table_that_is_lost_is_missed() {
    for name in ["lose_duplicates", "forget_duplicates"] {
        let settings = tiny().with(|of| of.mutants = planted(name));
        let mut machine = Machine::new(settings, 4096, 1);
        let engine = machine.open();
        add_in_time(&mut machine, &engine, request(7, 1));
        trim(&mut machine, &engine);
        machine.close(engine);
        let engine = machine.open();
        let again = add_in_time(&mut machine, &engine, request(7, 1));
        assert!(!again.before, "{name}");
        assert_eq!(counter(&engine), "2");
    }
}

fn planted(name: &str) -> Mutants {
    let mut mutants = Mutants::default();
    assert!(mutants.plant(name));
    mutants
}
