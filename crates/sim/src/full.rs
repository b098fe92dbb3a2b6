//! What is owed on a device that is full, once nothing is wrong any more.
//!
//! 1. It is filled until it has refused writes for a while, for want of space.
//! 2. Everything is read, and half of what there is deleted: each delete is taken in the end.
//! 3. Then writes are taken again, with nobody's help: of a quarter of the freed bytes, and of another
//!    quarter.
//!
//! A member that returns with little room may be stuck, since what it fetches has to fit beside what it
//! has: such runs are counted, and only their answers judged.
//!
//! While things go wrong, a full device is one more thing that does ([`crate::small`]); that nothing
//! is lost or comes back, and that members stay equal, is judged as for any other seed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use argosy_base::AddressMode;
use argosy_device::Purpose;
use argosy_server::service::Service;

use crate::check::Bound;
use crate::check::register::AccessKind;
use crate::cluster::Cluster;
use crate::load::{Expect, Fate, Wrong, no_space};
use crate::plan::WorldKind;
use crate::run::{Pace, Run};

/// How long writes are refused before a device counts as full.
const FULL_FOR: Duration = Duration::from_millis(300);
/// How long, in simulated time, deletes, and writes after them, may take to be taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Before a write that was refused is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Writes under way.
const UNDER_WAY_MAX: usize = 8;

/// Objects that are written together, or deleted.
type Group = Vec<usize>;

/// How writing went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// All of it is there.
    All,
    /// The device is full.
    Full,
}

/// Groups that are to be written.
struct Work {
    waiting: VecDeque<Group>,
    under_way: BTreeMap<u32, Group>,
    deletes: bool,
}

/// See the module documentation.
pub(crate) struct Recovery<'r> {
    run: &'r mut Run,
}

