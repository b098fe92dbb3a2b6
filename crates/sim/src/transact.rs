//! Redis clients with transactions, beside the load: `MULTI` … `EXEC`, with and without `WATCH`, through sessions of
//! the server's own front end. From a stream of their own.
//!
//! Each transaction reads some of a few keys and appends its number to some, so that the history tells which came
//! before which ([`appends`]): in the end all lists are read, and the whole is judged. Where it watches a key it reads
//! that before, too: what it reads inside has to be the same.
//!
//! A connection ends with the process that it leads to, and then nobody knows what became of an `EXEC` that was sent.
//!
//! Their keys lie in the first region, in front of all objects. Where servers lose power, and what was acknowledged
//! with it, and on small devices, nothing of it is done.

use std::time::Duration;

use argosy_base::Instant;
use argosy_history::appends::{self, Fate, ListAccess, Transaction};
use argosy_server::resp::{CallToken, Context, FrontEnd, Limits, Session, Settings};
use argosy_server::service::{Request, Response, Service};
use argosy_wire::api::Scratch;

use crate::coverage::Coverage;
use crate::load::Wrong;
use crate::plan::Plan;
use crate::random::Random;

/// What tokens of these clients have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 46;
/// How many clients there are.
pub(crate) const CLIENTS: usize = 4;
/// How many keys.
const KEYS: usize = 4;
/// Transactions of a run, at most: lists are read whole.
const TRANSACTIONS_MAX: usize = 400;

fn key_of(index: usize) -> String {
    format!("dt/{index}")
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The answers to `WATCH` and `GET`.
    Watch,
    /// That to `EXEC`.
    Exec,
}

/// A connection, with the transaction on it.
struct Connection {
    /// The process that it leads to.
    process: u32,
    session: Session,
    /// Calls that are not answered: the token that the process knows, and the session's.
    calls: Vec<(u64, CallToken)>,
    stage: Stage,
    transaction: Transaction,
    /// What was read of the first key before `MULTI`.
    watched: Option<Vec<u32>>,
    /// All lists are read, at the end.
    is_last: bool,
}

/// See the module documentation.
pub(crate) struct Transacting {
    random: Random,
    permille: usize,
    front: FrontEnd,
    scratch: Scratch,
    clients: [Option<Connection>; CLIENTS],
    tokens: u64,
    /// A number that rises with every request and answer.
    time: u64,
    /// The next transaction.
    number: u32,
    history: Vec<Transaction>,
    /// The lists are to be read.
    wanted: bool,
}

