//! Copies that are too damaged to be used: who is filled anew, from whom, and what is kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{DeviceSegment, Lsn, RegionId, SegmentNumber, ServerId, Standing};
use argosy_coordinator::Replication;
use argosy_device::Purpose;
use argosy_engine::catalog::id_of_set_aside;
use argosy_engine::set_aside::put_back;
use argosy_fabric::sim::SimSettings;
use argosy_lsm::names::logs::LARGE_LOG;
use argosy_wire::message::{FetchStatus, Message};

use super::copies_tests::{Pair, REGIONS, settings};
use super::fetching::Fetching;
use super::refilling::Unusable;
use super::region::{Driver, copy_of};
use super::stage::Stage;
use super::{Mutants, Node};
use crate::service::Service;

const BROKEN: RegionId = REGIONS[0];
const OTHER: RegionId = REGIONS[1];

/// Two servers that have taken writes to both regions.
fn pair() -> Pair {
    pair_of(Replication::SendIndex)
}

fn pair_of(replication: Replication) -> Pair {
    let mut pair = Pair::with(
        replication,
        SimSettings::default(),
        settings(Mutants::default()),
    );
    pair.open();
    for key in 0..300 {
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
    }
    pair.run(200);
    assert_eq!(pair.acknowledged(), (600, 600));
    pair
}

impl Pair {
    /// Flips a bit in each of the first blocks of the manifest of the region on `server`: its checkpoint, and edits.
    fn flip(&self, server: usize, region: RegionId) {
        self.flip_blocks(server, region, 3);
    }

    /// The same of the first `blocks`, by the catalog's id of the copy.
    fn flip_blocks(&self, server: usize, region: RegionId, blocks: u64) {
        let entries = self.nodes[server].world.store.regions();
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry.region == region);
        let place = entry.expect("it has a copy").manifest[0];
        for block in 0..blocks {
            let at = place.start() + block * BLOCK_SIZE as u64;
            self.devices[server].inner().flip_bit(at + 20, 3);
        }
    }

    fn committed(&self, region: RegionId) -> Option<Lsn> {
        self.nodes[0].inspect().committed(region)
    }

    /// Until the copy of a server is set aside, and all regions are open.
    fn filled_anew(&mut self, server: usize) {
        for _ in 0..300 {
            self.run(10);
            let lacks = |node: &Arc<Node>| node.ready().lacks.is_some();
            let set_aside = self.nodes[server].inspect().set_aside_regions();
            if set_aside == [BROKEN] && !self.nodes.iter().any(lacks) {
                return;
            }
        }
        panic!("{:?}", self.nodes[0].ready());
    }

    /// The copy of a server is closed, since others were given what it names.
    fn has_lost_places(&self, server: usize) {
        let region = self.nodes[server].region(BROKEN).expect("a member");
        match &*region.driver() {
            Driver::Failed(copy) => {
                assert!(copy.why.contains("given to another copy"), "{}", copy.why)
            }
            _ => panic!("it has taken what is the other region's"),
        }
    }

    /// Both copies are the same, and take part in writing.
    fn is_whole(&mut self) {
        for region in [0, 1] {
            pair_takes(self, region);
        }
        self.run(3000);
        for region in REGIONS {
            let copies = self.nodes.each_ref().map(|node| {
                let copy = node.inspect().copy_state(region).expect("it is open");
                let stored = copy_of(node.region(region).expect("a member"));
                (copy.checkpoint.seq, stored.expect("it is open").digest())
            });
            assert_eq!(copies[0], copies[1]);
        }
    }
}

fn pair_takes(pair: &mut Pair, region: usize) {
    pair.acknowledged();
    pair.put(region, 7);
    pair.run(50);
    assert_eq!(pair.acknowledged(), (1, 1));
}

#[test]
fn a_damaged_copy_is_filled_anew() {
    for server in [0, 1] {
        let mut pair = pair();
        let before = pair.committed(BROKEN);
        pair.flip(server, BROKEN);
        pair.restart(server);
        pair.filled_anew(server);
        assert!(pair.committed(BROKEN) >= before, "nothing is lost");
        assert!(pair.nodes[server].inspect().set_aside_segments() > 0);
        pair.is_whole();

        // It is as good as any other, and what was set aside is kept.
        pair.restart(0);
        pair.restart(1);
        pair.open();
        assert!(pair.committed(BROKEN) >= before);
        assert_eq!(pair.nodes[server].inspect().set_aside_regions(), [BROKEN]);
        pair.is_whole();
    }
}

