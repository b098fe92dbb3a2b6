//! Two links over the simulated fabric: they open, carry messages in order, notice every failure,
//! and never show a message of an earlier link on a later one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_base::{DeviceSegment, Epoch, Incarnation, Instant, RegionId, SegmentNumber, ServerId};
use argosy_fabric::sim::{SimSettings, SimWorld};
use argosy_wire::message::{CONTINUED, LONG_BYTES_MAX, Message};
use argosy_wire::ring::Header;

use super::{CannotOpen, Ends, Link, LinkEvent, LinkSettings, SHIP_SLOTS, SendError, Shipment};
use crate::node::Mutants;
use crate::node::copies_tests::Scarce;

const SETTINGS: LinkSettings = LinkSettings {
    ring_bytes: 4096,
    slot_bytes: 8192,
    part_bytes: 1024,
};
const IDS: [ServerId; 2] = [ServerId(0), ServerId(1)];

/// One side, and what it has seen.
struct Side {
    link: Link,
    memory: Arc<Scarce>,
    incarnation: u64,
    /// Events and the numbers of messages, in order.
    seen: Vec<Result<u64, LinkEvent>>,
    /// The number of the next message, and the session that the last was sent in.
    next: u64,
}

struct Pair {
    world: SimWorld,
    now: Instant,
    sides: [Side; 2],
}

fn link(world: &SimWorld, side: usize, incarnation: u64, windows: Arc<Scarce>) -> Link {
    link_of(SETTINGS, world, side, incarnation, windows)
}

fn link_of(
    settings: LinkSettings,
    world: &SimWorld,
    side: usize,
    incarnation: u64,
    windows: Arc<Scarce>,
) -> Link {
    let fabric = world.fabric(IDS[side], Incarnation(incarnation));
    let ends = Ends {
        me: IDS[side],
        peer: IDS[1 - side],
    };
    Link::new(
        ends,
        settings,
        fabric,
        windows,
        u32::try_from(incarnation).expect("few") << 16,
    )
    .expect("memory for a link")
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self::over(SimWorld::new(seed))
    }

    fn over(world: SimWorld) -> Self {
        let side = |n| {
            let memory = Arc::<Scarce>::default();
            Side {
                link: link(&world, n, 1, Arc::<Scarce>::clone(&memory)),
                memory,
                incarnation: 1,
                seen: vec![],
                next: 0,
            }
        };
        let sides = [side(0), side(1)];
        Self {
            world,
            now: Instant::default(),
            sides,
        }
    }

    /// Lets `millis` milliseconds pass.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis * 4 {
            self.step(Duration::from_micros(250));
        }
    }

    fn step(&mut self, span: Duration) {
        self.now = self.now + span;
        self.world.step(self.now);
        for side in &mut self.sides {
            let mut events = Vec::new();
            side.link.step(self.now, &mut events);
            side.seen.extend(events.into_iter().map(Err));
            let mut payload = Vec::new();
            while let Some(header) = side.link.next(&mut payload) {
                assert_eq!(payload, pattern(header.request), "a message is whole");
                side.seen.push(Ok(header.request));
            }
            side.link.flush();
        }
    }

    /// Sends the next message from `side`, if its link is open. Numbers carry the session.
    fn send(&mut self, side: usize) {
        let side = &mut self.sides[side];
        let number = u64::from(side.link.session()) << 24 | side.next;
        if side.link.send(header(number), &pattern(number)).is_ok() {
            side.next += 1;
        }
    }

    /// Kills the process of `side` and starts it again.
    fn restart(&mut self, side: usize) {
        self.world.kill(IDS[side]);
        let incarnation = self.sides[side].incarnation + 1;
        let memory = Arc::<Scarce>::default();
        let link = link(
            &self.world,
            side,
            incarnation,
            Arc::<Scarce>::clone(&memory),
        );
        let seen = std::mem::take(&mut self.sides[side].seen);
        self.sides[side] = Side {
            link,
            memory,
            incarnation,
            seen,
            next: 0,
        };
        self.sides[side].seen.push(Err(LinkEvent::Down));
    }

    fn is_open(&self) -> bool {
        self.sides.iter().all(|side| side.link.is_open())
    }
}

fn header(request: u64) -> Header {
    Header {
        kind: 20,
        region: RegionId(1),
        epoch: Epoch(1),
        request,
    }
}

