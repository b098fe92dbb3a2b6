//! How a request finds its command, and what a command may do.
//!
//! Every command is a [`Command`] in the table of its family. [`begin`] looks the name up, compares
//! the number of arguments, and runs it. A command either replies on the spot, or plans a call to the
//! server ([`Step::Call`]), and says what the reply is gathered from: which may need further calls.

use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_wire::api::{Plan, Scratch};
use argosy_wire::resp::Args;
use argosy_wire::resp::parse::REQUEST_BYTES_MAX;

use super::exec::Procedure;
use super::front::Context;
use super::reply::Gather;
use super::session::Core;
use super::{
    changes, composite, computed, connection, docs, expiry, info, keys, latency, maintenance, once,
    random, scan, scripts, slow_log, snapshots, strings, transactions,
};

/// What a command sees while it is begun.
pub(super) struct Turn<'a> {
    /// The session without its input.
    pub core: &'a mut Core,
    /// The request, name first.
    pub args: Args<'a>,
    /// The world outside.
    pub context: &'a Context<'a>,
    /// Room for the batch or range of the call.
    pub scratch: &'a mut Scratch,
}

/// What became of a command at its beginning.
#[derive(Debug)]
pub(super) enum Step {
    /// It has replied.
    Replied,
    /// It is queued, and is answered that: it is counted when it is carried out.
    Queued,
    /// It makes a call.
    Call(Plan, Gather),
    /// It is carried out as a transaction of one command.
    Procedure(Procedure),
}

/// A command.
pub(super) struct Command {
    /// In lower case, as the table of Redis has it.
    pub name: &'static str,
    /// Arguments, name included: exactly so many, or where negative at least so many.
    pub arity: i64,
    /// As `COMMAND` tells them, blanks between.
    pub flags: &'static str,
    /// Which arguments are keys: the first, the last (from the end where negative), and the step.
    pub keys: (i64, i64, i64),
    /// `connection`, `string`, `hash`, `sorted-set`, `set`, `generic`, `server`, `transactions`, `scripting` or `kv`.
    pub group: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Its arguments, as for a person.
    pub usage: &'static str,
    /// Begins it.
    pub run: fn(&mut Turn<'_>) -> Step,
}

/// Arguments that are no keys.
pub(super) const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

/// The families, those first whose commands are asked for most.
pub(super) const FAMILIES: [&[Command]; 20] = [
    strings::COMMANDS,
    changes::COMMANDS,
    keys::COMMANDS,
    composite::hashes::COMMANDS,
    composite::sorted_sets::COMMANDS,
    composite::sets::COMMANDS,
    computed::COMMANDS,
    expiry::COMMANDS,
    connection::COMMANDS,
    scan::COMMANDS,
    snapshots::COMMANDS,
    once::COMMANDS,
    maintenance::COMMANDS,
    info::COMMANDS,
    docs::COMMANDS,
    transactions::COMMANDS,
    scripts::COMMANDS,
    random::COMMANDS,
    slow_log::COMMANDS,
    latency::COMMANDS,
];

/// The command of this name, in any case of letters.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    find_numbered(name).map(|(_, command)| command)
}

/// The place of the command of this name among [`names`].
pub(super) fn number_of(name: &[u8]) -> u16 {
    find_numbered(name).map_or(UNKNOWN, |(number, _)| number)
}

/// The command of this name, and its place among [`names`].
#[inline]
fn find_numbered(name: &[u8]) -> Option<(u16, &'static Command)> {
    (0..)
        .zip(FAMILIES.iter().flat_map(|family| family.iter()))
        .find(|(_, command)| command.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The names under which commands are counted: those of the tables, and one for what is none.
pub(super) fn names() -> Vec<&'static str> {
    let commands = FAMILIES.iter().flat_map(|family| family.iter());
    commands
        .map(|command| command.name)
        .chain(["unknown"])
        .collect()
}

/// The place of what is no command among [`names`].
pub(super) const UNKNOWN: u16 = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    assert!(count < 1000, "there are few commands");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let unknown = count as u16;
    unknown
};

/// Begins the request of `turn`.
pub(super) fn begin(turn: &mut Turn<'_>, inline: bool) -> Step {
    let name = turn.args.at(0);
    let Some((number, command)) = find_numbered(name) else {
        turn.core.present.number = UNKNOWN;
        turn.core.client.transaction.abort();
        return unknown(turn, inline);
    };
    turn.core.present.number = number;
    if let Some(queued) = transactions::queue(turn, command) {
        return queued;
    }
    if !is_arity(command, turn.args.len()) {
        turn.core.client.transaction.abort();
        return wrong_arity(turn, command.name);
    }
    match (command.run)(turn) {
        Step::Procedure(_) => transactions::carry_out_alone(turn),
        step => step,
    }
}

/// Whether `command` takes so many arguments.
pub(super) fn is_arity(command: &Command, args: usize) -> bool {
    let count = i64::try_from(args).unwrap_or(i64::MAX);
    match command.arity {
        least @ ..0 => count >= -least,
        exactly => count == exactly,
    }
}

/// Refuses what is no command, in the words of Redis, and keeps the connection. What begins as a
/// request of HTTP does is taken for an attempt to smuggle commands in by a web browser: it ends it.
fn unknown(turn: &mut Turn<'_>, inline: bool) -> Step {
    let name = turn.args.at(0);
    if inline && (name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")) {
        turn.core.closing = true;
        return turn
            .core
            .error("ERR Protocol error: this port speaks the Redis protocol, not HTTP");
    }
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        shown(name)
    );
    let start = text.len();
    for arg in turn.args.from(1) {
        if text.len() - start >= SHOWN_BYTES_MAX {
            break;
        }
        text.push('\'');
        text.push_str(&shown(arg));
        text.push_str("' ");
    }
    turn.core.error(&text)
}

/// Bytes of a client's own words that an error repeats, at most.
const SHOWN_BYTES_MAX: usize = 128;

/// What a client sent, for an error message.
pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// Refuses a wrong number of arguments.
pub(super) fn wrong_arity(turn: &mut Turn<'_>, name: &str) -> Step {
    turn.core.error(&format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

/// Refuses an unknown subcommand of `name`.
pub(super) fn unknown_subcommand(turn: &mut Turn<'_>, name: &str) -> Step {
    let given = shown(turn.args.at(1));
    turn.core.error(&format!(
        "ERR unknown subcommand '{given}'. Try {name} HELP."
    ))
}

/// Refuses a malformed option.
pub(super) fn syntax_error(turn: &mut Turn<'_>) -> Step {
    turn.core.error("ERR syntax error")
}

/// A number that is an argument: decimal digits only, no sign, no leading zero.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.len() > 1 && bytes[0] == b'0' || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// What is said of a request that was too long to be kept.
pub(super) fn oversized(request_bytes: u64, longest_bytes: u32) -> String {
    if longest_bytes as usize > VALUE_BYTES_MAX {
        return format!(
            "ERR an argument of {longest_bytes} bytes is over the limit of {VALUE_BYTES_MAX} bytes \
             (max_value_bytes); nothing was applied"
        );
    }
    format!(
        "ERR a request of {request_bytes} bytes is over the limit of {REQUEST_BYTES_MAX} bytes \
         (max_request_bytes); nothing was applied: use several smaller requests"
    )
}

/// What is said where a reply would be too long.
pub(super) fn reply_too_long(reply_bytes_max: usize) -> String {
    format!(
        "ERR the reply has over {reply_bytes_max} bytes (max_reply_bytes): ask for fewer keys, a \
         smaller range or a lower LIMIT"
    )
}