/// All processes end, and the copies of both servers were whole: their memory says so.
#[test]
fn a_damaged_copy_is_filled_anew_after_all_servers_were_killed() {
    for server in [0, 1] {
        let mut pair = pair();
        let before = pair.committed(BROKEN);
        pair.flip(server, BROKEN);
        pair.restart(0);
        pair.restart(1);
        pair.filled_anew(server);
        assert!(pair.committed(BROKEN) >= before);
        pair.is_whole();
    }
}

/// The other server has lost its memory: what was acknowledged last may be in the damaged copy alone. The region waits,
/// and says for what. Once the damage is undone, it opens with everything.
#[test]
fn a_copy_that_is_not_whole_stands_in_for_none() {
    for server in [0, 1] {
        let mut pair = pair();
        let before = pair.committed(BROKEN);
        pair.flip(server, BROKEN);
        let other = 1 - server;
        pair.windows[other] = Arc::default();
        pair.restart(other);
        pair.restart(server);
        pair.run(3000);
        assert_eq!(pair.committed(BROKEN), None, "it is closed");
        assert!(pair.committed(OTHER).is_some(), "the other region is open");
        let why = pair.nodes[0].ready().lacks.expect("a region is closed");
        assert!(why.contains("none is known to be whole"), "{why}");
        assert!(pair.nodes[server].inspect().set_aside_regions().is_empty());

        pair.flip(server, BROKEN);
        pair.restart(server);
        pair.open();
        pair.run(50);
        assert!(pair.committed(BROKEN) >= before);
        pair.is_whole();
    }
}

/// A copy that was filled anew is whole only once it has everything: until then it stands in for none.
#[test]
fn a_copy_that_is_being_filled_is_not_whole() {
    let mut pair = pair();
    pair.replace(1);
    // The link opens, and nothing is fetched yet.
    for _ in 0..200 {
        pair.run(1);
        if pair.nodes[1].link(pair.nodes[0].id()).is_open() {
            break;
        }
    }
    pair.flip(0, BROKEN);
    pair.restart(1);
    pair.restart(0);
    pair.run(3000);
    assert_eq!(pair.committed(BROKEN), None, "it is closed");
    let why = pair.nodes[0].ready().lacks.expect("a region is closed");
    assert!(why.contains("none is known to be whole"), "{why}");
    assert!(pair.nodes[0].inspect().set_aside_regions().is_empty());
}

/// Until it is filled anew, nothing is given to anybody else that is known to belong to the damaged copy: here
/// everything, since its checkpoint is that of an empty region, and all edits are whole.
#[test]
fn what_cannot_be_opened_is_not_overwritten() {
    let mut pair = pair();
    let used = pair.nodes[1].world.store.used();
    pair.flip(1, BROKEN);
    pair.windows[0] = Arc::default();
    pair.restart(0);
    pair.restart(1);
    pair.run(1000);
    let region = pair.nodes[1].region(BROKEN).expect("a member");
    assert!(matches!(&*region.driver(), Driver::Failed(_)));
    let now = pair.nodes[1].world.store.used();
    assert!(now >= used, "{now} segments are in use, of {used}");
}

/// Nothing that can be read names what the damaged copy consists of, and the other region takes what it needs from the
/// rest of the device. So the copy is as it was once its manifest can be read again.
#[test]
fn what_nobody_names_is_not_overwritten_while_a_copy_cannot_be_read() {
    const ALL: u64 = 64;
    let mut pair = pair();
    let before = pair.places(1, BROKEN);
    assert!(!before.is_empty());
    pair.flip_blocks(1, BROKEN, ALL);
    pair.windows[0] = Arc::default();
    pair.restart(0);
    pair.restart(1);
    for key in 0..600 {
        pair.put(1, key);
        pair.run(1);
    }
    let region = pair.nodes[1].region(BROKEN).expect("a member");
    assert!(matches!(&*region.driver(), Driver::Failed(_)));
    assert!(pair.places(1, OTHER).is_disjoint(&before));

    pair.flip_blocks(1, BROKEN, ALL);
    pair.restart(1);
    assert_eq!(pair.places(1, BROKEN), before);
    pair.open();
    assert_eq!(pair.nodes[1].inspect().look_through(BROKEN), []);
    assert_eq!(pair.nodes[1].world.store.quarantined(), 0);
}

