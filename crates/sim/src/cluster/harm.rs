//! What is done to machines and processes: devices are damaged and replaced (see `damaging.rs`), fail (`failing.rs`),
//! or take their time (`slow.rs`); manifests cannot be read for a while (`spoiling.rs`); processes do nothing, and
//! links are cut.

use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Clock, RegionId, SegmentNumber};
use argosy_coordinator::{DeviceId, Replication};
use argosy_device::{Crash, Device, DeviceError, FormatOptions, MemoryDevice, OpKind, Store};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_log::segment::WINDOW_HEADER_BYTES;
use argosy_server::node::is_log_window;
use argosy_server::ownership::{self, FoundDevice};

use super::counting::count_device;
use super::{Cluster, Doing, id};
use crate::coverage::WINDOWS_DAMAGED;
use crate::damaging::Damage;
use crate::failing::name_of;
use crate::leaving::Leaving;
use crate::random::Random;

/// Copies that cannot be used.
const CLOSED: &str = "copies that damage closed";
/// Bits that flipped in levels and have to be repaired.
pub(crate) const LEVELS_DAMAGED: &str = "bits of levels that flipped";
/// Bytes of a window's header that mean something.
const HEADER_BYTES: usize = 64;
/// Within so many bytes lies what was written last.
const LAST_BYTES: usize = 600;
/// Servers that do not start.
pub(crate) const REFUSED: &str = "starts refused for damage";

/// A bit that was flipped in the manifest of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoilt {
    region: RegionId,
    /// Of the manifest.
    generation: u64,
    at: u64,
    bit: u32,
}

impl Cluster {
    // --- Damage ---

    /// Damages the device of a server, or has it do so itself at a later write.
    pub(crate) fn damage(&mut self, server: usize, damage: Damage, random: &mut Random) {
        let device = &self.servers[server].device;
        let stored = device.stored_blocks();
        match damage {
            Damage::Flip(bits) => {
                for _ in 0..bits {
                    let at = random.pick(&stored) + random.below(BLOCK_SIZE) as u64;
                    device.flip_bit(at, u32::try_from(random.below(8)).expect("of a byte"));
                }
            }
            Damage::Misdirect(after) => device.misdirect_to_after(after, random.pick(&stored)),
            Damage::Levels(bits) => self.damage_levels(server, bits, random),
            Damage::Window(bytes) => self.damage_window(server, bytes, random),
        }
    }

    /// Damages a window of a log of a server: its header, what was written last, or whatever lies there.
    fn damage_window(&mut self, server: usize, bytes: usize, random: &mut Random) {
        let mut windows = self.servers[server].windows.memories();
        windows.retain(|(name, _)| is_log_window(*name));
        // Those that hold records, with where what lies there ends.
        let filled = windows.iter().filter_map(|(_, memory)| {
            let held = memory.read_vec(0, memory.len());
            let last = held.iter().rposition(|byte| *byte != 0)?;
            (last > WINDOW_HEADER_BYTES).then_some((memory, last + 1))
        });
        let filled: Vec<_> = filled.collect();
        if filled.is_empty() {
            return;
        }
        let (memory, end) = filled[random.below(filled.len())];
        let from = match random.below(10) {
            0 => random.below(HEADER_BYTES),
            1 => random.below(memory.len()),
            2..=5 => end.saturating_sub(random.between(1, LAST_BYTES)),
            _ => random.between(WINDOW_HEADER_BYTES, end - 1),
        };
        for at in from..memory.len().min(from + bytes) {
            let bit = u32::try_from(random.below(8)).expect("of a byte");
            memory.flip_bit(at, bit);
        }
        self.coverage.add(WINDOWS_DAMAGED, 1);
    }

    /// Damages level segments of a server that all other members have. Where members build levels themselves, those
    /// of a primary are spared: the others may merge theirs before they are asked for them.
    fn damage_levels(&mut self, server: usize, bits: usize, random: &mut Random) {
        let builds = self.map.replication() == Replication::BuildIndex;
        let mut shared = Vec::new();
        for region in self.map.regions() {
            if builds && region.primary == id(server) {
                continue;
            }
            let of = |member: usize| {
                let node = self.up(member).map(|up| &up.node);
                node.map_or(Vec::new(), |node| node.inspect().level_places(region.id))
            };
            let members = std::iter::once(region.primary).chain(region.backups());
            let others = members.map(|member| member.0 as usize);
            let others: Vec<_> = others.filter(|member| *member != server).map(of).collect();
            let held = |number: SegmentNumber| {
                let mut others = others.iter();
                others.all(|other| other.iter().any(|(there, _, _)| *there == number))
            };
            let own = of(server).into_iter();
            shared.extend(own.filter(|(number, _, _)| held(*number)));
        }
        if shared.is_empty() {
            return;
        }
        for _ in 0..bits {
            let (_, place, len) = random.pick(&shared);
            let at = place.start() + random.below(len as usize) as u64;
            let bit = u32::try_from(random.below(8)).expect("of a byte");
            self.servers[server].device.flip_bit(at, bit);
        }
        self.coverage.add(LEVELS_DAMAGED, bits as u64);
    }

