//! Clients that send writes again until they know what became of them, beside the load, under names
//! ([`argosy_base::RequestName`]). From a stream of their own, and where groups change only.
//!
//! Each client appends numbers to a list of its own, one behind the other. Where nobody knows whether a number was
//! appended, since a process is gone or the answer says so, the client sends it again under the same name, to whichever
//! server. Now and then it sends an old one again that was appended: as a message that was held up for long. So:
//!
//! - No number is ever appended that was known to be.
//! - In the end each number is in its list once, if it was appended; never, if it surely was not; and at most once, if
//!   the region had forgotten.
//!
//! A client takes a new id now and then, and so often in all that regions forget some.

use std::collections::BTreeMap;

use argosy_base::{ClientId, Outcome, RequestName};
use argosy_engine::{Change, WriteBatch, WriteOptions};
use argosy_server::service::{Failure, Request, Response};

use crate::coverage::Coverage;
use crate::load::Wrong;
use crate::plan::{Plan, WorldKind};
use crate::random::Random;

/// What tokens of these clients have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 47;
/// How many clients there are.
pub(crate) const CLIENTS: usize = 3;
/// Numbers of a run, at most: lists are read whole.
const NUMBERS_MAX: u32 = 500;
/// Old requests that a client may send again.
const OLD_MAX: usize = 6;

/// What became of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Applied,
    NotApplied,
    Unknown,
}

/// A number, and the name under which it is appended.
#[derive(Clone, Copy, Debug)]
struct Append {
    number: u32,
    name: RequestName,
    /// It was sent before, and may have been appended.
    doubt: bool,
    /// It is known to have been appended: it is sent again all the same.
    is_old: bool,
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum What {
    Append(Append),
    /// The list is read, at the end.
    Read,
}

/// What is asked, and of which process.
#[derive(Clone, Copy, Debug)]
struct Asked {
    what: What,
    token: u64,
    process: u32,
}

#[derive(Debug, Default)]
struct Client {
    id: ClientId,
    seq: u64,
    /// What is not settled.
    open: Option<Append>,
    /// Of those that were appended.
    old: Vec<Append>,
    asked: Option<Asked>,
    /// Of all numbers that are settled.
    fates: BTreeMap<u32, Fate>,
    /// The list is to be read.
    wanted: bool,
}

/// What a client asks.
pub(crate) struct Call {
    key: String,
    what: What,
}

/// See the module documentation.
pub(crate) struct Repeating {
    random: Random,
    permille: usize,
    clients: [Client; CLIENTS],
    tokens: u64,
    /// The last number.
    number: u32,
    /// The last id.
    ids: u64,
}

impl Repeating {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 91);
        let does = plan.groups.changes.is_some()
            && plan.kind != WorldKind::Powerless
            && plan.devices.small.is_none()
            && plan.toy.is_none();
        let permille = random.pick(&[20, 60, 150]);
        Self {
            permille: if does { permille } else { 0 },
            random,
            clients: Default::default(),
            tokens: TOKEN,
            number: 0,
            ids: 0,
        }
    }

    /// The server, of so many, that `client` asks now, if it does.
    pub(crate) fn whom(&mut self, client: usize, starts: bool, servers: usize) -> Option<usize> {
        let Client {
            open,
            asked,
            wanted,
            ..
        } = &self.clients[client];
        if self.permille == 0 || asked.is_some() {
            return None;
        }
        let often = match (open, wanted) {
            (Some(_), true) => 500,
            (Some(_), false) => 60,
            (None, true) => 500,
            (None, false) if starts && self.number < NUMBERS_MAX => self.permille,
            (None, false) => 0,
        };
        (self.random.below(1000) < often).then(|| self.random.below(servers))
    }

    /// What `client` asks of `process`.
    pub(crate) fn next(&mut self, client: usize, process: u32) -> (u64, Call) {
        let token = self.tokens;
        self.tokens += 1;
        let what = self.what(client);
        let asked = Asked {
            what,
            token,
            process,
        };
        self.clients[client].asked = Some(asked);
        let key = key_of(client);
        (token, Call { key, what })
    }

    fn what(&mut self, index: usize) -> What {
        let client = &mut self.clients[index];
        if let Some(open) = client.open {
            return What::Append(open);
        }
        if client.wanted {
            return What::Read;
        }
        if !client.old.is_empty() && self.random.chance(30) {
            return What::Append(self.random.pick(&client.old));
        }
        if client.id == ClientId(0) || self.random.chance(25) {
            self.ids += 1;
            client.id = ClientId(self.ids);
            client.seq = 0;
        }
        self.number += 1;
        client.seq += 1;
        let append = Append {
            number: self.number,
            name: RequestName {
                client: client.id,
                seq: client.seq,
            },
            doubt: false,
            is_old: false,
        };
        client.open = Some(append);
        What::Append(append)
    }

    /// Takes the answer to a call.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn answer(
        &mut self,
        token: u64,
        response: Response,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        let is_asked =
            |client: &&mut Client| client.asked.is_some_and(|asked| asked.token == token);
        let Some(client) = self.clients.iter_mut().find(is_asked) else {
            return Ok(());
        };
        let Some(asked) = client.asked.take() else {
            return Ok(());
        };
        match asked.what {
            What::Append(append) => client.appended(append, response, coverage),
            What::Read => client.read(&response),
        }
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, process: u32) {
        for client in &mut self.clients {
            let lost = client.asked.take_if(|asked| asked.process == process);
            if let Some(What::Append(_)) = lost.map(|asked| asked.what)
                && let Some(open) = &mut client.open
            {
                open.doubt = true;
            }
        }
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.clients.iter().any(|client| client.asked.is_some())
    }

    /// Has all lists be read, and judged, once every number is settled.
    pub(crate) fn want_all(&mut self) {
        for client in &mut self.clients {
            client.wanted = self.permille > 0;
        }
    }

    /// Whether that is still to be done.
    #[must_use]
    pub(crate) fn is_wanting(&self) -> bool {
        self.clients.iter().any(|client| client.wanted)
    }
}

