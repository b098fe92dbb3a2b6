//! The simulated fabric keeps the contract, is as bad as it says, and is so from its seed alone.

use super::*;
use crate::conformance::{self, Harness, mistakes};

const A: ServerId = ServerId(1);
const B: ServerId = ServerId(2);
const KEY: MemoryKey = MemoryKey(5);
const LEN: usize = 8192;

/// Connects to what B grants. What breaks is begun anew a few times.
fn connect(world: &SimWorld, fabric: &dyn Fabric) -> Result<Box<dyn RemoteMemory>, FabricError> {
    let mut ended = Err(FabricError::Broken);
    for _ in 0..8 {
        let found = fabric.find(B, KEY)?;
        ended = ended_of(world, &mut *fabric.connect(B, found, 0));
        if !matches!(ended, Err(FabricError::Broken)) {
            break;
        }
    }
    ended
}

/// Steps until it ends, and no further.
fn ended_of(
    world: &SimWorld,
    connecting: &mut dyn Connecting,
) -> Result<Box<dyn RemoteMemory>, FabricError> {
    loop {
        if let Some(remote) = connecting.poll()? {
            return Ok(remote);
        }
        world.step(world.next_event().expect("it ends"));
    }
}

struct World {
    world: SimWorld,
}

impl Harness for World {
    fn start(&mut self, server: ServerId, incarnation: Incarnation) -> Arc<dyn Fabric> {
        self.world.fabric(server, incarnation)
    }

    fn memory(&mut self, _server: ServerId, len: usize) -> Arc<SharedMemory> {
        Arc::new(SharedMemory::anonymous(len))
    }

    fn kill(&mut self, server: ServerId) {
        self.world.kill(server);
    }

    fn stop(&mut self, server: ServerId) {
        self.world.stop(server);
        assert!(self.world.is_stopped(server));
    }

    fn resume(&mut self, server: ServerId) {
        self.world.resume(server);
    }

    fn settle(&mut self) {
        self.world.settle();
    }

    fn cut(&mut self, a: ServerId, b: ServerId) -> bool {
        self.world.cut(a, b);
        self.world.cut(b, a);
        true
    }

    fn heal(&mut self, _a: ServerId, _b: ServerId) {
        self.world.heal_all();
    }

    fn sleeps(&self) -> bool {
        false
    }
}

#[test]
fn keeps_the_contract() {
    for seed in 0..20 {
        let mut make = || -> Box<dyn Harness> { Box::new(World { world: lossy(seed) }) };
        conformance::run(&mut make);
    }
}

#[test]
fn mistakes_in_connecting_are_found() {
    let mut make = || -> Box<dyn Harness> {
        let world = SimWorld::new(1);
        Box::new(World { world })
    };
    mistakes::are_found(&mut make);
}

struct Link {
    world: SimWorld,
    a: Arc<SimFabric>,
    b: Arc<SimFabric>,
    memory: Arc<SharedMemory>,
}

/// A world in which some questions for a connection are lost.
fn lossy(seed: u64) -> SimWorld {
    let settings = SimSettings {
        lost_percent: 3,
        ..SimSettings::default()
    };
    SimWorld::with_settings(seed, settings)
}

fn link(seed: u64) -> Link {
    link_in(SimWorld::new(seed))
}

fn link_in(world: SimWorld) -> Link {
    let a = world.fabric(A, Incarnation(1));
    let b = world.fabric(B, Incarnation(1));
    let memory = Arc::new(SharedMemory::anonymous(LEN));
    b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
    Link {
        world,
        a,
        b,
        memory,
    }
}

impl Link {
    fn connect(&self) -> Box<dyn RemoteMemory> {
        connect(&self.world, &*self.a).expect("it is offered")
    }
}

