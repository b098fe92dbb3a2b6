//! Commands on values: `GET`, `SET` and their relatives.

use argosy_engine::{BatchError, Condition, Expiry, WriteOptions};

use super::command::{Command, Plan, Step, Turn, syntax_error, wrong_arity};
use super::expiry::Unit;
use super::reply::Gather;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Returns the value of a key.",
        usage: "key",
        run: get,
    },
    Command {
        name: "set",
        arity: -3,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "string",
        summary: "Sets the value of a key, if a condition holds.",
        usage: "key value [NX | XX | IFEQ comparison] [GET] [EX seconds | PX milliseconds | EXAT \
                seconds | PXAT milliseconds | KEEPTTL]",
        run: set,
    },
    Command {
        name: "mget",
        arity: -2,
        flags: "readonly fast",
        keys: (1, -1, 1),
        group: "string",
        summary: "Returns the values of several keys. Not a snapshot.",
        usage: "key [key ...]",
        run: mget,
    },
    Command {
        name: "mset",
        arity: -3,
        flags: "write denyoom",
        keys: (1, -1, 2),
        group: "string",
        summary: "Sets several keys, atomically within each region.",
        usage: "key value [key value ...]",
        run: mset,
    },
    Command {
        name: "setnx",
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Sets the value of a key that has none.",
        usage: "key value",
        run: setnx,
    },
    Command {
        name: "getset",
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Sets the value of a key and returns the one before.",
        usage: "key value",
        run: getset,
    },
    Command {
        name: "strlen",
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Returns the length of a value in bytes.",
        usage: "key",
        run: strlen,
    },
];

fn get(_: &mut Turn<'_>) -> Step {
    Step::Call(Plan::Get(1), Gather::Value)
}

fn strlen(_: &mut Turn<'_>) -> Step {
    Step::Call(Plan::Get(1), Gather::Length)
}

fn mget(turn: &mut Turn<'_>) -> Step {
    let keys = 1..turn.args.len();
    let values = vec![None; keys.len()];
    Step::Each(keys, Gather::Values(values))
}

/// What `SET` was asked to do beside setting.
#[derive(Default)]
struct SetOptions {
    condition: Condition,
    get: bool,
    expiry: Expiry,
}

impl SetOptions {
    /// Whether `condition` can be added: there is no other.
    fn may_be(&self, condition: Condition) -> bool {
        self.condition == Condition::Always || self.condition == condition
    }
}

/// Reads what follows the value. `None`: an error was replied.
fn set_options(turn: &mut Turn<'_>) -> Option<SetOptions> {
    let mut options = SetOptions::default();
    let mut args = turn.args.from(3);
    while let Some(option) = args.next() {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("get") {
            options.get = true;
        } else if is("nx") && options.may_be(Condition::Absent) {
            options.condition = Condition::Absent;
        } else if is("xx") && options.may_be(Condition::Present) {
            options.condition = Condition::Present;
        } else if is("ifeq")
            && options.may_be(Condition::Equals)
            && let Some(expected) = args.next()
        {
            options.condition = Condition::Equals;
            if let Err(error) = turn.scratch.batch.expect(expected) {
                refuse(turn, error);
                return None;
            }
        } else if is("keepttl") && options.expiry == Expiry::Never {
            options.expiry = Expiry::Keep;
        } else if let Some(unit) = Unit::of(option)
            && options.expiry == Expiry::Never
            && let Some(number) = args.next()
        {
            match unit.future(number, "set") {
                Ok(expiry) => options.expiry = expiry,
                Err(text) => {
                    turn.core.error(&text);
                    return None;
                }
            }
        } else {
            syntax_error(turn);
            return None;
        }
    }
    Some(options)
}

fn set(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    let options = match turn.args.len() {
        3 => SetOptions::default(),
        _ => match set_options(turn) {
            Some(options) => options,
            None => return Step::Replied,
        },
    };
    let gather = if options.get {
        Gather::Previous
    } else {
        Gather::Stored
    };
    let write = WriteOptions {
        condition: options.condition,
        return_previous: options.get,
    };
    put(turn, (write, options.expiry), gather)
}

fn setnx(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    let write = WriteOptions {
        condition: Condition::Absent,
        return_previous: false,
    };
    put(turn, (write, Expiry::Never), Gather::StoredCount)
}

fn getset(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    let write = WriteOptions {
        condition: Condition::Always,
        return_previous: true,
    };
    put(turn, (write, Expiry::Never), Gather::Previous)
}

/// Writes the pair that is the first two arguments, with a batch that is empty but for what it expects.
fn put(turn: &mut Turn<'_>, (options, expiry): (WriteOptions, Expiry), gather: Gather) -> Step {
    let (key, value) = (turn.args.at(1), turn.args.at(2));
    match turn.scratch.batch.put_until(key, value, expiry) {
        Ok(()) => Step::Call(Plan::Write(options), gather),
        Err(error) => refuse(turn, error),
    }
}

fn mset(turn: &mut Turn<'_>) -> Step {
    if turn.args.len().is_multiple_of(2) {
        return wrong_arity(turn, "mset");
    }
    let batch = &mut turn.scratch.batch;
    batch.clear();
    let mut args = turn.args.from(1);
    while let (Some(key), Some(value)) = (args.next(), args.next()) {
        if let Err(error) = batch.put(key, value) {
            return refuse(turn, error);
        }
    }
    Step::Call(Plan::Write(WriteOptions::default()), Gather::Stored)
}

/// Says which limit a write is over.
pub(super) fn refuse(turn: &mut Turn<'_>, error: BatchError) -> Step {
    turn.core.error(&format!("ERR {error} (not applied)"))
}
