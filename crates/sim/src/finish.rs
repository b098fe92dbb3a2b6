//! The end of a run: nothing is wrong any more, so everything has to be right.
//!
//! 1. Every region is whole, every request succeeds, every object is read.
//! 2. When nothing moves any more, all members of a region stand at the same edit and hold the same
//!    bytes: level segments as a whole (their pointers as they go to other members), log segments up
//!    to where they are durable. Where backups build their own levels, they hold
//!    the same pairs, and equal bytes of the logs that both have. Where windows were damaged, logs may differ between
//!    their records.
//! 3. What the devices have in use is what the manifests name: nothing leaked, nothing owned twice.
//! 4. All servers are stopped cleanly and started again; then the same holds once more.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{
    Direction, Epoch, Identity, KeyRange, Kind, RegionId, SegmentNumber, SegmentPart,
};
use argosy_engine::EngineError;
use argosy_engine::catalog::{EntryKind, kind_of};

use crate::asks::{Ask, Target};
use crate::check::{Bound, When};
use crate::coverage::EXPIRIES_READ;
use crate::engine::{Part, PartKind, Stated};
use crate::load::{Expect, Wrong};
use crate::objects::ObjectKey;
use crate::plan::SERVERS;
use crate::run::{Pace, Run};

/// How long, in simulated time, everything may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(10);

/// How long a link waits for the rest of a message, and a little more.
const GIVEN_UP_AFTER: Duration = Duration::from_millis(2_500);

impl Run {
    /// See the module documentation.
    pub(crate) fn finish(&mut self) -> Result<(), Wrong> {
        self.mend()?;
        self.wait_for_damaged_messages()?;
        self.finish_episode()?;
        self.bring_all()?;
        self.fill_and_recover()?;
        self.expect = Expect::Slowness;
        let until = self.load.next_op() as usize + self.plan.load.last_ops;
        while (self.load.next_op() as usize) < until {
            self.tick(Pace::Full)?;
        }
        self.drain()?;
        self.make_room()?;
        // Of many objects only some.
        let more = 1 + self.objects.len() / 250;
        for object in (0..self.objects.len()).step_by(9 * more) {
            self.write_at_last(object)?;
        }
        self.expect = Expect::Success;
        let links_lost = self.links_lost();
        for object in (0..self.objects.len()).step_by(more) {
            for index in 0..self.objects.get(object).keys.len() {
                let key = ObjectKey { object, index };
                self.ask_alone(Ask::Get { key })?;
            }
            self.tick(Pace::None)?;
        }
        self.sweep()?;
        self.read_longs(REST_WITHIN)?;
        self.drain()?;
        self.compare_at_rest()?;
        if self.links_lost() > links_lost {
            return Err("a link went down although nothing was wrong".to_owned());
        }
        self.judge()?;
        self.let_all_expire()?;
        self.restart_all()?;
        self.sweep()?;
        self.drain()?;
        self.tell_times()?;
        self.sweep()?;
        self.look_at_many()?;
        self.read_longs(REST_WITHIN)?;
        self.drain()?;
        self.compare_at_rest()?;
        self.judge()
    }

    /// A message whose length is damaged is given up after a while, and the link with it.
    fn wait_for_damaged_messages(&mut self) -> Result<(), Wrong> {
        if self.cluster.wire.flipped() > 0 {
            let until = self.cluster.now() + GIVEN_UP_AFTER;
            while self.cluster.now() < until {
                self.tick(Pace::None)?;
            }
        }
        Ok(())
    }

    /// Links that went down, of all servers' processes.
    fn links_lost(&self) -> u64 {
        let up = (0..SERVERS).filter_map(|server| self.cluster.up(server));
        up.map(|up| up.node.inspect().counts().links_lost).sum()
    }

    /// Has all clocks go past everything that expires.
    fn let_all_expire(&mut self) -> Result<(), Wrong> {
        let until = self.load.expiries.last().max(self.changes.last_expiry());
        for server in 0..SERVERS {
            let wall = self.cluster.wall(server);
            let more = until.since(wall) + 1;
            let began = self.cluster.wall_began(server).after(more);
            self.cluster.set_wall(server, began);
        }
        self.depend.leave_clocks();
        self.tick(Pace::None)
    }

