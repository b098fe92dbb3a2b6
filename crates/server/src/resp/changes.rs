//! Commands that make a new value of the one that is there: `INCR`, `APPEND` and their relatives.
//!
//! Each is one [`Change`], evaluated by the region's primary where its writes are put in order. `APPEND` and
//! `SETRANGE` are made part by part where that refuses them because of the value's length: see [`Growing`].

use argosy_engine::WriteOptions;
use argosy_engine::change::{Change, float_or_infinity, integer};
use argosy_wire::api::Plan;

use super::command::{Command, Step, Turn};
use super::reply::Gather;
use super::strings::refuse;
use crate::long::Growing;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    change("incr", 2, "Adds 1 to a number.", "key", incr),
    change("decr", 2, "Subtracts 1 from a number.", "key", decr),
    change("incrby", 3, "Adds to a number.", "key increment", incrby),
    change(
        "decrby",
        3,
        "Subtracts from a number.",
        "key decrement",
        decrby,
    ),
    change(
        "incrbyfloat",
        3,
        "Adds to a number with a fraction.",
        "key increment",
        incrbyfloat,
    ),
    change(
        "append",
        3,
        "Puts bytes behind a value. Returns its length.",
        "key value",
        append,
    ),
    change(
        "setrange",
        4,
        "Overwrites a part of a value. Returns its length.",
        "key offset value",
        setrange,
    ),
];

/// A command of this family.
const fn change(
    name: &'static str,
    arity: i64,
    summary: &'static str,
    usage: &'static str,
    run: fn(&mut Turn<'_>) -> Step,
) -> Command {
    Command {
        name,
        arity,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        summary,
        usage,
        run,
    }
}

fn incr(turn: &mut Turn<'_>) -> Step {
    make(turn, Change::Add(1))
}

fn decr(turn: &mut Turn<'_>) -> Step {
    make(turn, Change::Add(-1))
}

fn incrby(turn: &mut Turn<'_>) -> Step {
    match integer(turn.args.at(2)) {
        Some(number) => make(turn, Change::Add(number)),
        None => no_integer(turn),
    }
}

fn decrby(turn: &mut Turn<'_>) -> Step {
    match integer(turn.args.at(2)).map(i64::checked_neg) {
        Some(Some(number)) => make(turn, Change::Add(number)),
        Some(None) => turn.core.error("ERR decrement would overflow"),
        None => no_integer(turn),
    }
}

fn incrbyfloat(turn: &mut Turn<'_>) -> Step {
    match float_or_infinity(turn.args.at(2)) {
        Some(number) => make(turn, Change::AddFloat(number.to_bits())),
        None => turn.core.error("ERR value is not a valid float"),
    }
}

fn append(turn: &mut Turn<'_>) -> Step {
    grow(turn, None, 2)
}

fn setrange(turn: &mut Turn<'_>) -> Step {
    let Some(from) = integer(turn.args.at(2)) else {
        return no_integer(turn);
    };
    let Ok(place) = u64::try_from(from) else {
        return turn.core.error("ERR offset is out of range");
    };
    grow(turn, Some(place), 3)
}

fn no_integer(turn: &mut Turn<'_>) -> Step {
    turn.core
        .error("ERR value is not an integer or out of range")
}

/// Makes `change` of the key that is the first argument.
fn make(turn: &mut Turn<'_>, change: Change) -> Step {
    let batch = &mut turn.scratch.batch;
    batch.clear();
    match batch.change(turn.args.at(1), change, b"") {
        Ok(()) => Step::Call(Plan::Write(WriteOptions::default()), Gather::Changed),
        Err(error) => refuse(turn, error),
    }
}

/// Puts an operand into the value: which argument that is, and where it goes, if not behind.
fn grow(turn: &mut Turn<'_>, place: Option<u64>, operand: usize) -> Step {
    let (key, operand) = (turn.args.at(1), turn.args.at(operand));
    match Growing::begin(key, place, operand, &mut turn.scratch.batch) {
        Ok((growing, plan)) => Step::Call(plan, Gather::Grow(Box::new(growing))),
        Err(error) => refuse(turn, error),
    }
}
