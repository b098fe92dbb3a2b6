//! Clients that change values, beside the load: what they write depends on what is there. They append, overwrite,
//! add fractions, and change when pairs expire; they read versions, and write later if nobody has written since.
//! From a stream of their own.
//!
//! A few clients at a time ask about each key, any server, and each answer is judged as it comes
//! ([`computed`]). Where too many outcomes are unknown to tell what is possible, another
//! key takes the place.
//!
//! Their keys lie in the first region, in front of all objects. Where servers lose power and what was acknowledged
//! with it, other keys are taken whenever a process ends. Nothing of it is done on small devices.

use argosy_base::{Lsn, Moment, Outcome};
use argosy_engine::{Change, Changed, Condition, Expiry, Only, WriteBatch, WriteOptions};
use argosy_server::service::{Failure, Request, Response};

use crate::check::computed::{self, CLIENTS, Computed, Sum, Told, Violation, What};
use crate::coverage::{Coverage, EXPIRIES_READ};
use crate::load::Wrong;
use crate::plan::Plan;
use crate::random::Random;

/// What tokens of these clients have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 42;
/// How many keys there are at a time; the last is a number.
pub(crate) const KEYS: usize = 3;
/// Unknown outcomes of a key, at most.
const UNKNOWN_MAX: usize = 3;

/// Whether this is a key of these clients.
#[must_use]
pub(crate) fn is_changed(key: &[u8]) -> bool {
    key.first() == Some(&b'd')
}

/// What is to be asked of a server.
pub(crate) struct Call {
    key: Vec<u8>,
    what: What,
    /// Only if nobody has written since this version.
    version: Option<Lsn>,
}

/// A client of a key.
#[derive(Default)]
struct Client {
    /// What it waits for: a token and the process that was asked.
    waits: Option<(u64, u32)>,
    /// What was asked.
    asked: Option<computed::Request>,
    /// A version that it was told.
    version: Option<Lsn>,
}

#[derive(Default)]
struct Key {
    generation: u32,
    state: Computed,
    clients: [Client; CLIENTS],
    unknown: usize,
    /// How it has to be read before the run goes on.
    wanted: Option<What>,
}

/// See the module documentation.
pub(crate) struct Changes {
    random: Random,
    /// Of 1000 ticks, in how many a client asks.
    permille: usize,
    len_max: usize,
    powerless: bool,
    keys: [Key; KEYS],
    tokens: u64,
    /// The time, as it should be, and the highest that any clock has shown.
    now: Moment,
    reached: Moment,
    /// The last moment at which anything expires.
    last_expiry: Moment,
}