/// The other region was given what the damaged copy consists of, since there was nothing else. Once its manifest can be
/// read again, the copy does not take it back.
#[test]
fn a_copy_that_can_be_read_again_takes_nothing_that_another_was_given() {
    const ALL: u64 = 64;
    let mut pair = pair();
    let before = pair.places(1, BROKEN);
    pair.flip_blocks(1, BROKEN, ALL);
    pair.windows[0] = Arc::default();
    pair.restart(0);
    pair.restart(1);
    let store = Arc::clone(&pair.nodes[1].world.store);
    let (quarantined, mut held) = (store.quarantined(), Vec::new());
    assert!(quarantined > 0);
    while store.quarantined() == quarantined {
        held.push(
            store
                .allocate(Purpose::Metadata)
                .expect("quarantined ones are left"),
        );
    }
    for key in 0.. {
        if !pair.places(1, OTHER).is_disjoint(&before) {
            break;
        }
        assert!(
            key < 5000,
            "what is quarantined is used in the end: {before:?}"
        );
        pair.put(1, key);
        pair.run(1);
    }
    drop((held, store));

    pair.flip_blocks(1, BROKEN, ALL);
    pair.restart(1);
    pair.has_lost_places(1);
    assert_eq!(pair.nodes[1].inspect().look_through(OTHER), []);
}

/// Where there is no room, what was set aside goes.
#[test]
fn what_is_set_aside_goes_before_writers_are_refused() {
    let mut pair = pair();
    pair.flip(1, BROKEN);
    pair.restart(1);
    pair.filled_anew(1);
    let store = Arc::clone(&pair.nodes[1].world.store);
    let used = store.used();
    let mut taken = Vec::new();
    while let Ok(segment) = store.allocate(argosy_device::Purpose::Write) {
        taken.push(segment);
    }
    pair.run(50);
    assert!(pair.nodes[1].inspect().set_aside_regions().is_empty());
    let named = store.regions().into_iter();
    assert_eq!(
        named
            .filter(|entry| entry.region == id_of_set_aside(BROKEN))
            .count(),
        0
    );
    taken.clear();
    pair.run(3000);
    assert!(store.used() < used, "its segments are free");
    pair.is_whole();
}

impl Pair {
    /// Has the copy of a backup fail, since it is damaged.
    fn find_damage(&self, server: usize) {
        let node = &self.nodes[server];
        let region = node.region(BROKEN).expect("a member");
        let Driver::Backup(copy) = &mut *region.driver() else {
            panic!("it is a backup");
        };
        copy.fail_for_damage(&"a block is damaged", &node.context());
    }
}

/// Damage that a copy meets while the region is open: it is filled anew at once, and once only. A copy that is damaged
/// again waits for somebody to look.
#[test]
fn a_copy_that_is_found_damaged_is_filled_anew_once() {
    let mut pair = pair();
    pair.find_damage(1);
    pair.filled_anew(1);
    pair.is_whole();
    let segments = pair.nodes[1].inspect().set_aside_segments();
    assert!(segments > 0);

    pair.find_damage(1);
    pair.run(3000);
    assert_eq!(pair.nodes[1].inspect().set_aside_segments(), segments);
    let lacks = pair.nodes[0].ready().lacks.expect("a copy has failed");
    assert!(lacks.contains("whose copy has failed"), "{lacks}");
    assert_eq!(pair.nodes[1].inspect().counts().refilled_copies, 1);

    pair.restart(1);
    pair.run(3000);
    pair.open();
    pair.is_whole();
}

impl Pair {
    /// Writes until the backup has a level of its own, and flips a bit there.
    fn flip_own_level(&mut self) {
        for key in 300..3000 {
            self.put(0, key);
            self.run(1);
            let region = self.nodes[1].region(BROKEN).expect("a member");
            let parts = copy_of(region).expect("it is open").parts();
            if let Some(own) = parts.iter().find(|part| part.number.is_own()) {
                let at = own.place.start() + 20;
                self.devices[1].inner().flip_bit(at, 3);
                break;
            }
        }
        self.run(200);
        assert_eq!(self.nodes[1].inspect().look_through(BROKEN).len(), 1);
    }
}