impl<'r> Recovery<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// See the module documentation. Nothing, where no device is small.
    pub(crate) fn fill_and_recover(&mut self) -> Result<(), Wrong> {
        if self.run.plan.devices.small.is_none() {
            return Ok(());
        }
        self.run.expect = Expect::Slowness;
        self.run.forget_snapshots();
        self.run.held.allow(false);
        self.run.drain()?;
        let mut full = false;
        for region in self.small_regions() {
            full |= self.fill_up(region)? == Written::Full;
        }
        self.run.expect = Expect::Success;
        self.read_all()?;
        self.run.expect = Expect::Slowness;
        let freed = self.delete_half()?;
        for quarter in ["a first", "a second"] {
            for (region, bytes) in &freed {
                self.write_again(*region, bytes / 4, quarter)?;
            }
        }
        self.run.held.allow(true);
        self.count_recovery(full);
        Ok(())
    }

    /// Deletes half of what there is, where devices are small.
    pub(crate) fn make_room(&mut self) -> Result<(), Wrong> {
        if self.run.plan.devices.small.is_some() {
            self.delete_half()?;
        }
        Ok(())
    }

    fn count_recovery(&mut self, full: bool) {
        let small = self
            .run
            .plan
            .devices
            .small
            .as_ref()
            .expect("the caller has looked");
        let name = match (
            self.run.plan.kind,
            self.run.plan.groups.builds,
            self.run.plan.engine.layout.addresses,
        ) {
            (WorldKind::Killed | WorldKind::Powerless, ..) => "recovered when full, alone",
            (_, true, _) => "recovered when full, build-index",
            (_, false, AddressMode::Logical) => "recovered when full, logical",
            (_, false, AddressMode::Rewrite) => "recovered when full, rewrite",
        };
        let replicated = self.run.plan.kind == WorldKind::Replicated;
        let smaller = replicated
            && small.segments[1..].iter().flatten().min()
                < small.segments[..1].iter().flatten().min();
        let backup = smaller || replicated && small.segments[0].is_none();
        let coverage = &mut self.run.cluster.coverage;
        coverage.add("small devices that did not fill", u64::from(!full));
        coverage.add(name, u64::from(full));
        coverage.add(
            "recovered when full, small backup",
            u64::from(full && backup),
        );
    }

    /// Regions of which a member has a small device.
    fn small_regions(&self) -> Vec<usize> {
        let small = self
            .run
            .plan
            .devices
            .small
            .as_ref()
            .expect("the caller has looked");
        let is_small = |server: &argosy_base::ServerId| small.segments[server.0 as usize].is_some();
        let regions = self.run.cluster.map.regions().iter().enumerate();
        let regions = regions.filter(|(_, region)| region.members.iter().any(is_small));
        regions.map(|(index, _)| index).collect()
    }

    // --- What there is ---

    /// The objects of a region, each with the bytes of its pairs: 0 where there is none. As they were
    /// last read.
    fn sizes(&self, region: usize) -> Vec<(usize, usize)> {
        let of = |index: usize| {
            let object = self.run.objects.get(index);
            let last = self.run.load.histories[index].accesses.last();
            let value = match last.map(|access| access.kind) {
                Some(AccessKind::Read(Bound::To(op))) => self.run.load.lens[op as usize],
                Some(AccessKind::Read(Bound::Empty)) => 0,
                _ => return (index, 0),
            };
            let pairs = object.keys.iter().map(|key| key.len() + value);
            (index, pairs.sum())
        };
        let all = 0..self.run.objects.len();
        let own = all.filter(|object| self.run.objects.get(*object).region == region);
        own.map(of).collect()
    }

    /// Reads everything.
    fn read_all(&mut self) -> Result<(), Wrong> {
        self.run.sweep()?;
        self.run.drain()
    }

    // --- Steps ---

    /// Writes what is not there until the device is full.
    fn fill_up(&mut self, region: usize) -> Result<Written, Wrong> {
        self.read_all()?;
        let sizes = self.sizes(region);
        let mut absent: Vec<usize> = sizes
            .iter()
            .filter(|(_, bytes)| *bytes == 0)
            .map(|(object, _)| *object)
            .collect();
        if self.scattered() {
            self.run.random.shuffle(&mut absent);
        }
        let count = absent.len();
        let groups = self.groups(&absent);
        let written = self.insist(groups, false, "to fill the device")?;
        self.run.say(format_args!(
            "region {}: {written:?}, {count} of {} objects were absent",
            region + 1,
            sizes.len()
        ));
        Ok(written)
    }

    /// Deletes half of what there is in regions with small devices. Returns the bytes of each.
    fn delete_half(&mut self) -> Result<Vec<(usize, usize)>, Wrong> {
        self.read_all()?;
        let mut freed = Vec::new();
        for region in self.small_regions() {
            let mut live = self.sizes(region);
            live.retain(|(_, bytes)| *bytes > 0);
            if self.scattered() {
                self.run.random.shuffle(&mut live);
            }
            let all: usize = live.iter().map(|(_, bytes)| bytes).sum();
            let mut bytes = 0;
            let doomed = live.iter().take_while(|(_, more)| {
                let enough = bytes * 2 >= all;
                bytes += if enough { 0 } else { *more };
                !enough
            });
            let mut doomed: Vec<usize> = doomed.map(|(object, _)| *object).collect();
            doomed.sort_unstable();
            let groups = self.groups(&doomed);
            let full = self.is_full(region);
            let count = doomed.len() as u64;
            self.run
                .cluster
                .coverage
                .add("deletes on a full device", if full { count } else { 0 });
            self.insist(groups, true, "of half of what there is")?;
            self.run.say(format_args!(
                "region {}: {bytes} of {all} bytes deleted",
                region + 1
            ));
            freed.push((region, bytes));
        }
        Ok(freed)
    }

    /// Writes `bytes` of pairs that are not there.
    fn write_again(&mut self, region: usize, bytes: usize, which: &str) -> Result<(), Wrong> {
        self.read_all()?;
        let mut absent = self.sizes(region);
        absent.retain(|(_, bytes)| *bytes == 0);
        self.run.random.shuffle(&mut absent);
        let filler = &self
            .run
            .plan
            .devices
            .small
            .as_ref()
            .expect("the caller has looked")
            .filler;
        let mut left = bytes;
        let chosen = absent.iter().map_while(|(object, _)| {
            left = left.checked_sub(filler.object_bytes(&self.run.objects, *object))?;
            Some(*object)
        });
        let chosen: Vec<usize> = chosen.collect();
        let what = format!(
            "of {which} quarter of the {} bytes that were deleted",
            bytes * 4
        );
        let groups = self.groups(&chosen);
        match self.insist(groups, false, &what)? {
            Written::All => {
                self.run.say(format_args!(
                    "region {}: {bytes} bytes written again",
                    region + 1
                ));
                Ok(())
            }
            Written::Full => Err(format!(
                "region {}: writes {what} are refused, since it is full: {}{}",
                region + 1,
                self.run.load.failures.last,
                self.space_in_words()
            )),
        }
    }

    fn scattered(&self) -> bool {
        self.run
            .plan
            .devices
            .small
            .as_ref()
            .is_some_and(|small| small.scattered)
    }

    /// `objects` in groups that go into one write.
    fn groups(&self, objects: &[usize]) -> VecDeque<Group> {
        let filler = &self
            .run
            .plan
            .devices
            .small
            .as_ref()
            .expect("the caller has looked")
            .filler;
        let mut groups = VecDeque::new();
        let mut left = objects;
        while !left.is_empty() {
            let group = filler.fitting(&self.run.objects, left.iter().copied());
            left = &left[group.len()..];
            groups.push_back(group);
        }
        groups
    }

    /// Writes or deletes groups, each as often as it takes. Deletes have to be taken, and writes,
    /// unless the device is full: within a bounded time.
    fn insist(
        &mut self,
        groups: VecDeque<Group>,
        deletes: bool,
        what: &str,
    ) -> Result<Written, Wrong> {
        let mut work = Work {
            waiting: groups,
            under_way: BTreeMap::new(),
            deletes,
        };
        // A filling device has until it is full; one that has been emptied, until it takes writes.
        let full_for = match what.starts_with("to fill") {
            true => FULL_FOR,
            false => TAKEN_WITHIN,
        };
        let mut progress = self.run.cluster.now();
        let mut again = progress;
        loop {
            let now = self.run.cluster.now();
            match self.harvest(&mut work) {
                Some(true) => progress = now,
                Some(false) => again = now + AGAIN_AFTER,
                None => {}
            }
            if work.waiting.is_empty() && work.under_way.is_empty() {
                return Ok(Written::All);
            }
            let waited = now.since(progress);
            if !deletes && waited > full_for && no_space(&self.run.load.failures.last) {
                self.run.drain()?;
                return Ok(Written::Full);
            }
            if waited > TAKEN_WITHIN {
                let which = if deletes { "deletes" } else { "writes" };
                return Err(format!(
                    "{which} {what} are not taken within {TAKEN_WITHIN:?}: {}{}",
                    self.run.load.failures.last,
                    self.space_in_words()
                ));
            }
            if now >= again {
                self.ask_groups(&mut work)?;
            }
            self.run.tick(Pace::None)?;
        }
    }

    /// Takes out what was answered: whether one was taken, or else one refused.
    fn harvest(&mut self, work: &mut Work) -> Option<bool> {
        let mut found = None;
        let fates: Vec<(u32, Fate)> = work
            .under_way
            .iter()
            .map(|(op, group)| (*op, self.run.load.fate(*op, group[0])))
            .collect();
        for (op, fate) in fates {
            match fate {
                Fate::Pending => {}
                Fate::Applied => {
                    work.under_way.remove(&op);
                    found = Some(true);
                }
                Fate::NotApplied | Fate::Unknown => {
                    work.waiting.extend(work.under_way.remove(&op));
                    found = found.or(Some(false));
                }
            }
        }
        found
    }

    fn ask_groups(&mut self, work: &mut Work) -> Result<(), Wrong> {
        while work.under_way.len() < UNDER_WAY_MAX {
            let Some(group) = work.waiting.pop_front() else {
                break;
            };
            let op = self.run.load.next_op();
            let filler = &self
                .run
                .plan
                .devices
                .small
                .as_ref()
                .expect("the caller has looked")
                .filler;
            let ask = filler.write(&self.run.objects, &group, (!work.deletes).then_some(op));
            if self.run.ask(ask)? {
                work.under_way.insert(op, group);
            } else {
                work.waiting.push_front(group);
                break;
            }
        }
        self.run.flush()
    }

    // --- Reports ---

    fn is_full(&self, region: usize) -> bool {
        let region = &self.run.cluster.map.regions()[region];
        let mut members = region.members.iter();
        members.any(|member| {
            let up = self.run.cluster.up(member.0 as usize);
            up.is_some_and(|up| up.store.room().is_full())
        })
    }

    fn space_in_words(&self) -> String {
        space_in_words(&self.run.cluster, self.run.plan.engine.layout.segment_bytes)
    }
}

