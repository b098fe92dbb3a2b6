//! `SLOWLOG`: the latest commands that took long.
//!
//! A command that is not answered at once has a [`Trace`]: when it was begun, and how its request began. When its
//! reply is written, the time since is compared with [`SlowLogSettings::slower_than`], and what took as long becomes an
//! entry of a ring. Both moments are those at which a thread began the round in which it read the request, or took the
//! last answer: no clock is read for the log. So it knows what waited: for the device, for members, for locks and for
//! commands before it. What was answered within its round, from memory, is not in it, and costs nothing.
//!
//! Bounded: a trace has at most [`TRACE_BYTES`] bytes of a request, the ring [`SlowLogSettings::entries_max`] entries.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argosy_base::Instant;
use argosy_wire::resp::{Args, Encoder};

use super::command::{Command, NO_KEYS, Step, Turn, shown, unknown_subcommand, wrong_arity};
use super::docs::help;
use super::front::{Context, FrontEnd};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "slowlog",
    arity: -2,
    flags: "admin loading stale",
    keys: NO_KEYS,
    group: "server",
    summary: "Tells of the latest commands that waited long: GET, LEN, RESET, HELP.",
    usage: "GET [count] | LEN | RESET | HELP",
    run: slowlog,
}];

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogSettings {
    /// Commands that waited at least so long.
    pub slower_than: Duration,
    /// Most entries; the oldest go. 0: nothing is recorded.
    pub entries_max: usize,
}

impl SlowLogSettings {
    /// Most entries that a server keeps: together they take about a megabyte.
    pub const ENTRIES_LIMIT: usize = 4096;
}

impl Default for SlowLogSettings {
    fn default() -> Self {
        Self {
            slower_than: Duration::from_millis(10),
            entries_max: 128,
        }
    }
}

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundMoment {
    /// Since the server was started.
    pub now: Instant,
    /// The time of day: since the beginning of 1970, UTC.
    pub wall: Duration,
}

impl RoundMoment {
    /// That of `context`.
    pub(super) const fn of(context: &Context<'_>) -> Self {
        Self {
            now: context.now,
            wall: context.wall,
        }
    }
}

/// Bytes of a request that an entry repeats, at most.
const TRACE_BYTES: usize = 128;
/// Arguments of a request that an entry repeats, at most.
const TRACE_ARGS: usize = 12;

/// A command that waits: one piece of memory, filled without looking at what is in it.
#[derive(Debug)]
pub(super) struct Trace {
    since: Instant,
    /// Arguments of the request.
    count: usize,
    /// How long the first of them are.
    lens: [u32; TRACE_ARGS],
    /// The bytes of these, one behind the other, up to the end of the room.
    bytes: [u8; TRACE_BYTES],
}

impl Trace {
    /// Of a request with these arguments that was begun at `since`.
    pub(super) fn new(since: Instant, args: Args<'_>) -> Box<Self> {
        let mut trace = Box::new(Self {
            since,
            count: args.len(),
            lens: [0; TRACE_ARGS],
            bytes: [0; TRACE_BYTES],
        });
        let mut used = 0;
        for (arg, len) in args.from(0).zip(&mut trace.lens) {
            *len = u32::try_from(arg.len()).unwrap_or(u32::MAX);
            let kept = arg.len().min(TRACE_BYTES - used);
            trace.bytes[used..used + kept].copy_from_slice(&arg[..kept]);
            used += kept;
        }
        trace
    }

    /// The arguments, as they are shown: what is left out is said.
    fn args(&self) -> Vec<Vec<u8>> {
        let (mut shown, mut rest) = (Vec::new(), self.bytes.as_slice());
        for (place, len) in self.lens.iter().enumerate().take(self.count) {
            let len = *len as usize;
            if rest.is_empty() {
                shown.push(more(self.count - place, "arguments"));
                return shown;
            }
            let (arg, behind) = rest.split_at(len.min(rest.len()));
            let mut arg = arg.to_vec();
            if arg.len() < len {
                arg.append(&mut more(len - arg.len(), "bytes"));
            }
            shown.push(arg);
            rest = behind;
        }
        if self.count > TRACE_ARGS {
            shown.push(more(self.count - TRACE_ARGS, "arguments"));
        }
        shown
    }