    /// Has every primary tell the time: now nothing is there any more that expires.
    fn tell_times(&mut self) -> Result<(), Wrong> {
        // Where a log takes no writes yet, time stands still.
        self.expect = Expect::Slowness;
        for region in 0..self.plan.regions {
            let mut objects = 0..self.objects.len();
            let of_it = objects.find(|object| self.objects.get(*object).region == region);
            self.write_at_last(of_it.expect("a region has objects"))?;
        }
        self.expect = Expect::Success;
        // Or while its windows wait to be flushed: others than clients fill them, too.
        let begin = self.cluster.now();
        loop {
            let rest = self.cluster.now() + 3 * self.plan.engine.flush_interval;
            while self.cluster.now() < rest {
                self.tick(Pace::None)?;
            }
            // What they show does not expire in them.
            self.forget_snapshots();
            let seen = self.expiring_seen();
            self.sweep()?;
            self.read_expiries(REST_WITHIN)?;
            self.drain()?;
            if self.expiring_seen() == seen {
                break;
            }
            if self.cluster.now().since(begin) >= REST_WITHIN {
                return Err(format!("time stands still for {REST_WITHIN:?}"));
            }
        }
        self.forget_snapshots();
        self.load.expiries.end();
        self.changes.all_expired();
        Ok(())
    }

    /// How often clients have seen something so far that expires.
    fn expiring_seen(&self) -> u64 {
        self.load.expiries.seen() + self.cluster.coverage.get(EXPIRIES_READ)
    }

    /// Writes an object; however slow the servers are, they take it in the end.
    fn write_at_last(&mut self, object: usize) -> Result<(), Wrong> {
        let begin = self.cluster.now();
        while self.cluster.now().since(begin) < REST_WITHIN {
            let op = self.load.next_op();
            let (to, condition) = (Bound::To(op), When::Always);
            let targets = vec![Target {
                object,
                to,
                len: 50,
            }];
            self.ask_alone(Ask::Write {
                targets,
                condition,
                previous: true,
            })?;
            self.drain()?;
            if self.load.last_applied() == Some(op) {
                return Ok(());
            }
        }
        Err(format!(
            "object {object} cannot be written within {REST_WITHIN:?}"
        ))
    }

    pub(crate) fn judge(&mut self) -> Result<(), Wrong> {
        let judged = self.load.judge(&self.objects)?;
        self.cluster
            .coverage
            .add("outcomes proven by order", judged.proven as u64);
        self.cluster
            .coverage
            .add("histories undecided", judged.undecided as u64);
        self.say(format_args!("every history is possible"));
        Ok(())
    }

    fn restart_all(&mut self) -> Result<(), Wrong> {
        self.expect = Expect::Anything;
        for server in 0..SERVERS {
            self.cluster.close(server);
        }
        self.say(format_args!("all servers are stopped cleanly"));
        self.forget_snapshots();
        self.start_all()?;
        self.wait_whole(Pace::None)?;
        self.expect = Expect::Success;
        Ok(())
    }

    /// Ticks until nothing changes any more and the copies agree, then looks at everything.
    fn compare_at_rest(&mut self) -> Result<(), Wrong> {
        let begin = self.cluster.now();
        let settle = 3 * self.plan.engine.flush_interval + Duration::from_millis(30);
        self.forget_snapshots();
        loop {
            let rest = self.cluster.now();
            while self.cluster.now() < rest + settle {
                self.tick(Pace::None)?;
            }
            let found = self.compare().and_then(|()| self.judge_budgets(true));
            match found {
                Ok(()) => return Ok(()),
                Err(wrong) if self.cluster.now().since(begin) > REST_WITHIN => return Err(wrong),
                Err(_) => {}
            }
        }
    }

    fn compare(&mut self) -> Result<(), Wrong> {
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
        (0..SERVERS).try_for_each(|server| self.find_leaks(server))?;
        (0..SERVERS).try_for_each(|server| self.look_at_scrubs(server))
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
        if self.plan.builds {
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
                        if self.same_records(region, &first, number, [bytes, &held]) {
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
                if held != own && !self.same_records(region, first, number, [&own, &held]) {
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
