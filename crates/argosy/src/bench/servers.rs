//! The cluster that is started for one system under test.

use argosy_bench::driver::Route;
use argosy_bench::run::{ServerHandle, TestedCluster};

use crate::cluster::Cluster;

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
