//! One suite for every provider: what the contract in this crate's documentation promises, tried
//! on a pair of servers.
//!
//! A provider's test implements [`Harness`] and calls [`run`]. The suite asserts what a completion
//! proves, never how long anything takes.

mod connecting;
mod grants;
#[cfg(test)]
pub(crate) mod mistakes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use argosy_base::{Incarnation, ServerId};
use argosy_memory::SharedMemory;

use crate::{
    Connecting, Descriptor, Fabric, FabricError, MemoryKey, RemoteMemory, WriteCompletion,
};

/// What the suite needs from a provider's test.
pub trait Harness {
    /// Starts `server`, or starts it again after [`kill`](Self::kill).
    fn start(&mut self, server: ServerId, incarnation: Incarnation) -> Arc<dyn Fabric>;

    /// `len` zero bytes that `server` may grant.
    fn memory(&mut self, server: ServerId, len: usize) -> Arc<SharedMemory>;

    /// Ends `server` without a chance to clean up.
    fn kill(&mut self, server: ServerId);

    /// `server` does nothing until [`resume`](Self::resume).
    fn stop(&mut self, server: ServerId);

    /// Undoes [`stop`](Self::stop).
    fn resume(&mut self, server: ServerId);

    /// Lets everything happen that has been begun.
    fn settle(&mut self);

    /// Cuts the link between two servers, both ways; `false` where there are no links.
    fn cut(&mut self, a: ServerId, b: ServerId) -> bool;

    /// Undoes [`cut`](Self::cut).
    fn heal(&mut self, a: ServerId, b: ServerId);

    /// Whether `park` puts the thread to sleep, so that others can run.
    fn sleeps(&self) -> bool;
}

const WRITER: ServerId = ServerId(1);
const TARGET: ServerId = ServerId(2);
const KEY: MemoryKey = MemoryKey(0xfab);
const FIRST: Incarnation = Incarnation(10);
const SECOND: Incarnation = Incarnation(11);
const LEN: usize = 64 << 10;
/// How often a connection is begun anew that breaks before it is made.
const TRIES: usize = 8;

/// A writer and a target that grants memory to it.
struct Pair {
    world: Box<dyn Harness>,
    writer: Arc<dyn Fabric>,
    target: Arc<dyn Fabric>,
    memory: Arc<SharedMemory>,
    /// The last grant of memory under [`KEY`].
    granted: Descriptor,
}

impl Pair {
    fn new(mut world: Box<dyn Harness>) -> Self {
        let writer = world.start(WRITER, FIRST);
        let target = world.start(TARGET, FIRST);
        let memory = world.memory(TARGET, LEN);
        let granted = target.grant(KEY, Arc::clone(&memory), WRITER);
        let granted = granted.expect("memory that the harness made can be granted");
        Self {
            world,
            writer,
            target,
            memory,
            granted,
        }
    }

    /// The target grants `memory` under [`KEY`].
    fn grant(&mut self, memory: Arc<SharedMemory>) {
        let granted = self.target.grant(KEY, memory, WRITER);
        self.granted = granted.expect("in place of what was there");
    }

    /// Why the writer cannot connect with the last grant, or that it can.
    fn try_connect(&mut self) -> Result<(), FabricError> {
        self.reach(self.granted, 0).map(|_| ())
    }

    fn connect(&mut self) -> Box<dyn RemoteMemory> {
        let connected = self.reach(self.granted, 0);
        connected.expect("granted memory can be connected to")
    }

    /// Connects the writer to memory of the target.
    fn reach(
        &mut self,
        descriptor: Descriptor,
        least: usize,
    ) -> Result<Box<dyn RemoteMemory>, FabricError> {
        let writer = Arc::clone(&self.writer);
        self.reach_from(&*writer, descriptor, least)
    }

    /// The same for any server. What breaks is begun anew a few times.
    fn reach_from(
        &mut self,
        fabric: &dyn Fabric,
        descriptor: Descriptor,
        least: usize,
    ) -> Result<Box<dyn RemoteMemory>, FabricError> {
        for _ in 1..TRIES {
            let mut connecting = fabric.connect(TARGET, descriptor, least);
            match self.end(&mut *connecting) {
                Err(FabricError::Broken) => {}
                ended => return ended,
            }
        }
        self.end(&mut *fabric.connect(TARGET, descriptor, least))
    }

