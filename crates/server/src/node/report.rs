//! Gathers the [status](crate::report::status) of a node.

use std::sync::Arc;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{EditSeq, Lsn};
use argosy_engine::stats::{LevelStats, LogStats, Stats};
use argosy_replication::Primary;

use super::context::Context;
use super::gate::Gate;
use super::holdings::{self, Holding};
use super::primary::PrimaryDriver;
use super::region::{Driver, Region, engine_of};
use super::snapshots::pinned_bytes;
use super::{scrubbing, snapshots};
use crate::activity::{Activity, Place};
use crate::report::gather::{CLIENTS, REASONS, reason_name};
use crate::report::status::{
    BackupStatus, CacheKind, CacheStatus, ClusterStatus, CompactionStatus, DeviceIo, DeviceSpace,
    DeviceStatus, EngineStatus, FilterStatus, GcStatus, GroupStatus, KeyStatus, LevelStatus,
    LinkStatus, LogStatus, MediumLogStatus, MemoryPart, MemoryStatus, MemtableStatus, PeerStatus,
    PositionStatus, ProcessStatus, RegionStatus, ReplicationStatus, ResourceStatus, RoleStatus,
    SCHEMA, ScrubStatus, SentStatus, ServerStatus, SnapshotStatus, StallStatus, Status,
    TrafficStatus, WaitingStatus, WorkStatus,
};

/// What a node tells of itself.
#[derive(Clone, Copy)]
pub struct Reports<'a> {
    pub(super) context: Context<'a>,
}

