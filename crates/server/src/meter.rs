//! What clients ask for by one protocol, counted: answers by command and result, and how long
//! requests take.
//!
//! Counting an answer is one relaxed addition. Durations are taken of one call in
//! [`SAMPLE_EVERY`], by what is asked of the service and, of Redis clients, by command: from the
//! moment at which the round began in which its request was read, to the moment at which its answer
//! is known (natively: the end of the round in which it was written), replication and waiting
//! included; not the way through the sockets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::Instant;
use argosy_wire::api::Target;

use crate::service::{Failure, Request};

/// One call in so many is timed.
pub const SAMPLE_EVERY: u32 = 16;
/// Calls that are timed and not answered yet, at most; further ones are not timed.
const SAMPLES_MAX: usize = 64;

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeteredOutcome {
    /// It was carried out; a condition that did not hold included.
    #[default]
    Ok,
    /// It made no sense, or was over a limit.
    Invalid,
    /// A member or a region was not there.
    Unavailable,
    /// There was no room in time.
    Busy,
    /// Storage failed.
    Storage,
}

impl MeteredOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::Invalid,
        Self::Unavailable,
        Self::Busy,
        Self::Storage,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
            Self::Storage => "storage",
        }
    }
}

impl From<&Failure> for MeteredOutcome {
    fn from(error: &Failure) -> Self {
        match error {
            Failure::Invalid(_) | Failure::WrongType(_) => Self::Invalid,
            Failure::Unavailable { .. } => Self::Unavailable,
            Failure::Busy { .. } => Self::Busy,
            Failure::Storage { .. } => Self::Storage,
            Failure::Forgotten(_) => Self::Unavailable,
        }
    }
}

/// What a call asks of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// One key.
    Get,
    /// Several keys.
    GetMany,
    /// A batch.
    Write,
    /// A page of a range.
    Scan,
    /// The number of keys.
    Count,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Get,
        Self::GetMany,
        Self::Write,
        Self::Scan,
        Self::Count,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetMany => "get_many",
            Self::Write => "write",
            Self::Scan => "scan",
            Self::Count => "count",
        }
    }

    /// That of `request`.
    #[must_use]
    pub const fn of(request: &Request<'_>) -> Self {
        match request.target() {
            Target::Key(_) => Self::Get,
            Target::Keys { .. } | Target::Together { .. } => Self::GetMany,
            Target::Batch { .. } => Self::Write,
            Target::Range { .. } => Self::Scan,
            Target::Regions | Target::Leases { .. } => Self::Count,
        }
    }
}

/// A call that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// What it asks of the service.
    pub op: Op,
    /// The place of its command; that of none, where commands are not told apart.
    pub command: u16,
}

/// The place of no command.
const UNTIMED: u16 = u16::MAX;

impl From<Op> for Timed {
    fn from(op: Op) -> Self {
        let command = UNTIMED;
        Self { op, command }
    }
}

/// Upper bounds of the buckets of durations, in microseconds.
pub const BUCKETS_MICROS: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Durations by bucket.
#[derive(Debug, Default)]
struct Durations {
    /// The last one is for what is longer than the highest bound.
    buckets: [AtomicU64; BUCKETS_MICROS.len() + 1],
    nanos: AtomicU64,
}

impl Durations {
    /// How many were at most as long as each bound; then how many there were.
    fn cumulative(&self) -> [u64; BUCKETS_MICROS.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|bucket| {
            sum += self.buckets[bucket].load(Ordering::Relaxed);
            sum
        })
    }
}

/// A command, as it was counted up to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCounts {
    /// Its name.
    pub name: &'static str,
    /// Answers, by [`MeteredOutcome`].
    pub answers: [u64; MeteredOutcome::ALL.len()],
    /// Calls that were timed.
    pub timed: u64,
    /// All of these together.
    pub took: Duration,
}

/// How long the calls of a command took that were timed, up to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandDurations {
    /// Its name.
    pub name: &'static str,
    /// How many were at most as long as each of [`BUCKETS_MICROS`]; then how many there were.
    pub cumulative: [u64; BUCKETS_MICROS.len() + 1],
}

/// Durations as they were at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationCounts {
    /// What was asked for.
    pub op: Op,
    /// How many were at most as long as each of [`BUCKETS_MICROS`]; then how many there were.
    pub cumulative: [u64; BUCKETS_MICROS.len() + 1],
    /// All of them together.
    pub sum: Duration,
}

