//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: refused, and with them every command between `MULTI`
//! and `EXEC`.
//!
//! There are no transactions yet. Most client libraries send `MULTI`, the commands and `EXEC` in one
//! go, before they have read an answer. If only `MULTI` were refused, the commands behind it would be
//! applied one by one, and the caller would be given the error of `MULTI`: a failure that was applied.
//! So a refused `MULTI` opens a stretch in which every command is refused. `EXEC` ends it with
//! `EXECABORT`, which client libraries know as "nothing was applied"; `DISCARD` and `RESET` end it,
//! too. A client that waits for the answer to `MULTI` and goes on without any of them is refused until
//! it sends one: the server cannot know what was sent before the answer was read.

use super::command::{Command, NO_KEYS, Step, Turn};

/// The answer to `MULTI`: what client libraries show to whoever asked for a transaction.
const MULTI_REFUSED: &str = "ERR MULTI is not supported by this server: nothing up to EXEC is applied. \
                             Send the commands without a transaction (redis-py: \
                             pipeline(transaction=False), other clients: a plain pipeline), or write \
                             several keys at once with KV.BATCH (not applied)";
/// The answer to `EXEC`.
const EXEC_ABORTED: &str = "EXECABORT Transaction discarded, since MULTI is not supported by this \
                            server: none of its commands was applied. Send them without a transaction \
                            (redis-py: pipeline(transaction=False), other clients: a plain pipeline), \
                            or use KV.BATCH";
/// The answer to every command between the two.
const COMMAND_REFUSED: &str = "ERR refused, as the MULTI before it was: EXEC, DISCARD or RESET ends \
                               this (not applied)";
/// The answer to `WATCH` and `UNWATCH`.
const WATCH_REFUSED: &str = "ERR WATCH and UNWATCH are not supported by this server, as there are no \
                             transactions: to write only where a key has a value, use SET with IFEQ, \
                             NX or XX (not applied)";

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "multi",
        arity: -1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Refused, with all commands up to EXEC or DISCARD: there are no transactions.",
        usage: "",
        run: multi,
    },
    Command {
        name: "exec",
        arity: 1,
        flags: "noscript loading stale",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Ends what MULTI began, with EXECABORT: nothing was applied.",
        usage: "",
        run: exec,
    },
    Command {
        name: "discard",
        arity: 1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Ends what MULTI began: nothing was applied.",
        usage: "",
        run: discard,
    },
    Command {
        name: "watch",
        arity: -2,
        flags: "noscript loading stale fast",
        keys: (1, -1, 1),
        group: "transactions",
        summary: "Refused: there are no transactions.",
        usage: "key [key ...]",
        run: watch,
    },
    Command {
        name: "unwatch",
        arity: 1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Refused: there are no transactions.",
        usage: "",
        run: watch,
    },
];

/// Refuses `command` between a refused `MULTI` and its end. `None`: it is begun as ever.
pub(super) fn refuse(turn: &mut Turn<'_>, command: &Command) -> Option<Step> {
    if !turn.core.client.in_refused_multi {
        return None;
    }
    let is_begun = matches!(
        command.name,
        "multi" | "exec" | "discard" | "reset" | "quit"
    );
    (!is_begun).then(|| turn.core.error(COMMAND_REFUSED))
}

/// What is said of a value that is taken in part by part, if it has to be refused.
pub(super) fn refusal_of_long(in_refused_multi: bool) -> Option<String> {
    in_refused_multi.then(|| COMMAND_REFUSED.to_owned())
}

fn multi(turn: &mut Turn<'_>) -> Step {
    turn.core.client.in_refused_multi = true;
    turn.core.error(MULTI_REFUSED)
}

fn exec(turn: &mut Turn<'_>) -> Step {
    match std::mem::take(&mut turn.core.client.in_refused_multi) {
        true => turn.core.error(EXEC_ABORTED),
        false => turn.core.error("ERR EXEC without MULTI"),
    }
}

fn discard(turn: &mut Turn<'_>) -> Step {
    match std::mem::take(&mut turn.core.client.in_refused_multi) {
        true => turn.core.reply(|out| out.simple("OK")),
        false => turn.core.error("ERR DISCARD without MULTI"),
    }
}

fn watch(turn: &mut Turn<'_>) -> Step {
    turn.core.error(WATCH_REFUSED)
}
