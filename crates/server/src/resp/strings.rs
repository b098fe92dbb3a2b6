//! Commands on values: `GET`, `SET` and their relatives.

use argosy_engine::change::integer;
use argosy_engine::long::check_users;
use argosy_engine::{BatchError, Condition, Expiry, WriteBatch, WriteOptions};
use argosy_wire::api::Plan;

use super::command::{Command, Step, Turn, wrong_arity};
use super::expiry::Unit;
use super::reply::{Gather, KeysGather, Tells};
use crate::service::{KeyList, SnapshotId};

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
        name: "msetnx",
        arity: -3,
        flags: "write denyoom",
        keys: (1, -1, 2),
        group: "string",
        summary: "Sets several keys of one region, if none of them has a value.",
        usage: "key value [key value ...]",
        run: msetnx,
    },
    Command {
        name: "getrange",
        arity: 4,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "string",
        summary: "Returns a part of a value, from one byte to another, from the end where negative.",
        usage: "key start end",
        run: getrange,
    },
    Command {
        name: "substr",
        arity: 4,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "string",
        summary: "The same as GETRANGE.",
        usage: "key start end",
        run: getrange,
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

fn get(turn: &mut Turn<'_>) -> Step {
    turn.scratch.set_key(turn.args.at(1));
    Step::Call(Plan::Get, Gather::Value)
}

fn strlen(turn: &mut Turn<'_>) -> Step {
    let key = turn.args.at(1);
    turn.scratch.set_key(key);
    Step::Call(Plan::Expiry, Gather::Length(key.to_vec()))
}

fn mget(turn: &mut Turn<'_>) -> Step {
    look_up(turn, Tells::Values(Vec::new()))
}

/// Asks for the keys that are all arguments.
pub(super) fn look_up(turn: &mut Turn<'_>, tells: Tells) -> Step {
    look_up_from(turn, 1, tells, None)
}

/// Asks for the keys that are the arguments from `first` on, now or in a snapshot.
pub(super) fn look_up_from(
    turn: &mut Turn<'_>,
    first: usize,
    tells: Tells,
    at: Option<SnapshotId>,
) -> Step {
    if let Some(error) = turn.args.from(first).find_map(|key| check_users(key).err()) {
        return turn.core.error(&format!("ERR {error}"));
    }
    let gather = KeysGather::of(KeyList::of(turn.args.from(first)), tells, at);
    let plan = gather.plan(&mut turn.scratch.keys);
    Step::Call(plan, Gather::Keys(Box::new(gather)))
}

/// What `SET` was asked to do beside setting.
#[derive(Default)]
pub(super) struct SetOptions {
    pub(super) condition: Condition,
    pub(super) get: bool,
    pub(super) expiry: Expiry,
}

impl SetOptions {
    /// Whether `condition` can be added: there is no other.
    fn may_be(&self, condition: Condition) -> bool {
        self.condition == Condition::Always || self.condition == condition
    }
}

/// Reads what follows the value; what is compared goes into the batch.
pub(super) fn set_options<'a>(
    mut args: impl ExactSizeIterator<Item = &'a [u8]>,
    batch: &mut WriteBatch,
) -> Result<SetOptions, String> {
    let mut options = SetOptions::default();
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
            batch
                .expect(expected)
                .map_err(|error| format!("ERR {error} (not applied)"))?;
        } else if is("keepttl") && matches!(options.expiry, Expiry::Never | Expiry::Keep) {
            options.expiry = Expiry::Keep;
        } else if let Some(unit) = Unit::of(option)
            && options.expiry == Expiry::Never
            && let Some(number) = args.next()
        {
            options.expiry = unit.future(number, "set")?;
        } else {
            return Err("ERR syntax error".to_owned());
        }
    }
    Ok(options)
}

fn set(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    let options = match turn.args.len() {
        3 => SetOptions::default(),
        _ => match set_options(turn.args.from(3), &mut turn.scratch.batch) {
            Ok(options) => options,
            Err(text) => return turn.core.error(&text),
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
    put(turn, write, options.expiry, gather)
}

fn setnx(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    let write = WriteOptions {
        condition: Condition::Absent,
        return_previous: false,
    };
    put(turn, write, Expiry::Never, Gather::StoredCount)
}

fn getset(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    let write = WriteOptions {
        condition: Condition::Always,
        return_previous: true,
    };
    put(turn, write, Expiry::Never, Gather::Previous)
}

/// Writes the pair that is the first two arguments, with a batch that is empty but for what it expects.
fn put(turn: &mut Turn<'_>, options: WriteOptions, expiry: Expiry, gather: Gather) -> Step {
    let (key, value) = (turn.args.at(1), turn.args.at(2));
    match turn.scratch.batch.put_until(key, value, expiry) {
        Ok(()) => Step::Call(Plan::Write(options), gather),
        Err(error) => refuse(turn, error),
    }
}

fn mset(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    match put_all(turn, "mset") {
        Ok(()) => Step::Call(Plan::Write(WriteOptions::default()), Gather::Stored),
        Err(step) => step,
    }
}

fn msetnx(turn: &mut Turn<'_>) -> Step {
    let batch = &mut turn.scratch.batch;
    batch.clear();
    // The condition is one on all of the keys.
    batch.keep_together();
    let options = WriteOptions {
        condition: Condition::Absent,
        return_previous: false,
    };
    match put_all(turn, "msetnx") {
        Ok(()) => Step::Call(Plan::Write(options), Gather::StoredCount),
        Err(step) => step,
    }
}

/// Puts the pairs that are the arguments into the batch.
pub(super) fn put_all(turn: &mut Turn<'_>, name: &str) -> Result<(), Step> {
    if turn.args.len().is_multiple_of(2) {
        return Err(wrong_arity(turn, name));
    }
    let mut args = turn.args.from(1);
    while let (Some(key), Some(value)) = (args.next(), args.next()) {
        if let Err(error) = turn.scratch.batch.put(key, value) {
            return Err(refuse(turn, error));
        }
    }
    Ok(())
}

fn getrange(turn: &mut Turn<'_>) -> Step {
    match (integer(turn.args.at(2)), integer(turn.args.at(3))) {
        (Some(from), Some(to)) => {
            turn.scratch.set_key(turn.args.at(1));
            Step::Call(Plan::Get, Gather::Part(from, to))
        }
        _ => turn
            .core
            .error("ERR value is not an integer or out of range"),
    }
}

/// Says which limit a write is over.
pub(super) fn refuse(turn: &mut Turn<'_>, error: BatchError) -> Step {
    turn.core.error(&format!("ERR {error} (not applied)"))
}