/// See the module documentation. One for each protocol, shared by its threads.
#[derive(Debug)]
pub struct Meter {
    commands: Vec<&'static str>,
    counts: Vec<[AtomicU64; MeteredOutcome::ALL.len()]>,
    times: Vec<Durations>,
    durations: [Durations; Op::ALL.len()],
    /// Reads of one key that found nothing, and that found a value.
    reads: [AtomicU64; 2],
}

impl Meter {
    /// Nothing counted yet, for these commands: they are named by their places.
    #[must_use]
    pub fn new(commands: Vec<&'static str>) -> Self {
        Self {
            counts: commands.iter().map(|_| Default::default()).collect(),
            times: commands.iter().map(|_| Default::default()).collect(),
            commands,
            durations: Default::default(),
            reads: Default::default(),
        }
    }

    /// Counts an answer to the command in place `command`.
    #[inline]
    pub fn count(&self, command: u16, outcome: MeteredOutcome) {
        self.add(command, outcome, 1);
    }

    /// Counts so many answers to the command in place `command`.
    #[inline]
    pub fn add(&self, command: u16, outcome: MeteredOutcome, count: u64) {
        // Relaxed, here and below: counters for people.
        if let Some(counts) = self.counts.get(usize::from(command)) {
            counts[outcome as usize].fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts a read of one key, and whether it `found` a value.
    #[inline]
    pub fn read(&self, found: bool) {
        self.reads[usize::from(found)].fetch_add(1, Ordering::Relaxed);
    }

    /// Reads of one key that found a value, and those that found none.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let [misses, hits] = &self.reads;
        (hits.load(Ordering::Relaxed), misses.load(Ordering::Relaxed))
    }

    /// The commands that were asked for.
    pub fn by_command(&self) -> impl Iterator<Item = CommandCounts> + '_ {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = self.commands.iter().zip(&self.counts).zip(&self.times);
        let all = all.map(move |((name, counts), time)| CommandCounts {
            name,
            answers: std::array::from_fn(|outcome| load(&counts[outcome])),
            timed: time.cumulative()[BUCKETS_MICROS.len()],
            took: Duration::from_nanos(load(&time.nanos)),
        });
        all.filter(|of| of.answers.iter().any(|count| *count > 0))
    }

    /// What was counted; commands that were never asked for have no line but `ok`'s, 0.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, MeteredOutcome, u64)> + '_ {
        self.commands
            .iter()
            .zip(&self.counts)
            .flat_map(|(name, counts)| {
                MeteredOutcome::ALL.into_iter().filter_map(move |outcome| {
                    let count = counts[outcome as usize].load(Ordering::Relaxed);
                    (count > 0 || outcome == MeteredOutcome::Ok).then_some((*name, outcome, count))
                })
            })
    }

    /// A call took `duration`.
    pub fn observe(&self, timed: impl Into<Timed>, duration: Duration) {
        let Timed { op, command } = timed.into();
        let micros = duration.as_micros();
        let bucket = BUCKETS_MICROS.partition_point(|bound| u128::from(*bound) < micros);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let of_command = self.times.get(usize::from(command));
        for durations in of_command.into_iter().chain([&self.durations[op as usize]]) {
            durations.buckets[bucket].fetch_add(1, Ordering::Relaxed);
            durations.nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// How long the calls of the command in place `command` took, if any was timed.
    #[must_use]
    pub fn timed(&self, command: u16) -> Option<CommandDurations> {
        let command = usize::from(command);
        let cumulative = self.times.get(command)?.cumulative();
        let name = self.commands[command];
        (cumulative[BUCKETS_MICROS.len()] > 0).then_some(CommandDurations { name, cumulative })
    }

    /// The commands of which calls were timed.
    pub fn timed_commands(&self) -> impl Iterator<Item = CommandDurations> + '_ {
        (0..)
            .take(self.times.len())
            .filter_map(|command| self.timed(command))
    }

    /// The durations that were taken.
    pub fn durations(&self) -> impl Iterator<Item = DurationCounts> + '_ {
        Op::ALL.into_iter().map(|op| {
            let durations = &self.durations[op as usize];
            DurationCounts {
                op,
                cumulative: durations.cumulative(),
                sum: Duration::from_nanos(durations.nanos.load(Ordering::Relaxed)),
            }
        })
    }
}