/// What says that a segment was shipped under `attempt`.
fn shipped(attempt: u64) -> Message<'static> {
    Message::Ship {
        attempt,
        segment: SegmentNumber(7),
        len: 100,
        checksum: 0,
        slot: 0,
        place: DeviceSegment(7),
    }
}

/// A payload that its number determines, of some length.
fn pattern(number: u64) -> Vec<u8> {
    let len = usize::try_from(number * 37 % 300).expect("small");
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// Checks that messages came in order, without a gap, and only those of one session per link.
fn check(seen: &[Result<u64, LinkEvent>]) {
    let mut last: Option<u64> = None;
    let mut sessions = Vec::new();
    for what in seen {
        match what {
            Err(LinkEvent::Up | LinkEvent::Down) => last = None,
            Ok(number) => {
                let session = number >> 24;
                match last {
                    Some(last) => assert_eq!(*number, last + 1, "messages come in order"),
                    None => {
                        assert!(
                            !sessions.contains(&session),
                            "an old link's message: {seen:?}"
                        );
                        sessions.push(session);
                    }
                }
                last = Some(*number);
            }
        }
    }
}

fn count(side: &Side) -> usize {
    side.seen.iter().filter(|what| what.is_ok()).count()
}

#[test]
fn links_open_and_messages_arrive_in_order() {
    let mut pair = Pair::new(1);
    pair.run(500);
    assert!(pair.is_open());
    for round in 0..200 {
        for _ in 0..20 {
            pair.send(round % 2);
        }
        pair.run(5);
    }
    pair.run(500);
    for side in &pair.sides {
        assert_eq!(count(side), 2000, "many times what the ring holds");
        check(&side.seen);
    }
}

#[test]
fn a_message_behind_a_segment_comes_after_its_bytes() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed);
        pair.run(500);
        assert!(pair.is_open());
        let bytes: Vec<u8> = (0..8192u32).map(|n| (n * 7 % 251) as u8).collect();
        let stored = shipped(1);
        let slot = pair.sides[0]
            .link
            .free_ship_slot()
            .expect("nothing was shipped");
        pair.sides[0]
            .link
            .land(slot, &bytes, header(0), &stored)
            .expect("an open link");
        let mut payload = Vec::new();
        let arrived = (0..2000).any(|_| {
            pair.now = pair.now + Duration::from_micros(250);
            pair.world.step(pair.now);
            for side in &mut pair.sides {
                side.link.step(pair.now, &mut Vec::new());
            }
            pair.sides[1].link.next(&mut payload).is_some()
        });
        assert!(arrived);
        assert_eq!(
            pair.sides[1].link.read_slot(slot, bytes.len()),
            bytes,
            "seed {seed}"
        );
    }
}

#[test]
fn a_restart_of_either_side_resets_both() {
    let mut pair = Pair::new(3);
    for side in [0, 1, 1, 0] {
        pair.run(500);
        assert!(pair.is_open());
        for _ in 0..5 {
            pair.send(0);
            pair.send(1);
        }
        pair.run(20);
        pair.restart(side);
        pair.run(1);
    }
    pair.run(1000);
    assert!(pair.is_open());
    for side in &pair.sides {
        assert!(
            side.seen
                .iter()
                .filter(|what| **what == Err(LinkEvent::Down))
                .count()
                >= 4
        );
        check(&side.seen);
    }
}

/// Kills, cuts and heals at random; the links always open again, and what arrives is in order.
#[test]
fn whatever_happens_links_open_again() {
    let mut delivered = 0;
    for seed in 0..40u64 {
        let mut pair = Pair::new(seed);
        let mut state = seed | 1;
        for _ in 0..60 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040);
            let side = (state >> 40 & 1) as usize;
            match state >> 33 & 15 {
                0 => pair.restart(side),
                1 => pair.world.cut(IDS[side], IDS[1 - side]),
                2 | 3 => pair.world.heal_all(),
                _ => (0..8).for_each(|_| pair.send(side)),
            }
            pair.run(state >> 50 & 63);
        }
        pair.world.heal_all();
        pair.run(3000);
        assert!(pair.is_open(), "seed {seed}");
        for side in &pair.sides {
            check(&side.seen);
            delivered += count(side);
        }
    }
    assert!(
        delivered > 1000,
        "the test would prove nothing: {delivered}"
    );
}

