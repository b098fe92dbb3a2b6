//! Manifests that cannot be read for a while, as `spoiling.rs` says.

use argosy_base::RegionId;
use argosy_base::limits::BLOCK_SIZE;
use argosy_device::Store;
use argosy_engine::catalog::{EntryKind, kind_of};

use super::Cluster;
use crate::random::Random;

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
}
