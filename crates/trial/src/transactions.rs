//! Transactions of clients over the Redis protocol: `MULTI` … `EXEC`, with and without `WATCH`.
//!
//! A *list* is a string to which transactions append their numbers, so that the history tells which came before which
//! ([`appends`]). Each transaction reads some of the few lists of its region and appends to some. Where it watches one,
//! it reads that before, too: what it reads inside has to be the same.
//!
//! # Memory
//!
//! Lists are read whole, so they stay short: [`ROUND`] transactions of a region use the same lists, and the next ones
//! others. A transaction takes half a kilobyte or so. A client begins one every [`TICK`]: 140,000 in 20 minutes, with
//! twelve clients, and some 60 MB.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use argosy_base::{Clock as _, Instant, Outcome};
use argosy_bench::rng::Rng;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, RespClient};
use argosy_device::SystemClock;
use argosy_history::appends::{self, Fate, ListAccess, Transaction};
use parking_lot::Mutex;

use crate::doors::Door;
use crate::load::TICK;
use crate::record::{Came, Op, Record, Sample};
use crate::time::End;

/// Lists that transactions choose from.
const LISTS: usize = 3;

/// So many transactions of a region use the same lists.
const ROUND: u32 = 64;

/// Of 100 transactions, how many watch what they read.
const WATCH_PERCENT: u64 = 40;

/// Of 100 that watch nothing, how many have a name.
const NAMED_PERCENT: u64 = 50;

/// How often one that has a name is sent, at most.
const SENT_MAX: usize = 100;

/// How long a client waits before it sends or asks again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The transactions of one region.
#[derive(Debug, Default)]
pub(crate) struct OfRegion {
    next: AtomicU32,
    ended: Mutex<Vec<Transaction>>,
}

/// One client.
pub(crate) struct Transacting<'a> {
    /// The number of the server that it asks.
    pub server: u8,
    /// Where that is.
    pub addr: SocketAddr,
    /// The region of its lists.
    pub region: usize,
    /// A name in that region.
    pub base: &'a [u8],
    /// The transactions of that region.
    pub own: &'a OfRegion,
    /// Where it records what is wrong, or odd.
    pub record: &'a Record,
    /// What it chooses by.
    pub rng: Rng,
}

/// A transaction that is sent, once or several times.
struct Sent<'a> {
    number: u32,
    steps: &'a [ListAccess],
    watches: bool,
    /// Its sequence number, if it has a name.
    named: Option<u64>,
}

/// What a client has while it runs.
#[derive(Default)]
struct Connected {
    client: Option<RespClient>,
    /// The id under which it names transactions.
    id: Option<i64>,
    /// Transactions with names, so far.
    named: u64,
}

/// What came of a transaction.
struct Ended {
    fate: Came,
    /// What was answered to each step, where it was applied.
    answers: Vec<Reply>,
    /// What was read of the first list before.
    watched: Option<Vec<u32>>,
}

impl Ended {
    const fn without(fate: Came) -> Self {
        Self {
            fate,
            answers: Vec::new(),
            watched: None,
        }
    }

    /// Whether it was told what it has read.
    const fn is_told(&self) -> bool {
        !self.answers.is_empty()
    }
}

/// The name of a list of the region in which `base` lies.
fn name_of(base: &[u8], round: u32, list: usize) -> Vec<u8> {
    let mut name = base.to_vec();
    name.extend_from_slice(format!("/{round}/{list}").as_bytes());
    name
}

/// The numbers of a list, one behind the other; `None` where it is none.
fn numbers_of(reply: &Reply) -> Option<Vec<u32>> {
    let text = match reply {
        Reply::Bulk(None) => return Some(Vec::new()),
        Reply::Bulk(Some(text)) => std::str::from_utf8(text).ok()?,
        _ => return None,
    };
    let numbers = text.strip_suffix(',')?.split(',');
    numbers.map(|number| number.parse().ok()).collect()
}

