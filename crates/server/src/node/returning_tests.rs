//! A member that was away comes back while the region serves: it is sent what it lacks, and counts once it is whole.
//! Bytes are counted where they are fetched.
//!
//! The first region is loaded. One of its two servers leaves the group, one way or another; a hundredth of the pairs is
//! written again; the server comes back.

use std::ops::Range;
use std::sync::Arc;

use argosy_base::{Epoch, ServerId, Standing};
use argosy_coordinator::Replication;
use argosy_fabric::sim::SimSettings;
use argosy_lsm::Settings;

use super::copies_tests::{Pair, REGIONS, settings};
use super::region::{Driver, copy_of};
use super::views_tests::{changed, move_to};
use super::{Mutants, NodeSettings};
use crate::service::{Maintenance, Request, Response, Service};

/// Batches of four pairs that are loaded.
const LOADED: u64 = 1200;
/// Those that are written again while a member is away.
const CHANGED: Range<u64> = 300..300 + LOADED / 100;
/// Bytes of a value: neither of the smallest nor of the largest.
const VALUE_BYTES: usize = 240;
/// Bytes of the pairs of a batch.
const BATCH_BYTES: u64 = 4 * (VALUE_BYTES as u64 + 10);

/// How a copy was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// Its server went on beside the group.
    Removed,
    /// Its process was killed, and what was in memory is there.
    Killed,
    /// It was stopped in order.
    Stopped,
    /// What was in memory is gone.
    Powerless,
}

const WAYS: [Away; 4] = [Away::Removed, Away::Killed, Away::Stopped, Away::Powerless];
/// The modes that are tried.
const MODES: [Replication; 2] = [Replication::SendIndex, Replication::BuildIndex];

/// Two servers of which the second follows, with a loaded region whose levels are at rest.
fn loaded(replication: Replication) -> Pair {
    let settings = NodeSettings {
        engine: Arc::new(Settings::small().with(|of| of.cache_bytes = 0)),
        ..settings(Mutants::default())
    };
    let mut pair = Pair::with(replication, SimSettings::default(), settings);
    pair.open();
    pair.write(0..LOADED);
    pair.run(4000);
    pair
}

impl Pair {
    /// Writes batches to the first region, all of which are acknowledged.
    fn write(&mut self, keys: Range<u64>) {
        self.acknowledged();
        let (mut done, count) = (0, usize::try_from(keys.end - keys.start).expect("few"));
        for key in keys {
            self.put_values(0, key, VALUE_BYTES);
            self.run(1);
            done += self.acknowledged().0;
        }
        for _ in 0..200 {
            if done == count {
                return;
            }
            self.run(5);
            done += self.acknowledged().0;
        }
        panic!("{done} of {count} writes: {:?}", self.nodes[0].ready());
    }

    /// From now on the first region has this group, as all servers know.
    fn group(&mut self, primary: u32, members: &[u32], filling: &[u32]) {
        let ids = |of: &[u32]| of.iter().map(|id| ServerId(*id)).collect();
        self.map = changed(self, |region| {
            if region.id == REGIONS[0] {
                assert_eq!(region.primary, ServerId(primary));
                region.epoch = Epoch(region.epoch.0 + 1);
                (region.members, region.filling) = (ids(members), ids(filling));
            }
        });
        for node in &self.nodes {
            node.set_map(self.map.clone()).expect("newer");
        }
    }

    fn epoch(&self) -> u32 {
        self.map.regions()[0].epoch.0
    }

    fn fetched(&self, server: usize) -> u64 {
        self.nodes[server].inspect().counts().catch_up_bytes
    }

    /// Ends what `server` does in the way of `away`, and lets it come back as no member.
    fn go_away(&mut self, server: usize, away: Away) {
        match away {
            Away::Removed => return,
            Away::Killed => {}
            Away::Stopped => assert!(self.nodes[server].close()),
            Away::Powerless => self.windows[server] = Arc::default(),
        }
        self.restart(server);
        self.run(50);
    }

