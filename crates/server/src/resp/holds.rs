//! Which requests of a connection wait for those before them.
//!
//! The calls of a pipeline are under way together. What is carried out later than what comes behind it holds that up:
//!
//! - a change that may be made part by part (`long`): what concerns its key, until it is answered;
//! - `EXEC`, a script and `WATCH`: everything, until they are answered;
//! - a call that a worker carries out: where it reads keys, what concerns these; otherwise everything;
//! - a read that was sent to another server, which may read later, but writes in order: writes of its keys.
//!
//! So a client's reads see its writes before them, and none behind them. Commands about the connection never wait.

use argosy_base::checksum::extend;
use argosy_wire::api::Target;
use argosy_wire::resp::Args;

use super::command;
use crate::service::{Begun, Request};

/// Why a request may be carried out later than what comes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It may be made part by part.
    Change,
    /// A worker carries its present call out.
    Worker,
    /// Another server carries its present read out.
    Sent,
}

/// What a request holds up.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The number of its command.
    sequence: u32,
    /// The checksum of a key; `None`: everything.
    key: Option<u32>,
    why: Why,
}

/// What a call that was not answered at once holds up.
#[derive(Debug)]
pub(super) enum Holding {
    /// Nothing: it was carried out.
    Nothing,
    /// Everything.
    All,
    /// What concerns the keys with these checksums, or only what writes them.
    Keys {
        /// The checksums.
        keys: Vec<u32>,
        /// Only writes.
        writes: bool,
    },
}

impl Holding {
    /// That of `request`, of which this became.
    pub(super) fn of(request: &Request<'_>, begun: &Begun) -> Self {
        let writes = match begun {
            Begun::Answered(_) | Begun::Waits => return Self::Nothing,
            Begun::Sent => true,
            Begun::NeedsDevice => false,
        };
        let keys = match request.target() {
            Target::Key(key) => vec![extend(0, key)],
            Target::Keys { keys, .. } | Target::Together { keys, .. } => {
                keys.iter().map(|key| extend(0, key)).collect()
            }
            _ if writes => return Self::Nothing,
            _ => return Self::All,
        };
        Self::Keys { keys, writes }
    }
}

/// What holds later requests up. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Holds {
    all: Vec<Hold>,
    /// A request waits.
    pub(super) waits: bool,
}

impl Holds {
    /// Command number `sequence` is a change of `key`.
    pub(super) fn change(&mut self, sequence: u32, key: &[u8]) {
        let key = Some(extend(0, key));
        let why = Why::Change;
        self.all.push(Hold { sequence, key, why });
    }

    /// Command number `sequence` holds everything up until it is answered.
    pub(super) fn everything(&mut self, sequence: u32) {
        let (key, why) = (None, Why::Change);
        self.all.push(Hold { sequence, key, why });
    }

    /// The call of command number `sequence` holds this up until it is answered.
    pub(super) fn call(&mut self, sequence: u32, holding: Holding) {
        let (keys, why) = match holding {
            Holding::Nothing => return,
            Holding::All => {
                let (key, why) = (None, Why::Worker);
                return self.all.push(Hold { sequence, key, why });
            }
            Holding::Keys { keys, writes: true } => (keys, Why::Sent),
            Holding::Keys { keys, .. } => (keys, Why::Worker),
        };
        let keys = keys.into_iter().map(Some);
        let holds = keys.map(|key| Hold { sequence, key, why });
        self.all.extend(holds);
    }

    /// The call of that command has been answered; so has the command, where this `ends` it.
    pub(super) fn answered(&mut self, sequence: u32, ends: bool) {
        if self.all.is_empty() {
            return;
        }
        let before = self.all.len();
        self.all
            .retain(|hold| hold.sequence != sequence || hold.why == Why::Change && !ends);
        self.waits &= self.all.len() == before;
    }

    /// Whether there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a request has to wait for one of them: it has a key of theirs, or may have any key.
    pub(super) fn hold_up(&self, args: Args<'_>) -> bool {
        let command = command::find(args.at(0));
        let Some(command) = command.filter(|command| command.group != "connection") else {
            return false;
        };
        let writes = command.flags.starts_with("write");
        let concern = |hold: &&Hold| writes || hold.why != Why::Sent;
        if !self.all.iter().any(|hold| concern(&hold)) {
            return false;
        }
        let (first, last, step) = command.keys;
        if first == 0 {
            return true;
        }
        let len = i64::try_from(args.len()).unwrap_or(i64::MAX);
        let last = if last < 0 { len + last } else { last };
        let place = |at: i64| usize::try_from(at).unwrap_or(0);
        let keys = (place(first)..=place(last)).step_by(place(step).max(1));
        let mut keys = keys.filter_map(|at| args.get(at));
        keys.any(|key| {
            let key = extend(0, key);
            let mut holds = self.all.iter().filter(concern);
            holds.any(|hold| hold.key.is_none_or(|of| of == key))
        })
    }
}
