//! Devices that fail, as `failing.rs` says.

use argosy_coordinator::Replication;
use argosy_device::{Crash, Device, DeviceError, OpKind};

use super::Cluster;
use crate::failing::name_of;

impl Cluster {
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
}