/// Chooses the calls that are timed; one for each thread of a front end.
#[derive(Debug, Default)]
pub struct Sampler {
    calls: u32,
    /// Calls that are timed and not answered: token, what, and since when.
    open: Vec<(u64, Timed, Instant)>,
}

impl Sampler {
    /// Whether the call that is about to be made is one to be timed; the first is.
    #[inline]
    pub const fn wants(&mut self) -> bool {
        let wants = self.calls.is_multiple_of(SAMPLE_EVERY);
        self.calls = self.calls.wrapping_add(1);
        wants
    }

    /// A call that is timed since `since` will be answered later, under `token`.
    pub fn wait(&mut self, token: u64, timed: impl Into<Timed>, since: Instant) {
        if self.open.len() < SAMPLES_MAX {
            self.open.push((token, timed.into(), since));
        }
    }

    /// The answer for `token` has come at `now`: is it one that is timed?
    #[inline]
    pub fn answered(&mut self, token: u64, meter: &Meter, now: impl FnOnce() -> Instant) {
        if let Some((timed, since)) = self.ended(token) {
            meter.observe(timed, now().since(since));
        }
    }

    /// The answer for `token` has come: if it is one that is timed, what was asked, and since when.
    #[inline]
    pub fn ended(&mut self, token: u64) -> Option<(Timed, Instant)> {
        if self.open.is_empty() {
            return None;
        }
        let at = self.open.iter().position(|(open, ..)| *open == token)?;
        let (_, timed, since) = self.open.swap_remove(at);
        Some((timed, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_command_and_result() {
        let meter = Meter::new(vec!["get", "set"]);
        meter.count(0, MeteredOutcome::Ok);
        meter.count(0, MeteredOutcome::Ok);
        meter.count(1, MeteredOutcome::Busy);
        meter.count(2, MeteredOutcome::Ok);
        let counts: Vec<_> = meter.counts().collect();
        let expected = [
            ("get", MeteredOutcome::Ok, 2),
            ("set", MeteredOutcome::Ok, 0),
            ("set", MeteredOutcome::Busy, 1),
        ];
        assert_eq!(counts, expected);
        for (index, outcome) in MeteredOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }

    #[test]
    fn commands_have_their_own_times() {
        let meter = Meter::new(vec!["get", "set", "del"]);
        meter.count(1, MeteredOutcome::Ok);
        meter.count(1, MeteredOutcome::Invalid);
        let timed = Timed {
            op: Op::Write,
            command: 1,
        };
        meter.observe(timed, Duration::from_micros(3));
        meter.observe(Op::Write, Duration::from_micros(5));
        let all: Vec<_> = meter.by_command().collect();
        let set = CommandCounts {
            name: "set",
            answers: [1, 1, 0, 0, 0],
            timed: 1,
            took: Duration::from_micros(3),
        };
        assert_eq!(all, [set]);
        [true, false, true]
            .into_iter()
            .for_each(|found| meter.read(found));
        assert_eq!(meter.hits_and_misses(), (2, 1));
    }

    #[test]
    fn durations_fall_into_the_bucket_that_they_do_not_exceed() {
        let meter = Meter::new(Vec::new());
        for micros in [1, 10, 11, 10_000_000, 10_000_001] {
            meter.observe(Op::Write, Duration::from_micros(micros));
        }
        let of = |op| meter.durations().find(|counts| counts.op == op).unwrap();
        let write = of(Op::Write);
        assert_eq!(write.cumulative[..2], [2, 3]);
        assert_eq!(write.cumulative[18..], [4, 5]);
        assert_eq!(write.sum, Duration::from_micros(20_000_023));
        assert_eq!(of(Op::Get).cumulative[19], 0);
    }

    #[test]
    fn one_call_in_so_many_is_timed_until_it_is_answered() {
        let (meter, mut sampler) = (Meter::new(Vec::new()), Sampler::default());
        let wanted = (0..SAMPLE_EVERY * 3).filter(|_| sampler.wants()).count();
        assert_eq!(wanted, 3);
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        for token in 0..100 {
            sampler.wait(token, Op::Get, at(token));
        }
        sampler.answered(7, &meter, || at(1007));
        sampler.answered(7, &meter, || panic!("it was answered"));
        sampler.answered(99, &meter, || panic!("too many were open"));
        let get = meter.durations().next().unwrap();
        assert_eq!(get.cumulative[19], 1);
        assert_eq!(get.sum, Duration::from_millis(1));
    }
}