fn key_of(client: usize) -> String {
    format!("dr/{client}")
}

impl Client {
    fn appended(
        &mut self,
        append: Append,
        response: Response,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        let Append {
            number,
            name,
            doubt,
            is_old,
        } = append;
        let what = format!("number {number}, {name}");
        let fate = match response {
            Response::Written { applied: true, .. } if is_old => {
                return Err(format!("{what}, was appended before, and is again"));
            }
            Response::Written { applied: true, .. } => Fate::Applied,
            Response::WrittenBefore { .. } if is_old => {
                coverage.add("old requests recognised", 1);
                return Ok(());
            }
            Response::WrittenBefore { .. } if doubt => {
                coverage.add("requests in doubt found applied", 1);
                Fate::Applied
            }
            Response::Failed(Failure::Forgotten(_)) if is_old => {
                coverage.add("old requests forgotten", 1);
                return Ok(());
            }
            Response::Failed(Failure::Forgotten(_)) => {
                // The next name has another id.
                self.id = ClientId(0);
                match doubt {
                    true => Fate::Unknown,
                    false => Fate::NotApplied,
                }
            }
            Response::Failed(
                Failure::Unavailable { outcome, .. }
                | Failure::Busy { outcome, .. }
                | Failure::Storage { outcome, .. },
            ) => {
                if let Some(open) = self.open.as_mut().filter(|_| !is_old) {
                    open.doubt |= outcome != Outcome::NotApplied;
                }
                return Ok(());
            }
            odd => return Err(format!("{what} is answered {odd:?}")),
        };
        coverage.add("named requests settled", 1);
        self.open = None;
        self.fates.insert(number, fate);
        if fate == Fate::Applied {
            let old = Append {
                is_old: true,
                ..append
            };
            if self.old.len() >= OLD_MAX {
                self.old.remove(0);
            }
            self.old.push(old);
        }
        Ok(())
    }

    fn read(&mut self, response: &Response) -> Result<(), Wrong> {
        let list = match response {
            Response::Value(value) => value.as_deref().unwrap_or_default(),
            Response::Failed(_) => return Ok(()),
            odd => return Err(format!("a list is answered {odd:?}")),
        };
        self.wanted = false;
        let text = String::from_utf8_lossy(list);
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        for number in text.split('.').filter_map(|number| number.parse().ok()) {
            *times.entry(number).or_default() += 1;
        }
        for (number, fate) in &self.fates {
            let times = times.remove(number).unwrap_or_default();
            let fits = match fate {
                Fate::Applied => times == 1,
                Fate::NotApplied => times == 0,
                Fate::Unknown => times <= 1,
            };
            if !fits {
                return Err(format!(
                    "number {number}, {fate:?}, is {times} times in {text}"
                ));
            }
        }
        match times.keys().next() {
            Some(number) => Err(format!("number {number} is in {text}, and nobody sent it")),
            None => Ok(()),
        }
    }
}

impl Call {
    /// The request, handed to `ask`.
    pub(crate) fn request<T>(&self, ask: impl FnOnce(Request<'_>) -> T) -> T {
        let key = self.key.as_bytes();
        let What::Append(append) = self.what else {
            return ask(Request::Get { key });
        };
        let mut batch = WriteBatch::new();
        let item = format!("{}.", append.number);
        let changed = batch.change(key, Change::Append, item.as_bytes());
        changed.expect("within the limits");
        batch.name(append.name);
        ask(Request::Write {
            batch: &batch,
            options: WriteOptions::default(),
        })
    }
}