    /// The command has been answered at `at`, on the connection `id`: puts it into the log, if it took long.
    pub(super) fn end(&self, at: RoundMoment, id: u64, front: &FrontEnd) {
        let log = &front.operators.slow_log;
        let took = at.now.since(self.since);
        if took < log.settings.slower_than || log.settings.entries_max == 0 {
            return;
        }
        let client = front.clients().get(&id).cloned().unwrap_or_default();
        let mut state = log.state();
        let number = state.next;
        state.next += 1;
        while state.entries.len() >= log.settings.entries_max {
            state.entries.pop_back();
        }
        state.entries.push_front(Entry {
            number,
            at: at.wall,
            took,
            args: self.args(),
            address: client.address,
            name: client.name,
        });
    }
}

/// How Redis says what was left out.
fn more(count: usize, what: &str) -> Vec<u8> {
    format!("... ({count} more {what})").into_bytes()
}

/// A command that took long.
#[derive(Debug)]
struct Entry {
    number: u64,
    /// When it was answered.
    at: Duration,
    took: Duration,
    args: Vec<Vec<u8>>,
    address: String,
    name: Vec<u8>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct SlowLog {
    pub(super) settings: SlowLogSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next entry: never used again, as in Redis.
    next: u64,
    /// The latest first.
    entries: VecDeque<Entry>,
}

impl SlowLog {
    /// An empty one.
    pub(super) fn new(settings: SlowLogSettings) -> Self {
        let entries_max = settings.entries_max.min(SlowLogSettings::ENTRIES_LIMIT);
        Self {
            settings: SlowLogSettings {
                entries_max,
                ..settings
            },
            state: Mutex::default(),
        }
    }

    /// Whether anything is recorded.
    pub(super) const fn is_on(&self) -> bool {
        self.settings.entries_max > 0
    }

    /// The arguments of the latest entry.
    #[cfg(test)]
    pub(super) fn latest_args(&self) -> Option<Vec<Vec<u8>>> {
        let state = self.state();
        state.entries.front().map(|entry| entry.args.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic aborts the process; in tests the ring is consistent after every method.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries that are told without a count, as in Redis.
const TOLD: usize = 10;

fn slowlog(turn: &mut Turn<'_>) -> Step {
    let log = &turn.context.front.operators.slow_log;
    let subcommand = turn.args.at(1).to_ascii_lowercase();
    match (subcommand.as_slice(), turn.args.len()) {
        (b"get", 2 | 3) => {
            let count = match turn.args.get(2).map(count) {
                None => TOLD,
                Some(Some(count)) => count,
                Some(None) => {
                    let text = "ERR count should be greater than or equal to -1";
                    return turn.core.error(text);
                }
            };
            let state = log.state();
            let told = state.entries.len().min(count);
            turn.core.reply(|out| {
                out.array(told);
                state
                    .entries
                    .iter()
                    .take(told)
                    .for_each(|entry| entry.write(out));
            })
        }
        (b"len", 2) => {
            let len = log.state().entries.len() as u64;
            turn.core.reply(|out| out.count(len))
        }
        (b"reset", 2) => {
            log.state().entries.clear();
            turn.core.reply(|out| out.simple("OK"))
        }
        (b"help", 2) => help(turn, "SLOWLOG", HELP),
        (b"get" | b"len" | b"reset" | b"help", _) => {
            let name = format!("slowlog|{}", shown(&subcommand));
            wrong_arity(turn, &name)
        }
        _ => unknown_subcommand(turn, "SLOWLOG"),
    }
}

/// How many entries are wanted: -1 for all.
fn count(arg: &[u8]) -> Option<usize> {
    match std::str::from_utf8(arg).ok()?.parse().ok()? {
        -1_i64 => Some(usize::MAX),
        count => usize::try_from(count).ok(),
    }
}

const HELP: &[&str] = &[
    "GET [<count>]",
    "    The newest commands that waited long: 10, or so many; -1 is all of them.",
    "    Each is: number, when (seconds of 1970), how long (microseconds), its words, who (ip:port), and the",
    "    connection's name.",
    "LEN",
    "    How many are kept.",
    "RESET",
    "    Forgets them.",
];

impl Entry {
    fn write(&self, out: &mut Encoder<'_>) {
        out.array(6);
        out.count(self.number);
        out.count(self.at.as_secs());
        out.count(u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX));
        out.array(self.args.len());
        self.args.iter().for_each(|arg| out.bulk(arg));
        out.bulk(self.address.as_bytes());
        out.bulk(&self.name);
    }
}