impl Changes {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 20);
        let permille = random.pick(&[0, 12, 45]);
        Self {
            permille: if plan.devices.small.is_none() {
                permille
            } else {
                0
            },
            random,
            len_max: (2 * plan.engine.values.large_bytes).min(plan.engine.layout.window_bytes / 4),
            powerless: plan.loses_ends(),
            keys: Default::default(),
            tokens: TOKEN,
            now: Moment(0),
            reached: Moment(0),
            last_expiry: Moment(0),
        }
    }

    /// The time is `now`, and some clock has shown `reached`.
    pub(crate) fn time_reached(&mut self, now: Moment, reached: Moment) {
        self.now = now;
        self.reached = reached;
        for key in &mut self.keys {
            key.state.time_reached(reached);
        }
    }

    /// The last moment at which anything expires.
    #[must_use]
    pub(crate) const fn last_expiry(&self) -> Moment {
        self.last_expiry
    }

    /// Everything that expires has done so by now.
    pub(crate) fn all_expired(&mut self) {
        self.keys.iter_mut().for_each(|key| key.state.all_expired());
    }

    /// A server to ask about key `index`, of so many, and the client that does; `None`: nothing is to be asked now.
    pub(crate) fn whom(
        &mut self,
        index: usize,
        starts: bool,
        servers: usize,
    ) -> Option<(usize, usize)> {
        if self.permille == 0 {
            return None;
        }
        let begins = starts && self.random.below(1000) < self.permille;
        let key = &self.keys[index];
        if !begins && key.wanted.is_none() {
            return None;
        }
        let some = self.random.below(CLIENTS);
        let hurries = self.random.chance(50);
        let has_version = |client: &Client| client.version.is_some() && client.waits.is_none();
        let next = key.clients.iter().position(has_version);
        let client = next.filter(|_| hurries).unwrap_or(some);
        let server = self.random.below(servers);
        key.clients[client]
            .waits
            .is_none()
            .then_some((server, client))
    }

    /// What client `client` of key `index` asks next, of the process `session`.
    pub(crate) fn next(&mut self, index: usize, client: usize, session: u32) -> (u64, Call) {
        let token = self.tokens;
        self.tokens += 1;
        let wanted = self.keys[index].wanted.clone();
        let known = self.keys[index].clients[client].version.is_some();
        let writes = known && self.random.chance(50);
        let what = match wanted {
            Some(wanted) => wanted,
            None if writes => self.write(index, token),
            None => self.what(index, token),
        };
        let key = &mut self.keys[index];
        let on_version = !what.is_read() && self.random.chance(60);
        let version = key.clients[client].version.take_if(|_| on_version);
        let request = computed::Request {
            what: what.clone(),
            client,
            unwritten: version.is_some(),
        };
        key.state.ask(token, request.clone());
        key.clients[client].waits = Some((token, session));
        key.clients[client].asked = Some(request);
        let key = key_of(index, key.generation);
        (token, Call { key, what, version })
    }

    fn what(&mut self, index: usize, token: u64) -> What {
        match self.random.below(20) {
            0..4 => What::Get,
            4..7 => What::Version,
            7..9 => What::Expiry,
            _ => self.write(index, token),
        }
    }

    fn write(&mut self, index: usize, token: u64) -> What {
        let number = index + 1 == KEYS;
        let is_long = self.keys[index].state.len_max() > 2 * self.len_max;
        let text = |len: usize| {
            let stem = format!("{:x}.", token - TOKEN).into_bytes();
            stem.into_iter().cycle().take(len).collect::<Vec<u8>>()
        };
        let add = self.random.between(1, 40);
        match self.random.below(20) {
            0 => What::Delete,
            1..4 => self.expire(),
            4..7 if number => What::Put(b"1.5".to_vec(), self.until()),
            _ if number => {
                let halves = i32::try_from(add).unwrap_or(1) - 20;
                What::AddHalves(halves)
            }
            4..7 if !is_long => What::Overwrite(self.place(), text(add)),
            7..15 if !is_long => What::Append(text(add)),
            _ => {
                let len = match self.random.below(10) {
                    0 => self.len_max,
                    1..4 => self.len_max.min(250),
                    _ => 40,
                };
                let len = self.random.between(4, len);
                What::Put(text(len), self.until())
            }
        }
    }

    fn place(&mut self) -> u32 {
        u32::try_from(self.random.below(120)).unwrap_or(0)
    }

    /// When a pair is to expire, if it is.
    fn until(&mut self) -> Option<Moment> {
        let span = match self.random.below(6) {
            0 => self.random.between(0, 30),
            1 => self.random.between(30, 600),
            _ => return None,
        };
        let at = self.now.after(span as u64);
        self.last_expiry = self.last_expiry.max(at);
        Some(at)
    }

    fn expire(&mut self) -> What {
        let all = [
            Only::Any,
            Only::Any,
            Only::Lasting,
            Only::Expiring,
            Only::Later,
            Only::Earlier,
            Only::Sooner,
        ];
        let only = self.random.pick(&all);
        let lasts = self.random.chance(25);
        let span = self.random.between(0, 500) as u64;
        let at = (!lasts).then(|| self.now.after(span));
        self.last_expiry = self.last_expiry.max(at.unwrap_or_default());
        What::Expire(at, only)
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32) {
        for key in &mut self.keys {
            for client in &mut key.clients {
                let lost = client.waits.take_if(|(_, of)| *of == session);
                let writes = client.asked.take_if(|_| lost.is_some());
                if let (Some((token, _)), Some(asked)) = (lost, writes) {
                    key.state.lost(token);
                    key.unknown += usize::from(!asked.what.is_read());
                }
            }
            if self.powerless || key.unknown > UNKNOWN_MAX {
                key.begin_anew(self.reached);
            }
        }
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        let mut clients = self.keys.iter().flat_map(|key| &key.clients);
        clients.any(|client| client.waits.is_some())
    }

    /// Has every key be read in this way once more.
    pub(crate) fn want_all(&mut self, how: &What) {
        let wanted = (self.permille > 0).then_some(how);
        self.keys
            .iter_mut()
            .for_each(|key| key.wanted = wanted.cloned());
    }

    /// Whether a key is still to be read.
    #[must_use]
    pub(crate) fn is_wanting(&self) -> bool {
        self.keys.iter().any(|key| key.wanted.is_some())
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn answer(
        &mut self,
        token: u64,
        response: Response,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        for (index, key) in self.keys.iter_mut().enumerate() {
            let is_of = |client: &Client| client.waits.is_some_and(|(of, _)| of == token);
            let Some(client) = key.clients.iter_mut().find(|client| is_of(client)) else {
                continue;
            };
            client.waits = None;
            let Some(asked) = client.asked.take() else {
                continue;
            };
            let judged = key.answered(token, &asked, response, coverage);
            let too_wide = match judged {
                Ok(()) => false,
                Err(Violation::TooWide) => true,
                Err(Violation::Impossible(why)) => {
                    let name = format!("d{index}/{}", key.generation);
                    return Err(format!("key {name}: {why}"));
                }
            };
            coverage.add("changes undecided", u64::from(too_wide));
            if too_wide || key.unknown > UNKNOWN_MAX {
                key.begin_anew(self.reached);
            }
            return Ok(());
        }
        // Whoever asked has been given up, with the key or the process that was asked.
        Ok(())
    }
}

