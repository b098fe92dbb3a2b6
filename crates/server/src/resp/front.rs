//! What all connections of one server share: its names and limits, the table of cursors, the list
//! of clients, and a few counters. No I/O; locks are held for a look-up, never while writing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argosy_base::{Incarnation, Instant, ServerId};
use argosy_engine::Lent;
use argosy_engine::long::Versions;
use argosy_wire::resp::parse::REQUEST_BYTES_MAX;

use super::cursors::Cursors;
use super::operators::Operators;
use super::rate::CommandCount;
use super::slow_log::SlowLogSettings;
use super::worker::THREAD_BYTES;
use crate::meter::Meter;
use crate::service::Service;

/// The version of Redis whose commands and replies are followed; clients choose features by it.
pub const REDIS_VERSION: &str = "7.4.0";

/// What a front end is told about its server, and the bounds that it keeps.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's number in its cluster.
    pub server: ServerId,
    /// The number of the server's start.
    pub incarnation: Incarnation,
    /// The port that `INFO` names.
    pub port: u16,
    /// Bytes of input and output that all connections hold together, from which on those that hold
    /// more than 16 KiB have to wait for each other. From here to the maximum there has to be room for
    /// the longest request and the longest reply ([`Limits::longest_bytes`]).
    pub memory_bytes_slow: usize,
    /// Most bytes of input and output that all connections hold together. Over it, the connection
    /// that holds most is ended.
    pub memory_bytes_max: usize,
    /// Bounds of each connection.
    pub limits: Limits,
    /// What clients may do.
    pub policy: ClientPolicy,
    /// A number that no server was started with before.
    pub random: u128,
}

/// What becomes of a transaction whose keys lie in several regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossRegion {
    /// It is refused.
    #[default]
    Refuse,
    /// Its commands are carried out one behind the other, and others may come in between.
    InOrder,
}

/// Bounds of one connection. The memory that it takes is at most the longest request
/// ([`argosy_wire::resp::parse::REQUEST_BYTES_MAX`]) and one read more of input, `output_bytes_max`
/// and the answers of at most `in_flight_max` calls more of output, and one reply of
/// `reply_bytes_max`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most calls without an answer.
    pub in_flight_max: usize,
    /// Bytes of keys and values that are being written, from which on no further request is taken.
    pub asked_bytes_max: usize,
    /// Bytes of replies, ready or kept for their turn, from which on no further request is taken, and
    /// the client is not read from.
    pub output_bytes_max: usize,
    /// Longest single reply, in bytes of keys and values. What would be longer is refused.
    pub reply_bytes_max: usize,
}

impl Limits {
    /// Most bytes that one connection holds while it receives the longest request and writes the
    /// longest reply: buffers grow by doubling, and a reply is kept until it is written out.
    #[must_use]
    pub const fn longest_bytes(&self) -> usize {
        2 * REQUEST_BYTES_MAX + self.output_bytes_max + 2 * self.reply_bytes_max
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_max: 1024,
            asked_bytes_max: 2 << 20,
            output_bytes_max: 1 << 20,
            reply_bytes_max: REPLY_BYTES_MAX,
        }
    }
}

/// Longest reply where there is memory enough.
const REPLY_BYTES_MAX: usize = 32 << 20;
/// Longest reply in any case: a value, or a page of a scan.
const REPLY_BYTES_MIN: usize = 2 << 20;
/// What clients may hold, at least, before they have to wait for each other.
const SLOW_BYTES_MIN: usize = 4 << 20;

/// So many clients that do not read their replies hold no more together than all may hold before they
/// have to wait for each other, where memory is so scarce that this bounds each (below some 660 MiB): at the
/// least, 4 MiB / 32 = 128 KiB of replies wait for each.
const SLOW_READERS: usize = 32;

