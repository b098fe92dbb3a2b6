//! Whether members hold the same, when nothing moves any more.
//!
//! - All members of a region stand at the same edit and hold the same bytes: level segments as a whole (their pointers
//!   as they go to other members), log segments up to where they are durable. Where backups build their own levels,
//!   they hold the same pairs, and equal bytes of the logs that both have. Where windows were damaged, logs may differ
//!   between their records.
//! - What the devices have in use is what the manifests name: nothing leaked, nothing owned twice.

use std::collections::BTreeSet;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{
    Direction, Epoch, Identity, KeyRange, Kind, RegionId, SegmentNumber, SegmentPart,
};
use argosy_engine::EngineError;
use argosy_engine::catalog::{EntryKind, kind_of};

use crate::cluster::Cluster;
use crate::engine::{Part, PartKind, Stated};
use crate::load::Wrong;
use crate::rotting::same_records;
use crate::run::Run;

/// See the module documentation.
pub(crate) struct Comparison<'r> {
    cluster: &'r mut Cluster,
    /// Backups build their own levels.
    builds: bool,
}

impl<'r> Comparison<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self {
            cluster: &mut run.cluster,
            builds: run.plan.groups.builds,
        }
    }

    /// Compares all members, and what devices have in use.
    pub(crate) fn compare(&mut self) -> Result<(), Wrong> {
        let ids: Vec<RegionId> = self
            .cluster
            .map
            .regions()
            .iter()
            .map(|region| region.id)
            .collect();
        for id in ids {
            self.compare_members(id)?;
        }
        self.cluster
            .indices()
            .try_for_each(|server| self.find_leaks(server))?;
        self.cluster
            .indices()
            .try_for_each(|server| self.look_at_scrubs(server))
    }

    /// What was read in passing while everything changed was what had been written.
    fn look_at_scrubs(&mut self, server: usize) -> Result<(), Wrong> {
        let up = self.cluster.up(server).ok_or("a server is down")?;
        let scrub = up.node.reports().scrub_status();
        if let Some(damage) = scrub.damages.first() {
            return Err(format!("server {server} is said to be damaged: {damage}"));
        }
        let coverage = &mut self.cluster.coverage;
        coverage.add("segments scrubbed", scrub.segments_total);
        Ok(())
    }

    fn state(&self, server: usize, region: RegionId) -> Result<Stated, Wrong> {
        let up = self.cluster.up(server).ok_or("a server is down")?;
        let state = up.node.inspect().copy_state(region);
        let state =
            state.map_err(|why| format!("{region} has no good copy on server {server}: {why}"))?;
        let stated = self.cluster.reader.read(&state.checkpoint);
        stated.map_err(|error| format!("{region}: {error}"))
    }

    fn members(&self, region: RegionId) -> Vec<usize> {
        let region = self.cluster.map.region(region).expect("it is of the map");
        let primary = std::iter::once(region.primary);
        primary
            .chain(region.backups())
            .map(|member| member.0 as usize)
            .collect()
    }

    fn compare_members(&mut self, region: RegionId) -> Result<(), Wrong> {
        let members = self.members(region);
        let first = self.state(members[0], region)?;
        for member in &members {
            self.count_pointers(*member, region)?;
        }
        if self.builds {
            return self.compare_builders(region, &members, &first);
        }
        for member in &members[1..] {
            let other = self.state(*member, region)?;
            if first.essence != other.essence {
                return Err(format!(
                    "{region}: servers {} and {member} do not stand at the same version: {} and {}",
                    members[0], first.seq, other.seq
                ));
            }
        }
        let parts = first.parts.iter();
        let medium = parts.filter(|part| part.kind == PartKind::Medium).count();
        self.cluster
            .coverage
            .add("medium segments compared", medium as u64);
        // The primary comes first: its bytes are those that are durable everywhere.
        for part in first.parts.iter().filter(|part| part.len > 0) {
            let number = part.number;
            let mut bytes: Option<Vec<u8>> = None;
            for member in &members {
                let held = self.part(region, *member, part)?;
                let sound = part.checksum.is_none_or(|(epoch, checksum)| {
                    identity(region, number, epoch).checksum(&held) == checksum
                });
                if !sound {
                    return Err(format!(
                        "{region}, {number} on server {member}: bad checksum"
                    ));
                }
                match &bytes {
                    None => bytes = Some(held),
                    Some(bytes) if *bytes == held => {}
                    Some(bytes) => {
                        if same_records(self.cluster, region, &first, number, [bytes, &held]) {
                            continue;
                        }
                        let at = bytes.iter().zip(&held).position(|(a, b)| a != b);
                        return Err(format!(
                            "{region}, {number}: servers {} and {member} differ at byte {at:?}",
                            members[0]
                        ));
                    }
                }
            }
            self.cluster.coverage.add("segments compared", 1);
        }
        Ok(())
    }

    /// What a member counts of pointers into logs is what its levels hold.
    fn count_pointers(&mut self, member: usize, region: RegionId) -> Result<(), Wrong> {
        let up = self.cluster.up(member).ok_or("a server is down")?;
        let on = format!("{region} on server {member}");
        let found = up.node.inspect().recount(region);
        let found = found.map_err(|why| format!("{on}: {why}"))?;
        self.cluster.coverage.add("copies recounted", 1);
        match found.first() {
            None => Ok(()),
            Some(wrong) => Err(format!(
                "{on}: {} has {} bytes to which levels point, and {} are counted",
                wrong.number, wrong.found, wrong.counted
            )),
        }
    }

    /// Members that each built their own levels.
    fn compare_builders(
        &mut self,
        region: RegionId,
        members: &[usize],
        first: &Stated,
    ) -> Result<(), Wrong> {
        let pairs = self.pairs_of(region, members[0])?;
        for member in &members[1..] {
            let other = self.state(*member, region)?;
            if first.seq != other.seq {
                return Err(format!(
                    "{region}: server {member} stands at {}, the primary at {}",
                    other.seq, first.seq
                ));
            }
            let theirs = self.pairs_of(region, *member)?;
            if let Some(at) =
                (0..pairs.len().max(theirs.len())).find(|at| pairs.get(*at) != theirs.get(*at))
            {
                return Err(format!(
                    "{region}: server {member} does not hold the primary's pairs: {:?} instead of {:?}",
                    theirs.get(at),
                    pairs.get(at)
                ));
            }
            self.cluster
                .coverage
                .add("pairs compared", pairs.len() as u64);
            let is_log = |part: &&Part| part.kind == PartKind::Log;
            let logs = other.parts.iter().filter(is_log);
            let logs: BTreeSet<SegmentNumber> = logs.map(|part| part.number).collect();
            let both = first.parts.iter().filter(is_log);
            for part in both.filter(|part| part.len > 0 && logs.contains(&part.number)) {
                let number = part.number;
                let own = self.part(region, members[0], part)?;
                let held = self.part(region, *member, part)?;
                if held != own && !same_records(self.cluster, region, first, number, [&own, &held])
                {
                    return Err(format!("{region}, {number}: server {member} differs"));
                }
            }
            for part in other.parts.iter().filter(|part| part.len > 0) {
                let number = part.number;
                if let Some((epoch, checksum)) = part.checksum {
                    let held = self.part(region, *member, part)?;
                    if identity(region, number, epoch).checksum(&held) != checksum {
                        return Err(format!(
                            "{region}, {number} on server {member}: bad checksum"
                        ));
                    }
                    self.cluster.coverage.add("own segments checked", 1);
                }
            }
        }
        Ok(())
    }

    fn pairs_of(&self, region: RegionId, member: usize) -> Result<Vec<Pair>, Wrong> {
        let up = self.cluster.up(member).ok_or("a server is down")?;
        let snapshot = up.node.inspect().copy_snapshot(region);
        let snapshot = snapshot.ok_or_else(|| format!("{region}: server {member} has no copy"))?;
        let mut pairs = Vec::new();
        let wrong = |error: EngineError| format!("{region} on server {member}: {error}");
        let mut scan = snapshot
            .scan(&KeyRange::all(), Direction::Up)
            .map_err(wrong)?;
        while let Some(pair) = scan.next().map_err(wrong)? {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    /// The bytes of a segment that count, on a server.
    fn part(&self, region: RegionId, member: usize, part: &Part) -> Result<Vec<u8>, Wrong> {
        let up = self.cluster.up(member).ok_or("a server is down")?;
        let number = part.number;
        let whole = SegmentPart {
            number,
            from: 0,
            to: part.len.next_multiple_of(BLOCK),
        };
        let held = up.node.inspect().copy_bytes(region, whole);
        let mut held =
            held.map_err(|why| format!("{region}, {number} on server {member}: {why}"))?;
        held.truncate(part.len as usize);
        Ok(held)
    }

    /// The device has in use what its manifests name.
    fn find_leaks(&mut self, server: usize) -> Result<(), Wrong> {
        let up = self.cluster.up(server).ok_or("a server is down")?;
        // Segment 0 is the store's own.
        let mut named = 1 + up.node.inspect().set_aside_segments();
        for entry in up.store.regions() {
            match kind_of(&entry) {
                EntryKind::SetAside(_) => {
                    named += entry.manifest.len();
                    continue;
                }
                EntryKind::Cut(..) => {
                    // Those that no log has any more.
                    let alone =
                        |place: &&argosy_base::DeviceSegment| up.store.references(**place) == 1;
                    named += entry.manifest.iter().filter(alone).count();
                    continue;
                }
                EntryKind::Region | EntryKind::Pin => {}
            }
            let state = self.state(server, entry.region)?;
            named += entry.manifest.len() + state.unlisted;
        }
        let used = up.store.used() as usize;
        if used == named {
            return Ok(());
        }
        Err(format!(
            "server {server} has {used} segments in use, but its manifests name {named}"
        ))
    }
}

type Pair = (Vec<u8>, Vec<u8>);

/// Whose checksum an edit states.
fn identity(region: RegionId, segment: SegmentNumber, epoch: Epoch) -> Identity {
    Identity {
        kind: Kind::Segment,
        region,
        segment,
        epoch,
        offset: 0,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4096 fits")]
const BLOCK: u32 = BLOCK_SIZE as u32;