fn key_of(index: usize, generation: u32) -> Vec<u8> {
    format!("d{index}/{generation:05}").into_bytes()
}

impl Key {
    /// From now on another key is asked about.
    fn begin_anew(&mut self, reached: Moment) {
        let generation = self.generation + 1;
        let wanted = self.wanted.take();
        *self = Self {
            generation,
            wanted,
            ..Self::default()
        };
        self.state.time_reached(reached);
    }

    fn answered(
        &mut self,
        token: u64,
        asked: &computed::Request,
        response: Response,
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        let told = match response {
            Response::Value(value) => Told::Value(value),
            Response::Versioned { value, version } => {
                self.clients[asked.client].version = Some(version);
                Told::Value(value)
            }
            Response::Expiry { len, at, .. } => Told::Expires(len.map(|len| (len, at))),
            Response::Written {
                applied, changed, ..
            } => {
                let sum = match changed {
                    None => None,
                    Some(Changed::Number(number)) => Some(Sum::Number(number)),
                    Some(Changed::Value(text)) => Some(Sum::Text(text)),
                    Some(Changed::Refused(why)) => {
                        return Err(Violation::Impossible(format!(
                            "{asked:?} is refused: {why}"
                        )));
                    }
                };
                Told::Written(applied, sum)
            }
            Response::Failed(
                Failure::Unavailable { outcome, .. }
                | Failure::Busy { outcome, .. }
                | Failure::Storage { outcome, .. },
            ) => {
                if asked.what.is_read() || outcome == Outcome::NotApplied {
                    return self.state.refused(token);
                }
                self.state.lost(token);
                self.unknown += 1;
                return Ok(());
            }
            odd => return Err(Violation::Impossible(format!("{asked:?}: {odd:?}"))),
        };
        self.state.answered(token, &told)?;
        // Whoever can read a key in one way can get its value, too.
        let reads = asked.what.is_read();
        self.wanted
            .take_if(|wanted| *wanted == asked.what || reads && *wanted == What::Get);
        count(asked, &told, coverage);
        Ok(())
    }
}

fn count(asked: &computed::Request, told: &Told, coverage: &mut Coverage) {
    let applied = matches!(told, Told::Written(true, _));
    if asked.unwritten {
        let name = if applied {
            "versions that held"
        } else {
            "versions that did not hold"
        };
        coverage.add(name, 1);
    }
    let changed = u64::from(applied);
    match &asked.what {
        What::Append(_) => coverage.add("appends", changed),
        What::Overwrite(..) => coverage.add("overwrites", changed),
        What::AddHalves(_) => coverage.add("fractions added", changed),
        What::Expire(..) => coverage.add("expiries changed", changed),
        What::Expiry => {
            let expires = matches!(told, Told::Expires(Some((_, Some(_)))));
            coverage.add(EXPIRIES_READ, u64::from(expires));
        }
        What::Get | What::Version | What::Put(..) | What::Delete => {}
    }
}

impl Call {
    /// The request, handed to `ask`.
    pub(crate) fn request<T>(&self, ask: impl FnOnce(Request<'_>) -> T) -> T {
        let key = &self.key;
        let mut batch = WriteBatch::new();
        let expiry = |at: &Option<Moment>| at.map_or(Expiry::Never, Expiry::At);
        let added = match &self.what {
            What::Get => return ask(Request::Get { key }),
            What::Version => return ask(Request::GetVersion { key }),
            What::Expiry => return ask(Request::Expiry { key }),
            What::Put(value, until) => batch.put_until(key, value, expiry(until)),
            What::Delete => batch.delete(key),
            What::Append(more) => batch.change(key, Change::Append, more),
            What::Overwrite(from, with) => batch.change(key, Change::Overwrite(*from), with),
            What::AddHalves(halves) => {
                let number = f64::from(*halves) / 2.0;
                batch.change(key, Change::AddFloat(number.to_bits()), b"")
            }
            What::Expire(at, only) => batch.change(key, Change::Expire(expiry(at), *only), b""),
        };
        added.expect("within the limits");
        let options = WriteOptions {
            condition: self.version.map_or(Condition::Always, Condition::Version),
            return_previous: false,
        };
        let batch = &batch;
        ask(Request::Write { batch, options })
    }
}