    /// How far `primary` says that the copy of the other server is.
    fn is_caught_up(&self, primary: usize) -> bool {
        let region = self.nodes[primary].region(REGIONS[0]).expect("a member");
        let Driver::Primary(driver) = &*region.driver() else {
            panic!("it serves the region");
        };
        let mut members = driver.machine().members();
        members.any(|member| (member.state, member.lag) == ("live", 0))
    }

    /// What there is to say where a copy does not come back.
    fn in_words(&self, primary: usize) -> String {
        let other = self.nodes[1 - primary].region(REGIONS[0]);
        let copy = match &*other.expect("it is in the map").driver() {
            Driver::Backup(copy) => format!("{:?}, {}", copy.failed(), copy.space_in_words()),
            _ => "no backup's".to_owned(),
        };
        format!("{:?}; its copy: {copy}", self.nodes[primary].ready())
    }

    /// Fills the copy of the other server and makes it a member, while `meanwhile` goes on. Returns the bytes that were
    /// fetched.
    fn come_back(&mut self, primary: u32, meanwhile: impl FnMut(&mut Self)) -> u64 {
        let other = 1 - primary;
        let before = self.fetched(other as usize);
        self.group(primary, &[primary], &[other]);
        self.fill(primary, meanwhile);
        self.fetched(other as usize) - before
    }

    /// The same where the group says already that it is filled.
    fn fill(&mut self, primary: u32, mut meanwhile: impl FnMut(&mut Self)) {
        let (at, other) = (primary as usize, 1 - primary);
        let server = other as usize;
        let standing = |pair: &Self| pair.nodes[server].inspect().standing(REGIONS[0]);
        let mut was_filled = false;
        for _ in 0..2000 {
            meanwhile(self);
            self.run(1);
            was_filled |= standing(self) == Some(Standing::Filling);
            assert!(
                !was_filled || standing(self) == Some(Standing::Filling),
                "it is no member"
            );
            if was_filled && self.is_caught_up(at) {
                break;
            }
        }
        assert!(was_filled && self.is_caught_up(at), "{}", self.in_words(at));
        self.group(primary, &[primary, other], &[]);
        for _ in 0..2000 {
            self.run(1);
            if standing(self) == Some(Standing::Whole) {
                break;
            }
        }
        assert_eq!(standing(self), Some(Standing::Whole));
        let counts = self.nodes[server].inspect().counts();
        assert_eq!(counts.refilled_copies, 0);
        self.run(200);
    }

    /// Both copies have the same pairs, and what was put.
    fn has_everything(&mut self) {
        for key in (0..LOADED).step_by(37).chain(CHANGED) {
            assert!(self.has(0, key), "{key}");
        }
        if self.map.replication() == Replication::BuildIndex {
            return;
        }
        self.run(4000);
        let digests = self.nodes.each_ref().map(|node| {
            let copy = copy_of(node.region(REGIONS[0]).expect("a member"));
            copy.expect("it is open").digest()
        });
        assert_eq!(digests[0], digests[1]);
    }
}

/// What a server fetches that has nothing.
fn everything(replication: Replication) -> u64 {
    let mut pair = loaded(replication);
    pair.group(0, &[0], &[]);
    pair.write(CHANGED);
    pair.replace(1);
    let fetched = pair.come_back(0, |_| {});
    pair.has_everything();
    fetched
}

/// That `fetched` is of the order of the change, and no copy of everything.
fn is_a_difference(fetched: u64, batches: u64, all: u64, what: &str) {
    println!("{what}: {fetched} bytes for {batches} batches, of {all}");
    // A changed pair is in the log, and may be in a run; a few blocks are not full.
    let most = 4 * batches * BATCH_BYTES + (64 << 10);
    assert!(
        fetched <= most && fetched < all / 5,
        "{what}: {fetched} bytes for {batches} batches, of {all}"
    );
}

