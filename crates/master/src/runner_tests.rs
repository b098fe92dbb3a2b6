//! Masters over a coordinator in memory: elections, outages, changes by others.
//!
//! The servers are played: each has a session, says that it is there, and reports of every region that recovers that
//! its copy is whole. They open what they lead at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argosy_base::{EditSeq, Epoch, Incarnation, Lsn, RegionId};
use argosy_coordinator::StoredMap;
use argosy_coordinator::reports::{presence_key, report_key};
use argosy_coordinator::{
    ClusterMap, CopyReport, CopyStatus, DeviceId, Entry, InMemory, Presence, Region, RegionState,
    SHARD_BYTES_MAX, ServerReport, Wish, read_map,
};

use super::*;
use crate::cluster::looks;
use crate::plan::tests::map;

/// A handle of a master that the test has its hands on, too.
struct Held(Arc<Mutex<InMemory>>);

impl Coordinator for Held {
    fn submit(&mut self, request: Request) -> RequestId {
        self.0.lock().unwrap().submit(request)
    }

    fn watch(&mut self, key: &str) -> Result<(), CoordinatorError> {
        self.0.lock().unwrap().watch(key)
    }

    fn session(&self) -> SessionState {
        self.0.lock().unwrap().session()
    }

    fn poll(&mut self, now: Instant) -> Option<CoordinatorEvent> {
        self.0.lock().unwrap().poll(now)
    }
}

pub(super) type Answer = Result<CoordinatorReply, CoordinatorError>;

/// Asks, and polls until there is the answer.
pub(super) fn ask(handle: &mut InMemory, request: Request, now: Instant) -> Answer {
    let asked = handle.submit(request);
    for _ in 0..1000 {
        if let Some(CoordinatorEvent::Ended { id, answer }) = handle.poll(now)
            && id == asked
        {
            return answer;
        }
    }
    panic!("no answer");
}

pub(super) fn read(handle: &mut InMemory, key: &str, now: Instant) -> Entry {
    let key = key.to_owned();
    let answer = ask(handle, Request::Read { key }, now).unwrap();
    answer.into_entry().unwrap()
}

/// The region map, if it can be read.
pub(super) fn stored(handle: &mut InMemory, now: Instant) -> Option<StoredMap> {
    read_map(|key| Ok(read(handle, &key, now))).ok().flatten()
}

/// A server that is played.
pub(super) struct Player {
    id: ServerId,
    handle: InMemory,
    incarnation: u64,
    pub(super) up: bool,
    /// It asks for changes to groups that it leads: who is away leaves, and who is filled has all at once.
    pub(super) wishes: bool,
    /// What its copies are.
    pub(super) copies: CopyStatus,
}

impl Player {
    /// Says what there is to say, if it has not said so already.
    fn play(&mut self, now: Instant) {
        if !self.up {
            return;
        }
        while self.handle.poll(now).is_some() {}
        let SessionState::Alive(session) = self.handle.session() else {
            let timeout = Duration::from_millis(200);
            ask(&mut self.handle, Request::OpenSession { timeout }, now).unwrap();
            self.incarnation += 1;
            return;
        };
        let Some(stored) = stored(&mut self.handle, now) else {
            return;
        };
        let map = stored.map;
        let incarnation = Incarnation(self.incarnation);
        let recovering = map
            .regions()
            .iter()
            .filter(|region| region.state == RegionState::Recovering && region.has(self.id));
        let copies = recovering.map(|region| {
            let copy = CopyReport {
                epoch: region.epoch,
                status: self.copies,
                cut: region.since,
                edit: EditSeq(1),
                lsn: Lsn(1),
            };
            (region.id, copy)
        });
        let mut report = ServerReport {
            incarnation,
            map: stored.version,
            copies: copies.collect(),
            ..ServerReport::default()
        };
        if self.wishes {
            report.wishes = self.wish(&map, now);
        }
        let presence = Presence {
            incarnation,
            ..Presence::default()
        };
        self.say(session, presence_key(self.id), presence.to_json(), now);
        self.say(session, report_key(self.id), report.to_json(), now);
    }

