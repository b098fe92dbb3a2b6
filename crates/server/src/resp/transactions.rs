//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: what a connection keeps of a transaction until `EXEC`.
//!
//! Between `MULTI` and `EXEC` every command is put into a queue, as it came, and answered `QUEUED`. One that cannot be
//! queued (it is unknown, has a wrong number of arguments, has no place in a transaction, or the queue is full) is
//! refused, and so is the transaction at its `EXEC`, by `EXECABORT`: the client may have sent all of it before it read
//! an answer. What a command finds wrong with its arguments is said in its place of `EXEC`'s reply, as in Redis.
//!
//! `WATCH` reads the versions of its keys. Everything behind it on the connection waits for that, so a write of the
//! client itself counts as a change. What `EXEC` does with both is [`exec`](super::exec)'s.
//!
//! Both are bounded: the queue by [`QUEUED_MAX`] commands and [`QUEUED_BYTES_MAX`] bytes, what is watched by
//! [`WATCHED_MAX`] keys.

use argosy_base::limits::BATCH_PAIRS_MAX;
use argosy_base::{Lsn, RequestName};
use argosy_engine::Wanted;
use argosy_engine::batch::check_key;
use argosy_engine::long::check_users;
use argosy_wire::api::{Plan, Scratch};
use argosy_wire::resp::Kept;

use super::command::{Command, NO_KEYS, Step, Turn, is_arity, wrong_arity};
use super::exec::{Asked, Exec, Form};
use super::front::Context;
use super::once;
use super::reply::Gather;
use crate::service::{KeyList, Response};

/// Commands of one transaction, at most.
pub(super) const QUEUED_MAX: usize = BATCH_PAIRS_MAX;
/// Bytes of commands of one transaction, at most.
pub(super) const QUEUED_BYTES_MAX: usize = 2 << 20;
/// Keys that a connection watches, at most.
pub(super) const WATCHED_MAX: usize = 1024;

/// The answer to `EXEC` where a command was refused.
const EXEC_ABORTED: &str =
    "EXECABORT Transaction discarded because of previous errors. (not applied)";

/// The same where it has a name, and something is watched.
const NAMED_AND_WATCHED: &str = "EXECABORT Transaction discarded because what is watched has no place in KV.ONCE: what \
    an earlier attempt has written would count as a change (not applied)";

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "multi",
        arity: 1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Begins a transaction: commands are queued until EXEC.",
        usage: "",
        run: multi,
    },
    Command {
        name: "exec",
        arity: 1,
        flags: "write noscript loading stale",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Carries out what was queued, at once, if nothing that is watched has changed.",
        usage: "",
        run: exec,
    },
    Command {
        name: "discard",
        arity: 1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Ends a transaction: nothing of it is applied.",
        usage: "",
        run: discard,
    },
    Command {
        name: "watch",
        arity: -2,
        flags: "noscript loading stale fast",
        keys: (1, -1, 1),
        group: "transactions",
        summary: "Has the next EXEC apply nothing if one of the keys has changed by then.",
        usage: "key [key ...]",
        run: watch,
    },
    Command {
        name: "unwatch",
        arity: 1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "transactions",
        summary: "Watches no key any more.",
        usage: "",
        run: unwatch,
    },
];

/// A key that is watched, as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) key: Vec<u8>,
    pub(super) bound: bool,
    pub(super) version: Lsn,
}

impl Watched {
    /// Bytes that it takes.
    const fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len()
    }

    /// Whether the key has changed since, where it is `bound` now and has this `version`.
    pub(super) fn has_changed(&self, bound: bool, version: Lsn) -> bool {
        bound != self.bound || version > self.version
    }
}

/// How far a connection is with a transaction.
#[derive(Debug, Default)]
enum Multi {
    /// There is none.
    #[default]
    Off,
    /// These commands are queued.
    Queueing(Box<Kept>),
    /// One was refused.
    Aborted,
}

/// What a connection keeps of a transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    multi: Multi,
    watched: Vec<Watched>,
    /// Raised whenever no key is watched any more: what is read for an earlier `WATCH` comes too late.
    watches: u32,
}