impl Transacting<'_> {
    /// Begins one transaction after the other until the end comes. Returns what is known of their times.
    pub(crate) fn run(mut self, end: &End) -> Vec<Sample> {
        let mut samples = Vec::new();
        let mut connected = Connected::default();
        while end.wait_for_tick(TICK) {
            samples.push(self.transact(&mut connected, end));
        }
        samples
    }

    fn transact(&mut self, connected: &mut Connected, end: &End) -> Sample {
        let number = self.own.next.fetch_add(1, Ordering::Relaxed);
        let steps = self.steps();
        let watches = self.rng.below(100) < WATCH_PERCENT;
        let is_named = !watches && self.rng.below(100) < NAMED_PERCENT;
        if is_named {
            connected.named += 1;
        }
        let sent = Sent {
            number,
            steps: &steps,
            watches,
            named: is_named.then_some(connected.named),
        };
        let began = SystemClock.now().as_nanos();
        let mut ended = self.carry_out(connected, &sent);
        if is_named && ended.fate == Came::Unknown {
            ended = self.send_again(connected, &sent, end);
        }
        let now = SystemClock.now().as_nanos();
        let came = ended.fate;
        let mut transaction = Transaction {
            number,
            began,
            fate: match came {
                Came::Answered => Fate::Applied(now),
                Came::Unmet | Came::NotApplied => Fate::NotApplied,
                Came::Unknown => Fate::Unknown,
            },
            steps,
        };
        match ended.is_told() {
            true => self.take_reads(&mut transaction, &ended),
            false => transaction.forget_reads(),
        }
        self.own.ended.lock().push(transaction);
        Sample {
            began,
            ended: now,
            region: u8::try_from(self.region).expect("few regions"),
            door: Door::Resp(self.server),
            op: Op::Transact,
            came,
        }
    }

    /// What a transaction does: with one to all lists, the first of which it reads.
    fn steps(&mut self) -> Vec<ListAccess> {
        let mut below = |bound: usize| {
            let chosen = self.rng.below(u64::try_from(bound).expect("few"));
            usize::try_from(chosen).expect("few")
        };
        let (first, count) = (below(LISTS), 1 + below(LISTS));
        let chosen = (0..count).map(|index| {
            let reads = index == 0 || below(2) == 0;
            ListAccess {
                key: (first + index) % LISTS,
                read: reads.then(Vec::new),
                appends: !reads || below(3) > 0,
            }
        });
        chosen.collect()
    }

    /// Sends a transaction again, of which nobody knows whether it was applied, until it is known that it was.
    fn send_again(&self, connected: &mut Connected, sent: &Sent<'_>, end: &End) -> Ended {
        for _ in 1..SENT_MAX {
            if !end.wait_until(SystemClock.now() + AGAIN_AFTER) {
                break;
            }
            let ended = self.carry_out(connected, sent);
            // That this attempt was not applied says nothing of those before.
            if ended.fate == Came::Answered {
                return ended;
            }
        }
        Ended::without(Came::Unknown)
    }

    /// Connects. A connection on which something went wrong may be in the middle of a transaction, so it is not kept.
    ///
    /// # Errors
    /// There is no connection, or no id for names.
    fn connect(&self, connected: &mut Connected) -> Result<RespClient, ClientError> {
        let mut client = match connected.client.take() {
            Some(client) => client,
            None => RespClient::connect(self.addr)?,
        };
        if connected.id.is_none() {
            match client.command(&[b"KV.ONCE", b"ID"])? {
                Reply::Integer(id) => connected.id = Some(id),
                other => self
                    .record
                    .wrong(format!("KV.ONCE ID was answered by {other:?}")),
            }
        }
        Ok(client)
    }

    /// Watches the list `name`, and reads it.
    ///
    /// # Errors
    /// What came of the transaction, since that failed: nothing was written.
    fn watch(&self, client: &mut RespClient, name: &[u8]) -> Result<Vec<u32>, Came> {
        let refused = |error: &ClientError| self.fate_of(error, Outcome::NotApplied);
        let commands = [vec![&b"WATCH"[..], name], vec![&b"GET"[..], name]];
        let replies = client.replies(&commands).map_err(|error| refused(&error))?;
        for reply in &replies {
            if let Reply::Error(line) = reply {
                return Err(refused(&ClientError::of_error(line)));
            }
        }
        numbers_of(&replies[1]).ok_or_else(|| {
            self.record.wrong(format!("a list is {:?}", replies[1]));
            Came::NotApplied
        })
    }

    fn carry_out(&self, connected: &mut Connected, sent: &Sent<'_>) -> Ended {
        let Sent {
            number,
            steps,
            watches,
            named,
        } = *sent;
        let mut client = match self.connect(connected) {
            Ok(client) => client,
            Err(error) => return Ended::without(self.fate_of(&error, Outcome::NotApplied)),
        };
        let id = connected.id.unwrap_or_default().to_string().into_bytes();
        let seq = named.unwrap_or_default().to_string().into_bytes();
        let round = number / ROUND;
        let mut watched = None;
        if watches {
            let name = name_of(self.base, round, steps[0].key);
            watched = match self.watch(&mut client, &name) {
                Ok(numbers) => Some(numbers),
                Err(came) => return Ended::without(came),
            };
        }
        let (item, mut names) = (format!("{number},").into_bytes(), Vec::new());
        names.extend(steps.iter().map(|step| name_of(self.base, round, step.key)));
        let mut commands = vec![vec![&b"MULTI"[..]]];
        for (step, name) in steps.iter().zip(&names) {
            if step.read.is_some() {
                commands.push(vec![b"GET", name]);
            }
            if step.appends {
                commands.push(vec![b"APPEND", name, &item]);
            }
        }
        commands.push(match named {
            Some(_) => vec![b"KV.ONCE", &id, &seq, b"EXEC"],
            None => vec![b"EXEC"],
        });
        let replies = match client.replies(&commands) {
            Ok(replies) => replies,
            Err(error) => return Ended::without(self.fate_of(&error, error.outcome())),
        };
        let (fate, answers) = match replies.into_iter().next_back() {
            Some(Reply::Array(Some(answers))) => (Came::Answered, answers),
            Some(Reply::Array(None)) => (Came::Unmet, Vec::new()),
            Some(Reply::Simple(text)) if named.is_some() && text.starts_with("APPLIED ") => {
                (Came::Answered, Vec::new())
            }
            Some(Reply::Error(line)) => {
                let error = ClientError::of_error(&line);
                return Ended::without(self.fate_of(&error, error.outcome()));
            }
            other => {
                let words = format!("EXEC was answered by {other:?}");
                self.record.wrong(words);
                return Ended::without(Came::Unknown);
            }
        };
        connected.client = Some(client);
        Ended {
            fate,
            answers,
            watched,
        }
    }

    /// What became of a transaction that met this error, of which `outcome` is known.
    fn fate_of(&self, error: &ClientError, outcome: Outcome) -> Came {
        if !matches!(
            error,
            ClientError::Unavailable { .. } | ClientError::Lost { .. }
        ) {
            let words = format!("transaction through server {}: {error}", self.server);
            self.record.odd(words, SystemClock.now());
        }
        match outcome {
            Outcome::NotApplied => Came::NotApplied,
            Outcome::Applied | Outcome::Unknown => Came::Unknown,
        }
    }

    /// Takes down what an applied transaction was answered.
    fn take_reads(&self, transaction: &mut Transaction, ended: &Ended) {
        let mut answers = ended.answers.iter();
        let mut is_right = true;
        for step in &mut transaction.steps {
            if step.read.is_some() {
                step.read = answers.next().and_then(numbers_of);
                is_right &= step.read.is_some();
            }
            if step.appends {
                is_right &= matches!(answers.next(), Some(Reply::Integer(_)));
            }
        }
        let number = transaction.number;
        if !is_right || answers.next().is_some() {
            let words = format!("transaction {number} was answered by {:?}", ended.answers);
            self.record.wrong(words);
        }
        if let Some(watched) = &ended.watched
            && transaction.steps[0].read.as_ref() != Some(watched)
        {
            self.record.wrong(format!(
                "transaction {number} of region {} read another list than it had watched",
                self.region
            ));
        }
    }
}