/// Everything that one seed makes happen, as text.
fn history(seed: u64) -> String {
    let link = link(seed);
    let mut remote = link.connect();
    let mut lines = String::new();
    for seq in 1..=200u64 {
        let at = usize::try_from(seq % 32).expect("it is small") * 256;
        let _ = remote.write(at, &[u8::try_from(seq).expect("it is small"); 200], seq);
        match seq {
            60 => link.world.cut(B, A),
            90 => link.world.heal_all(),
            150 => link.b.revoke(KEY),
            _ => {}
        }
        if let Some(next) = link.world.next_event() {
            link.world.step(next);
        }
        while let Some(ended) = remote.poll() {
            lines += &format!("{:?} {ended:?}\n", link.world.now());
        }
        lines += &format!("{:x}\n", crc(&link.memory.read_vec(0, LEN)));
    }
    lines + &format!("{:?}", link.world.counters())
}

fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| {
        sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte)
    })
}

#[test]
fn a_seed_says_all() {
    for seed in 0..10 {
        assert_eq!(history(seed), history(seed), "seed {seed}");
    }
    assert_ne!(history(1), history(2));
}

/// Writes a burst, and returns the last sequence number.
fn burst(remote: &mut dyn RemoteMemory, after: u64) -> u64 {
    for seq in after + 1..=after + 40 {
        let at = usize::try_from(seq % 50).expect("it is small") * 128;
        let _ = remote.write(at, &[7; 120], seq);
    }
    after + 40
}

/// Does every harm once.
fn harm(seed: u64) -> SimCounters {
    let link = link_in(lossy(seed));
    let some = |world: &SimWorld| {
        for _ in 0..30 {
            if let Some(next) = world.next_event() {
                world.step(next);
            }
        }
    };
    let mut remote = link.connect();
    let last = burst(&mut *remote, 0);
    some(&link.world);
    link.world.cut(B, A);
    link.a.notify(B);
    link.b.notify(A);
    link.world.settle();
    burst(&mut *remote, last);
    link.world.heal_all();
    let mut remote = link.connect();
    (0..10).fold(0, |last, _| burst(&mut *remote, last));
    some(&link.world);
    link.b.revoke(KEY);
    link.world.settle();
    let again = link.b.grant(KEY, Arc::clone(&link.memory), A);
    again.expect("it was revoked");
    let begin = |descriptor| link.a.connect(B, descriptor, 0);
    let found = link.a.find(B, KEY).expect("it is offered");
    let _kept: Vec<_> = (0..5).map(|_| begin(found)).collect();
    drop(begin(found));
    let _refused = begin(Descriptor { grant: 0, ..found });
    link.world.settle();
    let mut remote = link.connect();
    burst(&mut *remote, 0);
    link.world.kill(A);
    link.world.settle();
    link.world.counters()
}

/// Each badness happens to some write within a few seeds.
#[test]
fn every_counter_counts() {
    let all: Vec<_> = (0..40).map(|seed| harm(seed).named()).collect();
    for (i, (name, _)) in SimCounters::default().named().iter().enumerate() {
        let sum: u64 = all.iter().map(|counters| counters[i].1).sum();
        assert!(sum > 0, "{name} is never counted");
    }
}

/// Between the first and the last piece a write is seen in part, and never before it is begun or
/// after it is acknowledged.
#[test]
fn a_torn_write_is_seen_in_part() {
    let mut in_part = 0;
    for seed in 0..50 {
        let link = link(seed);
        let mut remote = link.connect();
        remote.write(0, &[1; 256], 1).expect("there is room");
        assert_eq!(
            link.memory.read_vec(0, 256),
            [0; 256],
            "nothing lands before its time"
        );
        while let Some(next) = link.world.next_event() {
            link.world.step(next);
            let bytes = link.memory.read_vec(0, 256);
            for word in bytes.chunks(8) {
                assert!(word == [0; 8] || word == [1; 8], "aligned words land whole");
            }
            let all = bytes == [1; 256];
            in_part += u32::from(!all && bytes != [0; 256]);
            assert!(all || remote.poll().is_none());
        }
        assert!(remote.poll().is_some());
    }
    assert!(in_part > 10, "{in_part}");
}