/// What a backup has built for itself no other member has. Where a scrub meets damage to it, the copy is filled anew,
/// once. With new damage it goes on following: its logs are whole.
#[test]
fn a_damaged_level_that_a_backup_built_is_built_anew() {
    let mut pair = pair_of(Replication::BuildIndex);
    pair.flip_own_level();
    pair.filled_anew(1);
    pair_takes(&mut pair, 0);
    assert_eq!(pair.nodes[1].inspect().look_through(BROKEN), []);
    assert_eq!(pair.nodes[1].inspect().counts().refilled_copies, 1);

    pair.flip_own_level();
    pair.run(200);
    assert_eq!(pair.nodes[0].ready().lacks, None);
    pair_takes(&mut pair, 0);
    assert_eq!(pair.nodes[1].inspect().counts().refilled_copies, 1);
}

/// A copy that is filled anew asks for what is damaged where it lies. Nothing of it is taken, the damage is known there
/// without a scrub, and the copy is filled as soon as it can be read.
#[test]
fn a_fetch_that_meets_damage_has_it_known() {
    let mut pair = pair();
    let level = |pair: &Pair| {
        pair.nodes[0]
            .inspect()
            .level_places(BROKEN)
            .first()
            .copied()
    };
    let mut keys = 300..3000;
    let (number, place, _) = loop {
        if let Some(level) = level(&pair) {
            break level;
        }
        pair.put(0, keys.next().expect("there is a level in the end"));
        pair.run(1);
    };
    let flip = |pair: &Pair| pair.devices[0].inner().flip_bit(place.start() + 20, 3);
    let known = |pair: &Pair| {
        let region = pair.nodes[0].region(BROKEN).expect("a member");
        copy_of(region).expect("it is open").damaged()
    };
    flip(&pair);
    assert!(known(&pair).is_empty());
    pair.replace(1);
    pair.run(1000);
    assert_eq!(
        known(&pair)
            .iter()
            .map(|damage| damage.number)
            .collect::<Vec<_>>(),
        [number]
    );
    assert!(pair.nodes[0].ready().lacks.is_some());
    assert!(
        pair.nodes[1]
            .inspect()
            .level_places(BROKEN)
            .iter()
            .all(|level| level.0 != number)
    );

    flip(&pair);
    pair.open();
    pair.is_whole();
}

/// The logs of all members are equal, also where a backup builds its levels from them: a damaged segment is fetched.
#[test]
fn a_damaged_log_segment_of_a_backup_that_builds_levels_is_repaired() {
    let mut pair = pair_of(Replication::BuildIndex);
    let sealed = |pair: &Pair| {
        let region = pair.nodes[1].region(BROKEN).expect("a member");
        let parts = copy_of(region).expect("it is open").parts();
        let sealed = parts.iter().find(|part| part.log == Some(LARGE_LOG));
        sealed.map(|part| part.place)
    };
    let mut keys = 300..9000;
    let place = loop {
        if let Some(place) = sealed(&pair) {
            break place;
        }
        let key = keys.next().expect("a segment is full in the end");
        pair.put_values(0, key, 3000);
        pair.run(1);
    };
    pair.devices[1].inner().flip_bit(place.start() + 200, 3);
    assert_eq!(pair.nodes[1].inspect().look_through(BROKEN).len(), 1);
    pair.run(200);
    assert_eq!(pair.nodes[1].inspect().look_through(BROKEN), []);
    let counts = pair.nodes[1].reports().scrub_status();
    assert_eq!(
        (counts.repaired_segments_total, counts.refilled_copies_total),
        (1, 0)
    );
}

impl Pair {
    /// Writes until the backup still has a level that it was filled with, and the primary has it no more. Flips a bit
    /// there.
    fn flip_level_that_only_the_backup_has(&mut self) {
        for at in 0..6000 {
            self.put(0, at * 7 % 300);
            self.run(1);
            let [theirs, own] = self
                .nodes
                .each_ref()
                .map(|node| node.inspect().level_places(BROKEN));
            let is_there = |number| theirs.iter().any(|level| level.0 == number);
            if let Some(left) = own.iter().find(|level| !is_there(level.0)) {
                self.devices[1].inner().flip_bit(left.1.start() + 20, 3);
                break;
            }
        }
        assert_eq!(self.nodes[1].inspect().look_through(BROKEN).len(), 1);
    }
}

