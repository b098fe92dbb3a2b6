//! The cluster that is started for one system under test.

use argosy_bench::driver::Route;
use argosy_bench::run::{ServerHandle, TestedCluster};

use super::{Bench, System};
use crate::cluster::layout::{Replication, Shape, Split};
use crate::cluster::{Cluster, Spec};
use crate::config::{MemorySection, StorageSection};

impl Bench {
    pub(super) fn shape(&self, system: &System) -> Shape {
        let replication = system.replication;
        Shape {
            servers: Some(self.servers),
            replicas: match replication {
                Replication::None => None,
                _ => self.replicas,
            },
            regions: self.regions,
            replication: Some(replication),
            primaries: Some(self.layout),
            addresses: Some(system.addresses),
        }
    }

    pub(super) fn spec(&self, system: &System) -> Spec {
        Spec {
            shape: self.shape(system),
            split: Split::Hex,
            data_dir: None,
            scratch_root: self.root(),
            memory: MemorySection { limit: self.memory },
            storage: StorageSection {
                device_bytes: self.device_bytes,
                l0_bytes: self.l0_bytes(),
                l0_per_replica: self.l0_per_replica,
                placement: system.placement,
                growth_factor: self.growth_factor,
                medium_log_percent: self.medium_log_percent(),
                compaction: system.compaction,
                node_bytes: self.node_bytes,
                large_bytes: self.large_bytes,
                ..StorageSection::default()
            },
            new_devices: Vec::new(),
            discard_windows: false,
        }
    }
}

/// The servers of `cluster`, and who is primary of which keys.
pub(super) fn target_of(cluster: &Cluster) -> TestedCluster {
    let small = |id: usize| u32::try_from(id).expect("servers are few");
    TestedCluster {
        servers: cluster
            .members
            .iter()
            .map(|member| ServerHandle {
                id: small(member.id),
                pid: member.child.pid(),
                resp: member.ports.resp,
            })
            .collect(),
        routes: cluster
            .map
            .regions()
            .iter()
            .map(|region| Route {
                start: region.range.from.clone(),
                server: usize::try_from(region.primary.0).expect("servers are few"),
            })
            .collect(),
    }
}