impl Transacting {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 90);
        let permille = random.pick(&[0, 15, 60]);
        let does = !plan.loses_ends() && plan.devices.small.is_none();
        Self {
            permille: if does { permille } else { 0 },
            random,
            front: FrontEnd::new(Settings::default(), Instant::default()),
            scratch: Scratch::default(),
            clients: Default::default(),
            tokens: TOKEN,
            time: 0,
            number: 0,
            history: Vec::new(),
            wanted: false,
        }
    }

    /// The server, of so many, to which `client` connects now, if it does.
    pub(crate) fn whom(&mut self, client: usize, starts: bool, servers: usize) -> Option<usize> {
        let begins = starts && self.permille > 0 && self.random.below(1000) < self.permille;
        let last = self.wanted && client == 0;
        let free = self.clients[client].is_none() && self.history.len() < TRANSACTIONS_MAX;
        let free = free || last && self.clients[client].is_none();
        ((begins || last) && free).then(|| self.random.below(servers))
    }

    /// Has `client` begin a transaction, over a connection to `process`.
    pub(crate) fn begin(&mut self, client: usize, process: u32) {
        self.time += 1;
        self.number += 1;
        let is_last = self.wanted && client == 0;
        let number = self.number;
        let mut connection = Connection {
            process,
            session: Session::new(number.into(), Limits::default()),
            calls: Vec::new(),
            stage: Stage::Exec,
            transaction: Transaction {
                number,
                began: self.time,
                fate: Fate::NotApplied,
                steps: self.steps(is_last),
            },
            watched: None,
            is_last,
        };
        if !is_last && self.random.chance(40) {
            let key = key_of(connection.transaction.steps[0].key);
            connection.stage = Stage::Watch;
            connection.send(&format!("WATCH {key}\r\nGET {key}\r\n"));
        } else {
            connection.send_all();
        }
        self.clients[client] = Some(connection);
    }

    /// What a transaction does with keys; the first of them is read.
    fn steps(&mut self, is_last: bool) -> Vec<ListAccess> {
        let mut keys: Vec<usize> = (0..KEYS).collect();
        if is_last {
            let read = |key| ListAccess {
                key,
                read: Some(Vec::new()),
                appends: false,
            };
            return keys.into_iter().map(read).collect();
        }
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.between(1, 3));
        let mut first = true;
        let steps = keys.into_iter().map(|key| {
            let reads = std::mem::take(&mut first) || self.random.chance(50);
            ListAccess {
                key,
                read: reads.then(Vec::new),
                appends: !reads || self.random.chance(60),
            }
        });
        steps.collect()
    }

    /// Makes calls of `client` to the process that it is connected to, by `call`. Returns whether there were any.
    pub(crate) fn go_on(
        &mut self,
        client: usize,
        service: &dyn Service,
        mut call: impl FnMut(Request<'_>, u64) -> Option<Response>,
    ) -> bool {
        let Some(connection) = &mut self.clients[client] else {
            return false;
        };
        let context = Context {
            front: &self.front,
            service,
            now: Instant::default(),
            wall: Duration::ZERO,
        };
        let mut any = false;
        // One at a time: others come in between.
        if let Some(next) = connection.session.next_call(&context, &mut self.scratch) {
            any = true;
            let (token, own) = (self.tokens, next.token);
            self.tokens += 1;
            match call(next.request, token) {
                Some(response) => connection.session.answer(&self.front, own, response),
                None => connection.calls.push((token, own)),
            }
        }
        any
    }

    /// The process that `client` is connected to.
    pub(crate) fn process_of(&self, client: usize) -> Option<u32> {
        Some(self.clients[client].as_ref()?.process)
    }

    /// Takes the answer to a call.
    pub(crate) fn answer(&mut self, token: u64, response: Response) {
        for connection in self.clients.iter_mut().flatten() {
            let place = connection.calls.iter().position(|(of, _)| *of == token);
            if let Some(place) = place {
                let (_, own) = connection.calls.swap_remove(place);
                connection.session.answer(&self.front, own, response);
                return;
            }
        }
    }

    /// Takes what `client` was answered, if that has come.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn end(&mut self, client: usize, coverage: &mut Coverage) -> Result<(), Wrong> {
        let Some(connection) = &mut self.clients[client] else {
            return Ok(());
        };
        let session = &mut connection.session;
        if session.has_request() || !session.is_idle() || session.output().is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(session.output()).into_owned();
        session.wrote(text.len());
        let lines: Vec<&str> = text.lines().collect();
        self.time += 1;
        if connection.stage == Stage::Watch {
            // Where it cannot be read, that is the end of it.
            match lines.as_slice() {
                ["+OK", .., list] if !list.starts_with('-') => {
                    connection.watched = Some(list_of(list));
                    connection.stage = Stage::Exec;
                    connection.send_all();
                }
                _ => self.clients[client] = None,
            }
            return Ok(());
        }
        let Some(connection) = self.clients[client].take() else {
            return Ok(());
        };
        let is_last = connection.is_last;
        let transaction = connection.judge(&lines, self.time, coverage)?;
        if is_last && matches!(transaction.fate, Fate::Applied(_)) {
            self.wanted = false;
            let lists = transaction.steps.iter();
            let lists = lists.map(|step| step.read.clone().unwrap_or_default());
            return appends::check(&self.history, &lists.collect::<Vec<_>>());
        }
        if !is_last {
            self.history.push(transaction);
        }
        Ok(())
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, process: u32) {
        for client in &mut self.clients {
            if let Some(mut lost) = client.take_if(|of| of.process == process) {
                if lost.is_last {
                    continue;
                }
                lost.transaction.fate = match lost.stage {
                    Stage::Watch => Fate::NotApplied,
                    Stage::Exec => Fate::Unknown,
                };
                lost.transaction.forget_reads();
                self.history.push(lost.transaction);
            }
        }
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.clients.iter().any(Option::is_some)
    }

    /// Has all lists be read, and everything judged.
    pub(crate) const fn want_all(&mut self) {
        self.wanted = self.permille > 0;
    }

    /// Whether that is still to be done.
    #[must_use]
    pub(crate) const fn is_wanting(&self) -> bool {
        self.wanted
    }
}

