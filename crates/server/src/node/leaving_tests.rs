//! A server that is about to stop: what it says, and when there is nothing to wait for any more.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{EditSeq, Epoch, Incarnation, Instant, Lsn, ServerId};
use argosy_coordinator::in_memory::InMemory;
use argosy_coordinator::reports::{Presence, presence_key};
use argosy_coordinator::{
    ClusterMap, Coordinator, CoordinatorEvent, CoordinatorOp, CoordinatorReply, CopyStatus, Entry,
    EntryVersion, MapWrite, PromotionClaim, Region, RegionState, Request, SHARD_BYTES_MAX,
    SessionState, read_map,
};
use argosy_fabric::sim::SimSettings;

use super::copies_tests::Pair;
use super::mutants::Mutants;
use crate::membership::{Leaver, Membership, MembershipTimes};

/// A server of two with its membership, and another handle to the coordinator, which is the other server's.
struct Rig {
    pair: Pair,
    membership: Membership,
    leaver: Leaver,
    other: InMemory,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let pair = Pair::new(SimSettings::default(), Mutants::default());
        let mut other = InMemory::new();
        let own = Box::new(other.clone());
        let node = Arc::clone(&pair.nodes[0]);
        let now = Instant::from_nanos(1);
        let timeout = Duration::from_secs(60);
        ask(&mut other, Request::OpenSession { timeout }, now);
        let times = MembershipTimes::default();
        let membership = Membership::new(own, node, Incarnation::default(), times);
        let membership = membership.expect("it watches");
        let leaver = membership.leaver();
        let mut rig = Self {
            pair,
            membership,
            leaver,
            other,
            now,
        };
        let map = rig.pair.map.clone();
        rig.set_map(&map);
        rig
    }

    fn set_map(&mut self, map: &ClusterMap) {
        let stored = read_map(|key| Ok(self.entry(&key))).expect("it is one");
        let next = Arc::new(map.clone());
        let write = match &stored {
            Some(before) => MapWrite::change(before, next, SHARD_BYTES_MAX),
            None => MapWrite::first(next, SHARD_BYTES_MAX),
        };
        let ops = write.and_then(|write| write.ops()).expect("it is small");
        let under = None;
        ask(&mut self.other, Request::Multi { ops, under }, self.now);
    }

    fn entry(&mut self, key: &str) -> Entry {
        let key = key.to_owned();
        match ask(&mut self.other, Request::Read { key }, self.now) {
            CoordinatorReply::Entry(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    /// What the server says of itself.
    fn says_leaving(&mut self) -> bool {
        let entry = self.entry(&presence_key(ServerId(0)));
        Presence::parse(&entry.value).expect("it is there").leaving
    }

    /// The other server says of itself what `presence` is.
    fn other_says(&mut self, presence: &Presence) {
        let key = presence_key(ServerId(1));
        let value = presence.to_json();
        let expected = self.entry(&key).version;
        let op = match expected {
            EntryVersion(0) => CoordinatorOp::CreateEphemeral { key, value },
            _ => CoordinatorOp::Set {
                key,
                expected,
                value,
            },
        };
        let session = match self.other.session() {
            SessionState::Alive(session) => session,
            other => panic!("{other:?}"),
        };
        let say = Request::Multi {
            ops: vec![op],
            under: Some(session),
        };
        ask(&mut self.other, say, self.now);
    }

    /// Lets so much time pass for the membership.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + Duration::from_millis(1);
            self.membership.step(self.now);
        }
    }
}

/// The answer to `request`.
fn ask(coordinator: &mut InMemory, request: Request, now: Instant) -> CoordinatorReply {
    let asked = coordinator.submit(request);
    loop {
        match coordinator.poll(now) {
            Some(CoordinatorEvent::Ended { id, answer }) if id == asked => {
                return answer.expect("it is done");
            }
            Some(_) => {}
            None => panic!("there is no answer"),
        }
    }
}

#[test]
fn it_says_so_and_waits_until_another_leads_its_regions() {
    let mut rig = Rig::new();
    rig.other_says(&Presence::default());
    rig.run(100);
    assert!(!rig.says_leaving());
    rig.leaver.leave();
    rig.run(100);
    assert!(rig.says_leaving());
    assert!(!rig.leaver.has_left(), "it leads two regions");

    let map = rig.pair.map.clone();
    let raised = |region: &Region| Region {
        epoch: Epoch(2),
        state: RegionState::Recovering,
        ..region.clone()
    };
    let next = map.regions().iter().map(raised).collect();
    let recovering = map.with_regions(next).expect("it is valid");
    rig.set_map(&recovering);
    rig.run(100);
    assert!(!rig.leaver.has_left(), "nobody leads them yet");

    let promoted = |region: &Region| Region {
        epoch: Epoch(3),
        primary: ServerId(1),
        members: vec![ServerId(1)],
        since: Epoch(3),
        claim: Some(PromotionClaim {
            status: CopyStatus::Whole,
            cut: Epoch(1),
            edit: EditSeq(1),
            lsn: Lsn(1),
            member: true,
        }),
        ..region.clone()
    };
    let next = map.regions().iter().map(promoted).collect();
    let led = map.with_regions(next).expect("it is valid");
    rig.set_map(&led);
    rig.run(100);
    assert!(rig.leaver.has_left(), "the other leads them");
}

#[test]
fn it_waits_for_nobody_where_nobody_stays() {
    let mut rig = Rig::new();
    rig.other_says(&Presence::default());
    rig.leaver.leave();
    rig.run(100);
    assert!(!rig.leaver.has_left());
    rig.other_says(&Presence {
        leaving: true,
        ..Presence::default()
    });
    rig.run(100);
    assert!(rig.leaver.has_left(), "the other stops, too");

    let mut rig = Rig::new();
    rig.run(100);
    assert!(!rig.leaver.has_left(), "it does not leave");
    rig.leaver.leave();
    rig.run(100);
    assert!(rig.leaver.has_left(), "the other is not there");
}
