//! `/metrics/regions`: what is told for each region, each value with the label `region`. A page of
//! its own, to be asked for where there are not too many of them.

use super::families::{Families, float};
use super::metrics::stalls_of;
use super::status::{RegionStatus, Status};

/// The page of the regions.
pub(super) fn page(status: &Status) -> String {
    let mut page = Families::default();
    let mut states = page.gauge(
        "argosy_region_info",
        "Role and state of a region here; the value is 1.",
    );
    for region in &status.regions {
        let labels = [
            ("region", &*region.group.id.to_string()),
            ("role", region.role.role),
            ("state", region.role.state),
        ];
        states.with(&labels, 1.0);
    }
    type Work = fn(&super::status::WorkStatus) -> f64;
    let work: [(&str, &str, Work); 3] = [
        (
            "argosy_region_cpu_seconds_total",
            "CPU, by what it was used for. Requests are right on average only.",
            |work| work.cpu_seconds_total,
        ),
        (
            "argosy_region_device_read_bytes_total",
            "Bytes read from the device.",
            |work| float(work.device_read_bytes_total),
        ),
        (
            "argosy_region_device_write_bytes_total",
            "Bytes written to the device.",
            |work| float(work.device_write_bytes_total),
        ),
    ];
    for (name, help, of) in work {
        let mut family = page.counter(name, help);
        for work in &status.resources.work {
            if let Some(region) = work.region {
                let labels = [
                    ("region", &*region.to_string()),
                    ("role", work.role),
                    ("activity", work.activity),
                ];
                family.with(&labels, of(work));
            }
        }
    }
    region_gauges(&mut page, status);
    region_parts(&mut page, status);
    page.text()
}

fn region_gauges(page: &mut Families, status: &Status) {
    type Of = fn(&RegionStatus) -> u64;
    let gauges: [(&str, &str, Of); 6] = [
        (
            "argosy_region_epoch",
            "The number of the group's configuration.",
            |r| r.group.epoch.into(),
        ),
        (
            "argosy_region_commit_lsn",
            "Up to here this member knows the history to be committed.",
            |r| r.at.commit_lsn,
        ),
        ("argosy_region_last_lsn", "The last write here.", |r| {
            r.at.last_lsn
        }),
        (
            "argosy_region_edit",
            "The last version edit that is applied here.",
            |r| r.at.edit,
        ),
        (
            "argosy_region_compaction_pending_bytes",
            "Bytes that levels hold above what starts a compaction.",
            |r| {
                r.engine
                    .as_ref()
                    .map_or(0, |engine| engine.compactions.compaction_debt_bytes)
            },
        ),
        (
            "argosy_region_memtable_bytes",
            "Bytes of memory of all memtables.",
            |r| {
                r.engine
                    .as_ref()
                    .map_or(0, |engine| engine.memtables.memtable_bytes as u64)
            },
        ),
    ];
    for (name, help, of) in gauges {
        let mut family = page.gauge(name, help);
        for region in &status.regions {
            family.count(&[("region", &region.group.id.to_string())], of(region));
        }
    }
}

fn region_parts(page: &mut Families, status: &Status) {
    let mut levels = page.gauge("argosy_region_level_bytes", "Bytes of segments, by level.");
    for region in &status.regions {
        for level in &region.levels {
            let labels = [
                ("region", &*region.group.id.to_string()),
                ("level", &*level.level.to_string()),
            ];
            levels.count(&labels, level.bytes);
        }
    }
    let mut dead = page.gauge(
        "argosy_region_log_dead_bytes",
        "Bytes in sealed log segments that no level points to.",
    );
    for region in &status.regions {
        for log in &region.logs {
            let labels = [("region", &*region.group.id.to_string()), ("log", log.log)];
            dead.count(&labels, log.dead_bytes);
        }
    }
    let mut lag = page.gauge(
        "argosy_region_replication_lag_writes",
        "Writes that the backup's memory lacks.",
    );
    for region in &status.regions {
        for backup in &region.backups {
            let labels = [
                ("region", &*region.group.id.to_string()),
                ("peer", &*backup.server.to_string()),
            ];
            lag.count(&labels, backup.lsn_lag);
        }
    }
    let mut stalls = page.counter(
        "argosy_region_write_stalls_total",
        "How often a write found no room, by reason.",
    );
    for region in status
        .regions
        .iter()
        .filter(|region| region.engine.is_some())
    {
        for reason in super::gather::REASONS {
            let labels = [
                ("region", &*region.group.id.to_string()),
                ("reason", reason),
            ];
            stalls.count(&labels, stalls_of(region, reason));
        }
    }
}
