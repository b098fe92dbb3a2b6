//! Rows that are made up.

use super::*;
use crate::record::Op;

fn row() -> FaultRow {
    FaultRow {
        kind: FaultKind::CleanStop,
        led: Some(ServedRow {
            again: 2.5,
            silent: 2.25,
            noticed: Some(1.9),
            chosen: Some(2.0),
            lease_over: None,
            open: Some(2.125),
        }),
        others: None,
        on_return: 0.0,
        requests: RequestsRow {
            answered: 100,
            acknowledged: 50,
            not_applied: 7,
            unknown: 3,
            at_the_failed: 5,
            lost: 0,
        },
        afterwards: AfterwardsRow {
            whole_after: Some(1.25),
            words: vec!["server 1 fetched 0.5 of 20.0 MiB".to_owned()],
        },
        wrong: Vec::new(),
    }
}

#[test]
fn a_row_has_a_cell_for_each_heading() {
    let cells = |line: &str| line.matches(" | ").count();
    let heading = heading();
    let line = row().line();
    assert_eq!(cells(&line), cells(&heading[0]));
    assert_eq!(heading[1].matches("---").count(), cells(&line) + 1);
    assert!(
        line.ends_with("| 2.50 | 1.90, 2.00, –, 2.12 | – | – | 3 | 7 (5) | 0 of 50 | whole 1.2 s after the start; \
                        server 1 fetched 0.5 of 20.0 MiB |"),
        "{line}"
    );
}

#[test]
fn requests_are_counted_by_what_became_of_them() {
    let sample = |door, op, came| Sample {
        began: 1,
        ended: 2,
        region: 0,
        door,
        op,
        came,
    };
    let samples = [
        sample(Door::Resp(0), Op::Get, Came::Answered),
        sample(Door::Resp(1), Op::Set, Came::Answered),
        sample(Door::Native, Op::SetEqual, Came::Unmet),
        sample(Door::Resp(1), Op::Set, Came::Unknown),
        sample(Door::Resp(0), Op::Set, Came::NotApplied),
        sample(Door::Native, Op::Get, Came::NotApplied),
    ];
    let expected = RequestsRow {
        answered: 3,
        acknowledged: 1,
        not_applied: 2,
        unknown: 1,
        at_the_failed: 1,
        lost: 0,
    };
    assert_eq!(RequestsRow::of(&samples, &[1]), expected);
}
