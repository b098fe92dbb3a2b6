//! Devices that are damaged and replaced, as `damaging.rs` says.

use std::sync::Arc;

use argosy_base::SegmentNumber;
use argosy_base::limits::BLOCK_SIZE;
use argosy_coordinator::{DeviceId, Replication};
use argosy_device::{Device, FormatOptions, MemoryDevice, Store};
use argosy_log::segment::WINDOW_HEADER_BYTES;
use argosy_server::node::is_log_window;
use argosy_server::ownership::{self, FoundDevice};

use super::{Cluster, id};
use crate::coverage::WINDOWS_DAMAGED;
use crate::damaging::Damage;
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

impl Cluster {
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
        self.count_device(server);
        self.world.cut_power(id(server));
        self.world.forget_incarnation(id(server));
        let machine = &mut self.servers[server];
        machine.windows.forget();
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
        let machine = &mut self.servers[server];
        let superblock = Store::inspect(&*machine.device).map_err(|error| error.to_string())?;
        let found = DeviceId(superblock.superblock.device_id);
        let known = self.map.device(id(server));
        let told = machine.new_device && known != Some(found);
        let decided = ownership::decide(id(server), known, FoundDevice::Device(found), told);
        match decided {
            Ok(_) => {}
            Err(_) if self.settings.mutants.take_any_device() => {}
            Err(refusal) => return Err(refusal.to_string()),
        }
        self.map = self.map.clone().with_device(id(server), found);
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
