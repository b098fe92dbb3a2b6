//! Twenty rounds of kill -9 of a random server under load, then all at once: nothing acknowledged
//! is lost, and the members are equal after catching up.
//!
//! Each client thread owns its keys and keeps a model of them: the value that was acknowledged
//! last, and all values whose write ended without a clear answer, since those may have taken
//! effect, or may yet. A read has to return one of these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{
    ByHand, Playground, Rng, Server, info as info_of, lives, pause, signal, until, until_ready,
};
use argosy_base::info;
use argosy_bench::resp::{Connection, Reply};
use rustix::process::Signal;

const ROUNDS: usize = 20;
const CLIENTS: usize = 4;
const KEYS: u64 = 200;

/// Writes that have to be acknowledged between two kills, over all clients.
const WRITES_BETWEEN_KILLS: u64 = 500;

/// What a key may hold; `None` for nothing.
#[derive(Default)]
struct Model {
    settled: Option<Vec<u8>>,
    possible: BTreeSet<Option<Vec<u8>>>,
}

impl Model {
    fn allows(&self, found: &Option<Vec<u8>>) -> bool {
        *found == self.settled || self.possible.contains(found)
    }
}

/// How a write ended.
#[derive(PartialEq)]
enum End {
    Acknowledged,
    NotApplied,
    Unknown,
}

struct Client<'a> {
    id: usize,
    servers: &'a [SocketAddr],
    connection: Option<Connection>,
    models: BTreeMap<u64, Model>,
    rng: Rng,
    written: u64,
}