/// Calls wait, in order, while the peer does not read; a refusal still finds room when long answers
/// do not; and what has waited goes with the link.
#[test]
fn calls_wait_while_the_peer_does_not_read() {
    use super::Admission::{Later, Now, Refused};
    let mut pair = Pair::new(9);
    pair.run(1000);
    let link = &mut pair.sides[0].link;
    assert_eq!(link.admit(header(1), b"call"), Now);
    let answer = vec![7; 1000 + super::queue::SHORT_BYTES];
    let mut answers = 0;
    while link.admit(header(2), b"first") == Now {
        assert_eq!(link.send(header(0), &answer[..900]), Ok(()));
        answers += 1;
    }
    assert!(answers * 900 > 4 << 20, "{answers} answers of 900 bytes");
    assert_eq!(link.admit(header(3), b"second"), Later);
    assert_eq!(link.next_deferred(), None);
    while link.send(header(0), &answer) == Ok(()) {}
    assert_eq!(link.send(header(0), b"refused"), Ok(()));
    let call = vec![1; 1 << 20];
    while link.admit(header(4), &call) == Later {}
    assert_eq!(link.admit(header(5), &call), Refused);
    link.reset("the test wants it");
    pair.run(1000);
    let link = &mut pair.sides[0].link;
    assert!(link.is_open());
    assert_eq!(link.admit(header(6), b"call"), Now);
    assert_eq!(link.next_deferred(), None);
}

/// Bytes that wait for a peer that reads nothing, and how many messages were refused: when 40 of a mebibyte were sent,
/// and when 10,000 of 4 KiB were sent as well.
fn waits_for_one_who_reads_nothing(mutants: Mutants) -> [(usize, usize); 2] {
    let mut pair = Pair::new(9);
    pair.run(1000);
    let link = &mut pair.sides[0].link;
    link.plant(mutants);
    let mut refused = 0;
    [(40, 1 << 20), (10_000, super::queue::SHORT_BYTES)].map(|(count, len)| {
        let message = vec![7; len];
        for number in 0..count {
            match link.send(header(number), &message) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, SendError::Full);
                    refused += 1;
                }
            }
        }
        (link.held_bytes(), refused)
    })
}

/// Who reads nothing costs the sender no more memory than is set aside for that.
#[test]
fn what_waits_for_a_peer_is_bounded() {
    let [long, all] = waits_for_one_who_reads_nothing(Mutants::default());
    assert!(long.0 <= 16 << 20 && long.1 == 24, "{long:?}");
    assert!(all.0 <= 32 << 20 && all.1 > 5000, "{all:?}");
    let mutants = Mutants {
        unbounded_backlog: true,
        ..Mutants::default()
    };
    let [long, all] = waits_for_one_who_reads_nothing(mutants);
    assert!(long.0 > 39 << 20 && long.1 == 0, "{long:?}");
    assert!(all.0 > 78 << 20 && all.1 == 0, "{all:?}");
}

/// Once the peer has read enough, what has waited is there again, oldest first.
#[test]
fn calls_that_waited_come_in_order() {
    use super::Admission::{Later, Now};
    let mut pair = Pair::new(9);
    pair.run(1000);
    let link = &mut pair.sides[0].link;
    let open = match &mut link.state {
        super::State::Open(open) => open,
        super::State::Closed(_) => panic!("the link is open"),
    };
    open.backlog_bytes = 5 << 20;
    assert_eq!(link.admit(header(1), b"first"), Later);
    assert_eq!(link.admit(header(2), b"second"), Later);
    let super::State::Open(open) = &mut link.state else {
        panic!("the link is open");
    };
    open.backlog_bytes = 0;
    assert_eq!(link.admit(header(3), b"third"), Later, "none overtakes");
    for (request, payload) in [(1, &b"first"[..]), (2, b"second"), (3, b"third")] {
        let next = link
            .next_deferred()
            .map(|(header, call)| (header.request, call));
        assert_eq!(next, Some((request, payload.to_vec())));
    }
    assert_eq!(link.next_deferred(), None);
    assert_eq!(link.admit(header(4), b"fourth"), Now);
}

/// Lets time pass until `side` has got a message, and returns it.
fn receive(pair: &mut Pair, side: usize) -> Option<(Header, Vec<u8>)> {
    for _ in 0..20_000 {
        pair.now = pair.now + Duration::from_micros(250);
        pair.world.step(pair.now);
        for side in &mut pair.sides {
            side.link.step(pair.now, &mut Vec::new());
        }
        let mut payload = Vec::new();
        if let Some(header) = pair.sides[side].link.next(&mut payload) {
            return Some((header, payload));
        }
    }
    None
}