/// The list that a value is.
fn list_of(value: &str) -> Vec<u32> {
    let items = value.split('.');
    items.filter_map(|item| item.parse().ok()).collect()
}

impl Connection {
    fn send(&mut self, text: &str) {
        self.session.receive(text.as_bytes());
    }

    /// Sends the transaction.
    fn send_all(&mut self) {
        let mut text = "MULTI\r\n".to_owned();
        for ListAccess { key, read, appends } in &self.transaction.steps {
            let key = key_of(*key);
            if read.is_some() {
                text += &format!("GET {key}\r\n");
            }
            if *appends {
                text += &format!("APPEND {key} {}.\r\n", self.transaction.number);
            }
        }
        text += "EXEC\r\n";
        self.send(&text);
    }

    /// What became of it, where these `lines` were answered at `time`.
    fn judge(
        mut self,
        lines: &[&str],
        time: u64,
        coverage: &mut Coverage,
    ) -> Result<Transaction, Wrong> {
        let odd = || format!("a transaction is answered {lines:?}");
        let commands = self.transaction.steps.iter();
        let commands =
            commands.map(|step| usize::from(step.read.is_some()) + usize::from(step.appends));
        let commands: usize = commands.sum();
        // `OK`, and a line for each command that was queued.
        let (queued, rest) = lines.split_at_checked(1 + commands).ok_or_else(odd)?;
        if queued[0] != "+OK" || queued[1..].iter().any(|line| *line != "+QUEUED") {
            return Err(odd());
        }
        let mut rest = rest.iter();
        let count = format!("*{commands}");
        match rest.next().copied() {
            Some("*-1") if self.watched.is_some() => coverage.add("transactions broken", 1),
            Some(line) if line.ends_with("(not applied)") => {
                coverage.add("transactions given up", 1);
            }
            Some(line) if line.starts_with("-UNCERTAIN") => self.transaction.fate = Fate::Unknown,
            Some(line) if line == count => {
                coverage.add("transactions applied", 1);
                self.transaction.fate = Fate::Applied(time);
            }
            _ => return Err(odd()),
        }
        if !matches!(self.transaction.fate, Fate::Applied(_)) {
            self.transaction.forget_reads();
            return Ok(self.transaction);
        }
        for step in &mut self.transaction.steps {
            if let Some(read) = &mut step.read {
                match rest.next().copied() {
                    Some("$-1") => {}
                    Some(line) if line.starts_with('$') => {
                        *read = list_of(rest.next().ok_or_else(odd)?);
                    }
                    _ => return Err(odd()),
                }
            }
            if step.appends && !rest.next().is_some_and(|line| line.starts_with(':')) {
                return Err(odd());
            }
        }
        let inside = self.transaction.steps[0].read.as_ref();
        match &self.watched {
            Some(watched) if Some(watched) != inside => Err(format!(
                "a key that was watched was {watched:?}, and {inside:?} inside: {lines:?}"
            )),
            _ => Ok(self.transaction),
        }
    }
}