/// Whether a small device has no room for merges, which is what segments that arrive may take.
pub(crate) fn has_no_room(cluster: &Cluster) -> bool {
    cluster.indices().any(|server| {
        let room = cluster.up(server).map(|up| up.store.room());
        room.is_some_and(|room| room.for_purpose(Purpose::Merge) == 0)
    })
}

/// Where the space is, and what is done about it.
pub(crate) fn space_in_words(cluster: &Cluster, segment_bytes: usize) -> String {
    let mut text = String::new();
    for server in cluster.indices() {
        let Some(up) = cluster.up(server) else {
            continue;
        };
        let (room, total) = (up.store.room(), up.store.total());
        let _ = write!(
            text,
            "\nserver {server}: {room:?} of {total}; {:?}",
            up.node.ready()
        );
        for region in cluster.map.regions() {
            let stats = up.node.inspect().engine_stats(region.id);
            let stats = stats.or_else(|| up.node.inspect().builder_stats(region.id));
            for level in stats.iter().flat_map(|stats| &stats.levels) {
                let fill = level.bytes * 100 / (level.segments.max(1) * segment_bytes) as u64;
                let _ = write!(
                    text,
                    "\n  {} L{}: {} runs, {} segments, {fill} % full, {} entries",
                    region.id, level.level, level.runs, level.segments, level.entries
                );
            }
            if let Some(stats) = &stats {
                let _ = write!(
                    text,
                    "\n  {}: logs {:?}; memtables {} bytes, {} frozen; {} flushes, {} compactions",
                    region.id,
                    stats.logs,
                    stats.memtables.bytes,
                    stats.memtables.frozen,
                    stats.work.flushes,
                    stats.work.compactions
                );
            }
            if let Some(words) = up.node.inspect().space_in_words(region.id) {
                let _ = write!(text, "\n  {}: {words}", region.id);
            }
        }
    }
    text
}