    fn wish(&mut self, map: &ClusterMap, now: Instant) -> BTreeMap<RegionId, Wish> {
        let key = SERVERS_KEY.to_owned();
        let there = match ask(&mut self.handle, Request::Children { key }, now) {
            Ok(CoordinatorReply::Children(names)) => names,
            odd => panic!("{odd:?}"),
        };
        let there: Vec<_> = there.iter().filter_map(|name| server_of(name)).collect();
        let leads =
            |region: &&Region| region.primary == self.id && region.state == RegionState::Serving;
        let wishes = map.regions().iter().filter(leads).map(|region| {
            let mut wish = Wish {
                epoch: region.epoch,
                add: region.filling.clone(),
                remove: region.members.clone(),
                ..Wish::default()
            };
            wish.add.retain(|id| there.contains(id));
            wish.remove.retain(|id| !there.contains(id));
            (region.id, wish)
        });
        wishes.collect()
    }

    fn say(&mut self, session: SessionId, key: String, value: Vec<u8>, now: Instant) {
        let there = read(&mut self.handle, &key, now);
        if there.value == value {
            return;
        }
        let op = match there.version {
            EntryVersion(0) => CoordinatorOp::CreateEphemeral { key, value },
            expected => CoordinatorOp::Set {
                key,
                expected,
                value,
            },
        };
        let request = Request::Multi {
            ops: vec![op],
            under: Some(session),
        };
        // What belongs to the session before this one goes soon.
        let _ = ask(&mut self.handle, request, now);
    }
}

/// Masters, players, and somebody who looks on.
pub(super) struct Stage {
    pub(super) now: Instant,
    pub(super) observer: InMemory,
    pub(super) handles: Vec<Arc<Mutex<InMemory>>>,
    pub(super) masters: Vec<Master>,
    pub(super) players: Vec<Player>,
    /// Who was promoted in which epoch of which region.
    promoted: BTreeMap<(RegionId, Epoch), ServerId>,
    epochs: BTreeMap<RegionId, Epoch>,
}

pub(super) const TIMES: MasterTimes = MasterTimes {
    session_timeout: Duration::from_millis(200),
    read_every: Duration::from_millis(100),
    poll_every: Duration::from_millis(5),
};

pub(super) fn settings() -> PlanSettings {
    PlanSettings {
        report_within: Duration::from_millis(500),
        absent_after: Duration::from_millis(300),
        ..PlanSettings::default()
    }
}