impl Client<'_> {
    fn key(&self, number: u64) -> Vec<u8> {
        // The first character spreads keys over the regions.
        let spread = char::from_digit(u32::try_from(number % 36).unwrap(), 36).unwrap();
        format!("{spread}-{}-{number}", self.id).into_bytes()
    }

    /// The reply, or `None` where the connection broke before it came.
    fn call(&mut self, command: &[&[u8]]) -> Option<Reply> {
        if self.connection.is_none() {
            let addr = self.servers[usize::try_from(self.rng.below(3)).unwrap()];
            self.connection = Connection::open(addr).ok();
        }
        let reply = self.connection.as_mut()?.call(command).ok();
        if reply.is_none() {
            self.connection = None;
            pause();
        }
        reply
    }

    fn write(&mut self) -> End {
        let number = self.rng.below(KEYS);
        let key = self.key(number);
        self.written += 1;
        // One in eight deletes; values of up to 3 KB reach the large log.
        let value = (self.rng.below(8) > 0).then(|| {
            let len = usize::try_from(self.rng.below(3000)).unwrap();
            let mut value = format!("{}-{}-", self.id, self.written).into_bytes();
            value.resize(value.len() + len, b'.');
            value
        });
        let reply = match &value {
            Some(value) => self.call(&[b"SET", &key, value]),
            None => self.call(&[b"DEL", &key]),
        };
        let end = match reply {
            Some(Reply::Simple(_) | Reply::Integer(_)) => End::Acknowledged,
            Some(Reply::Error(line)) if line.contains("not applied") => End::NotApplied,
            _ => End::Unknown,
        };
        let model = self.models.entry(number).or_default();
        match end {
            End::Acknowledged => model.settled = value,
            End::NotApplied => {}
            End::Unknown => {
                model.possible.insert(value);
            }
        }
        end
    }

    /// Reads one key if anyone can be asked, and compares it with its model.
    fn check(&mut self, number: u64) -> bool {
        let key = self.key(number);
        match self.call(&[b"GET", &key]) {
            Some(Reply::Bulk(found)) => {
                let model = self.models.entry(number).or_default();
                let shown = |value: &Option<Vec<u8>>| {
                    let text = value.as_deref().map(String::from_utf8_lossy);
                    text.map_or("nothing".to_owned(), |text| {
                        text.trim_end_matches('.').to_owned()
                    })
                };
                assert!(
                    model.allows(&found),
                    "{} holds {}, but {} was acknowledged last, and {} writes are unknown",
                    String::from_utf8_lossy(&key),
                    shown(&found),
                    shown(&model.settled),
                    model.possible.len()
                );
                true
            }
            Some(Reply::Error(_)) | None => false,
            Some(other) => panic!("GET was answered by {other:?}"),
        }
    }

    /// Reads every key that was ever written, until each has been answered.
    fn check_all(&mut self) {
        for number in 0..KEYS {
            until("a key can be read", || self.check(number));
        }
    }

    /// Writes and reads until `stop`.
    fn work(&mut self, stop: &AtomicBool, acknowledged: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            if self.rng.below(4) == 0 {
                let number = self.rng.below(KEYS);
                self.check(number);
            } else if self.write() == End::Acknowledged {
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The servers' processes, whoever started them.
struct Processes {
    servers: Vec<Server>,
    by_hand: Vec<Option<ByHand>>,
}

impl Processes {
    fn kill(&mut self, id: usize) {
        let pid = self.by_hand[id]
            .as_ref()
            .map_or(self.servers[id].pid, ByHand::pid);
        signal(pid, Signal::KILL);
        if let Some(mut process) = self.by_hand[id].take() {
            process.wait();
        }
        until("the server dies", || !lives(pid));
    }

    fn restart(&mut self, id: usize) {
        self.by_hand[id] = Some(ByHand::start(&self.servers[id].config));
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_kill_9() {
    kills(&["--regions", "3"], ROUNDS, true);
}

/// Where pointers hold places each member has its own, and they stay right through every return.
#[test]
fn nothing_acknowledged_is_lost_to_kill_9_where_pointers_are_rewritten() {
    kills(
        &["--regions", "3", "--address", "rewrite"],
        ROUNDS / 3,
        true,
    );
}

#[test]
fn backups_that_build_their_levels_lose_nothing_to_kill_9() {
    let args = ["--regions", "3", "--replication", "build-index"];
    kills(&args, ROUNDS / 3, false);
}

/// Levels are trees there, which backups take as they are, rewrite, or make by themselves.
#[test]
fn nothing_acknowledged_is_lost_to_kill_9_where_levels_are_compacted_whole() {
    let whole = ["--regions", "3", "--compaction", "whole-level"];
    let modes: [(&[&str], bool); 3] = [
        (&[], true),
        (&["--address", "rewrite"], true),
        (&["--replication", "build-index"], false),
    ];
    for (mode, equal) in modes {
        kills(&[&whole, mode].concat(), ROUNDS / 6, equal);
    }
}

/// A playground with `args`, so many rounds, and one in which all servers are killed. Members hold
/// the same levels afterwards, where they are to be `equal`.
fn kills(args: &[&str], rounds: usize, equal: bool) {
    let playground = Playground::start(args);
    let addrs: Vec<_> = playground
        .servers
        .iter()
        .map(|server| server.resp)
        .collect();
    let mut processes = Processes {
        servers: playground.servers.clone(),
        by_hand: vec![None, None, None],
    };
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|id| Client {
            id,
            servers: &addrs,
            connection: None,
            models: BTreeMap::new(),
            rng: Rng::new(20, u64::try_from(id).unwrap()),
            written: 0,
        })
        .collect();
    let mut rng = Rng::new(2020, 0);
    for number in 0..rounds {
        let victim = usize::try_from(rng.below(3)).unwrap();
        println!("round {number}: server {victim}");
        round(&mut clients, &mut processes, &[victim]);
    }
    round(&mut clients, &mut processes, &[0, 1, 2]);

    if equal {
        members_become_equal(&playground.servers);
    }
    for client in &mut clients {
        client.check_all();
    }
    drop(processes);
}

/// Kills the victims while all clients work, restarts them, and checks everything.
fn round(clients: &mut [Client<'_>], processes: &mut Processes, victims: &[usize]) {
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let (stop, acknowledged) = (&stop, &acknowledged);
                scope.spawn(move || client.work(stop, acknowledged))
            })
            .collect();
        let goal = |writes: u64| {
            until("writes are acknowledged", || {
                let failed = workers
                    .iter()
                    .any(std::thread::ScopedJoinHandle::is_finished);
                failed || acknowledged.load(Ordering::Relaxed) >= writes
            });
        };
        goal(WRITES_BETWEEN_KILLS);
        for &victim in victims {
            processes.kill(victim);
        }
        for &victim in victims {
            processes.restart(victim);
        }
        let writes = acknowledged.load(Ordering::Relaxed);
        goal(writes + WRITES_BETWEEN_KILLS);
        stop.store(true, Ordering::Relaxed);
    });
    for server in &processes.servers {
        until_ready(server.admin);
    }
    for client in clients {
        client.check_all();
    }
}

/// Every region has equal digests at one edit on all its members.
fn members_become_equal(servers: &[Server]) {
    let mut last = BTreeMap::new();
    until("members are equal", || {
        let mut regions: BTreeMap<String, BTreeSet<(String, String, String)>> = BTreeMap::new();
        let mut members: BTreeMap<String, usize> = BTreeMap::new();
        for server in servers {
            for (name, line) in info_of(server.resp, info::SECTION_REGIONS) {
                let field = |name: &str| {
                    let mut fields = line.split(',').filter_map(|field| field.split_once('='));
                    let found = fields.find(|(found, _)| *found == name);
                    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
                };
                let state = (field("epoch"), field("edit"), field("digest"));
                assert!(!state.1.is_empty() && !state.2.is_empty(), "{name}: {line}");
                *members.entry(name.clone()).or_default() += 1;
                regions.entry(name).or_default().insert(state);
            }
        }
        let complete = members.len() == 3 && members.values().all(|&count| count == 3);
        let equal = regions.values().all(|states| states.len() == 1);
        last = regions;
        complete && equal
    });
    assert!(!last.is_empty());
}