/// The levels that a backup was filled with are the primary's of that time. Once the primary has merged them, no other
/// member has what the backup still has.
#[test]
fn a_damaged_level_that_no_other_member_has_any_more_is_built_anew() {
    let mut pair = pair_of(Replication::BuildIndex);
    pair.flip(1, BROKEN);
    pair.restart(1);
    pair.filled_anew(1);
    pair.restart(1);
    pair.flip_level_that_only_the_backup_has();
    pair.run(3000);
    assert_eq!(pair.nodes[1].inspect().look_through(BROKEN), []);
    assert_eq!(pair.nodes[1].inspect().counts().refilled_copies, 1);
    pair_takes(&mut pair, 0);
}

impl Pair {
    /// Undoes the damage of the copy that is set aside, and puts it back. Its server has to be started again.
    fn put_back(&self, server: usize) {
        self.flip(server, id_of_set_aside(BROKEN));
        let store = &self.nodes[server].world.store;
        assert!(put_back(store, BROKEN).expect("the device is good"));
    }

    /// Damages the copy of a server, and stops when it was begun anew, before it is filled.
    fn begun_anew(&mut self, server: usize) {
        self.flip(server, BROKEN);
        self.restart(server);
        for _ in 0..3000 {
            self.run(1);
            if self.nodes[server].inspect().set_aside_regions() == [BROKEN] {
                return;
            }
        }
        panic!("{:?}", self.nodes[0].ready());
    }

    fn standing(&self, server: usize) -> Standing {
        let region = self.nodes[server].region(BROKEN).expect("a member");
        match &*region.driver() {
            Driver::Backup(copy) => copy.standing(),
            Driver::Primary(driver) => match &driver.stage {
                Stage::Opening(copy) => copy.standing(),
                _ => panic!("it is being opened"),
            },
            Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => panic!("it is open"),
        }
    }
}

/// A copy that was put back may have what was never acknowledged, and lacks what was since. While another one is whole,
/// it counts for nothing, the primary's own neither.
#[test]
fn a_copy_that_was_put_back_counts_for_nothing_beside_others() {
    for server in [0, 1] {
        let mut pair = pair();
        pair.flip(server, BROKEN);
        pair.restart(server);
        pair.filled_anew(server);
        pair.is_whole();
        for key in 0..300 {
            pair.put(0, key);
            pair.run(1);
        }
        pair.run(200);
        let before = pair.committed(BROKEN);

        pair.put_back(server);
        pair.restart(server);
        assert_eq!(pair.standing(server), Standing::PutBack);
        pair.filled_anew(server);
        assert_eq!(pair.nodes[server].inspect().counts().refilled_copies, 1);
        assert!(pair.committed(BROKEN) >= before);
        pair.is_whole();
    }
}

/// Both servers have put copies back, and one has lost its memory since: neither copy may be taken for the other.
#[test]
fn of_copies_that_were_put_back_none_is_chosen() {
    let mut pair = pair();
    for server in [1, 0] {
        pair.flip(server, BROKEN);
        pair.restart(server);
        pair.filled_anew(server);
        pair.is_whole();
    }
    for server in [0, 1] {
        pair.put_back(server);
        pair.windows[server] = Arc::default();
    }
    pair.restart(0);
    pair.restart(1);
    pair.run(1000);
    let why = pair.nodes[0].ready().lacks.expect("a region is closed");
    assert!(why.contains("this server's was put back"), "{why}");
    assert!(why.contains("that of server 1 was put back"), "{why}");

    // Taken back, they are as before.
    for server in [0, 1] {
        let store = &pair.nodes[server].world.store;
        assert!(put_back(store, BROKEN).expect("the device is good"));
    }
    pair.restart(0);
    pair.restart(1);
    pair.open();
    pair.is_whole();
}

impl Pair {
    /// Where the levels of a copy lie.
    fn places(&self, server: usize, region: RegionId) -> BTreeSet<DeviceSegment> {
        let places = self.nodes[server].inspect().level_places(region);
        places.iter().map(|level| level.1).collect()
    }
}