/// A connection is made at a time that the seed chose, and not before.
#[test]
fn a_connection_takes_its_time() {
    let times = (0..20).map(|seed| {
        let link = link(seed);
        let found = link.a.find(B, KEY).expect("it is offered");
        let mut connecting = link.a.connect(B, found, 0);
        assert!(matches!(connecting.poll(), Ok(None)), "it has just begun");
        ended_of(&link.world, &mut *connecting).expect("nothing speaks against it");
        link.world.now()
    });
    let times: std::collections::BTreeSet<_> = times.collect();
    assert_eq!(times.len(), 20, "each seed has its own");
}

/// Who is asked, and dies before the question arrives, refuses; who has answered is believed.
#[test]
fn a_peer_that_dies_takes_no_connection() {
    let link = link(1);
    let found = link.a.find(B, KEY).expect("it is offered");
    let mut connecting = link.a.connect(B, found, 0);
    link.world.kill(B);
    let result = ended_of(&link.world, &mut *connecting).map(|_| ());
    assert_eq!(result, Err(FabricError::Broken));
    assert_eq!(link.world.counters().connections.refused, 1);
}

/// A short stop only delays, a long one is not waited for.
#[test]
fn a_stopped_peer_holds_a_connection_up() {
    let link = link(1);
    let found = link.a.find(B, KEY).expect("it is offered");
    link.world.stop(B);
    let mut connecting = link.a.connect(B, found, 0);
    while link.world.counters().held == 0 {
        link.world
            .step(link.world.next_event().expect("it arrives"));
    }
    assert!(matches!(connecting.poll(), Ok(None)));
    link.world.resume(B);
    assert!(ended_of(&link.world, &mut *connecting).is_ok());
    link.world.stop(B);
    let mut connecting = link.a.connect(B, found, 0);
    let result = ended_of(&link.world, &mut *connecting).map(|_| ());
    assert_eq!(result, Err(FabricError::Broken));
    assert_eq!(link.world.counters().connections.unheard, 1);
}

/// What a healed link lets through goes on; an answer is held by a cut of the way back.
#[test]
fn a_cut_holds_question_and_answer() {
    for (from, to) in [(A, B), (B, A)] {
        let link = link(2);
        let found = link.a.find(B, KEY).expect("it is offered");
        let mut connecting = link.a.connect(B, found, 0);
        link.world.cut(from, to);
        while link.world.counters().held == 0 {
            link.world
                .step(link.world.next_event().expect("it arrives"));
        }
        assert!(matches!(connecting.poll(), Ok(None)));
        link.world.heal_all();
        assert!(ended_of(&link.world, &mut *connecting).is_ok());
        link.world.settle();
        assert_eq!(link.world.counters().connections.unheard, 0);
    }
}

/// Nothing is left in the world of connections that were dropped, whatever had become of them.
#[test]
fn a_dropped_connection_leaves_nothing() {
    let link = link(3);
    let found = link.a.find(B, KEY).expect("it is offered");
    for steps in 0..4 {
        let connecting = link.a.connect(B, found, 0);
        for _ in 0..steps {
            if let Some(next) = link.world.next_event() {
                link.world.step(next);
            }
        }
        drop(connecting);
        link.world.settle();
        let world = link.world.lock();
        assert_eq!((world.handshakes.len(), world.connections.len()), (0, 0));
    }
    assert_eq!(link.world.counters().connections.dropped, 4);
}