impl Reports<'_> {
    /// What is held of everything that could grow without end. Adds up over all regions and links.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        holdings::holdings(&self.context)
    }

    /// What scrubbing has done, over all regions.
    #[must_use]
    pub fn scrub_status(&self) -> ScrubStatus {
        scrubbing::status(&self.context)
    }

    /// Everything but what front ends know.
    pub(crate) fn status(&self, process: ProcessStatus) -> Status {
        self.context.world.ledger.settle_now();
        let regions: Vec<_> = self.copies().map(|r| self.region_status(r)).collect();
        let ready = self.ready();
        Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            server: ServerStatus {
                id: self.context.id.0,
                incarnation: self.context.world.store.incarnation().get(),
                uptime_seconds: self
                    .context
                    .world
                    .clock
                    .now()
                    .since(self.context.telling.opened())
                    .as_secs_f64(),
                ready: ready.reads.is_none(),
                waits_for: ready.reads,
                ready_for_writes: ready.writes.is_none(),
                writes_wait_for: ready.writes,
                degraded: ready.degraded,
                background_pending: self.background_pending(),
            },
            cluster: self.cluster_status(),
            resources: ResourceStatus {
                process,
                work: self.work_status(&regions),
                memory: self.memory_status(),
                device: self.device_status(),
                scrub: self.scrub_status(),
            },
            traffic: TrafficStatus {
                links: self.link_status(),
                transports: Vec::new(),
                native: None,
            },
            regions,
            replication: self.replication_status(),
            snapshots: self.snapshot_status(),
        }
    }

    fn cluster_status(&self) -> ClusterStatus {
        let map = self.context.views.map();
        let servers = map.servers().iter();
        ClusterStatus {
            id: map.cluster().to_string(),
            replication: map.replication().name(),
            servers: servers
                .map(|server| PeerStatus {
                    id: server.id.0,
                    resp: server.resp.clone(),
                    admin: server.admin.clone(),
                })
                .collect(),
            regions: map.regions().len(),
        }
    }

    fn work_status(&self, regions: &[RegionStatus]) -> Vec<WorkStatus> {
        let ledger = &self.context.world.ledger;
        let of_regions = regions.iter().zip(self.copies());
        let places = of_regions
            .map(|(status, region)| (region.place(), Some(status.group.id), status.role.role));
        let everywhere = places.chain([(Place::NONE, None, "none")]);
        everywhere
            // A ledger that knows no regions charges all of them to no place.
            .filter(|(place, region, _)| region.is_none() || *place != Place::NONE)
            .flat_map(|(place, region, role)| {
                Activity::ALL.map(|activity| {
                    let used = ledger.used(place, activity);
                    WorkStatus {
                        region,
                        role,
                        activity: activity.name(),
                        cpu_seconds_total: std::time::Duration::from_nanos(used.cpu_nanos)
                            .as_secs_f64(),
                        device_read_bytes_total: used.read_bytes,
                        device_write_bytes_total: used.write_bytes,
                    }
                })
            })
            .collect()
    }

    fn memory_status(&self) -> MemoryStatus {
        let limits = &self.context.settings.memory;
        let limits = self.context.memory.division(limits);
        let cache = self.context.memory.cache_stats();
        let taken = self.context.memory.taken(&self.context);
        let part = |component, limit: usize, bytes: u64| MemoryPart {
            component,
            limit_bytes: limit as u64,
            bytes,
        };
        let components = vec![
            part("memtables", limits.memtables, taken.memtables as u64),
            part("windows", limits.windows, taken.windows as u64),
            part("links", limits.links, taken.links as u64),
            part(CLIENTS, limits.clients, 0),
            part("native", limits.native, taken.native as u64),
            part("answers", limits.answers, taken.answers as u64),
            part("buffers", limits.buffers, taken.buffers as u64),
            part("cache", limits.cache, taken.cache as u64),
        ];
        let kind = |kind, hits_total, misses_total| CacheKind {
            kind,
            hits_total,
            misses_total,
        };
        MemoryStatus {
            limit_bytes: limits.limit() as u64,
            bytes: components.iter().map(|part| part.bytes).sum(),
            components,
            cache: CacheStatus {
                pinned_bytes: cache.pinned_bytes,
                pins_refused_total: cache.pins_refused,
                kinds: vec![
                    kind("leaf", cache.leaf.hits, cache.leaf.misses),
                    kind("index", cache.reader.hits, cache.reader.misses),
                    kind("value", cache.value.hits, cache.value.misses),
                ],
            },
        }
    }

    fn device_status(&self) -> DeviceStatus {
        let store = &self.context.world.store;
        let (room, counters) = (store.room(), store.device().counters());
        let bytes = |segments: u32| u64::from(segments) * SEGMENT_SIZE as u64;
        DeviceStatus {
            space: DeviceSpace {
                bytes: store.device().len(),
                used_bytes: bytes(store.used()),
                free_bytes: bytes(room.free),
                reserve_bytes: bytes(room.reserve),
            },
            full: room.is_full(),
            failed: store.failure().is_some(),
            io: DeviceIo {
                read_bytes_total: counters.read_bytes,
                write_bytes_total: counters.write_bytes,
                syncs_total: counters.syncs,
                io: store.device().io_method().name(),
                ring_reads_total: counters.ring_reads,
                fixed_reads_total: counters.fixed_reads,
                discards_total: counters.discards,
            },
        }
    }

    fn link_status(&self) -> Vec<LinkStatus> {
        let mut logs = std::collections::BTreeMap::<_, u64>::new();
        for region in self.context.regions.iter() {
            if let Driver::Primary(driver) = &*region.driver() {
                for (member, bytes) in driver.log_bytes() {
                    *logs.entry(member).or_default() += bytes;
                }
            }
        }
        let now = self.context.now();
        let status = |peer| {
            let link = self.context.link(peer);
            let sent = link.sent();
            let kinds = [
                ("log", logs.get(&peer).copied().unwrap_or(0)),
                ("segments", sent.segments),
                ("fetched", sent.fetched),
                ("edits", sent.edits),
                ("calls", sent.calls),
                ("control", sent.control()),
            ];
            LinkStatus {
                peer: peer.0,
                open: link.is_open(),
                silent: link.is_silent(now),
                sent_bytes_total: kinds.map(|(kind, bytes)| SentStatus { kind, bytes }).into(),
                longest_message_bytes: sent.longest,
            }
        };
        self.context.links.peers().map(status).collect()
    }

    fn snapshot_status(&self) -> SnapshotStatus {
        let counts = snapshots::counts(&self.context);
        SnapshotStatus {
            open: counts.open,
            oldest_seconds: counts.oldest.as_secs_f64(),
            device_bytes: pinned_bytes(counts.pinned),
            memory_bytes: counts.pinned.memtable_bytes as u64,
        }
    }

    fn replication_status(&self) -> ReplicationStatus {
        let counts = self.context.telling.counters().counts();
        ReplicationStatus {
            segments_shipped_total: counts.shipments,
            catch_up_bytes_total: counts.catch_up_bytes,
            rewritten_segments_total: counts.rewritten.segments,
            rewritten_bytes_total: counts.rewritten.bytes,
            rewritten_pointers_total: counts.rewritten.pointers,
            offers_total: counts.offers,
            adoptions_total: counts.adoptions,
            cut_promotions_total: counts.promotions.of_cut_copies,
            cut_records_total: counts.promotions.cut_records,
            links_lost_total: counts.links_lost,
        }
    }

    /// The regions of which there is a copy here.
    fn copies(&self) -> impl Iterator<Item = &Arc<Region>> {
        let regions = self.context.regions.iter();
        regions.filter(|region| region.has_copy())
    }

    fn region_status(&self, region: &Region) -> RegionStatus {
        let engine = engine_of(region);
        let stats = engine.as_ref().map(|engine| engine.stats());
        let described = self.describe_copy(region, stats.as_ref());
        let view = region.view();
        let engine_status = engine
            .as_ref()
            .zip(stats)
            .map(|(engine, stats)| engine_status(&stats, engine.durable_lsn(), region));
        RegionStatus {
            group: GroupStatus {
                id: region.id().0,
                from: KeyStatus::of(&region.range().from),
                to: region.range().to.as_deref().map(KeyStatus::of),
                epoch: view.epoch.0,
                primary: view.primary.0,
                members: view.members().iter().map(|id| id.0).collect(),
            },
            engine: engine_status,
            ..described
        }
    }

    /// Role, state, where the copy stands, and what it consists of.
    fn describe_copy(&self, region: &Region, stats: Option<&Stats>) -> RegionStatus {
        let engine = engine_of(region);
        let mut status = nothing();
        match &*region.driver() {
            Driver::Primary(driver) => {
                let (state, why) = primary_state(driver, region, &self.context);
                (status.role.role, status.role.state, status.role.waits_for) =
                    ("primary", state, why);
                status.at.edit = driver.edit().0;
                if let (Some(engine), Some(stats)) = (&engine, stats) {
                    status.at.commit_lsn = Gate::committed(engine).0;
                    status.at.last_lsn = engine.last_lsn().0;
                    status.at.digest = digest(engine.stored().digest());
                    status.levels = stats.levels.iter().map(level_status).collect();
                    status.logs = stats.logs.iter().map(log_status).collect();
                }
                let last = Lsn(status.at.last_lsn);
                status.backups = backups(driver.machine(), last, driver.edit());
            }
            Driver::Backup(copy) => {
                let at = copy.position();
                let stored = copy.replica().stored();
                status.role.role = "backup";
                status.role.state = copy.failed().map_or("following", |_| "failed");
                status.role.waits_for = copy.failed().map(str::to_owned);
                (status.at.commit_lsn, status.at.last_lsn) = (at.lsn.0, at.lsn.0);
                status.at.edit = at.edit.0;
                status.at.digest = digest(stored.digest());
                status.levels = stored.levels().iter().map(level_status).collect();
                status.logs = stored.logs().iter().map(log_status).collect();
            }
            Driver::AtDevice(what) => {
                (status.role.role, status.role.state) = self.context.at_device(region);
                status.role.waits_for = Some((*what).into());
            }
            Driver::Failed(copy) => status.role.waits_for = Some(copy.why.clone()),
            Driver::Absent => {}
        }
        status
    }
}