impl Stage {
    pub(super) fn new(masters: u32, regions: u32, mutants: Mutants) -> Self {
        let now = Instant::from_nanos(1);
        let mut observer = InMemory::new();
        let first = MapWrite::first(Arc::new(map(3, regions, 3)), SHARD_BYTES_MAX).unwrap();
        let (ops, under) = (first.ops().unwrap(), None);
        ask(&mut observer, Request::Multi { ops, under }, now).unwrap();
        let handles: Vec<_> = (0..masters)
            .map(|_| Arc::new(Mutex::new(observer.clone())))
            .collect();
        let master = |(id, handle): (u32, &Arc<Mutex<InMemory>>)| {
            let held = Box::new(Held(Arc::clone(handle)));
            let master = Master::new(held, ServerId(id), settings(), TIMES, now);
            master.with_mutants(settings(), mutants, now)
        };
        let player = |id| Player {
            id: ServerId(id),
            handle: observer.clone(),
            incarnation: 0,
            up: true,
            wishes: false,
            copies: CopyStatus::Whole,
        };
        Self {
            now,
            masters: (0..).zip(&handles).map(master).collect(),
            players: (0..3).map(player).collect(),
            handles,
            observer,
            promoted: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    /// Everybody goes on for `millis`, five at a time.
    pub(super) fn pass(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(5) {
            self.now = self.now + Duration::from_millis(5);
            for master in &mut self.masters {
                let again = master.step(self.now);
                assert_eq!(again.is_none(), master.role() == MasterRole::Resigned);
                assert!(again.is_none_or(|again| self.now < again));
            }
            self.players
                .iter_mut()
                .for_each(|player| player.play(self.now));
            self.look();
        }
    }

    /// Epochs rise, and nobody but one is promoted in one.
    fn look(&mut self) {
        for region in self.map().regions() {
            let epoch = self.epochs.entry(region.id).or_default();
            assert!(*epoch <= region.epoch, "{region} after {epoch}");
            *epoch = region.epoch;
            let key = (region.id, region.since);
            let primary = *self.promoted.entry(key).or_insert(region.primary);
            assert_eq!(primary, region.primary, "{region}");
        }
    }

    pub(super) fn map(&mut self) -> ClusterMap {
        let stored = stored(&mut self.observer, self.now).unwrap();
        Arc::unwrap_or_clone(stored.map)
    }

    pub(super) fn leaders(&self) -> Vec<usize> {
        let roles = self.masters.iter().map(Master::role).enumerate();
        let leads = roles.filter(|(_, role)| *role == MasterRole::Leading);
        leads.map(|(index, _)| index).collect()
    }

    pub(super) fn handle(&self, master: usize) -> std::sync::MutexGuard<'_, InMemory> {
        self.handles[master].lock().unwrap()
    }

    /// Somebody who is no master sets the map.
    fn set(&mut self, change: impl Fn(ClusterMap) -> ClusterMap) {
        let before = stored(&mut self.observer, self.now).unwrap();
        let next = Arc::new(change((*before.map).clone()));
        let write = MapWrite::change(&before, next, SHARD_BYTES_MAX).unwrap();
        let (ops, under) = (write.ops().unwrap(), None);
        ask(&mut self.observer, Request::Multi { ops, under }, self.now).unwrap();
    }

    pub(super) fn is_served(&mut self) -> bool {
        let up: Vec<_> = self.players.iter().filter(|p| p.up).map(|p| p.id).collect();
        let map = self.map();
        let mut regions = map.regions().iter();
        regions.all(|region| region.state == RegionState::Serving && up.contains(&region.primary))
    }
}

#[test]
fn one_master_leads_and_another_takes_over() {
    let mut stage = Stage::new(2, 1, Mutants::default());
    stage.pass(100);
    let [first] = stage.leaders()[..] else {
        panic!("{:?} lead", stage.leaders());
    };
    let second = 1 - first;
    assert_eq!(stage.masters[second].role(), MasterRole::Standby);
    let office = read(&mut stage.observer, MASTER_KEY, stage.now);
    let text = format!("{{\"schema\":\"argosy.master.v1\",\"server\":{first}}}");
    assert_eq!(String::from_utf8(office.value).unwrap(), text);

    stage.handle(first).cut_off(true);
    stage.pass(600);
    // The first one has not heard that it leads no more.
    assert_eq!(stage.leaders(), [0, 1]);
    stage.handle(first).cut_off(false);
    stage.pass(200);
    assert_eq!(stage.leaders(), [second]);
    assert_eq!(stage.masters[first].role(), MasterRole::Standby);

    stage.masters[second].resign();
    stage.pass(20);
    assert_eq!(stage.leaders(), [first]);
    assert_eq!(stage.masters[second].role(), MasterRole::Resigned);
    assert_eq!(stage.map().regions()[0].epoch, Epoch(1), "nobody was lost");
}

#[test]
fn who_does_not_know_that_it_leads_finds_out() {
    let mut stage = Stage::new(1, 1, Mutants::default());
    stage.handle(0).lose_requests(1);
    stage.pass(150);
    // The session is opened with the second request, and the reply of the first attempt to lead is lost.
    stage.handle(0).lose_replies(1);
    stage.pass(500);
    assert_eq!(stage.leaders(), [0]);
    assert_eq!(stage.masters[0].tally().elections, 1);
}

#[test]
fn all_regions_of_a_lost_server_move_in_two_changes() {
    let mut stage = Stage::new(2, 60, Mutants::default());
    stage.pass(400);
    assert!(stage.is_served());
    stage.players[0].up = false;
    stage.pass(1000);
    assert!(stage.is_served());
    let [leader] = stage.leaders()[..] else {
        panic!("{:?} lead", stage.leaders());
    };
    assert_eq!(stage.masters[leader].tally().changes, 2);
    let steps: Vec<_> = stage.masters[leader].take_steps().collect();
    assert_eq!(steps.len(), 40);
    let led = stage.map();
    let led = |id| {
        led.regions()
            .iter()
            .filter(|r| r.primary == ServerId(id))
            .count()
    };
    assert_eq!([led(0), led(1), led(2)], [0, 30, 30]);
    // It returns, is filled, and stays out of the lead.
    stage.players[0].up = true;
    stage.pass(500);
    assert!(stage.is_served());
}

#[test]
fn a_cluster_at_rest_is_read_and_not_planned() {
    let mut stage = Stage::new(1, 60, Mutants::default());
    stage.pass(800);
    assert!(stage.is_served());
    let _ = looks::take();
    let rounds = stage.masters[0].tally().rounds;
    stage.pass(1000);
    assert!(stage.masters[0].tally().rounds >= rounds + 5);
    assert_eq!(looks::take(), 0, "looks at reports");
    stage.players[0].up = false;
    stage.pass(1000);
    assert!(stage.is_served() && looks::take() > 0);
}

#[test]
fn a_change_by_another_is_kept() {
    let scene = |mutants| {
        let mut stage = Stage::new(1, 3, mutants);
        stage.pass(400);
        stage.players[0].up = false;
        stage.pass(150);
        // The master's answers come late, and so does what it sets.
        stage.handle(0).delay(Duration::from_millis(40));
        for server in [1, 2] {
            for _ in 0..40 {
                stage.pass(5);
                let device = DeviceId(stage.now.as_nanos().into());
                stage.set(|map| map.with_device(ServerId(server), device));
            }
        }
        stage.handle(0).delay(Duration::ZERO);
        let last = stage.map().device(ServerId(2));
        let first = stage.map().device(ServerId(1));
        stage.pass(1000);
        assert!(stage.is_served());
        let kept = stage.map();
        let is_kept = kept.device(ServerId(2)) == last && kept.device(ServerId(1)) == first;
        (
            is_kept && first.is_some(),
            stage.masters[0].tally().conflicts,
        )
    };
    let (is_kept, conflicts) = scene(Mutants::default());
    assert!(is_kept);
    assert!(conflicts > 0);
}

/// The same with a master that does not compare: what another has set is gone.
#[test]
fn a_master_that_does_not_compare_is_found() {
    let mut mutants = Mutants::default();
    assert!(mutants.plant("no_compare"));
    let mut stage = Stage::new(1, 3, mutants);
    stage.pass(400);
    stage.players[0].up = false;
    stage.handle(0).delay(Duration::from_millis(40));
    let (mut set, mut lost) = (None, 0);
    for _ in 0..40 {
        stage.pass(50);
        let found = stage.map().device(ServerId(1));
        lost += u32::from(found != set);
        let device = DeviceId(stage.now.as_nanos().into());
        stage.set(|map| map.with_device(ServerId(1), device));
        set = Some(device);
    }
    assert!(lost > 0);
}

#[test]
fn what_cannot_be_understood_is_said_and_changes_nothing() {
    let mut stage = Stage::new(1, 1, Mutants::default());
    stage.pass(400);
    let entry = read(&mut stage.observer, &report_key(ServerId(1)), stage.now);
    let garbage = Request::CompareAndSet {
        key: report_key(ServerId(1)),
        expected: entry.version,
        value: b"{}".to_vec(),
    };
    stage.players.clear();
    ask(&mut stage.observer, garbage, stage.now).unwrap();
    stage.pass(50);
    assert!(stage.masters[0].tally().strange > 0);
    assert!(stage.masters[0].trouble().is_none());
    let good = read(&mut stage.observer, CLUSTER_KEY, stage.now);
    let bad = Request::CompareAndSet {
        key: CLUSTER_KEY.to_owned(),
        expected: good.version,
        value: b"{}".to_vec(),
    };
    ask(&mut stage.observer, bad, stage.now).unwrap();
    for _ in 0..100 {
        stage.now = stage.now + Duration::from_millis(5);
        stage.masters[0].step(stage.now);
    }
    assert!(matches!(
        stage.masters[0].trouble(),
        Some(RoundError::Map(_))
    ));
    let found = read(&mut stage.observer, CLUSTER_KEY, stage.now);
    assert_eq!(found.value, b"{}");
}

/// Outages of masters and servers at random: epochs rise, one is promoted in each, and in the end all is served.
#[test]
fn outages_end_and_regions_are_served() {
    let mut random = 1_u64;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let (mut changes, mut elections) = (0, 0);
    for _ in 0..12 {
        let mut stage = Stage::new(2, 4, Mutants::default());
        for _ in 0..60 {
            let master = usize::from(below(2) == 0);
            match below(8) {
                0 => stage.handle(master).cut_off(true),
                1 | 2 => stage.handle(master).cut_off(false),
                3 => stage.handle(master).lose_requests(1),
                4 => stage.handle(master).lose_replies(1),
                5 => stage.handle(master).delay(Duration::from_millis(below(60))),
                _ => {
                    let player = usize::try_from(below(3)).unwrap();
                    stage.players[player].up = below(3) > 0;
                }
            }
            stage.pass(5 * below(40));
        }
        for master in 0..2 {
            stage.handle(master).cut_off(false);
            stage.handle(master).delay(Duration::ZERO);
        }
        stage.players.iter_mut().for_each(|player| player.up = true);
        stage.pass(3000);
        assert!(stage.is_served(), "{}", stage.map());
        assert_eq!(stage.leaders().len(), 1);
        for master in &stage.masters {
            changes += master.tally().changes;
            elections += master.tally().elections;
        }
    }
    assert!(changes > 30 && elections > 20, "{changes} {elections}");
}
