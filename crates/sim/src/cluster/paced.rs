//! Devices that do nothing for a while, or take their time, as `slow.rs` says.

use super::Cluster;

impl Cluster {
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
}