    /// Settles, and returns what has come of it: it has ended by then.
    fn end(
        &mut self,
        connecting: &mut dyn Connecting,
    ) -> Result<Box<dyn RemoteMemory>, FabricError> {
        self.world.settle();
        let ended = connecting.poll()?;
        Ok(ended.expect("it ends by itself"))
    }

    /// Settles, and returns all that `remote` has to report.
    fn ended(&mut self, remote: &mut dyn RemoteMemory) -> Vec<WriteCompletion> {
        self.world.settle();
        std::iter::from_fn(|| remote.poll()).collect()
    }
}

/// Holds the provider to the contract. `make` makes a new world, without servers, for each case.
///
/// # Panics
/// When the provider breaks the contract.
pub fn run(make: &mut dyn FnMut() -> Box<dyn Harness>) {
    let cases: [fn(Pair); 28] = [
        connecting::ends,
        connecting::revoked,
        connecting::granted_anew,
        connecting::refused,
        connecting::dropped,
        connecting::late,
        connecting::many,
        connecting::killed,
        connecting::stopped,
        connecting::cut,
        idle_target,
        grants::nothing_granted,
        grants::found_grant,
        grants::earlier_grant,
        grants::grant_of_another,
        grants::too_short,
        stopped_target,
        killed_target,
        revoked_memory,
        revoked_under_writes,
        replaced_memory,
        restarted_target,
        cut_link,
        completion_rings,
        full_connection,
        whole_words,
        overlapping_writes,
        bell_wakes,
    ];
    for case in cases {
        case(Pair::new(make()));
    }
}

/// Writes land, at their place, while the target does nothing; each is reported once.
fn idle_target(mut pair: Pair) {
    let mut remote = pair.connect();
    assert_eq!(remote.len(), LEN);
    assert_eq!(remote.incarnation(), FIRST);
    assert_eq!(remote.poll(), None, "nothing was written");
    let sizes = [0, 1, 7, 8, 9, 31, 64, 1000, 4096, 20_000];
    let mut expected = vec![0; LEN];
    let mut at = 3;
    for (seq, size) in (1u64..).zip(sizes) {
        let bytes = pattern(seq, size);
        remote.write(at, &bytes, seq).expect("there is room");
        expected[at..at + size].copy_from_slice(&bytes);
        at += size + 5;
    }
    let last = pattern(99, 8);
    remote.write(LEN - 8, &last, 99).expect("there is room");
    expected[LEN - 8..].copy_from_slice(&last);

    let mut ended = pair.ended(&mut *remote);
    ended.sort_by_key(|completion| completion.seq);
    let seqs: Vec<u64> = ended.iter().map(|completion| completion.seq).collect();
    let all: Vec<u64> = (1..=sizes.len() as u64).chain([99]).collect();
    assert_eq!(seqs, all, "each write is reported once");
    assert!(ended.iter().all(|completion| completion.result.is_ok()));
    assert_eq!(pair.memory.read_vec(0, LEN), expected);
}

/// The target owes no progress: a stopped one takes writes and completes them.
fn stopped_target(mut pair: Pair) {
    let mut remote = pair.connect();
    pair.world.stop(TARGET);
    remote.write(64, b"while you sleep", 1).expect("taken");
    let ended = pair.ended(&mut *remote);
    let done = WriteCompletion {
        seq: 1,
        result: Ok(()),
    };
    assert_eq!(ended, [done]);
    pair.world.resume(TARGET);
    assert_eq!(pair.memory.read_vec(64, 15), b"while you sleep");
}

/// A killed target's memory may take writes or not; what is reported as landed has landed.
fn killed_target(mut pair: Pair) {
    let mut remote = pair.connect();
    write_numbers(&mut *remote, 1..=20);
    pair.world.kill(TARGET);
    write_numbers(&mut *remote, 21..=40);
    let ended = pair.ended(&mut *remote);
    let copy = pair.memory.read_vec(0, LEN);
    assert_successes_are_in(&copy, &ended);
}