/// The state of a region's primary, and why it is not `serving`.
pub(super) fn primary_state(
    driver: &PrimaryDriver,
    region: &Region,
    context: &Context<'_>,
) -> (&'static str, Option<String>) {
    let lacks = driver.lacks(context);
    let lacks = lacks.or_else(|| driver.lacks_copies(context));
    let state = match &lacks {
        _ if driver.failed().is_some() || region.failure().is_some() => "failed",
        None => "serving",
        Some(_) if driver.is_serving() => "degraded",
        Some(_) => "opening",
    };
    let closed = |error| format!("its engine takes no more writes: {error}");
    let why = lacks.or_else(|| region.failure().map(closed));
    (state, why)
}

/// What is told of a copy of which nothing is known.
fn nothing() -> RegionStatus {
    RegionStatus {
        group: GroupStatus {
            id: 0,
            from: KeyStatus::of(b""),
            to: None,
            epoch: 0,
            primary: 0,
            members: Vec::new(),
        },
        role: RoleStatus {
            role: "member",
            state: "failed",
            waits_for: None,
        },
        at: PositionStatus {
            commit_lsn: 0,
            last_lsn: 0,
            edit: 0,
            digest: digest(0),
        },
        backups: Vec::new(),
        levels: Vec::new(),
        logs: Vec::new(),
        engine: None,
    }
}

