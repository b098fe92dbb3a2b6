//! Reads that are answered after the process of a region's only copy has ended.

use argosy_base::Instant;
use argosy_server::service::Response;

use super::*;
use crate::asks::{Ask, Target};
use crate::check::When;
use crate::coverage::Coverage;
use crate::load::{Answer, Asking};
use crate::objects::{ObjectKey, VALUE_BYTES_MIN};
use crate::random::Random;

const SESSION: u32 = 1;
const OBJECT: usize = 0;

/// When a read was answered, beside the end of the process.
#[derive(Clone, Copy)]
enum Answered {
    Before,
    After,
}

/// Writes an object twice, and asks for it. The process ends and loses the second write; the read is answered with
/// `saw`. What the recount says.
fn recount(saw: Option<u32>, answered: Answered) -> Result<usize, Wrong> {
    let objects = Objects::new(60, 1, &mut Random::new(3, 0));
    let mut load = Load::new(objects.len(), 1, false);
    let mut coverage = Coverage::default();
    let ask = |load: &mut Load, ask: Ask| {
        let op = load.next_op();
        load.ask(&objects, ask, Asking::anything(SESSION));
        op
    };
    let mut answer = |load: &mut Load, op: u32, response: Response| {
        let at = Instant::default();
        let answer = Answer { op, at, response };
        load.answer(&objects, answer, &mut coverage).unwrap();
    };
    let value = |op: u32, index: usize| {
        objects.value(
            op,
            ObjectKey {
                object: OBJECT,
                index,
            },
            VALUE_BYTES_MIN,
        )
    };

    for op in 0..2 {
        let targets = vec![Target {
            object: OBJECT,
            to: Bound::To(op),
            len: VALUE_BYTES_MIN,
        }];
        let write = Ask::Write {
            targets,
            condition: When::Always,
            previous: false,
        };
        assert_eq!(ask(&mut load, write), op);
        let applied = Response::Written {
            applied: true,
            existed: Vec::new(),
            previous: Vec::new(),
            changed: None,
        };
        answer(&mut load, op, applied);
    }
    let read = ask(
        &mut load,
        Ask::Get {
            key: ObjectKey::first(OBJECT),
        },
    );
    let before = load.last_moment();
    answer(&mut load, read, Response::Value(saw.map(|op| value(op, 0))));
    let end = ProcessEnd {
        at_least: 0,
        moment: match answered {
            Answered::Before => load.last_moment(),
            Answered::After => before,
        },
    };
    let keys = objects.get(OBJECT).keys.iter().enumerate();
    let pairs = keys.map(|(at, key)| (key.clone(), value(0, at))).collect();
    load.recount(&objects, 0, pairs, end)
}

#[test]
fn a_late_read_saw_what_either_process_had() {
    for saw in [0, 1] {
        assert_eq!(recount(Some(saw), Answered::After), Ok(1));
    }
}

#[test]
fn a_read_that_saw_what_neither_process_had_is_found() {
    for (saw, answered) in [
        (None, Answered::After),
        (None, Answered::Before),
        (Some(0), Answered::Before),
    ] {
        let wrong = recount(saw, answered).unwrap_err();
        assert!(wrong.contains("cannot be, since it had"), "{wrong}");
    }
}