/// Once memory is revoked no write succeeds, on the old connection ever, and on a new one before
/// it is granted again.
fn revoked_memory(mut pair: Pair) {
    let mut remote = pair.connect();
    write_numbers(&mut *remote, 1..=5);
    assert_eq!(successes(&pair.ended(&mut *remote)).len(), 5);
    pair.target.revoke(KEY);
    assert_eq!(pair.memory.access(), 0, "the memory knows it too");
    let copy = pair.memory.read_vec(0, LEN);
    assert_eq!(pair.try_connect(), Err(FabricError::Revoked));

    write_numbers(&mut *remote, 6..=10);
    let ended = pair.ended(&mut *remote);
    assert_eq!(successes(&ended), [0; 0]);
    let failed = |result: &Result<(), FabricError>| *result == Err(FabricError::Revoked);
    assert!(ended.iter().all(|completion| failed(&completion.result)));
    assert_eq!(remote.write(0, b"x", 11), Err(FabricError::Revoked));
    assert_eq!(pair.memory.read_vec(0, LEN), copy, "nothing else landed");

    // Granted again, the same memory knows the old connection no more.
    let memory = Arc::clone(&pair.memory);
    pair.grant(memory);
    let mut fresh = pair.connect();
    assert_eq!(remote.write(0, b"x", 12), Err(FabricError::Revoked));
    fresh.write(0, b"y", 1).expect("taken");
    assert_eq!(successes(&pair.ended(&mut *fresh)), [1]);
    assert_eq!(pair.memory.read_vec(0, 1), b"y");
}

/// Revoked while writes are on their way: those that succeed are in the copy.
fn revoked_under_writes(mut pair: Pair) {
    for round in 0..50 {
        let mut remote = pair.connect();
        write_numbers(&mut *remote, 1..=40);
        if round % 2 == 0 {
            pair.target.revoke(KEY);
        } else {
            let other = pair.world.memory(TARGET, LEN);
            pair.grant(other);
        }
        let copy = pair.memory.read_vec(0, LEN);
        write_numbers(&mut *remote, 41..=80);
        let ended = pair.ended(&mut *remote);
        assert_successes_are_in(&copy, &ended);
        assert!(successes(&ended).iter().all(|seq| *seq <= 40));
        assert_eq!(pair.memory.read_vec(0, LEN), copy, "nothing landed later");

        pair.memory = pair.world.memory(TARGET, LEN);
        let memory = Arc::clone(&pair.memory);
        pair.grant(memory);
    }
}

/// Granting in place of other memory revokes that.
fn replaced_memory(mut pair: Pair) {
    let mut old = pair.connect();
    let memory = pair.world.memory(TARGET, 8192);
    pair.grant(Arc::clone(&memory));
    let mut new = pair.connect();
    assert_eq!(new.len(), 8192);
    write_numbers(&mut *old, 1..=1);
    new.write(16, b"new", 1).expect("taken");
    assert_eq!(successes(&pair.ended(&mut *old)), [0; 0]);
    assert_eq!(successes(&pair.ended(&mut *new)), [1]);
    assert_eq!(memory.read_vec(16, 3), b"new");
    assert_eq!(pair.memory.read_vec(0, LEN), vec![0; LEN]);
}

/// A target that starts again has revoked what it granted before anyone reads it.
fn restarted_target(mut pair: Pair) {
    let mut remote = pair.connect();
    write_numbers(&mut *remote, 1..=10);
    pair.world.kill(TARGET);
    write_numbers(&mut *remote, 11..=20);
    pair.target = pair.world.start(TARGET, SECOND);
    let copy = pair.memory.read_vec(0, LEN);
    assert_eq!(pair.try_connect(), Err(FabricError::Revoked));

    write_numbers(&mut *remote, 21..=30);
    let ended = pair.ended(&mut *remote);
    assert_successes_are_in(&copy, &ended);
    assert!(successes(&ended).iter().all(|seq| *seq <= 20));
    assert_eq!(pair.memory.read_vec(0, LEN), copy, "nothing landed later");

    let memory = pair.world.memory(TARGET, LEN);
    pair.grant(Arc::clone(&memory));
    let mut fresh = pair.connect();
    assert_eq!(fresh.incarnation(), SECOND);
    fresh.write(8, b"again", 1).expect("taken");
    assert_eq!(successes(&pair.ended(&mut *fresh)), [1]);
    assert_eq!(memory.read_vec(8, 5), b"again");
    assert_eq!(pair.memory.read_vec(0, LEN), copy);
}