fn digest(digest: u64) -> String {
    format!("{digest:016x}")
}

fn backups(machine: &Primary, last: Lsn, edit: EditSeq) -> Vec<BackupStatus> {
    let members = machine.members();
    members
        .map(|member| BackupStatus {
            server: member.id.0,
            state: member.state,
            lsn: member.held.0,
            lsn_lag: last.0.saturating_sub(member.held.0),
            edit: member.applied.0,
            edit_lag: edit_lag(edit, member.applied),
        })
        .collect()
}

/// How many edits lie between `applied` and `edit`. Behind a cut that a member lacks nobody knows how many: those since
/// the cut count.
fn edit_lag(edit: EditSeq, applied: EditSeq) -> u64 {
    match edit.cut_epoch() == applied.cut_epoch() {
        true => edit.0.saturating_sub(applied.0),
        false => edit.count().into(),
    }
}

fn level_status(level: &LevelStats) -> LevelStatus {
    LevelStatus {
        level: level.level,
        runs: level.runs,
        segments: level.segments,
        bytes: level.bytes,
        entries: level.entries,
    }
}

fn log_status(log: &LogStats) -> LogStatus {
    LogStatus {
        log: log.name,
        segments: log.segments,
        bytes: log.bytes,
        dead_bytes: log.dead_bytes,
    }
}

fn engine_status(stats: &Stats, durable: Lsn, region: &Region) -> EngineStatus {
    let (answers, writes, busy) = {
        let waiting = region.waiting();
        let writes = waiting.queued();
        (waiting.len() - writes, writes, waiting.busy)
    };
    let counts = [
        stats.busy.windows,
        stats.busy.memtable,
        stats.busy.debt,
        stats.busy.space,
        stats.busy.device,
        stats.busy.bulk_load,
    ];
    let stalls = REASONS.into_iter().zip(counts);
    EngineStatus {
        memtables: MemtableStatus {
            memtable_bytes: stats.memtables.bytes,
            memtable_entries: stats.memtables.entries,
            memtables_frozen: stats.memtables.frozen,
        },
        durable_lsn: durable.0,
        compactions: CompactionStatus {
            compaction_debt_bytes: stats.work.debt_bytes,
            flushes_total: stats.work.flushes,
            compactions_total: stats.work.compactions,
            moves_total: stats.work.moves,
            compaction_read_bytes_total: stats.work.read_bytes,
            compaction_write_bytes_total: stats.work.write_bytes,
        },
        log_write_bytes_total: stats.log_work.write_bytes,
        recovery_cut_records: stats.log_work.cut_records,
        allocated_bytes: stats.space.allocated_bytes,
        live_bytes: stats.space.live_bytes,
        medium_log: MediumLogStatus {
            medium_log_segments: stats.medium.log_segments,
            medium_log_refs_bytes: stats.medium.log_refs,
            medium_written_total: stats.medium.written,
            medium_placed_total: stats.medium.placed,
            medium_freed_segments_total: stats.medium.freed,
        },
        gc: GcStatus {
            gc_debt_bytes: stats.gc.debt_bytes,
            gc_segments_total: stats.gc.segments,
            gc_read_bytes_total: stats.gc.read_bytes,
            gc_moved_bytes_total: stats.gc.moved_bytes,
            gc_lost_total: stats.gc.lost,
        },
        edits_total: stats.work.edits,
        filters: FilterStatus {
            filter_spared_total: stats.filters.spared,
            filter_misled_total: stats.filters.misled,
            filter_bytes: stats.filters.bytes,
        },
        waiting: WaitingStatus {
            answers_waiting: answers,
            writes_waiting: writes,
            writes_wait_for: busy.filter(|_| writes > 0).map(reason_name),
            write_stalls_total: stalls
                .map(|(reason, count)| StallStatus { reason, count })
                .collect(),
        },
    }
}