#[test]
fn a_member_that_returns_fetches_the_difference() {
    for replication in MODES {
        let all = everything(replication);
        assert!(all > LOADED * BATCH_BYTES, "{all} bytes are everything");
        for away in WAYS {
            let mut pair = loaded(replication);
            pair.group(0, &[0], &[]);
            pair.write(CHANGED);
            pair.go_away(1, away);
            let fetched = pair.come_back(0, |_| {});
            let what = format!("{replication:?}, {away:?}");
            is_a_difference(fetched, CHANGED.end - CHANGED.start, all, &what);
            pair.has_everything();
        }
    }
}

/// Its primary was promoted again meanwhile, or another one was: the copy that returns was cut by an epoch before.
#[test]
fn a_member_that_returns_to_another_epoch_fetches_the_difference() {
    for replication in MODES {
        let all = everything(replication);
        for primary in [0, 1] {
            for away in WAYS {
                let mut pair = loaded(replication);
                let other = 1 - primary;
                if primary == 1 {
                    let epoch = pair.epoch() + 1;
                    move_to(&mut pair, epoch, primary, &[0, 1]);
                    pair.open();
                }
                pair.group(primary, &[primary], &[]);
                pair.run(50);
                pair.write(CHANGED);
                if primary == 0 {
                    pair.restart(0);
                    pair.run(200);
                    let epoch = pair.epoch() + 1;
                    move_to(&mut pair, epoch, 0, &[0]);
                    let map = pair.map.clone();
                    pair.nodes[1].set_map(map).expect("newer");
                    pair.run(200);
                }
                pair.go_away(other as usize, away);
                let fetched = pair.come_back(primary, |_| {});
                let what = format!("{replication:?}, {away:?}, under server {primary}");
                is_a_difference(fetched, CHANGED.end - CHANGED.start, all, &what);
                pair.has_everything();
            }
        }
    }
}

/// Writes go on while it returns, and are acknowledged. What it fetches grows by what is written.
#[test]
fn a_member_returns_while_writes_go_on() {
    for replication in MODES {
        let all = everything(replication);
        for away in WAYS {
            let mut pair = loaded(replication);
            pair.group(0, &[0], &[]);
            pair.write(CHANGED);
            pair.go_away(1, away);
            let mut keys = CHANGED.cycle();
            let mut written = 0;
            let fetched = pair.come_back(0, |pair| {
                let key = keys.next().expect("it goes round");
                pair.write(key..key + 1);
                written += 1;
            });
            let what = format!("{replication:?}, {away:?}, beside {written} batches");
            let batches = CHANGED.end - CHANGED.start + written;
            is_a_difference(fetched, batches, all, &what);
            pair.has_everything();
        }
    }
}

/// A full compaction is asked for while nobody writes, after a server was killed and started again. A copy that builds
/// its own levels merges what it found in its logs: it is told that this is committed.
#[test]
fn a_copy_that_came_back_compacts_although_nobody_writes() {
    for restarted in [&[1][..], &[0], &[0, 1]] {
        let mut pair = loaded(Replication::BuildIndex);
        for server in restarted {
            pair.restart(*server);
        }
        pair.open();
        pair.run(200);
        pair.acknowledged();
        let is_done = (0..10).any(|_| {
            let what = Maintenance::Compact;
            pair.begin(Request::Maintain { what });
            pair.run(500);
            let answers = std::mem::take(&mut *pair.answers.0.lock());
            answers.iter().any(|(_, answer)| *answer == Response::Done)
        });
        assert!(is_done, "{restarted:?}, {}", pair.in_words(0));
    }
}

/// A server that was killed as a member, and comes back as one whose copy is filled: the mark that its copy is whole,
/// which is in its memory, holds no more.
#[test]
fn a_copy_that_was_whole_before_it_was_away_is_not() {
    let mut pair = loaded(Replication::SendIndex);
    let standing = pair.nodes[1].inspect().standing(REGIONS[0]);
    assert_eq!(standing, Some(Standing::Whole));
    pair.world.kill(ServerId(1));
    pair.group(0, &[0], &[]);
    pair.write(CHANGED);
    pair.group(0, &[0], &[1]);
    pair.restart(1);
    pair.fill(0, |_| {});
    pair.has_everything();
}
