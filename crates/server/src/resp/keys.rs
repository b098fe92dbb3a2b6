//! Commands on keys, whatever their values: `DEL`, `EXISTS`, `TYPE` and the like.

use argosy_engine::{BatchError, Condition, WriteBatch, WriteOptions};
use argosy_wire::api::Plan;

use super::command::{Command, NO_KEYS, Step, Turn, unknown_subcommand, wrong_arity};
use super::reply::{Gather, Tells};
use super::strings::{look_up, refuse};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "del",
        arity: -2,
        flags: "write",
        keys: (1, -1, 1),
        group: "generic",
        summary: "Removes keys, atomically within each region.",
        usage: "key [key ...]",
        run: del,
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: "write fast",
        keys: (1, -1, 1),
        group: "generic",
        summary: "Removes keys. The same as DEL here.",
        usage: "key [key ...]",
        run: del,
    },
    Command {
        name: "delifeq",
        arity: 3,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Removes a key that has this value. Returns whether it did.",
        usage: "key value",
        run: delifeq,
    },
    Command {
        name: "getdel",
        arity: 2,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Returns the value of a key and removes it.",
        usage: "key",
        run: getdel,
    },
    Command {
        name: "exists",
        arity: -2,
        flags: "readonly fast",
        keys: (1, -1, 1),
        group: "generic",
        summary: "Counts those of the keys that have a value.",
        usage: "key [key ...]",
        run: exists,
    },
    Command {
        name: "touch",
        arity: -2,
        flags: "readonly fast",
        keys: (1, -1, 1),
        group: "generic",
        summary: "Counts those of the keys that have a value. The same as EXISTS here.",
        usage: "key [key ...]",
        run: exists,
    },
    Command {
        name: "type",
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "generic",
        summary: "Returns the type of what a key is bound to, or none.",
        usage: "key",
        run: key_type,
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: "readonly fast",
        keys: NO_KEYS,
        group: "server",
        summary: "Returns how many keys there are, as an estimate.",
        usage: "",
        run: dbsize,
    },
    Command {
        name: "memory",
        arity: -2,
        flags: "readonly",
        keys: NO_KEYS,
        group: "server",
        summary: "MEMORY USAGE key returns the bytes of a key and its value.",
        usage: "USAGE key [SAMPLES count]",
        run: memory,
    },
];

fn del(turn: &mut Turn<'_>) -> Step {
    match delete_all(turn) {
        Ok(()) => Step::Call(Plan::Write(WriteOptions::default()), Gather::Deleted),
        Err(error) => refuse(turn, error),
    }
}

/// Fills the batch with one delete for each key, however often it is named: a key counts once.
fn delete_all(turn: &mut Turn<'_>) -> Result<(), BatchError> {
    let batch: &mut WriteBatch = &mut turn.scratch.batch;
    batch.clear();
    if turn.args.len() == 2 {
        return batch.delete(turn.args.at(1));
    }
    let mut keys: Vec<&[u8]> = turn.args.from(1).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().try_for_each(|key| batch.delete(key))
}

fn delifeq(turn: &mut Turn<'_>) -> Step {
    let (key, expected) = (turn.args.at(1), turn.args.at(2));
    let batch = &mut turn.scratch.batch;
    batch.clear();
    let options = WriteOptions {
        condition: Condition::Equals,
        return_previous: false,
    };
    match batch.expect(expected).and_then(|()| batch.delete(key)) {
        Ok(()) => Step::Call(Plan::Write(options), Gather::DeletedIf),
        Err(error) => refuse(turn, error),
    }
}

fn getdel(turn: &mut Turn<'_>) -> Step {
    let options = WriteOptions {
        condition: Condition::Always,
        return_previous: true,
    };
    match delete_all(turn) {
        Ok(()) => Step::Call(Plan::Write(options), Gather::Previous),
        Err(error) => refuse(turn, error),
    }
}

fn exists(turn: &mut Turn<'_>) -> Step {
    look_up(turn, Tells::Existing(0))
}

fn key_type(turn: &mut Turn<'_>) -> Step {
    let key = turn.args.at(1);
    turn.scratch.set_key(key);
    Step::Call(Plan::Expiry, Gather::Type(key.to_vec()))
}

fn dbsize(_: &mut Turn<'_>) -> Step {
    Step::Call(Plan::Count, Gather::Count)
}

fn memory(turn: &mut Turn<'_>) -> Step {
    if !turn.args.at(1).eq_ignore_ascii_case(b"usage") {
        return unknown_subcommand(turn, "MEMORY");
    }
    match turn.args.get(2) {
        Some(key) if matches!(turn.args.len(), 3 | 5) => {
            turn.scratch.set_key(key);
            Step::Call(Plan::Expiry, Gather::Usage(key.len()))
        }
        _ => wrong_arity(turn, "memory|usage"),
    }
}