/// On a cut link nothing succeeds; in the end the connection is broken, and stays so.
fn cut_link(mut pair: Pair) {
    let mut remote = pair.connect();
    if !pair.world.cut(WRITER, TARGET) {
        return;
    }
    write_numbers(&mut *remote, 1..=5);
    let ended = pair.ended(&mut *remote);
    assert_eq!(successes(&ended), [0; 0]);
    assert_eq!(ended.len(), 5, "in the end all are given up");
    assert_eq!(pair.try_connect(), Err(FabricError::Broken));

    pair.world.heal(WRITER, TARGET);
    assert_eq!(remote.write(0, b"x", 6), Err(FabricError::Broken));
    let mut fresh = pair.connect();
    write_numbers(&mut *fresh, 1..=5);
    assert_eq!(successes(&pair.ended(&mut *fresh)), [1, 2, 3, 4, 5]);
}

/// A write that ends later rings the bell of its own writer.
fn completion_rings(mut pair: Pair) {
    let mut remote = pair.connect();
    for seq in 1..=3 {
        let seen = pair.writer.bell();
        remote
            .write(0, &pattern(seq, 64), seq)
            .expect("there is room");
        if remote.poll().is_some() {
            // It had ended before the call returned: nobody has to be woken.
            continue;
        }
        pair.world.settle();
        assert_ne!(pair.writer.bell(), seen, "write {seq} ended unheard");
        assert!(remote.poll().is_some());
    }
    let seen = pair.writer.bell();
    remote.write(0, &pattern(4, 64), 4).expect("there is room");
    pair.target.revoke(KEY);
    if let Some(ended) = remote.poll() {
        return assert_eq!(ended.seq, 4);
    }
    pair.world.settle();
    assert_ne!(pair.writer.bell(), seen, "a failure is heard, too");
}

/// Writes that nobody polls are bounded; what is refused leaves no trace and can be tried again.
fn full_connection(mut pair: Pair) {
    const BOUND: u64 = 1 << 20;
    let mut remote = pair.connect();
    let mut seq = 1u64;
    let refused = loop {
        match remote.write(0, &seq.to_le_bytes(), seq) {
            Ok(()) => seq += 1,
            Err(error) => break error,
        }
        assert!(seq < BOUND, "writes in flight are bounded");
    };
    assert_eq!(refused, FabricError::Full);
    pair.world.settle();
    assert_eq!(
        pair.memory.load_u64(0),
        seq - 1,
        "the refused one left no trace"
    );
    let first = remote.poll().expect("all have ended");
    assert_eq!(first.result, Ok(()));
    let retried = remote.write(0, &seq.to_le_bytes(), seq);
    assert_eq!(retried, Ok(()), "one was polled, so there is room for one");
    let mut ended = successes(&pair.ended(&mut *remote));
    ended.push(first.seq);
    ended.sort_unstable();
    let all: Vec<u64> = (1..=seq).collect();
    assert_eq!(ended, all, "each is reported once");
}

/// A write of one aligned word is seen whole or not at all.
fn whole_words(mut pair: Pair) {
    const ROUNDS: u64 = 5_000;
    let mut remote = pair.connect();
    let memory = Arc::clone(&pair.memory);
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0u64;
            while !finished.load(Ordering::Acquire) {
                let word = memory.load_u64(256);
                assert!(word == 0 || word == u64::MAX, "a torn word: {word:#x}");
                seen += 1;
            }
            seen
        });
        for seq in 1..=ROUNDS {
            let word = if seq % 2 == 0 { 0 } else { u64::MAX };
            let written = remote.write(256, &word.to_le_bytes(), seq);
            written.expect("all before were polled");
            let ended = pair.ended(&mut *remote);
            assert_eq!(successes(&ended), [seq]);
            assert_eq!(memory.load_u64(256), word);
        }
        finished.store(true, Ordering::Release);
        assert!(reader.join().is_ok(), "the reader saw whole words only");
    });
}