    /// Has a server read all that it has. Returns what is damaged.
    pub(crate) fn look_through(&mut self, server: usize) -> Vec<String> {
        let Some(up) = self.up(server) else {
            return Vec::new();
        };
        let regions = self.map.regions().iter();
        let found = regions.flat_map(|region| up.node.inspect().look_through(region.id));
        found.map(|damage| damage.to_string()).collect()
    }

    /// Ends the process of a server, if there is one, and gives the machine an empty device of the same
    /// size. Its memory is lost. Returns which process it was.
    pub(crate) fn replace_device(&mut self, server: usize, random: &mut Random) -> Option<u32> {
        let up = self.take_down(server);
        count_device(&self.servers[server].device, &mut self.coverage);
        self.world.cut_power(id(server));
        self.world.forget_incarnation(id(server));
        let machine = &mut self.servers[server];
        machine.windows.forget();
        machine.whole.clear();
        machine.device = Arc::new(empty(machine.device.len(), random));
        machine.new_device = false;
        self.coverage.add("devices replaced", 1);
        up.map(|up| up.session)
    }

    /// An operator says that the device of a server takes the place of the one that the map names. Whether
    /// the server would have started on it before, which is wrong.
    pub(crate) fn allow_new_device(&mut self, server: usize) -> bool {
        let taken = self.own(server).is_ok();
        self.servers[server].new_device = true;
        taken
    }

    /// Whether a server may start on the device that it has; if so, the map names that one.
    pub(super) fn own(&mut self, server: usize) -> Result<(), String> {
        // What is written follows the map as it is now.
        drop(self.observe());
        let machine = &mut self.servers[server];
        let superblock = Store::inspect(&*machine.device).map_err(|error| error.to_string())?;
        let found = DeviceId(superblock.superblock.device_id);
        let known = self.map.device(id(server));
        let told = machine.new_device && known != Some(found);
        let decided = ownership::decide(id(server), known, FoundDevice::Device(found), told);
        match decided {
            Ok(_) => {}
            Err(_) if self.starts.node.mutants.take_any_device() => {}
            Err(refusal) => return Err(refusal.to_string()),
        }
        if known != Some(found) {
            self.map = self.map.clone().with_device(id(server), found);
            self.write_map();
        }
        Ok(())
    }

    /// Counts what was noticed of the damage on a device.
    pub(crate) fn count_noticed(&mut self, server: usize) {
        let Some(up) = self.up(server) else {
            return;
        };
        let regions = self.map.regions().iter();
        let closed = regions.filter(|region| up.node.inspect().copy_state(region.id).is_err());
        let (closed, scrubbed) = (
            closed.count(),
            up.node.reports().scrub_status().damages.len(),
        );
        self.coverage.add(CLOSED, closed as u64);
        self.coverage
            .add("damages found by scrubs", scrubbed as u64);
    }

    // --- Manifests that are spoilt ---

    /// Kills the process of a server, and flips bits of the manifests of all its copies. Returns which it was.
    pub(crate) fn spoil(&mut self, server: usize, random: &mut Random) -> Option<u32> {
        let session = self.kill(server);
        let machine = &mut self.servers[server];
        let Ok(dump) = Store::inspect(&*machine.device) else {
            return session;
        };
        for entry in dump
            .regions
            .iter()
            .filter(|entry| kind_of(entry) == EntryKind::Region)
        {
            let first = entry.manifest[0].start();
            // The blocks in which a manifest begins, and its checkpoint.
            for block in 0..3 {
                let at = first + block * BLOCK_SIZE as u64 + random.below(40) as u64;
                let bit = u32::try_from(random.below(8)).expect("of a byte");
                machine.device.flip_bit(at, bit);
                machine.spoilt.push(Spoilt {
                    region: entry.region,
                    generation: entry.words[0],
                    at,
                    bit,
                });
            }
        }
        self.coverage.add("manifests that were spoilt", 1);
        session
    }

    /// Kills the process of a server, and flips the bits back that [`spoil`](Self::spoil) has flipped, of copies that
    /// the server still has as they were. Returns which it was; `None` where nothing is spoilt.
    pub(crate) fn unspoil(&mut self, server: usize) -> Option<u32> {
        if self.servers[server].spoilt.is_empty() {
            return None;
        }
        let session = self.kill(server);
        let machine = &mut self.servers[server];
        let spoilt = std::mem::take(&mut machine.spoilt);
        let regions = match Store::inspect(&*machine.device) {
            Ok(dump) => dump.regions,
            Err(_) => return session,
        };
        for Spoilt {
            region,
            generation,
            at,
            bit,
        } in spoilt
        {
            let mut regions = regions.iter();
            if regions.any(|entry| entry.region == region && entry.words[0] == generation) {
                machine.device.flip_bit(at, bit);
            }
        }
        session
    }

    // --- Failures ---

    /// Has a request of a device fail, after so many more of its kind; at most once for each process.
    pub(crate) fn fail_device(&self, server: usize, op: OpKind, count: u64) {
        self.servers[server].device.fail_after(op, count);
    }