/// Nothing that can be read names what the damaged copy consists of: the other region is given some of it. When the
/// copy is put back, that stays the other's, although it has the higher number.
#[test]
fn a_copy_that_was_put_back_is_opened_behind_all_others() {
    const ALL: u64 = 64;
    let mut pair = pair();
    let before = pair.places(1, BROKEN);
    pair.flip_blocks(1, BROKEN, ALL);
    pair.restart(1);
    pair.filled_anew(1);
    for key in 0.. {
        if !pair.places(1, OTHER).is_disjoint(&before) {
            break;
        }
        assert!(key < 5000, "what is free is used: {before:?}");
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
    }
    pair.flip_blocks(1, id_of_set_aside(BROKEN), ALL);
    let store = &pair.nodes[1].world.store;
    assert!(put_back(store, BROKEN).expect("the device is good"));

    pair.restart(1);
    assert!(!pair.places(1, OTHER).is_disjoint(&before), "it has it");
    pair.has_lost_places(1);
    pair.filled_anew(1);
    assert_eq!(pair.nodes[1].inspect().counts().refilled_copies, 1);
    pair.is_whole();
    for region in REGIONS {
        assert_eq!(pair.nodes[1].inspect().look_through(region), []);
    }
}

/// The copy that was whole is lost before the new one is filled: all that is left is in the copy that was set aside.
/// The region does not open without it.
#[test]
fn a_copy_that_was_begun_anew_stands_in_for_none() {
    let mut pair = pair();
    pair.begun_anew(1);
    pair.replace(0);
    pair.restart(1);
    assert_eq!(pair.standing(1), Standing::BegunAnew);
    pair.run(1000);
    assert_eq!(pair.committed(BROKEN), None);
    let why = pair.nodes[0].ready().lacks.expect("a region is closed");
    assert!(why.contains("that of server 1 was begun anew"), "{why}");
    // Where the device is full, it is kept.
    let store = Arc::clone(&pair.nodes[1].world.store);
    let mut taken = Vec::new();
    while let Ok(segment) = store.allocate(argosy_device::Purpose::Write) {
        taken.push(segment);
    }
    pair.run(50);
    assert_eq!(pair.nodes[1].inspect().set_aside_regions(), [BROKEN]);
    drop((taken, store));

    pair.put_back(1);
    pair.restart(1);
    pair.open();
    let durable = pair.committed(BROKEN);
    assert!(durable > Some(Lsn(0)), "what was durable there is there");
    pair.is_whole();
    pair.restart(1);
    assert_eq!(pair.standing(1), Standing::Whole);
}

/// What it has asked for may not be safe any more when the link to the primary opens anew.
#[test]
fn a_refill_is_taken_back_with_the_link() {
    let pair = pair();
    pair.find_damage(1);
    let node = Arc::clone(&pair.nodes[1]);
    let region = node.region(BROKEN).expect("a member");
    let context = node.context();
    let prepare = |refill| Message::Prepare {
        attempt: 9,
        addresses: argosy_base::AddressMode::Logical,
        refill,
    };
    let mut driver = region.driver();
    let Driver::Backup(copy) = &mut *driver else {
        panic!("it is a backup");
    };
    copy.handle_failed(region.view().primary, &prepare(true), &context);
    assert!(copy.due_refill().is_some());
    copy.link_down(&context);
    assert!(copy.due_refill().is_none());
    copy.handle_failed(region.view().primary, &prepare(true), &context);
    copy.handle_failed(region.view().primary, &prepare(false), &context);
    assert!(copy.due_refill().is_none());
}

/// What a copy had asked for when it failed for good may still come. Its slot is needed by others.
#[test]
fn a_copy_that_failed_for_good_gives_slots_back() {
    let pair = pair();
    let node = &pair.nodes[1];
    let region = node.region(BROKEN).expect("a member");
    let part = argosy_base::SegmentPart {
        number: SegmentNumber(9),
        from: 0,
        to: 4096,
    };
    let slot = node.link(region.view().primary).take_fetch_slot();
    let slot = slot.expect("nothing is being fetched");
    let fetching = Fetching::planted(&[(region.view().primary, slot)], part, true);
    let mut copy = Unusable::kept("it was planted".into(), None).with(fetching);
    let fetched = Message::Fetched {
        slot,
        status: FetchStatus::Gone,
        len: 0,
        checksum: 0,
    };
    copy.handle(region, &fetched, &node.context());
    assert!(copy.asked().is_empty());
    let again = node.link(region.view().primary).take_fetch_slot();
    assert_eq!(again, Some(slot));
}

/// Where there is no memory or no room for the new copy, it is tried again.
#[test]
fn a_copy_for_which_there_is_no_room_is_begun_anew_later() {
    for server in [0, 1] {
        let mut pair = pair();
        pair.flip(server, BROKEN);
        pair.restart(server);
        // The mark and some windows are refused, at one attempt each.
        pair.windows[server].refusals.store(4, Ordering::Relaxed);
        pair.filled_anew(server);
        assert_eq!(pair.nodes[server].inspect().counts().refilled_copies, 1);
        pair.is_whole();
    }
}