#[test]
fn payloads_of_any_length_arrive_whole_and_in_order() {
    let mut pair = Pair::new(2);
    pair.run(500);
    let payload_max = pair.sides[0].link.payload_max();
    let lens = [
        0,
        1,
        payload_max,
        payload_max + 1,
        7,
        100_000,
        LONG_BYTES_MAX,
        3,
    ];
    let payload = |number: usize| -> Vec<u8> {
        let bytes = (number as u64 + 1).to_le_bytes().into_iter().cycle();
        bytes.take(lens[number]).collect()
    };
    for number in 0..lens.len() {
        let link = &mut pair.sides[0].link;
        let sent = link.send(header(number as u64), &payload(number));
        assert_eq!(sent, Ok(()), "message {number}");
    }
    for number in 0..lens.len() {
        let (got, bytes) = receive(&mut pair, 1).expect("it arrives");
        assert_eq!(got, header(number as u64));
        assert!(bytes == payload(number), "message {number}");
    }
    let longest = pair.sides[0].link.sent().longest;
    assert_eq!(longest, SETTINGS.ring_bytes as u64 / 4);
    assert_eq!(pair.sides[0].link.held_bytes(), 0);
    assert_eq!(pair.sides[1].link.held_bytes(), 0);
}

/// Neither at the head of an empty link nor behind what is landing.
#[test]
fn a_message_that_is_too_long_is_refused_and_stops_nothing() {
    let mut pair = Pair::new(5);
    pair.run(500);
    let link = &mut pair.sides[0].link;
    let (len, max) = (LONG_BYTES_MAX + 1, LONG_BYTES_MAX);
    let long = vec![1; len];
    let refused = Err(SendError::TooLong { len, max });
    assert_eq!(link.send(header(1), &long), refused);
    let slot = link.free_ship_slot().expect("nothing was shipped");
    let stored = shipped(1);
    link.land(slot, &[5; 100], header(2), &stored)
        .expect("an open link");
    let (len, max) = (link.payload_max() + 1, link.payload_max());
    let refused = Err(SendError::TooLong { len, max });
    assert_eq!(link.send_behind(header(3), &long[..len]), refused);
    assert_eq!(link.send_behind(header(4), b"behind"), Ok(()));
    for number in [2, 4] {
        let (got, _) = receive(&mut pair, 1).expect("it arrives");
        assert_eq!(got.request, number);
    }
    assert!(pair.is_open());
}

#[test]
fn what_waits_for_a_segment_that_lands_is_bounded() {
    let mut pair = Pair::new(6);
    pair.run(500);
    let link = &mut pair.sides[0].link;
    let stored = shipped(1);
    link.land(0, &[5; 100], header(1), &stored)
        .expect("an open link");
    let payload = vec![3; link.payload_max()];
    let mut sent = 0;
    while link.send_behind(header(2), &payload) == Ok(()) {
        sent += payload.len();
        assert!(sent <= 16 << 20, "{sent} bytes wait");
        assert_eq!(link.has_room(), sent < 4 << 20);
    }
    assert_eq!(link.send_behind(header(2), &payload), Err(SendError::Full));
    assert!(
        link.held_bytes() > (16 << 20) - 2000,
        "{}",
        link.held_bytes()
    );
}

/// A message goes on in another one: the link begins anew, and works.
#[test]
fn parts_that_do_not_fit_each_other_reset_the_link() {
    let mut pair = Pair::new(7);
    pair.run(500);
    let session = pair.sides[1].link.session();
    let mut begun = header(1);
    begun.kind |= CONTINUED;
    let link = &mut pair.sides[0].link;
    assert_eq!(link.send(begun, b"the first part"), Ok(()));
    assert_eq!(link.send(header(2), b"another message"), Ok(()));
    assert_eq!(receive(&mut pair, 1), None);
    assert_ne!(pair.sides[1].link.session(), session);
    assert!(pair.is_open());
    assert_eq!(pair.sides[0].link.send(header(3), b"whole"), Ok(()));
    let (got, bytes) = receive(&mut pair, 1).expect("it arrives");
    assert_eq!((got, &bytes[..]), (header(3), &b"whole"[..]));
}