    /// Has a device find no room beneath for what is not stored there, or some again.
    pub(crate) fn set_full(&mut self, server: usize, full: bool) {
        let device = &self.servers[server].device;
        device.set_full(full);
        device.set_room_beneath(full.then_some(0));
        self.coverage
            .add("devices without room beneath", u64::from(full));
    }

    /// The write or sync of a device that failed.
    #[must_use]
    pub(crate) fn failure(&self, server: usize) -> Option<DeviceError> {
        self.servers[server].device.failure()
    }

    /// Whether a region of a server could not be opened for want of room.
    #[must_use]
    pub(crate) fn found_no_room_to_open(&self, server: usize) -> bool {
        let Some(up) = self.up(server) else {
            return false;
        };
        let mut regions = self.map.regions().iter();
        regions.any(|region| match up.node.inspect().copy_state(region.id) {
            Err(why) => why.to_string().contains("no storage space"),
            Ok(_) => false,
        })
    }

    /// Ends the process of a server whose device has failed. Where `loses`, what was not synced is lost as
    /// with the power, but windows are not. Returns which it was.
    pub(crate) fn end_failed(&mut self, server: usize, loses: bool) -> Option<u32> {
        if let Some(DeviceError::Io { op, .. }) = self.failure(server) {
            self.coverage.add(name_of(op), 1);
            let alone = self.map.replication() == Replication::None;
            let name = if alone {
                "devices that failed, alone"
            } else {
                "devices that failed"
            };
            self.coverage.add(name, 1);
        }
        let up = self.take_down(server)?;
        let kind = if loses { Crash::PowerLoss } else { Crash::Kill };
        self.crash(server, kind);
        Some(up.session)
    }

    // --- Devices that take their time ---

    /// Has a device do nothing, or go on.
    pub(crate) fn set_stalled(&mut self, server: usize, stalled: bool) {
        self.servers[server].stalled = stalled;
        self.coverage.add("stalls", u64::from(stalled));
    }

    /// Has a device go on in so many of 100 moments.
    pub(crate) fn set_pace(&mut self, server: usize, percent: usize) {
        self.servers[server].pace = percent;
        self.coverage.add("slow devices", u64::from(percent < 100));
    }

    /// In how many of 100 moments a device goes on.
    #[must_use]
    pub(crate) fn pace(&self, server: usize) -> usize {
        self.servers[server].pace
    }

    /// Has a device complete up to `requests`. Returns whether some are left.
    pub(crate) fn run_device(&self, server: usize, requests: usize) -> bool {
        let machine = &self.servers[server];
        if !machine.stalled {
            (0..requests)
                .take_while(|_| machine.device.run_one())
                .for_each(drop);
        }
        machine.device.in_flight() > 0 && !machine.stalled
    }

    // --- Processes and links ---

    /// Has a process do nothing, or go on: first with the step in which it was stopped, if it was.
    pub(crate) fn set_stopped(&mut self, server: usize, stopped: bool) {
        let (now, own) = (self.clock.now(), self.server_now(server));
        let Some(up) = &mut self.servers[server].up else {
            return;
        };
        up.halts_after = None;
        if matches!(up.doing, Doing::Steps) != stopped {
            return;
        }
        up.since = now;
        self.coverage.add("stops", u64::from(stopped));
        if stopped {
            up.doing = Doing::Nothing;
            self.world.stop(id(server));
            return;
        }
        self.world.resume(id(server));
        if let Doing::Halted(kind, step) = std::mem::replace(&mut up.doing, Doing::Steps) {
            let progress = step.go_on();
            up.parked.stepped(kind, own, &progress);
        }
    }

    /// Has a process be stopped inside a step, after so many looks at its clock.
    pub(crate) fn halt_after(&mut self, server: usize, looks: u64) {
        let up = self.servers[server].up.as_mut();
        if let Some(up) = up.filter(|up| matches!(up.doing, Doing::Steps)) {
            up.halts_after = Some(looks);
        }
    }

    /// Has a process stop as it should, if it does anything. Returns whether it does.
    pub(crate) fn leave(&mut self, server: usize) -> bool {
        let now = self.server_now(server);
        let up = self.servers[server].up.as_mut();
        let up = up.filter(|up| matches!(up.doing, Doing::Steps));
        let attending = up.and_then(|up| up.attending.as_mut());
        attending.map(|attending| attending.leave(now)).is_some()
    }

    /// How far a process is with that, if it does.
    pub(crate) fn leaving(&self, server: usize) -> Option<&Leaving> {
        self.up(server)?.attending.as_ref()?.leaving.as_ref()
    }

    /// Cuts a link in one direction, or heals it.
    pub(crate) fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        if cut {
            self.world.cut(id(from), id(to));
            self.coverage.add("cuts", 1);
        } else {
            self.world.heal(id(from), id(to));
        }
    }
}

/// A device of `bytes` with an empty store.
pub(super) fn empty(bytes: u64, random: &mut Random) -> MemoryDevice {
    let device = MemoryDevice::eager(bytes, random.next());
    let options = FormatOptions {
        device_id: random.next().into(),
        ..FormatOptions::default()
    };
    Store::format(&device, &options).expect("a new device takes a store");
    device.lazy()
}
