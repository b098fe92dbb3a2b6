//! All clients of a trial: how they ask while something else is done, and how every server is asked for every key in
//! the end.

use std::time::Duration;

use argosy_base::{Clock as _, Instant};
use argosy_bench::rng::Rng;
use argosy_device::SystemClock;

use crate::cluster::Cluster;
use crate::doors::{Asker, Door, Native, Resp};
use crate::error::TrialError;
use crate::failures::until_ready;
use crate::keys::{KEYS, Use, use_of};
use crate::load::Client;
use crate::record::{Op, Record, Sample};
use crate::time::End;
use crate::transactions::{OfRegion, Transacting};

/// How long a client waits before it asks again at the end.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What clients with transactions choose by: streams from here on.
const TRANSACTIONS_STREAM: u64 = 1 << 32;

/// Who asks for what, and where that is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Crowd<'a> {
    /// The cluster that is asked.
    pub cluster: &'a Cluster,
    /// The names of all keys.
    pub names: &'a [Vec<u8>],
    /// Where all of it is recorded.
    pub record: &'a Record,
    /// Where transactions are, of each region.
    pub transactions: &'a [OfRegion],
    /// What clients choose by.
    pub seed: u64,
}

/// What the load left, and what was done meanwhile.
pub(crate) struct Asked<T> {
    /// All requests.
    pub samples: Vec<Sample>,
    /// What was done.
    pub done: T,
    /// When the load began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// What a thread does.
type Run<'a> = Box<dyn FnOnce() -> Vec<Sample> + Send + 'a>;

impl<'a> Crowd<'a> {
    /// Has all clients ask while `act` does something.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(crate) fn ask_while<T>(&self, act: impl FnOnce(&End) -> T) -> Result<Asked<T>, TrialError> {
        let end = End::default();
        let began = SystemClock.now();
        std::thread::scope(|scope| {
            let end = &end;
            let mut threads = Vec::new();
            let mut started = Ok(());
            let clients = self.clients().into_iter();
            let plain = clients.map(|client| -> Run<'_> { Box::new(move || client.run(end)) });
            let clients = self.transacting().into_iter();
            let transacting =
                clients.map(|client| -> Run<'_> { Box::new(move || client.run(end)) });
            for run in plain.chain(transacting) {
                let name = format!("client-{}", threads.len());
                let thread = std::thread::Builder::new().name(name);
                match thread.spawn_scoped(scope, run) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => started = Err(TrialError::Thread(error)),
                }
            }
            let done = started.map(|()| act(end));
            let ended = SystemClock.now();
            end.come();
            let mut samples = Vec::new();
            for thread in threads {
                samples.extend(thread.join().expect("a client does not panic"));
            }
            Ok(Asked {
                samples,
                done: done?,
                began,
                ended,
            })
        })
    }

    /// One client of each region for each server over the Redis protocol, and a native one.
    fn clients(&self) -> Vec<Client<'a>> {
        let addrs: Vec<_> = self.cluster.servers.iter().map(|one| one.resp).collect();
        let mut clients = Vec::new();
        let mut add = |region, door, asker: Box<dyn Asker>| {
            let stream = u64::try_from(clients.len()).expect("few clients");
            clients.push(Client {
                door,
                asker,
                region,
                names: self.names,
                record: self.record,
                rng: Rng::new(self.seed, stream),
                seen: vec![None; self.names.len()],
            });
        };
        for region in 0..self.names.len() / KEYS {
            for (server, addr) in (0..).zip(&addrs) {
                add(region, Door::Resp(server), Box::new(Resp::at(*addr)));
            }
            let first = region % addrs.len();
            add(
                region,
                Door::Native,
                Box::new(Native::at(addrs.clone(), first)),
            );
        }
        clients
    }

    /// Two clients of each region with transactions, through two servers where there are two.
    fn transacting(&self) -> Vec<Transacting<'a>> {
        let servers = &self.cluster.servers;
        let regions = self.transactions.iter().zip(self.names.chunks(KEYS));
        let clients = regions.enumerate().flat_map(|(region, (own, names))| {
            [0, 1].map(|which| {
                let at = (region + which) % servers.len();
                let number = u64::try_from(2 * region + which).expect("few clients");
                Transacting {
                    server: u8::try_from(at).expect("few servers"),
                    addr: servers[at].resp,
                    region,
                    base: &names[0],
                    own,
                    record: self.record,
                    rng: Rng::new(self.seed, TRANSACTIONS_STREAM + number),
                }
            })
        });
        clients.collect()
    }

    /// Waits until all servers are ready. Where they are not until `latest`, that is wrong.
    pub(crate) fn await_ready(&self, latest: Instant) {
        if until_ready(self.cluster, latest, &End::default()).is_none() {
            let words = "not all servers were ready again in the end".to_owned();
            self.record.wrong(words);
        }
    }

    /// Asks each server for each key, until it answers, and then for the lists of transactions, which are judged. What
    /// does not come until `latest` is wrong.
    pub(crate) fn read_all(&self, latest: Instant) {
        let end = End::default();
        for (number, server) in (0..).zip(&self.cluster.servers) {
            let mut client = Client {
                door: Door::Resp(number),
                asker: Box::new(Resp::at(server.resp)),
                region: 0,
                names: self.names,
                record: self.record,
                rng: Rng::new(self.seed, 0),
                seen: vec![None; self.names.len()],
            };
            for key in 0..self.names.len() {
                let op = last_of(use_of(key));
                while !client.ask_for(key, op).came.is_answer() {
                    let again = SystemClock.now() + AGAIN_AFTER;
                    if again > latest {
                        self.record.wrong(format!(
                            "server {number} did not answer for all keys in the end"
                        ));
                        return;
                    }
                    end.wait_until(again);
                }
            }
        }
        let regions = self.transactions.iter().zip(self.names.chunks(KEYS));
        for (region, (own, names)) in regions.enumerate() {
            let server = &self.cluster.servers[region % self.cluster.servers.len()];
            for words in own.judge(&names[0], server.resp, latest) {
                self.record
                    .wrong(format!("transactions of region {region}, {words}"));
            }
        }
    }
}

/// What is asked in the end of a key that is used so.
const fn last_of(used: Use) -> Op {
    match used {
        Use::Register => Op::Get,
        Use::Counter => Op::Increment,
        Use::Field => Op::AddToField,
        Use::Score => Op::AddToScore,
        Use::Member => Op::HasMember,
    }
}