impl Settings {
    /// Bytes that clients may take, in front of `threads` threads, of the `limit` of a server: an
    /// eighth, but at least what the longest request and the longest reply need.
    #[must_use]
    pub fn share_of(limit: usize, threads: usize) -> usize {
        let longest = Self::limits_of(limit).longest_bytes();
        (limit / 8).max(threads * THREAD_BYTES + SLOW_BYTES_MIN + longest)
    }

    /// The bounds that follow from a server's `limit`.
    #[must_use]
    pub fn within(limit: usize, threads: usize) -> Self {
        let limits = Self::limits_of(limit);
        // What threads keep for themselves is not counted connection by connection.
        let memory_bytes_max = Self::share_of(limit, threads) - threads * THREAD_BYTES;
        let memory_bytes_slow = memory_bytes_max - limits.longest_bytes();
        let output_bytes_max = (memory_bytes_slow / SLOW_READERS).min(limits.output_bytes_max);
        Self {
            memory_bytes_slow,
            memory_bytes_max,
            limits: Limits {
                output_bytes_max,
                ..limits
            },
            ..Self::default()
        }
    }

    fn limits_of(limit: usize) -> Limits {
        Limits {
            reply_bytes_max: (limit / 32).clamp(REPLY_BYTES_MIN, REPLY_BYTES_MAX),
            ..Limits::default()
        }
    }
}

/// What clients may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPolicy {
    /// What becomes of a transaction over several regions.
    pub cross_region_exec: CrossRegion,
    /// `FLUSHALL` and `FLUSHDB` remove all keys; otherwise they are refused.
    pub flush_all: bool,
    /// Most connections.
    pub connections_max: usize,
    /// What `SLOWLOG` records.
    pub slow_log: SlowLogSettings,
}

impl Default for ClientPolicy {
    fn default() -> Self {
        Self {
            cross_region_exec: CrossRegion::default(),
            flush_all: true,
            connections_max: 10_000,
            slow_log: SlowLogSettings::default(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerId(0),
            incarnation: Incarnation(1),
            port: 0,
            memory_bytes_slow: 128 << 20,
            memory_bytes_max: 256 << 20,
            limits: Limits::default(),
            policy: ClientPolicy::default(),
            random: 0,
        }
    }
}

/// What is known of a client, for `CLIENT LIST`.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Its address and port.
    pub address: String,
    /// Our address and port that it connected to.
    pub local_address: String,
    /// When it connected.
    pub since: Instant,
    /// What it calls itself.
    pub name: Vec<u8>,
    /// The name of its library.
    pub library: Vec<u8>,
    /// The version of its library.
    pub library_version: Vec<u8>,
    /// 2 or 3.
    pub protocol: i64,
}

impl Client {
    /// One line of `CLIENT LIST`, without its end.
    #[must_use]
    pub fn line(&self, id: u64, now: Instant) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut line = String::new();
        write!(
            line,
            "id={id} addr={} laddr={} name={} age={} flags=N db=0 lib-name={} lib-ver={} resp={}",
            self.address,
            self.local_address,
            text(&self.name),
            now.since(self.since).as_secs(),
            text(&self.library),
            text(&self.library_version),
            self.protocol,
        )
        .expect("a string takes what is written");
        line
    }
}

/// What all connections of one server share.
#[derive(Debug)]
pub struct FrontEnd {
    /// As given.
    pub settings: Settings,
    /// When the front end began.
    pub started: Instant,
    /// Connections that take up room.
    pub open: AtomicUsize,
    /// What connections hold.
    pub(super) held: Held,
    /// Connections ended so far because all together held too much.
    pub evicted: AtomicU64,
    /// Connections accepted so far.
    pub connections: AtomicU64,
    /// Connections refused so far because there were too many.
    pub refused: AtomicU64,
    /// Commands carried out so far.
    pub commands: CommandCount,
    /// Versions of values in parts.
    pub(super) versions: Versions,
    /// Answers by command and result, and how long calls take.
    pub meter: Meter,
    /// What operators ask of all connections.
    pub(super) operators: Operators,
    tables: Tables,
}