impl Transaction {
    /// Whether commands are queued, or refused.
    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.multi, Multi::Off)
    }

    /// A command was refused: `EXEC` will be.
    pub(super) fn abort(&mut self) {
        if self.is_open() {
            self.multi = Multi::Aborted;
        }
    }

    /// Ends it, and watches nothing any more.
    pub(super) fn clear(&mut self) {
        self.multi = Multi::Off;
        self.unwatch();
    }

    fn unwatch(&mut self) -> Vec<Watched> {
        self.watches = self.watches.wrapping_add(1);
        std::mem::take(&mut self.watched)
    }

    /// Watches what was read for a `WATCH`.
    pub(super) fn watch(&mut self, watching: &mut Watching) {
        if watching.number != self.watches {
            return;
        }
        for watched in watching.seen.drain(..) {
            // The earlier version counts.
            if self.watched.iter().all(|other| other.key != watched.key) {
                self.watched.push(watched);
            }
        }
    }

    /// Bytes of memory that are held.
    pub(super) fn memory_bytes(&self) -> usize {
        let queued = match &self.multi {
            Multi::Queueing(queued) => queued.memory_bytes(),
            Multi::Off | Multi::Aborted => 0,
        };
        queued + self.watched.iter().map(Watched::bytes).sum::<usize>()
    }
}

/// Queues `command` between `MULTI` and `EXEC`. `None`: it is begun as ever.
pub(super) fn queue(turn: &mut Turn<'_>, command: &Command) -> Option<Step> {
    let is_begun = match command.name {
        "multi" | "exec" | "discard" | "watch" | "reset" | "quit" => true,
        "kv.once" => once::is_exec(turn.args),
        _ => false,
    };
    if is_begun || !turn.core.client.transaction.is_open() {
        return None;
    }
    if !is_arity(command, turn.args.len()) {
        turn.core.client.transaction.abort();
        return Some(wrong_arity(turn, command.name));
    }
    if !may_be_queued(command) {
        let name = command.name.to_ascii_uppercase();
        turn.core.client.transaction.abort();
        return Some(turn.core.error(&format!(
            "ERR {name} is not possible inside a transaction (not applied)"
        )));
    }
    Some(push(turn))
}

/// Whether it has a place in a transaction: it is about keys that it names, or about none.
fn may_be_queued(command: &Command) -> bool {
    let of_keys = matches!(
        command.group,
        "string" | "generic" | "hash" | "sorted-set" | "set"
    ) && command.keys != NO_KEYS;
    let other = matches!(
        command.name,
        "ping" | "echo" | "time" | "select" | "memory" | "unwatch" | "eval" | "evalsha"
    );
    of_keys || other
}

fn push(turn: &mut Turn<'_>) -> Step {
    let transaction = &mut turn.core.client.transaction;
    let fits = match &mut transaction.multi {
        Multi::Queueing(queued) => {
            let bytes = queued.bytes() + Kept::bytes_of(turn.args);
            let fits = queued.len() < QUEUED_MAX && bytes <= QUEUED_BYTES_MAX;
            if fits {
                queued.push(turn.args);
            }
            fits
        }
        // There is nothing to be kept of it.
        Multi::Off | Multi::Aborted => true,
    };
    if fits {
        turn.core.reply(|out| out.simple("QUEUED"));
        return Step::Queued;
    }
    transaction.abort();
    turn.core.error(&format!(
        "ERR a transaction has at most {QUEUED_MAX} commands and {QUEUED_BYTES_MAX} bytes (not applied)"
    ))
}

/// What is said of a value that is taken in part by part, if it has to be refused.
pub(super) fn refusal_of_long(transaction: &mut Transaction) -> Option<String> {
    let refused = transaction.is_open();
    transaction.abort();
    let text = "ERR values of over 1 MiB are not written inside a transaction (not applied)";
    refused.then(|| text.to_owned())
}

fn multi(turn: &mut Turn<'_>) -> Step {
    if turn.core.client.transaction.is_open() {
        return turn.core.error("ERR MULTI calls can not be nested");
    }
    turn.core.client.transaction.multi = Multi::Queueing(Box::default());
    turn.core.reply(|out| out.simple("OK"))
}

fn exec(turn: &mut Turn<'_>) -> Step {
    exec_as(None, turn)
}

/// `EXEC`, of what is written under this name, if there is one.
pub(super) fn exec_as(name: Option<RequestName>, turn: &mut Turn<'_>) -> Step {
    let transaction = &mut turn.core.client.transaction;
    match std::mem::take(&mut transaction.multi) {
        Multi::Off => turn.core.error("ERR EXEC without MULTI"),
        Multi::Aborted => {
            transaction.unwatch();
            turn.core.error(EXEC_ABORTED)
        }
        Multi::Queueing(requests) => {
            let watched = transaction.unwatch();
            if name.is_some() && !watched.is_empty() {
                return turn.core.error(NAMED_AND_WATCHED);
            }
            let asked = Asked {
                form: Form::Array,
                requests: *requests,
                watched,
                name,
            };
            carry_out(turn, asked)
        }
    }
}

