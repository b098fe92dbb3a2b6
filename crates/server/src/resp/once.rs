//! `KV.ONCE`: a write that takes effect at most once, however often it is sent.
//!
//! `KV.ONCE ID` returns a client id. `KV.ONCE id seq command …` carries out a command that writes, under the name (id,
//! seq): whoever does not know whether it was applied, since the connection broke or the answer was `UNCERTAIN`, sends
//! it again as it was.
//!
//! 1. Where it was not applied before it is carried out, and answered as ever.
//! 2. Where it was, nothing is done, and the answer is the simple string `APPLIED version`.
//! 3. Where the region has forgotten whether it was, nothing is done, and the answer is an error that begins with
//!    `UNCERTAIN`.
//!
//! A command that is computed from what it reads ([`exec`](super::exec)) and has nothing to write is answered as usual.
//!
//! What a region remembers is bounded (`duplicates.rs` of the engine). A command over several regions takes effect once
//! in each.

use argosy_base::{ClientId, Lsn, Moment, RequestName};
use argosy_wire::api::Plan;
use argosy_wire::resp::{Args, Encoder};

use super::command::{self, Command, NO_KEYS, Step, Turn, number, shown, syntax_error};
use super::reply::Gather;
use super::transactions;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "kv.once",
    arity: -2,
    flags: "write",
    keys: NO_KEYS,
    group: "kv",
    summary: "Carries out a write at most once, however often it is sent; returns a client id for that.",
    usage: "ID | client-id sequence command [arg ...]",
    run: once,
}];

fn once(turn: &mut Turn<'_>) -> Step {
    if turn.args.at(1).eq_ignore_ascii_case(b"id") {
        return match turn.args.len() {
            2 => take_id(turn),
            _ => syntax_error(turn),
        };
    }
    let Some(args) = turn.args.request_at(3) else {
        return command::wrong_arity(turn, "kv.once");
    };
    let Some(request) = name_of(turn.args) else {
        return turn.core.error(
            "ERR a client id, which KV.ONCE ID returns, and a sequence number from 1 on have to be given (not applied)",
        );
    };
    let name = args.at(0);
    let writes = |inner: &&Command| inner.flags.split(' ').any(|flag| flag == "write");
    let found = command::find(name).filter(writes);
    let Some(inner) = found.filter(|inner| inner.name != "kv.once") else {
        return unfit(turn, name);
    };
    if !command::is_arity(inner, args.len()) {
        return command::wrong_arity(turn, inner.name);
    }
    if inner.name == "exec" {
        return transactions::exec_as(Some(request), turn);
    }
    let outer = std::mem::replace(&mut turn.args, args);
    let step = (inner.run)(turn);
    turn.args = outer;
    match step {
        Step::Call(Plan::Write(options), gather) if is_one_write(&gather) => {
            turn.scratch.batch.name(request);
            Step::Call(Plan::Write(options), gather)
        }
        // It is named when it is known what it writes.
        Step::Procedure(procedure) => Step::Procedure(procedure),
        // It was refused.
        Step::Replied => Step::Replied,
        Step::Call(..) | Step::Queued => unfit(turn, name),
    }
}

/// The name that the request gives, if it is a `KV.ONCE` that gives one.
pub(super) fn name_of(args: Args<'_>) -> Option<RequestName> {
    if !args.at(0).eq_ignore_ascii_case(b"kv.once") {
        return None;
    }
    let number = |at| number(args.at(at)).filter(|number| *number > 0);
    Some(RequestName {
        client: ClientId(number(1)?),
        seq: number(2)?,
    })
}

/// Answers that the request was applied before, at this version.
pub(super) fn tell_applied(version: Lsn, out: &mut Encoder<'_>) {
    out.simple(&format!("APPLIED {}", version.0));
}

/// Whether the request is a `KV.ONCE` as it should be, of an `EXEC`.
pub(super) fn is_exec(args: Args<'_>) -> bool {
    args.len() == 4 && args.at(3).eq_ignore_ascii_case(b"exec") && name_of(args).is_some()
}

/// Whether a command that is answered so is one batch.
const fn is_one_write(gather: &Gather) -> bool {
    matches!(
        gather,
        Gather::Stored
            | Gather::Previous
            | Gather::StoredCount
            | Gather::Deleted
            | Gather::DeletedIf
            | Gather::Changed
    )
}

fn take_id(turn: &mut Turn<'_>) -> Step {
    let millis = u64::try_from(turn.context.wall.as_millis()).unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is as random"
    )]
    let random = turn.context.front.versions.draw() as u64;
    let id = ClientId::taken_at(Moment(millis), random);
    turn.core.reply(|out| out.count(id.0.max(1)))
}

fn unfit(turn: &mut Turn<'_>, name: &[u8]) -> Step {
    let name = shown(name);
    turn.core.error(&format!(
        "ERR KV.ONCE carries out commands that write at once, such as SET, INCR, HSET or EXEC, and '{name}' is none \
         (not applied)"
    ))
}