/// What is looked up by number.
#[derive(Debug)]
struct Tables {
    cursors: Mutex<Cursors>,
    clients: Mutex<BTreeMap<u64, Client>>,
}

/// Input and output that connections hold, and from where they have the memory.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Bytes. Relaxed: each thread adds and takes off its own, and the sum is a bound that may be passed by what the
    /// threads do at the same time.
    bytes: AtomicUsize,
    /// Where the cache has what they do not take, if it has.
    lent: Option<Arc<Lent>>,
    /// Bytes that threads take, beside what connections hold.
    fixed: usize,
}

impl Held {
    /// A connection that held `before` bytes holds `after`.
    pub(super) fn change(&self, before: usize, after: usize) {
        if after > before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
        self.follow();
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Has the cache follow.
    fn follow(&self) {
        if let Some(lent) = &self.lent {
            lent.follow(|| self.fixed + self.bytes());
        }
    }
}

impl FrontEnd {
    /// A front end without connections.
    #[must_use]
    pub fn new(settings: Settings, now: Instant) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "as random as the whole")]
        let random = settings.random as u64;
        let cursors = Cursors::new(settings.server, settings.incarnation, random);
        Self {
            versions: Versions::new(settings.random),
            operators: Operators::new(&settings, random),
            settings,
            started: now,
            open: AtomicUsize::new(0),
            held: Held::default(),
            evicted: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            commands: CommandCount::new(now),
            meter: Meter::new(super::command::names()),
            tables: Tables {
                cursors: Mutex::new(cursors),
                clients: Mutex::new(BTreeMap::new()),
            },
        }
    }

    /// The same: while connections do not take their memory, and its threads theirs, which is `fixed` bytes, the cache
    /// has it from `lent`.
    #[must_use]
    pub(super) fn lending(mut self, lent: Option<Arc<Lent>>, fixed: usize) -> Self {
        self.held = Held {
            bytes: self.held.bytes,
            lent,
            fixed,
        };
        self.held.follow();
        self
    }

    /// Bytes of input and output that connections hold.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Whether large connections have to wait for each other.
    #[inline]
    pub(super) fn is_pressed(&self) -> bool {
        self.held_bytes() > self.settings.memory_bytes_slow
    }

    /// Whether all connections together hold more than they may.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.held_bytes() > self.settings.memory_bytes_max
    }

    /// The server's cursors.
    pub fn cursors(&self) -> MutexGuard<'_, Cursors> {
        // A panic aborts the process; in tests the table is consistent after every method.
        self.tables
            .cursors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The clients that are connected, by connection number.
    pub fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Client>> {
        self.tables
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a new connection, from 1 on.
    pub fn next_connection(&self) -> u64 {
        // Relaxed: the number only has to be unique.
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What a command may ask of the world while it is begun.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// What all connections share.
    pub front: &'a FrontEnd,
    /// The server, for what it knows of itself.
    pub service: &'a dyn Service,
    /// The present moment.
    pub now: Instant,
    /// The present time of day: since the beginning of 1970, UTC.
    pub wall: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_a_share_in_which_the_longest_reply_fits() {
        for (mib, share, reply) in [(64, 17, 2), (512, 64, 16), (4096, 512, 32)] {
            let settings = Settings::within(mib << 20, 1);
            assert_eq!(Settings::share_of(mib << 20, 1) >> 20, share, "{mib}");
            assert_eq!(settings.limits.reply_bytes_max, reply << 20);
            let between = settings.memory_bytes_max - settings.memory_bytes_slow;
            assert!(between >= settings.limits.longest_bytes());
            assert!(settings.memory_bytes_max + THREAD_BYTES <= (share + 1) << 20);
            assert!(settings.memory_bytes_slow >= SLOW_BYTES_MIN);
            let each = settings.limits.output_bytes_max;
            assert!((128 << 10..=1 << 20).contains(&each), "{each}");
            assert!(each * SLOW_READERS <= settings.memory_bytes_slow);
        }
    }
}