/// Of writes to the same bytes on one connection, the last one stays.
fn overlapping_writes(mut pair: Pair) {
    for round in 0..20u64 {
        let mut remote = pair.connect();
        let mut expected = vec![0; 300];
        for seq in 1..=30u64 {
            let size = 8 + usize::try_from(seq * 37 % 200).expect("it is small");
            let at = usize::try_from((seq * 13 + round * 7) % 90).expect("it is small");
            let bytes = pattern(seq + round, size);
            remote.write(at, &bytes, seq).expect("there is room");
            expected[at..at + size].copy_from_slice(&bytes);
        }
        let all = successes(&pair.ended(&mut *remote));
        assert_eq!(all, (1..=30).collect::<Vec<u64>>());
        assert_eq!(pair.memory.read_vec(0, 300), expected);
        remote.write(0, &[0; 300], 31).expect("there is room");
        assert_eq!(successes(&pair.ended(&mut *remote)), [31]);
    }
}

/// A notification after `bell` was read ends a park, whenever it comes. A lost one hangs.
fn bell_wakes(mut pair: Pair) {
    const NEVER: Duration = Duration::from_secs(3600);
    let before = pair.target.bell();
    pair.writer.notify(TARGET);
    pair.world.settle();
    assert_ne!(pair.target.bell(), before);
    pair.target.park(before, NEVER);
    pair.target
        .park(pair.target.bell(), Duration::from_millis(1));
    pair.writer.notify(ServerId(77)); // Nobody: nothing happens.
    let own = pair.target.bell();
    pair.target.notify(TARGET);
    pair.world.settle();
    assert_ne!(pair.target.bell(), own, "a server may ring its own bell");
    if !pair.world.sleeps() {
        return;
    }

    // Two servers wake each other in turn, each asleep while the other works.
    const ROUNDS: u32 = 3_000;
    let turn = AtomicU32::new(0);
    let play = |own: &dyn Fabric, peer: ServerId, odd: u32| {
        while turn.load(Ordering::Acquire) < ROUNDS {
            let seen = own.bell();
            let now = turn.load(Ordering::Acquire);
            if now < ROUNDS && now % 2 == odd {
                turn.store(now + 1, Ordering::Release);
                peer_notify(own, peer);
            } else if now < ROUNDS {
                own.park(seen, NEVER);
            }
        }
        peer_notify(own, peer);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(&*pair.writer, TARGET, 0));
        play(&*pair.target, WRITER, 1);
    });
    assert_eq!(turn.load(Ordering::Acquire), ROUNDS);
}

fn peer_notify(own: &dyn Fabric, peer: ServerId) {
    own.notify(peer);
}

/// Bytes that tell which write, and which of its bytes, they are.
fn pattern(seq: u64, size: usize) -> Vec<u8> {
    let byte = |i: usize| {
        let mixed = (i as u64)
            .wrapping_mul(31)
            .wrapping_add(seq.wrapping_mul(167))
            % 255;
        u8::try_from(mixed + 1).expect("at most 255")
    };
    (0..size).map(byte).collect()
}

/// Where write `seq` of [`write_numbers`] goes, and what it writes.
fn numbered(seq: u64) -> (usize, Vec<u8>) {
    let at = usize::try_from(seq).expect("it is small") * 96;
    (at, pattern(seq, 90))
}

/// Begins one write a number, each to its own place. Writes that are refused are left out.
fn write_numbers(remote: &mut dyn RemoteMemory, seqs: std::ops::RangeInclusive<u64>) {
    for seq in seqs {
        let (at, bytes) = numbered(seq);
        let _ = remote.write(at, &bytes, seq);
    }
}

/// The writes that succeeded, sorted: they may end in any order.
fn successes(ended: &[WriteCompletion]) -> Vec<u64> {
    let good = ended.iter().filter(|completion| completion.result.is_ok());
    let mut seqs: Vec<u64> = good.map(|completion| completion.seq).collect();
    seqs.sort_unstable();
    seqs
}

/// What was reported as written by [`write_numbers`] is in `copy`, and no success was reported
/// after a failure.
fn assert_successes_are_in(copy: &[u8], ended: &[WriteCompletion]) {
    for seq in successes(ended) {
        let (at, bytes) = numbered(seq);
        assert_eq!(copy[at..at + bytes.len()], bytes, "write {seq} succeeded");
    }
    let first_failure = ended
        .iter()
        .position(|completion| completion.result.is_err());
    let after = &ended[first_failure.unwrap_or(ended.len())..];
    assert_eq!(successes(after), [0; 0], "a success after a failure");
}
