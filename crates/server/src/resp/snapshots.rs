//! Commands on snapshots: `KV.SNAPSHOT` opens, renews and closes them, `KV.GET` and `KV.MGET` read from
//! them. (`KV.RANGE` and `KV.PREFIX` do with the option `SNAPSHOT`: see [`super::scan`].)

use std::time::Duration;

use argosy_engine::Wanted;
use argosy_engine::long::check_users;
use argosy_wire::api::Plan;

use super::command::{Command, NO_KEYS, Step, Turn, number, syntax_error};
use super::reply::{Gather, Tells};
use super::strings::look_up_from;
use crate::service::{Lease, SnapshotId};

/// How long a snapshot stays open where nothing else was asked for.
const LEASE: Duration = Duration::from_secs(60);
/// The longest lease, in seconds.
const LEASE_SECONDS_MAX: u64 = Lease::LONGEST.as_secs();

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "kv.snapshot",
        arity: -2,
        flags: "fast",
        keys: NO_KEYS,
        group: "kv",
        summary: "Opens a snapshot of everything and returns its name; renews its lease; closes it.",
        usage: "OPEN [TTL seconds] | RENEW snapshot [TTL seconds] | CLOSE snapshot",
        run: snapshot,
    },
    Command {
        name: "kv.get",
        arity: -2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "kv",
        summary: "Returns the value of a key, now or in a snapshot.",
        usage: "key [SNAPSHOT snapshot]",
        run: get,
    },
    Command {
        name: "kv.mget",
        arity: -4,
        flags: "readonly fast",
        keys: (3, -1, 1),
        group: "kv",
        summary: "Returns the values of several keys in a snapshot.",
        usage: "SNAPSHOT snapshot key [key ...]",
        run: mget,
    },
];

fn snapshot(turn: &mut Turn<'_>) -> Step {
    let what = turn.args.at(1);
    let is = |name: &str| what.eq_ignore_ascii_case(name.as_bytes());
    if is("open") {
        return match lease(turn, 2) {
            Ok(span) => Step::Call(Plan::Snapshot(None, Lease::Open(span)), Gather::Opened),
            Err(step) => step,
        };
    }
    let (renew, close) = (is("renew"), is("close"));
    if !renew && !close {
        return turn.core.error(
            "ERR syntax error: OPEN [TTL seconds], RENEW snapshot [TTL seconds] and CLOSE snapshot \
             are what there is",
        );
    }
    let Some(named) = turn.args.get(2) else {
        return syntax_error(turn);
    };
    let id = match name_of(turn, named) {
        Ok(id) => Some(id),
        Err(step) => return step,
    };
    if close {
        return match turn.args.len() {
            3 => Step::Call(Plan::Snapshot(id, Lease::Close), Gather::WasOpen),
            _ => syntax_error(turn),
        };
    }
    match lease(turn, 3) {
        Ok(span) => Step::Call(Plan::Snapshot(id, Lease::Renew(span)), Gather::WasOpen),
        Err(step) => step,
    }
}

/// The lease that the arguments from `from` on ask for.
fn lease(turn: &mut Turn<'_>, from: usize) -> Result<Duration, Step> {
    let Some(option) = turn.args.get(from) else {
        return Ok(LEASE);
    };
    let seconds = match (option.eq_ignore_ascii_case(b"ttl"), turn.args.get(from + 1)) {
        (true, Some(seconds)) if turn.args.len() == from + 2 => number(seconds),
        _ => return Err(syntax_error(turn)),
    };
    match seconds {
        Some(seconds @ 1..=LEASE_SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err(turn.core.error(&format!(
            "ERR TTL has to be a number of seconds from 1 to {LEASE_SECONDS_MAX}"
        ))),
    }
}

/// The snapshot that has the name `named`.
pub(super) fn name_of(turn: &mut Turn<'_>, named: &[u8]) -> Result<SnapshotId, Step> {
    SnapshotId::parse(named).ok_or_else(|| {
        let text = "ERR that is no name of a snapshot: KV.SNAPSHOT OPEN returns one";
        turn.core.error(text)
    })
}

fn get(turn: &mut Turn<'_>) -> Step {
    let Some(option) = turn.args.get(2) else {
        turn.scratch.set_key(turn.args.at(1));
        return Step::Call(Plan::Get, Gather::Value);
    };
    let (true, Some(named), 4) = (
        option.eq_ignore_ascii_case(b"snapshot"),
        turn.args.get(3),
        turn.args.len(),
    ) else {
        return syntax_error(turn);
    };
    let id = match name_of(turn, named) {
        Ok(id) => id,
        Err(step) => return step,
    };
    if let Err(error) = check_users(turn.args.at(1)) {
        return turn.core.error(&format!("ERR {error}"));
    }
    let keys = &mut turn.scratch.keys;
    keys.clear();
    keys.push(turn.args.at(1));
    Step::Call(
        Plan::GetMany(Wanted::Values(1), Some(id)),
        Gather::ValueAt(id),
    )
}

fn mget(turn: &mut Turn<'_>) -> Step {
    if !turn.args.at(1).eq_ignore_ascii_case(b"snapshot") {
        return syntax_error(turn);
    }
    match name_of(turn, turn.args.at(2)) {
        Ok(id) => look_up_from(turn, 3, Tells::Values(Vec::new()), Some(id)),
        Err(step) => step,
    }
}
