//! Devices that are damaged and replaced, as `damaging.rs` says.

use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_device::{Device, FormatOptions, MemoryDevice, Store};

use super::{Cluster, id};
use crate::damaging::Damage;
use crate::random::Random;

/// Copies that cannot be used.
const CLOSED: &str = "copies that damage closed";
/// Servers that do not start.
pub(crate) const REFUSED: &str = "starts refused for damage";

impl Cluster {
    /// Damages the device of a server, or has it do so itself at a later write.
    pub fn damage(&mut self, server: usize, damage: Damage, random: &mut Random) {
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
        }
    }

    /// Ends the process of a server, if there is one, and gives the machine an empty device of the same
    /// size. Its memory is lost. Returns which process it was.
    pub fn replace_device(&mut self, server: usize, random: &mut Random) -> Option<u32> {
        let up = self.take_down(server);
        self.count_device(server);
        self.world.cut_power(id(server));
        self.world.forget_incarnation(id(server));
        let machine = &mut self.servers[server];
        machine.windows.forget();
        machine.device = Arc::new(empty(machine.device.len(), random));
        self.coverage.add("devices replaced", 1);
        up.map(|up| up.session)
    }

    /// Counts what was noticed of the damage on a device.
    pub fn count_noticed(&mut self, server: usize) {
        let Some(up) = self.up(server) else {
            return;
        };
        let regions = self.map.regions().iter();
        let closed = regions.filter(|region| up.node.copy_state(region.id).is_err());
        let (closed, scrubbed) = (closed.count(), up.node.scrub_status().damages.len());
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