/// Memory for a link is refused when the link breaks, or when the peer is another process: on either side,
/// for one of two pieces or for both, several times. The link is down meanwhile, and no longer.
#[test]
fn a_link_opens_again_once_there_is_memory() {
    for (case, (side, refusals, restarts)) in (0..2)
        .flat_map(|side| (1..=4).map(move |refusals| (side, refusals)))
        .flat_map(|(side, refusals)| [false, true].map(|restarts| (side, refusals, restarts)))
        .enumerate()
    {
        let mut pair = Pair::new(case as u64);
        pair.run(500);
        assert!(pair.is_open());
        pair.send(0);
        pair.send(1);
        pair.run(20);
        let memory = Arc::clone(&pair.sides[side].memory);
        memory.refusals.store(refusals, Ordering::Relaxed);
        if restarts {
            pair.restart(1 - side);
        } else {
            pair.sides[side].link.reset("the test wants it");
        }
        pair.run(50);
        assert!(!pair.is_open(), "case {case}: there is no memory yet");
        pair.run(6000);
        assert_eq!(memory.refusals.load(Ordering::Relaxed), 0, "case {case}");
        assert!(pair.is_open(), "case {case}: the link stays down");
        let before = [count(&pair.sides[0]), count(&pair.sides[1])];
        pair.send(0);
        pair.send(1);
        pair.run(20);
        for (side, before) in pair.sides.iter().zip(before) {
            assert_eq!(count(side), before + 1, "case {case}");
            check(&side.seen);
        }
    }
}

/// A fabric that takes few writes at a time is no reason for a link to break.
#[test]
fn a_full_fabric_is_waited_for() {
    let settings = SimSettings {
        in_flight_max: 2,
        ..SimSettings::default()
    };
    let mut pair = Pair::over(SimWorld::with_settings(4, settings));
    pair.run(500);
    assert!(pair.is_open());
    for _ in 0..400 {
        for _ in 0..5 {
            pair.send(0);
            pair.send(1);
        }
        pair.run(1);
    }
    pair.run(1000);
    assert!(pair.world.counters().refused > 100, "the fabric was full");
    for side in &pair.sides {
        let downs = side.seen.iter();
        let downs = downs.filter(|what| **what == Err(LinkEvent::Down));
        assert_eq!(downs.count(), 0, "the link broke");
        assert_eq!(count(side), 2000);
        check(&side.seen);
    }
}

/// What is said of another attempt, of another epoch or of another region, or a second time, frees nothing.
#[test]
fn a_slot_is_freed_by_who_names_what_is_in_it() {
    let mut pair = Pair::new(8);
    pair.run(500);
    let link = &mut pair.sides[0].link;
    let land = |link: &mut Link, slot, attempt| {
        let landed = link.land(slot, &[5; 100], header(1), &shipped(attempt));
        landed.expect("an open link");
    };
    land(link, 0, 3);
    land(link, 1, 3);
    assert_eq!(link.free_ship_slot(), None);
    let right = Shipment::of(header(9), 3);
    let others = [
        Shipment::of(header(9), 2),
        Shipment::of(header(9), 4),
        Shipment {
            epoch: Epoch(2),
            ..right
        },
        Shipment {
            region: RegionId(2),
            ..right
        },
    ];
    for other in others {
        assert!(!link.ship_slot_freed(0, other), "{other:?}");
    }
    for slot in [SHIP_SLOTS, u8::MAX] {
        assert!(
            !link.ship_slot_freed(slot, right),
            "there is no slot {slot}"
        );
    }
    assert_eq!(link.free_ship_slot(), None);
    assert!(link.ship_slot_freed(0, right));
    assert_eq!(link.free_ship_slot(), Some(0));
    assert!(!link.ship_slot_freed(0, right), "it is free");

    // The first is told again once the slot has been taken by a later attempt.
    land(link, 0, 4);
    assert!(!link.ship_slot_freed(0, right));
    assert_eq!(link.free_ship_slot(), None);
    assert!(link.ship_slot_freed(0, Shipment::of(header(9), 4)));
}

/// Whatever a link is connecting to when its peer stops, begins another session or starts again: the connections are
/// given up, both sides agree on the next session, and messages arrive in order.
#[test]
fn a_peer_that_changes_while_a_link_connects_is_met_anew() {
    let (mut dropped, mut refused) = (0, 0);
    for case in 0..3 {
        for steps in 0..40 {
            let mut pair = Pair::new(steps + 1);
            for _ in 0..steps {
                pair.step(Duration::from_micros(15));
            }
            pair.world.stop(IDS[1]);
            pair.step(Duration::from_micros(100));
            match case {
                0 => {}
                1 => {
                    let now = pair.now;
                    let Side { link, seen, .. } = &mut pair.sides[1];
                    let mut events = Vec::new();
                    link.break_down(now, &super::Broken::Stuck, &mut events);
                    seen.extend(events.into_iter().map(Err));
                }
                _ => pair.restart(1),
            }
            pair.world.resume(IDS[1]);
            pair.run(1500);
            assert!(pair.is_open(), "case {case}, {steps} steps");
            for _ in 0..10 {
                pair.send(0);
                pair.send(1);
                pair.run(1);
            }
            pair.run(20);
            for side in &pair.sides {
                assert_eq!(count(side), 10, "case {case}, {steps} steps");
                check(&side.seen);
            }
            let connections = pair.world.counters().connections;
            dropped += connections.dropped;
            refused += connections.refused;
        }
    }
    assert!(
        dropped > 0 && refused > 0,
        "{dropped} dropped, {refused} refused"
    );
}