/// Begins to carry out the command of `turn`, as a transaction of its own.
pub(super) fn carry_out_alone(turn: &mut Turn<'_>) -> Step {
    let mut requests = Kept::default();
    requests.push(turn.args);
    let asked = Asked {
        form: Form::Single,
        requests,
        watched: Vec::new(),
        name: once::name_of(turn.args),
    };
    carry_out(turn, asked)
}

/// Begins to carry out what is `asked`.
pub(super) fn carry_out(turn: &mut Turn<'_>, asked: Asked) -> Step {
    let begun = Exec::look(asked, turn).and_then(|mut exec| {
        let plan = exec.next(turn.context, turn.scratch)?;
        Ok((plan, exec))
    });
    match begun {
        Ok((Some(plan), exec)) => Step::Call(plan, Gather::Exec(Box::new(exec))),
        Ok((None, exec)) => {
            let mut bytes = Vec::new();
            exec.write(&mut bytes, turn.context.front);
            turn.core.reply_encoded(bytes)
        }
        Err(text) => turn.core.error(&text),
    }
}

fn discard(turn: &mut Turn<'_>) -> Step {
    if !turn.core.client.transaction.is_open() {
        return turn.core.error("ERR DISCARD without MULTI");
    }
    turn.core.client.transaction.clear();
    turn.core.reply(|out| out.simple("OK"))
}

fn unwatch(turn: &mut Turn<'_>) -> Step {
    turn.core.client.transaction.unwatch();
    turn.core.reply(|out| out.simple("OK"))
}

fn watch(turn: &mut Turn<'_>) -> Step {
    if turn.core.client.transaction.is_open() {
        return turn.core.error("ERR WATCH inside MULTI is not allowed");
    }
    let valid = |key| check_key(key).and_then(|()| check_users(key));
    if let Some(error) = turn.args.from(1).find_map(|key| valid(key).err()) {
        return turn.core.error(&format!("ERR {error}"));
    }
    let transaction = &turn.core.client.transaction;
    if transaction.watched.len() + turn.args.len() > WATCHED_MAX + 1 {
        return turn.core.error(&format!(
            "ERR a connection watches at most {WATCHED_MAX} keys: none of these is watched"
        ));
    }
    let watching = Watching {
        keys: KeyList::of(turn.args.from(1)),
        seen: Vec::new(),
        number: transaction.watches,
    };
    let plan = watching.plan(turn.context, turn.scratch);
    Step::Call(plan, Gather::Watch(Box::new(watching)))
}

/// `WATCH` until the versions of its keys are there, region by region.
#[derive(Debug)]
pub(super) struct Watching {
    keys: KeyList,
    seen: Vec<Watched>,
    /// Which `WATCH` it is.
    number: u32,
}

impl Watching {
    /// What is `watched`, to be looked at once more.
    pub(super) fn again(watched: &[Watched]) -> Self {
        Self {
            keys: KeyList::of(watched.iter().map(|watched| watched.key.as_slice())),
            seen: Vec::new(),
            number: 0,
        }
    }

    /// Whether all is known.
    pub(super) const fn is_done(&self) -> bool {
        self.seen.len() == self.keys.len()
    }

    /// Whether any of what was `watched` has changed.
    pub(super) fn differs_from(&self, watched: &[Watched]) -> bool {
        let mut both = watched.iter().zip(&self.seen);
        both.any(|(then, now)| then.has_changed(now.bound, now.version))
    }

    /// The call for the next of the keys, those of one region.
    pub(super) fn plan(&self, context: &Context<'_>, scratch: &mut Scratch) -> Plan {
        let told = self.seen.len();
        let page = &mut scratch.keys;
        page.clear();
        let region = |at| context.service.region_of(self.keys.at(at));
        let next = told..told + self.keys.page(told);
        let here = next.take_while(|at| region(*at) == region(told));
        here.for_each(|at| page.push(self.keys.at(at)));
        Plan::Examine(Wanted::Presence)
    }

    /// Takes what was found. Returns whether all is known; `None`: this is not what was asked for.
    pub(super) fn take(&mut self, response: Response) -> Option<bool> {
        let Response::Examined { found, .. } = response else {
            return None;
        };
        let told = self.seen.len();
        for (key, found) in self.keys.iter().skip(told).zip(found) {
            self.seen.push(Watched {
                key: key.to_vec(),
                bound: found.value.is_some(),
                version: found.version,
            });
        }
        (self.seen.len() > told).then_some(self.is_done())
    }

    /// Bytes that are held.
    pub(super) const fn held(&self) -> usize {
        2 * self.keys.bytes()
    }
}
