//! What has to hold of [three servers](super::trio_tests) whose group changes, when nothing moves any more.
//!
//! - What the primary shows is [possible](super::trio_model_tests).
//! - Members that are sent levels are at the same edit, and hold the same bytes; others hold the same pairs.
//! - All segments are sound, and of what levels point to each member counts what it holds.
//! - A device has in use what its manifests name: nothing leaked.
//! - No number of a segment, or of an edit, has ever named two things, on whatever server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Direction, EditSeq, Epoch, KeyRange, Lsn, SegmentNumber, SegmentPart};
use argosy_coordinator::Replication;
use argosy_engine::Snapshot;
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_lsm::Edit;

use super::trio_model_tests::write_of;
use super::trio_tests::{REGION, SERVERS, Trio};

/// What was ever called by a number: a log segment by where it begins, a level segment by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Log(Epoch, Lsn, u64),
    Level(Epoch, u32),
}

/// What was ever called by which number.
#[derive(Debug, Default)]
pub(super) struct Names {
    segments: BTreeMap<SegmentNumber, Named>,
    /// The version after each edit, where all members have the same.
    versions: BTreeMap<EditSeq, Vec<u8>>,
}

impl Trio {
    /// What the member with the primary's store shows.
    fn shown(&mut self) -> BTreeMap<u32, u32> {
        let primary = self.primary();
        let mut snapshot = None;
        self.run_until("the region shows what it has", |trio| {
            snapshot = trio.nodes[primary].inspect().snapshot(REGION);
            snapshot.is_some()
        });
        pairs_of(&*snapshot.expect("it is there"))
    }

    /// What the primary shows is possible.
    pub(super) fn judge_pairs(&mut self, what: &str) {
        let shown = self.shown();
        self.model
            .judge(&shown, &format!("{:?}, {what}", self.mode));
    }

    /// Notes what is called by which number, on all servers: no number names two things, on whatever server, of
    /// segments or of edits.
    pub(super) fn note_numbers(&mut self) {
        for server in 0..SERVERS {
            if !self.is_up[server] {
                continue;
            }
            let Ok(state) = self.nodes[server].inspect().copy_state(REGION) else {
                continue;
            };
            let edit = Edit::decode(&state.checkpoint.bytes).expect("it was encoded");
            if self.mode.replication == Replication::SendIndex {
                let mut version = edit.clone();
                version.logs.points.clear();
                let version = version.encode();
                let known = self
                    .names
                    .versions
                    .entry(edit.seq)
                    .or_insert_with(|| version.clone());
                assert!(
                    *known == version,
                    "{:?}: edit {} on server {server}",
                    self.mode,
                    edit.seq
                );
            }
            let levels = edit.added.iter().map(|(_, _, segment)| {
                // Where pointers hold places the checksum is the sender's.
                (
                    segment.number,
                    Named::Level(segment.epoch, segment.checksum),
                )
            });
            let logs = edit.logs.added.iter();
            let logs =
                logs.map(|log| (log.number, Named::Log(log.epoch, log.base_lsn, log.ordinal)));
            for (number, what) in levels.chain(logs) {
                let known = *self.names.segments.entry(number).or_insert(what);
                assert_eq!(known, what, "{:?}: {number} on server {server}", self.mode);
            }
        }
    }

    /// At rest, everything is as the module documentation says.
    pub(super) fn judge(&mut self, what: &str) {
        self.run(60);
        self.judge_pairs(what);
        self.note_numbers();
        let begin = self.now;
        loop {
            match self.find_wrong() {
                None => return,
                Some(wrong) if self.now.since(begin) > Duration::from_secs(5) => {
                    panic!("{:?}, {what}: {wrong}\n{}", self.mode, self.in_words());
                }
                Some(_) => self.run(50),
            }
        }
    }

    fn find_wrong(&self) -> Option<String> {
        let members: Vec<usize> = {
            let region = &self.map.regions()[0];
            region.members.iter().map(|id| id.0 as usize).collect()
        };
        let wrong = members
            .iter()
            .find_map(|server| self.find_wrong_at(*server));
        wrong
            .or_else(|| self.find_difference(&members))
            .or_else(|| {
                let up = (0..SERVERS).filter(|server| self.is_up[*server]);
                up.into_iter().find_map(|server| self.find_leak(server))
            })
    }

