//! Rows of failures that are made up: whose region was silent, and that a planted loss is found.

use std::collections::BTreeMap;

use argosy_device::SystemClock;
use argosy_history::register::{Access, AccessKind, Before, Bound, Saw, When};

use super::*;
use crate::faults::FaultsVerdict;
use crate::faults::silence::tests::{answered, at};
use crate::record::History;

/// Two regions; server 1, which leads the second one, fails at 3 s.
fn material() -> Material {
    let ticks = || (1100..=10_000).step_by(100);
    let first = ticks().filter(|tick| !(3500..4000).contains(tick));
    let second = ticks().filter(|tick| !(3000..5500).contains(tick));
    let first = first.map(|tick| answered(0, tick));
    Material {
        samples: first.chain(second.map(|tick| answered(1, tick))).collect(),
        times: Times {
            load: at(1000),
            failed: at(3000),
            mended: at(7000),
            ended: at(10_000),
        },
        deed: Deed {
            failed: at(3000),
            mended: at(7000),
            servers: vec![1],
            primaries: vec![Some(0), Some(1)],
            notes: Vec::new(),
        },
        regions: vec![1, 2],
        said: Vec::new(),
        offset: Offset::of(&SystemClock),
        afterwards: AfterwardsRow::default(),
    }
}

/// A write that was acknowledged, and what was read behind it.
fn history(read: Bound) -> Parts {
    let write = AccessKind::Write {
        to: Bound::To(1),
        condition: When::Always,
        saw: Some(Saw {
            applied: true,
            before: Before::Untold,
        }),
    };
    let access = |op, kind, began| Access {
        op,
        kind,
        began,
        ended: Some(began + 1),
    };
    let accesses = vec![access(1, write, 1), access(2, AccessKind::Read(read), 3)];
    Parts {
        histories: vec![History::Register(accesses)],
        wrong: Vec::new(),
        odd: BTreeMap::new(),
    }
}

fn exit_code(row: FaultRow) -> u8 {
    FaultsVerdict { rows: vec![row] }.exit_code()
}

#[test]
fn regions_of_failed_servers_are_told_apart() {
    let row = row_of(
        FaultKind::PrimaryKilled,
        &material(),
        &history(Bound::To(1)),
    );
    let again = |row: Option<ServedRow>| row.map(|row| (row.again * 1000.0).round());
    assert_eq!(again(row.led), Some(2500.0));
    assert_eq!(again(row.others), Some(1000.0));
    assert!(row.on_return.abs() < f64::EPSILON);
    assert_eq!(row.requests.lost, 0);
    assert_eq!(exit_code(row), 0);
}

#[test]
fn a_lost_write_is_an_exit_code() {
    let row = row_of(
        FaultKind::PrimaryKilled,
        &material(),
        &history(Bound::Absent),
    );
    assert_eq!(row.requests.lost, 1);
    assert!(row.wrong[0].contains("request 2"), "{:?}", row.wrong);
    assert!(row.line().contains("| 1 of "), "{}", row.line());
    assert_eq!(exit_code(row), 1);
}

#[test]
fn what_could_not_be_done_is_an_exit_code() {
    let error = TrialError::Cluster("no server answers".to_owned());
    let row = not_done(FaultKind::TwoKilled, &error, &history(Bound::To(1)));
    assert_eq!(row.wrong, ["no server answers"]);
    assert_eq!(exit_code(row), 1);
}

#[test]
fn what_is_wrong_besides_is_an_exit_code() {
    let mut parts = history(Bound::To(1));
    parts.wrong.push("a key held what nobody wrote".to_owned());
    let row = row_of(FaultKind::TwoKilled, &material(), &parts);
    assert_eq!(exit_code(row), 1);
}