impl OfRegion {
    /// Reads all lists of the region in which `base` lies through the server at `addr`, and checks the transactions.
    /// Returns what is wrong, in words.
    pub(crate) fn judge(&self, base: &[u8], addr: SocketAddr, latest: Instant) -> Vec<String> {
        let ended = std::mem::take(&mut *self.ended.lock());
        let rounds = self.next.load(Ordering::Relaxed).div_ceil(ROUND);
        let mut wrong = Vec::new();
        for round in 0..rounds {
            let lists: Option<Vec<_>> = (0..LISTS)
                .map(|list| read(addr, &name_of(base, round, list), latest))
                .collect();
            let Some(lists) = lists else {
                wrong.push(format!("round {round}: a list cannot be read, or is none"));
                return wrong;
            };
            let of_round = ended.iter().filter(|one| one.number / ROUND == round);
            let of_round: Vec<_> = of_round.cloned().collect();
            if let Err(words) = appends::check(&of_round, &lists) {
                wrong.push(format!("round {round}: {words}"));
            }
        }
        wrong
    }
}

/// Reads a list, until there is an answer; `None` where there is none until `latest`.
fn read(addr: SocketAddr, name: &[u8], latest: Instant) -> Option<Vec<u32>> {
    loop {
        let asked = RespClient::connect(addr);
        let reply = asked.and_then(|mut client| client.command(&[b"GET", name]));
        match reply {
            Ok(reply @ Reply::Bulk(_)) => return numbers_of(&reply),
            _ if SystemClock.now() + AGAIN_AFTER > latest => return None,
            _ => {
                End::default().wait_until(SystemClock.now() + AGAIN_AFTER);
            }
        }
    }
}

#[cfg(test)]
#[path = "transactions_tests.rs"]
mod tests;
