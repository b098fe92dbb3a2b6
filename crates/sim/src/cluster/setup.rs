//! What a run begins with: machines, the region map, and what nodes are told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::RegionId;
use argosy_coordinator::{ClusterId, ClusterMap, Region, Replication};
use argosy_server::node::{LeaseSettings, LinkSettings, MemoryParts, NodeSettings};

use super::{SEGMENTS, Server, harm, id};
use crate::clock::SimClock;
use crate::engine::Chosen;
use crate::many;
use crate::objects::Objects;
use crate::plan::{Plan, WorldKind};
use crate::planted::Mutants;
use crate::random::Random;
use crate::windows::MachineWindows;

/// Memory for memtables: more than a run can fill.
const MEMTABLE_BYTES: usize = 256 << 20;

/// How processes are started, and stepped.
pub(super) struct StartSettings {
    pub(super) node: NodeSettings,
    /// What a read costs whoever waits for it.
    pub(super) read_cost: Duration,
    /// Segments that each server keeps from writers.
    pub(super) reserves: Vec<u32>,
    /// Threads that wait are stepped when they would be woken, and at no other time.
    pub(super) when_due: bool,
}

impl StartSettings {
    pub(super) fn new(node: NodeSettings, plan: &Plan) -> Self {
        let small = plan.devices.small.as_ref();
        Self {
            node,
            read_cost: plan.devices.read_cost,
            reserves: small
                .map_or_else(|| vec![0; plan.servers()], |small| small.reserves.to_vec()),
            when_due: plan.when_due,
        }
    }
}

/// What a node is told once.
pub(super) fn node_settings(plan: &Plan, mutants: Mutants, engine: Chosen) -> NodeSettings {
    let slot_bytes = engine.lsm.layout.segment_bytes;
    let link = LinkSettings {
        ring_bytes: plan.links.ring_bytes,
        slot_bytes,
        part_bytes: plan.links.part_bytes,
    };
    let changes = plan.groups.changes.as_ref();
    NodeSettings {
        engine: engine.settings(),
        link,
        memory: MemoryParts {
            answers: MemoryParts::answers_of(0),
            // No snapshot has to end for want of memory.
            memtables: MEMTABLE_BYTES,
            awake: plan.devices.awake,
            ..MemoryParts::default()
        },
        deadline: plan.load.deadline,
        failover_wait: plan.load.failover_wait,
        remove_after: changes.map_or(Duration::from_secs(1), |of| of.remove_after),
        leases: changes.map(|of| LeaseSettings {
            mutants: mutants.leases,
            ..of.leases
        }),
        scrub: plan.chores.scrub,
        sweep: plan.chores.sweep,
        mutants: mutants.node,
        replication_mutants: mutants.replication,
    }
}

/// Machines with formatted devices, all down.
pub(super) fn machines(
    plan: &Plan,
    mutants: Mutants,
    clock: &Arc<SimClock>,
    random: &mut Random,
) -> Vec<Server> {
    let machine = |server| {
        let segment = argosy_base::limits::SEGMENT_SIZE as u64;
        let small = plan.devices.small.as_ref();
        let segments = small.and_then(|small| small.segments[server]);
        let usual = plan
            .devices
            .many
            .map_or(SEGMENTS, |_| many::DEVICE_SEGMENTS);
        let bytes = segments.unwrap_or(usual) * segment;
        Server {
            device: Arc::new(harm::empty(bytes, random)),
            windows: MachineWindows::new(
                plan.devices.window_files,
                mutants.world.believe_every_boot(),
            ),
            clock: Arc::new(plan.clock(server, Arc::clone(clock))),
            new_device: false,
            spoilt: Vec::new(),
            stalled: false,
            pace: 100,
            up: None,
            whole: BTreeSet::new(),
        }
    };
    (0..plan.servers()).map(machine).collect()
}

/// The first region map.
pub(super) fn map(plan: &Plan, objects: &Objects) -> ClusterMap {
    let replicated = plan.kind == WorldKind::Replicated;
    let server = |server: usize| argosy_coordinator::Server {
        id: id(server),
        resp: String::new(),
        admin: String::new(),
    };
    let region = |(index, range): (usize, argosy_base::KeyRange)| {
        // Few may be awake only where one server is primary of all: otherwise each has its own.
        let primary = id(match plan.devices.awake {
            0 => index % plan.servers(),
            _ => 0,
        });
        let members = match replicated {
            true => {
                let copies = 0..plan.copies();
                let first = if plan.groups.changes.is_some() {
                    index
                } else {
                    0
                };
                copies
                    .map(|copy| id((first + copy) % plan.servers()))
                    .collect()
            }
            false => vec![primary],
        };
        let name = RegionId(u32::try_from(index + 1).expect("a handful of regions"));
        Region::first(name, range, primary, members)
    };
    let regions = objects
        .region_ranges()
        .into_iter()
        .enumerate()
        .map(region)
        .collect();
    let replication = if replicated {
        if plan.groups.builds {
            Replication::BuildIndex
        } else {
            Replication::SendIndex
        }
    } else {
        Replication::None
    };
    let servers = (0..plan.servers()).map(server).collect();
    let map = ClusterMap::new(ClusterId(1), replication, servers, regions);
    map.expect("a valid map")
        .with_addresses(plan.engine.layout.addresses)
        .with_durability(plan.groups.durability)
}