/// While the peer takes no connection, a link asks a few times a second, and no more often.
#[test]
fn a_peer_that_takes_no_connection_is_asked_in_its_time() {
    let mut pair = Pair::new(3);
    pair.world.kill(IDS[1]);
    let begun = |pair: &Pair| pair.world.counters().connections.begun;
    pair.run(1000);
    assert!((8..=12).contains(&begun(&pair)), "{}", begun(&pair));
    assert!(!pair.sides[0].link.is_open());
}

/// Nor more often where the peer had said that its fresh memory is there, before it was gone.
#[test]
fn fresh_memory_of_a_peer_that_is_gone_is_asked_for_in_its_time() {
    let mut asked = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(seed);
        let is_accepted = |link: &Link| link.offered.inbox.hello().accept == link.session;
        while !is_accepted(&pair.sides[0].link) {
            pair.step(Duration::from_micros(15));
        }
        pair.world.kill(IDS[1]);
        let before = pair.world.counters().connections;
        pair.run(1000);
        let after = pair.world.counters().connections;
        // Two a try: inbox, and landing slots.
        let begun = after.begun - before.begun;
        assert!(begun <= 24, "{begun} of seed {seed}");
        asked += u64::from(begun >= 16);
    }
    assert!(asked > 0, "it was asked for fresh memory");
}

/// Nor where the peer's memory is too short, since it has other settings.
#[test]
fn memory_that_is_too_short_is_asked_for_in_its_time() {
    let mut pair = Pair::new(3);
    let settings = LinkSettings {
        ring_bytes: 2 * SETTINGS.ring_bytes,
        ..SETTINGS
    };
    let memory = Arc::clone(&pair.sides[0].memory);
    pair.sides[0].link = link_of(settings, &pair.world, 0, 2, memory);
    pair.run(1000);
    assert!(!pair.sides[0].link.is_open());
    let connections = pair.world.counters().connections;
    assert!((8..=12).contains(&connections.refused), "{connections:?}");
    assert!(connections.begun <= 30, "{connections:?}");
}

/// It says so once it has been refused for two seconds, and no more once it opens.
#[test]
fn a_link_that_cannot_open_says_why_until_it_does() {
    let (ring_bytes, slot_bytes) = (2 * SETTINGS.ring_bytes, 2 * SETTINGS.slot_bytes);
    let rings = LinkSettings {
        ring_bytes,
        ..SETTINGS
    };
    let slots = LinkSettings {
        slot_bytes,
        ..SETTINGS
    };
    for settings in [rings, slots] {
        let mut pair = Pair::new(3);
        let memory = Arc::clone(&pair.sides[0].memory);
        pair.sides[0].link = link_of(settings, &pair.world, 0, 2, memory);
        let told = |pair: &Pair| pair.sides[0].link.cannot_open(pair.now);
        pair.run(1500);
        assert_eq!(told(&pair), CannotOpen::ForNow);
        pair.run(1000);
        let CannotOpen::Because(why) = told(&pair) else {
            panic!("{:?}", told(&pair));
        };
        assert!(why.contains("are needed"), "{why}");
        assert!(why.contains("; start both servers"), "{why}");
        pair.sides[0].link.settings = SETTINGS;
        pair.run(500);
        assert!(pair.sides[0].link.is_open());
        assert_eq!(told(&pair), CannotOpen::Unknown);
    }
}

/// Nothing is told of a peer that is just not there.
#[test]
fn a_peer_that_is_not_there_refuses_nothing() {
    let mut pair = Pair::new(3);
    pair.world.kill(IDS[1]);
    pair.run(3000);
    let link = &pair.sides[0].link;
    assert!(!link.is_open());
    assert_eq!(link.cannot_open(pair.now), CannotOpen::Unknown);
}
