//! `/metrics`: the status of the whole server, as Prometheus wants it.
//!
//! Names begin with `argosy_`, units are base units, counters end in `_total`, and sums over labels
//! make sense. No label has more values than there are servers, commands or levels; what is told
//! for each region stands on a page of its own (`region_metrics`), since there may be thousands.

use argosy_base::SEGMENT_SIZE;

use super::device_metrics::{device, recovery};
use super::families::{Families, float};
use super::status::{RegionStatus, Status};
use crate::activity::Activity;
use crate::meter::{BUCKETS_MICROS, Meter};

/// Roles of a server in a region, and of work that is for none.
const ROLES: [&str; 4] = ["primary", "backup", "member", "none"];

/// Roles and states that go together.
const STATES: [(&str, &str); 7] = [
    ("primary", "opening"),
    ("primary", "serving"),
    ("primary", "degraded"),
    ("primary", "failed"),
    ("backup", "following"),
    ("backup", "failed"),
    ("member", "failed"),
];

/// The page of the whole server; `transports` by name.
pub(crate) fn page(status: &Status, transports: &[(&'static str, &Meter)]) -> String {
    let mut page = Families::default();
    server(&mut page, status);
    process(&mut page, status);
    clients(&mut page, status, transports);
    native(&mut page, status);
    work(&mut page, status);
    memory(&mut page, status);
    device(&mut page, status);
    engines(&mut page, status);
    super::level_metrics::levels(&mut page, status);
    replication(&mut page, status);
    super::snapshots::families(&mut page, status);
    page.text()
}

fn server(page: &mut Families, status: &Status) {
    page.gauge("argosy_build_info", "The program; the value is 1.")
        .with(&[("version", status.version)], 1.0);
    page.gauge("argosy_uptime_seconds", "Since the server was opened.")
        .is(status.server.uptime_seconds);
    page.gauge("argosy_ready", "1 while /readyz answers 200.")
        .is(f64::from(u8::from(status.server.ready)));
    page.gauge(
        "argosy_ready_for_writes",
        "1 while /readyz?writes answers 200.",
    )
    .is(f64::from(u8::from(status.server.ready_for_writes)));
    page.gauge(
        "argosy_degraded",
        "Things that are not as they should be: a lost peer, a full device, a damaged copy. /status \
         names them.",
    )
    .count(&[], status.server.degraded.len() as u64);
    page.gauge(
        "argosy_background_pending",
        "Pieces of background work that are known to be left; 0 means drained.",
    )
    .count(&[], status.server.background_pending as u64);
}

fn process(page: &mut Families, status: &Status) {
    let process = &status.resources.process;
    page.counter(
        "process_cpu_seconds_total",
        "CPU of all threads, as the system counts it.",
    )
    .is(process.cpu_seconds_total);
    page.gauge(
        "process_resident_memory_bytes",
        "Memory that is resident, shared memory included.",
    )
    .count(&[], process.resident_bytes);
    page.gauge("process_open_fds", "Open files and sockets.")
        .count(&[], process.open_fds);
    page.gauge(
        "process_start_time_seconds",
        "When the server was started, since 1970.",
    )
    .is(process.start_time_seconds);
}

fn clients(page: &mut Families, status: &Status, transports: &[(&'static str, &Meter)]) {
    type Of = fn(&super::status::TransportStatus) -> u64;
    let counters: [(&str, &str, Of); 3] = [
        (
            "argosy_connections_total",
            "Connections accepted.",
            |transport| transport.connections_total,
        ),
        (
            "argosy_connections_refused_total",
            "Connections refused because there were too many.",
            |transport| transport.refused_total,
        ),
        (
            "argosy_connections_evicted_total",
            "Connections ended because clients together held too much memory.",
            |transport| transport.evicted_total,
        ),
    ];
    let mut open = page.gauge("argosy_connections", "Connections that are open.");
    for transport in &status.traffic.transports {
        open.count(&[("transport", transport.transport)], transport.connections);
    }
    for (name, help, of) in counters {
        let mut family = page.counter(name, help);
        for transport in &status.traffic.transports {
            family.count(&[("transport", transport.transport)], of(transport));
        }
    }
    let mut requests = page.counter(
        "argosy_requests_total",
        "Answers to clients, errors included.",
    );
    for transport in &status.traffic.transports {
        for request in &transport.requests_total {
            let labels = [
                ("transport", transport.transport),
                ("command", request.command),
                ("result", request.result),
            ];
            requests.count(&labels, request.count);
        }
    }
    let mut durations = page.histogram(
        "argosy_request_duration_seconds",
        "From reading a request to its answer, of one call in 16; sockets are not in it.",
    );
    for (transport, meter) in transports {
        for counts in meter.durations() {
            let labels = [("transport", *transport), ("op", counts.op.name())];
            durations.durations(&labels, &BUCKETS_MICROS, &counts.cumulative, counts.sum);
        }
    }
}

fn native(page: &mut Families, status: &Status) {
    let Some(native) = &status.traffic.native else {
        return;
    };
    for (name, help, count) in [
        (
            "argosy_native_garbled_total",
            "Native clients ended because what they wrote was no request.",
            native.garbled_total,
        ),
        (
            "argosy_native_tasks_total",
            "Requests that workers carried out because they needed the device.",
            native.tasks_total,
        ),
        (
            "argosy_native_queue_full_total",
            "Requests that found the workers' queue full.",
            native.queue_full_total,
        ),
    ] {
        page.counter(name, help).count(&[], count);
    }
    page.gauge(
        "argosy_native_tasks_queued",
        "Requests that wait for a worker.",
    )
    .count(&[], native.tasks_queued);
}

fn work(page: &mut Families, status: &Status) {
    type Of = fn(&super::status::WorkStatus) -> f64;
    let families: [(&str, &str, Of); 3] = [
        (
            "argosy_cpu_seconds_total",
            "CPU of the server's threads, by what it was used for and this server's role in the region.",
            |work| work.cpu_seconds_total,
        ),
        (
            "argosy_device_read_bytes_total",
            "Bytes read from the device, by what for.",
            |work| float(work.device_read_bytes_total),
        ),
        (
            "argosy_device_write_bytes_total",
            "Bytes written to the device, by what for.",
            |work| float(work.device_write_bytes_total),
        ),
    ];
    for (name, help, of) in families {
        let mut family = page.counter(name, help);
        for role in ROLES {
            for activity in Activity::ALL {
                let name = activity.name();
                let same =
                    |work: &&super::status::WorkStatus| work.role == role && work.activity == name;
                let sum = status
                    .resources
                    .work
                    .iter()
                    .filter(same)
                    .map(of)
                    .fold(0.0, |a, b| a + b);
                family.with(&[("role", role), ("activity", name)], sum);
            }
        }
    }
}

fn memory(page: &mut Families, status: &Status) {
    let memory = &status.resources.memory;
    let mut bytes = page.gauge("argosy_memory_bytes", "What each part of the budget takes.");
    for part in &memory.components {
        bytes.count(&[("component", part.component)], part.bytes);
    }
    let mut limits = page.gauge(
        "argosy_memory_limit_bytes",
        "What each part may take; the sum is memory.limit.",
    );
    for part in &memory.components {
        limits.count(&[("component", part.component)], part.limit_bytes);
    }
    let mut hits = page.counter(
        "argosy_block_cache_hits_total",
        "What was found in the cache.",
    );
    for kind in &memory.cache.kinds {
        hits.count(&[("kind", kind.kind)], kind.hits_total);
    }
    let mut misses = page.counter(
        "argosy_block_cache_misses_total",
        "What was read from the device instead.",
    );
    for kind in &memory.cache.kinds {
        misses.count(&[("kind", kind.kind)], kind.misses_total);
    }
    page.gauge(
        "argosy_block_cache_pinned_bytes",
        "Indexes and filters that stay in the cache; part of component cache.",
    )
    .count(&[], memory.cache.pinned_bytes);
    page.counter(
        "argosy_block_cache_pins_refused_total",
        "Indexes and filters that found no room to stay.",
    )
    .count(&[], memory.cache.pins_refused_total);
}

fn engines(page: &mut Families, status: &Status) {
    let sum = |of: OfEngine| sum_of(status, of);
    let mut compactions = page.counter(
        "argosy_compactions_total",
        "Memtables flushed, parts of levels merged, segments moved down as they were.",
    );
    compactions.count(
        &[("kind", "flush")],
        sum(|engine| engine.compactions.flushes_total),
    );
    compactions.count(
        &[("kind", "merge")],
        sum(|engine| engine.compactions.compactions_total),
    );
    compactions.count(
        &[("kind", "move")],
        sum(|engine| engine.compactions.moves_total),
    );
    engine_counters(page, status);
    medium_log(page, status);
    recovery(page, status);
    garbage_collection(page, status);
    engine_gauges(page, status);
    stalls(page, status);
}

pub(super) type OfEngine = fn(&super::status::EngineStatus) -> u64;

/// The sum of a number over all engines.
pub(super) fn sum_of(status: &Status, of: OfEngine) -> u64 {
    let engines = status
        .regions
        .iter()
        .filter_map(|region| region.engine.as_ref());
    engines.map(of).sum()
}

fn engine_counters(page: &mut Families, status: &Status) {
    let counters: [(&str, &str, OfEngine); 5] = [
        (
            "argosy_compaction_read_bytes_total",
            "Bytes of segments that compactions read.",
            |engine| engine.compactions.compaction_read_bytes_total,
        ),
        (
            "argosy_compaction_write_bytes_total",
            "Bytes of segments that flushes and compactions wrote.",
            |engine| engine.compactions.compaction_write_bytes_total,
        ),
        ("argosy_edits_total", "Version edits committed.", |engine| {
            engine.edits_total
        }),
        (
            "argosy_filter_useful_total",
            "Segments that a filter spared a get.",
            |engine| engine.filters.filter_spared_total,
        ),
        (
            "argosy_filter_false_positive_total",
            "Segments that a get read in vain.",
            |engine| engine.filters.filter_misled_total,
        ),
    ];
    for (name, help, of) in counters {
        page.counter(name, help).count(&[], sum_of(status, of));
    }
}

/// The medium log: what it holds, and what goes in and out.
fn medium_log(page: &mut Families, status: &Status) {
    let mut values = page.counter(
        "argosy_medium_values_total",
        "Medium values that flushes put into the medium log, and that merges put in place.",
    );
    let written = sum_of(status, |engine| engine.medium_log.medium_written_total);
    values.count(&[("to", "medium_log")], written);
    let placed = sum_of(status, |engine| engine.medium_log.medium_placed_total);
    values.count(&[("to", "leaves")], placed);
    let freed = sum_of(status, |engine| {
        engine.medium_log.medium_freed_segments_total
    });
    page.counter(
        "argosy_medium_freed_segments_total",
        "Segments of the medium log that merges freed.",
    )
    .count(&[], freed);
    let segments = sum_of(status, |engine| {
        engine.medium_log.medium_log_segments as u64
    });
    page.gauge(
        "argosy_medium_log_bytes",
        "Bytes of the medium log's segments, of the regions that are served here.",
    )
    .count(&[], segments * SEGMENT_SIZE as u64);
    let refs = sum_of(status, |engine| engine.medium_log.medium_log_refs_bytes);
    page.gauge(
        "argosy_medium_log_referenced_bytes",
        "Of these, bytes of pairs that levels point to.",
    )
    .count(&[], refs);
}

/// Dead values: what is done about them, and what space they take.
fn garbage_collection(page: &mut Families, status: &Status) {
    let counters: [(&str, &str, OfEngine); 4] = [
        (
            "argosy_vlog_gc_segments_total",
            "Segments of the large log out of which everything that lived was moved.",
            |engine| engine.gc.gc_segments_total,
        ),
        (
            "argosy_vlog_gc_read_bytes_total",
            "Bytes of the large log that garbage collection read.",
            |engine| engine.gc.gc_read_bytes_total,
        ),
        (
            "argosy_vlog_gc_moved_bytes_total",
            "Bytes of pairs that garbage collection moved out of its victims.",
            |engine| engine.gc.gc_moved_bytes_total,
        ),
        (
            "argosy_vlog_gc_lost_total",
            "Values that were not moved because their keys had been written meanwhile.",
            |engine| engine.gc.gc_lost_total,
        ),
    ];
    for (name, help, of) in counters {
        page.counter(name, help).count(&[], sum_of(status, of));
    }
    page.gauge(
        "argosy_vlog_gc_debt_bytes",
        "Bytes of the large log that no level points to, of the regions that are served here.",
    )
    .count(&[], sum_of(status, |engine| engine.gc.gc_debt_bytes));
    let allocated = sum_of(status, |engine| engine.allocated_bytes);
    let live = sum_of(status, |engine| engine.live_bytes);
    let mut bytes = page.gauge(
        "argosy_engine_bytes",
        "Bytes of segments of the regions that are served here, and of pairs that live in them at least.",
    );
    bytes.count(&[("kind", "allocated")], allocated);
    bytes.count(&[("kind", "live")], live);
    // In thousandths, since counts of bytes are no floating-point numbers.
    let permille = u128::from(allocated) * 1000 / u128::from(live.max(1));
    let permille = u32::try_from(permille).unwrap_or(u32::MAX);
    page.gauge(
        "argosy_space_amplification_ratio",
        "Allocated bytes by bytes that live, of the regions that are served here; 0 where nothing does.",
    )
    .is(if live == 0 { 0.0 } else { f64::from(permille) / 1000.0 });
}

fn engine_gauges(page: &mut Families, status: &Status) {
    let gauges: [(&str, &str, OfEngine); 4] = [
        (
            "argosy_filter_bytes",
            "Bytes of filters in memory; part of component cache.",
            |engine| engine.filters.filter_bytes,
        ),
        (
            "argosy_compaction_pending_bytes",
            "Bytes that levels hold above what starts a compaction.",
            |engine| engine.compactions.compaction_debt_bytes,
        ),
        (
            "argosy_memtables_frozen",
            "Memtables that wait to be flushed.",
            |engine| engine.memtables.memtables_frozen as u64,
        ),
        (
            "argosy_answers_waiting",
            "Answers that wait until every member has the write.",
            |engine| engine.waiting.answers_waiting as u64,
        ),
    ];
    for (name, help, of) in gauges {
        page.gauge(name, help).count(&[], sum_of(status, of));
    }
}

fn stalls(page: &mut Families, status: &Status) {
    let mut stalls = page.counter(
        "argosy_write_stalls_total",
        "How often a write found no room, by reason; one that waits is counted at each attempt.",
    );
    for reason in super::gather::REASONS {
        let regions = status.regions.iter();
        let count = regions.map(|region| stalls_of(region, reason)).sum();
        stalls.count(&[("reason", reason)], count);
    }
    let mut waiting = page.gauge(
        "argosy_writes_waiting",
        "Writes that wait for room, by reason.",
    );
    for reason in super::gather::REASONS {
        let engines = status.regions.iter().filter_map(|r| r.engine.as_ref());
        let for_it = engines.filter(|engine| engine.waiting.writes_wait_for == Some(reason));
        let count: usize = for_it.map(|engine| engine.waiting.writes_waiting).sum();
        waiting.count(&[("reason", reason)], count as u64);
    }
}

/// How often a write of `region` found no room because of `reason`.
pub(super) fn stalls_of(region: &RegionStatus, reason: &str) -> u64 {
    let engine = region.engine.iter();
    let stalls = engine.flat_map(|engine| &engine.waiting.write_stalls_total);
    let same = stalls.filter(|stall| stall.reason == reason);
    same.map(|stall| stall.count).sum()
}

fn replication(page: &mut Families, status: &Status) {
    let mut regions = page.gauge("argosy_regions", "Regions that this server is a member of.");
    for (role, state) in STATES {
        let same = |region: &&RegionStatus| region.role.role == role && region.role.state == state;
        let count = status.regions.iter().filter(same).count();
        regions.count(&[("role", role), ("state", state)], count as u64);
    }
    links(page, status);
    lags(page, status);
    let done = &status.replication;
    for (name, help, count) in [
        (
            "argosy_index_ship_segments_total",
            "Finished segments sent to a backup.",
            done.segments_shipped_total,
        ),
        (
            "argosy_cut_promotions_total",
            "Regions opened here from a copy that was cut: it may lack what was acknowledged last.",
            done.cut_promotions_total,
        ),
        (
            "argosy_cut_records_total",
            "Whole records behind the end of the history, one LSN each, given up when regions were opened here.",
            done.cut_records_total,
        ),
        (
            "argosy_catch_up_bytes_total",
            "Bytes fetched or received in catching up.",
            done.catch_up_bytes_total,
        ),
        (
            "argosy_rewritten_segments_total",
            "Level segments whose pointers were rewritten here.",
            done.rewritten_segments_total,
        ),
        (
            "argosy_rewritten_bytes_total",
            "Bytes of level segments whose pointers were rewritten here.",
            done.rewritten_bytes_total,
        ),
        (
            "argosy_rewritten_pointers_total",
            "Pointers that were rewritten here.",
            done.rewritten_pointers_total,
        ),
        (
            "argosy_checkpoint_offers_total",
            "Checkpoints offered to backups that had to catch up.",
            done.offers_total,
        ),
        (
            "argosy_adoptions_total",
            "Histories adopted from another member.",
            done.adoptions_total,
        ),
        (
            "argosy_links_lost_total",
            "Links that went down.",
            done.links_lost_total,
        ),
    ] {
        page.counter(name, help).count(&[], count);
    }
}

fn links(page: &mut Families, status: &Status) {
    let mut up = page.gauge(
        "argosy_link_up",
        "1 while messages can be sent to the peer.",
    );
    for link in &status.traffic.links {
        let is_up = u8::from(link.open && !link.silent);
        up.with(&[("peer", &link.peer.to_string())], f64::from(is_up));
    }
    let mut shipped = page.counter(
        "argosy_shipped_bytes_total",
        "Bytes written into the memory of other servers, by what they were.",
    );
    for link in &status.traffic.links {
        for sent in &link.sent_bytes_total {
            let labels = [("peer", &*link.peer.to_string()), ("kind", sent.kind)];
            shipped.count(&labels, sent.bytes);
        }
    }
    let mut longest = page.gauge(
        "argosy_longest_message_bytes",
        "Bytes of the longest message that was sent to the peer, shipped segments aside.",
    );
    for link in &status.traffic.links {
        let bytes = link.longest_message_bytes;
        longest.count(&[("peer", &link.peer.to_string())], bytes);
    }
}

fn lags(page: &mut Families, status: &Status) {
    type Of = fn(&super::status::BackupStatus) -> u64;
    let lags: [(&str, &str, Of); 3] = [
        (
            "argosy_replication_lag_writes",
            "Writes that the peer's memory lacks, in the region that lacks most.",
            |backup| backup.lsn_lag,
        ),
        (
            "argosy_replication_lag_edits",
            "Version edits that the peer has not applied, in the region that lacks most.",
            |backup| backup.edit_lag,
        ),
        (
            "argosy_backup_failed",
            "1 while the peer's copy of a region of which this server is the primary has failed.",
            |backup| u64::from(["failed", "damaged"].contains(&backup.state)),
        ),
    ];
    for (name, help, of) in lags {
        let mut family = page.gauge(name, help);
        for link in &status.traffic.links {
            let backups = status.regions.iter().flat_map(|region| &region.backups);
            let most = backups
                .filter(|backup| backup.server == link.peer)
                .map(of)
                .max();
            family.count(&[("peer", &link.peer.to_string())], most.unwrap_or(0));
        }
    }
}