/// What cannot be read of a copy may be overwritten: it is not whole when it can be read again.
#[test]
fn a_copy_that_could_not_be_opened_is_not_whole_later() {
    let mut pair = pair();
    assert_eq!(pair.standing(1), Standing::Whole);
    pair.flip(1, BROKEN);
    pair.restart(1);
    pair.flip(1, BROKEN);
    pair.restart(1);
    assert_eq!(pair.standing(1), Standing::Ordinary);
}

/// Nothing can be filled from a copy whose device has failed.
#[test]
fn nothing_is_begun_anew_beside_a_primary_that_has_failed() {
    let mut pair = pair();
    let region = pair.nodes[0].region(BROKEN).expect("a member");
    region.failed(&argosy_engine::EngineError::Closed("planted"));
    pair.find_damage(1);
    pair.run(1000);
    assert_eq!(pair.nodes[1].inspect().counts().refilled_copies, 0);
    assert!(pair.nodes[1].inspect().set_aside_regions().is_empty());
}

/// What was asked of a member for an adoption that has ended does not come once the link is gone. Nothing waits for it.
#[test]
fn what_a_lost_member_was_asked_for_is_forgotten() {
    let mut pair = pair();
    pair.restart(0);
    let region = pair.nodes[0].region(BROKEN).expect("a member");
    let mut driver = region.driver();
    let Driver::Primary(driver) = &mut *driver else {
        panic!("it is the primary");
    };
    let Stage::Opening(copy) = &mut driver.stage else {
        panic!("no other has reported");
    };
    let part = argosy_base::SegmentPart {
        number: SegmentNumber(9),
        from: 0,
        to: 4096,
    };
    let asked = [ServerId(1), ServerId(2)].map(|member| (member, 0));
    *copy.fetching() = Fetching::planted(&asked, part, false);
    copy.source_lost(ServerId(1));
    assert_eq!(copy.fetching().asked(), [(ServerId(2), 0)]);
}

/// What a copy that is put aside had asked for is nothing to the one that takes its place.
#[test]
fn what_a_copy_had_asked_for_is_not_taken_by_the_one_in_its_place() {
    let pair = pair();
    let node = &pair.nodes[1];
    let region = node.region(BROKEN).expect("a member");
    let member = region.view().primary;
    let slot = node.link(member).take_fetch_slot();
    let slot = slot.expect("nothing is being fetched");
    let away = Driver::AtDevice("its copy is begun anew");
    let Driver::Backup(mut copy) = std::mem::replace(&mut *region.driver(), away) else {
        panic!("it is a backup");
    };
    let part = argosy_base::SegmentPart {
        number: SegmentNumber(9),
        from: 0,
        to: 4096,
    };
    *copy.fetching() = Fetching::planted(&[(member, slot)], part, true);
    let context = node.context();
    let anew = copy.into_unusable().begin_anew(BROKEN, &context);
    let mut anew = anew.expect("there is room");
    assert_eq!(anew.fetching().asked(), [(member, slot)]);
    // One that is wanted resets the link where it fails.
    let fetched = Message::Fetched {
        slot,
        status: FetchStatus::Failed,
        len: 0,
        checksum: 0,
    };
    anew.handle(member, &fetched, &context);
    assert!(anew.fetching().asked().is_empty());
    assert_eq!(node.link(member).take_fetch_slot(), Some(slot));
}

/// An answer that is of no use any more is not waited for, however late it comes.
#[test]
fn an_adoption_does_not_wait_for_what_is_of_no_use() {
    let mut pair = pair();
    pair.begun_anew(0);
    {
        let region = pair.nodes[0].region(BROKEN).expect("a member");
        let mut driver = region.driver();
        let Driver::Primary(driver) = &mut *driver else {
            panic!("it is the primary");
        };
        let Stage::Opening(copy) = &mut driver.stage else {
            panic!("it is being filled");
        };
        let part = argosy_base::SegmentPart {
            number: SegmentNumber(9),
            from: 0,
            to: 4096,
        };
        assert!(copy.fetching().asked().is_empty(), "it has just begun");
        *copy.fetching() = Fetching::planted(&[(ServerId(2), 0)], part, false);
    }
    pair.filled_anew(0);
    pair.is_whole();
}