    fn find_wrong_at(&self, server: usize) -> Option<String> {
        let node = &self.nodes[server];
        match node.inspect().recount(REGION) {
            Err(why) => return Some(format!("server {server} cannot be recounted: {why}")),
            Ok(wrong) => {
                if let Some(wrong) = wrong.first() {
                    return Some(format!("server {server} counts otherwise: {wrong:?}"));
                }
            }
        }
        let damage = node.inspect().look_through(REGION).pop();
        damage.map(|damage| format!("server {server} is damaged: {damage}"))
    }

    fn edit_of(&self, server: usize) -> Result<Edit, String> {
        let state = self.nodes[server].inspect().copy_state(REGION)?;
        let mut edit = Edit::decode(&state.checkpoint.bytes).map_err(|error| error.to_string())?;
        edit.logs.points.clear();
        Ok(edit)
    }

    /// Where members that are sent levels differ.
    fn find_difference(&self, members: &[usize]) -> Option<String> {
        let edits: Result<Vec<Edit>, String> = members.iter().map(|of| self.edit_of(*of)).collect();
        let edits = match edits {
            Ok(edits) => edits,
            Err(why) => return Some(why),
        };
        if self.mode.replication == Replication::BuildIndex {
            let pairs = |server: &usize| {
                let snapshot = self.nodes[*server].inspect().copy_snapshot(REGION);
                snapshot.map(|snapshot| pairs_of(&*snapshot))
            };
            let first = pairs(&members[0]);
            let other = members[1..].iter().find(|member| pairs(member) != first);
            return other.map(|member| format!("server {member} has other pairs than its primary"));
        }
        let encoded = |edit: &Edit| edit.encode();
        for (member, edit) in members.iter().zip(&edits) {
            if encoded(edit) != encoded(&edits[0]) {
                let (one, other) = (edits[0].seq, edit.seq);
                return Some(format!("server {member} is at {other:?}, not at {one:?}"));
            }
        }
        let read = |server: usize, number, len: u32| {
            let part = SegmentPart {
                number,
                from: 0,
                to: len.next_multiple_of(BLOCK),
            };
            self.nodes[server].inspect().copy_bytes(REGION, part)
        };
        for (_, _, segment) in &edits[0].added {
            let bytes = |server: &usize| read(*server, segment.number, segment.len);
            let first = bytes(&members[0]);
            if first.is_err() || members.iter().any(|member| bytes(member) != first) {
                return Some(format!(
                    "{} is not the same everywhere: {first:?}",
                    segment.number
                ));
            }
        }
        None
    }

    /// What a device has in use that its manifests do not name, or the reverse.
    fn find_leak(&self, server: usize) -> Option<String> {
        let node = &self.nodes[server];
        let store = &node.world.store;
        // Segment 0 is the store's own.
        let mut named = 1 + node.inspect().set_aside_segments() + self.hogs[server].len();
        for entry in store.regions() {
            match kind_of(&entry) {
                EntryKind::SetAside(_) => named += entry.manifest.len(),
                EntryKind::Cut(..) => {
                    let alone =
                        |place: &&argosy_base::DeviceSegment| store.references(**place) == 1;
                    named += entry.manifest.iter().filter(alone).count();
                }
                EntryKind::Region | EntryKind::Pin => {
                    let edit = match self.edit_of(server) {
                        Ok(edit) => edit,
                        Err(why) => return Some(format!("server {server}: {why}")),
                    };
                    let levels = edit.added.iter().map(|(_, _, segment)| segment.number);
                    let logs = edit.logs.added.iter().map(|log| log.number);
                    let numbers: BTreeSet<SegmentNumber> = levels.chain(logs).collect();
                    named += entry.manifest.len() + numbers.len();
                }
            }
        }
        let used = store.used() as usize;
        (used != named).then(|| format!("server {server} uses {used} segments, and names {named}"))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4096 fits")]
const BLOCK: u32 = BLOCK_SIZE as u32;

pub(super) fn pairs_of(snapshot: &dyn Snapshot) -> BTreeMap<u32, u32> {
    let mut pairs = BTreeMap::new();
    let mut scan = snapshot
        .scan(&KeyRange::all(), Direction::Up)
        .expect("it can be read");
    while let Some((key, value)) = scan.next().expect("it can be read") {
        let key = std::str::from_utf8(&key)
            .expect("digits")
            .parse()
            .expect("digits");
        pairs.insert(key, write_of(key, &value));
    }
    pairs
}