/// A cut of the way back: the bytes land, and the writer never learns it.
#[test]
fn lost_acknowledgements_leave_the_writer_in_doubt() {
    let link = link(3);
    let mut remote = link.connect();
    link.world.cut(B, A);
    remote.write(0, &[9; 64], 1).expect("there is room");
    link.world.settle();
    assert_eq!(link.memory.read_vec(0, 64), [9; 64]);
    let ended = WriteCompletion {
        seq: 1,
        result: Err(FabricError::Broken),
    };
    assert_eq!(remote.poll(), Some(ended));
    assert_eq!(link.world.counters().landed_failed, 1);
}

/// A cut that is healed in time only delays.
#[test]
fn a_short_cut_breaks_nothing() {
    let settings = SimSettings {
        break_max: Duration::from_secs(1 << 30),
        ..SimSettings::default()
    };
    let world = SimWorld::with_settings(1, settings);
    let a = world.fabric(A, Incarnation(1));
    let b = world.fabric(B, Incarnation(1));
    let memory = Arc::new(SharedMemory::anonymous(LEN));
    b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
    let mut remote = connect(&world, &*a).expect("it is offered");
    world.cut(A, B);
    for seq in 1..=20u64 {
        remote
            .write(0, &[u8::try_from(seq).expect("small"); 64], seq)
            .expect("room");
    }
    world.step(Instant::from_nanos(10_000_000));
    assert_eq!(memory.read_vec(0, 64), [0; 64]);
    assert!(world.counters().held >= 20);
    world.heal(A, B);
    remote.write(0, &[77; 64], 21).expect("there is room");
    world.settle();
    assert_eq!(
        memory.read_vec(0, 64),
        [77; 64],
        "overlapping writes keep their order"
    );
    let ended: Vec<_> = std::iter::from_fn(|| remote.poll()).collect();
    assert_eq!(ended.len(), 21);
    assert!(ended.iter().all(|completion| completion.result.is_ok()));
}

#[test]
fn without_power_memory_is_gone() {
    let link = link(4);
    let mut remote = link.connect();
    remote.write(0, &[1; 64], 1).expect("there is room");
    link.world.settle();
    assert_eq!(remote.poll().map(|ended| ended.result), Some(Ok(())));
    remote.write(64, &[1; 64], 2).expect("there is room");
    link.world.cut_power(B);
    remote
        .write(128, &[1; 64], 3)
        .expect("the writer does not know yet");
    link.world.settle();
    assert_eq!(link.memory.read_vec(0, LEN), vec![0; LEN]);
    let ended: Vec<_> = std::iter::from_fn(|| remote.poll()).collect();
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|e| e.result == Err(FabricError::Broken)));
    assert_eq!(
        connect(&link.world, &*link.a).map(|_| ()),
        Err(FabricError::Broken)
    );
    let result = link.b.grant(KEY, Arc::clone(&link.memory), A);
    assert_eq!(result, Err(FabricError::Broken), "its process is gone too");
    let again = link.world.fabric(B, Incarnation(2));
    again
        .grant(KEY, Arc::clone(&link.memory), A)
        .expect("it is new");
    assert_eq!(link.connect().incarnation(), Incarnation(2));
}

/// A killed writer's last writes land in part, some of them, and the rest never.
#[test]
fn a_killed_writer_leaves_half() {
    let (mut landed, mut lost) = (0, 0);
    for seed in 0..20 {
        let link = link(seed);
        let mut remote = link.connect();
        for seq in 1..=32u64 {
            let at = usize::try_from(seq - 1).expect("it is small") * 256;
            remote.write(at, &[1; 256], seq).expect("there is room");
        }
        link.world.kill(A);
        link.world.settle();
        let bytes = link.memory.read_vec(0, LEN);
        landed += bytes.iter().filter(|byte| **byte == 1).count();
        lost += bytes.iter().filter(|byte| **byte == 0).count();
        assert_eq!(remote.write(0, &[2], 33), Err(FabricError::Broken));
        assert_eq!(remote.poll(), None);
    }
    assert!(
        landed > 20_000 && lost > 20_000,
        "{landed} landed, {lost} lost"
    );
}
