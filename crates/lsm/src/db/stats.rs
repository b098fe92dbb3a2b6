//! What an engine has done and holds, read at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::Lsn;
use argosy_engine::stats::{FilterStats, MemtableStats, SpaceStats};

use super::Lsm;
use crate::cache::CacheKey;
use crate::names::logs::LOGS;
use crate::read::Reading;
use crate::settings::Settings;
use crate::version::{LevelEntry, Version};
use crate::work::census::Census;
use crate::work::shadowed::{Lowering, ShadowEstimate, Shadowed};
use crate::work::stats::{LevelStats, Stats, level_stats, log_stats};
use crate::work::truncation::LastLsns;

/// Bytes of the filters of `version` that are in memory.
fn filter_bytes(version: &Version, reading: &Reading) -> u64 {
    let runs = version.runs().flat_map(|(_, run)| run.whole_segments());
    let of = |entry: &LevelEntry| match entry.stored.pinned_reader() {
        Some(reader) => reader.filter_bytes(),
        None => {
            let key = CacheKey::reader(reading.region, entry.segment.number);
            let reader = reading.cache.peek_reader(key);
            reader.map_or(0, |reader| reader.filter_bytes())
        }
    };
    runs.map(|entry| of(entry) as u64).sum()
}

/// Bytes of `levels` above what each may hold before a compaction is due: L1 by runs, the others by
/// bytes.
fn debt_bytes(levels: &[LevelStats], settings: &Settings) -> u64 {
    let growth = u64::from(settings.levels.growth_factor);
    let over = levels.iter().map(|level| match level.level {
        1 if level.runs >= settings.levels.l1_runs => level.bytes,
        1 => 0,
        deeper => {
            let target = growth.saturating_pow(u32::from(deeper) - 1);
            let target = target.saturating_mul(settings.memtables.bytes as u64);
            level.bytes.saturating_sub(target)
        }
    });
    over.sum()
}

/// See [`stats`](argosy_engine::Store::stats).
pub(super) fn gather(lsm: &Lsm) -> Stats {
    let view = lsm.shown.view_to_keep();
    let (frozen, bytes) = {
        let writer = lsm.lock();
        (writer.frozen_count(), writer.memtable_bytes())
    };
    let levels = level_stats(&view.version);
    // Without knowing in which segments LSNs end: all that are in the levels by their beginnings.
    let logs = log_stats(&view.version);
    let shadowed = Shadowed {
        bytes: lsm.space.shadowed_bytes(),
        newest: ShadowEstimate::ALL,
        merge: Lowering::default(),
    };
    let lasts = LastLsns::new(Lsn(0));
    let census = Census::of(
        &view.version,
        &lasts,
        shadowed,
        Arc::default(),
        &lsm.settings,
    );
    let mut stats = lsm.counts.read();
    stats.gc.debt_bytes = logs.iter().map(|log| log.dead_bytes).sum();
    stats.space = SpaceStats {
        allocated_bytes: census.allocated,
        live_bytes: census.live(),
    };
    stats.log_work.cut_records = lsm.cut().map_or(0, |cut| cut.records);
    stats.log_work.segments = LOGS.iter().map(|log| view.version.log(*log).len()).sum();
    stats.work.debt_bytes = debt_bytes(&levels, &lsm.settings);
    stats.medium.log_segments = view.version.medium_log().len();
    stats.medium.log_refs = census.medium_refs;
    stats.memtables = MemtableStats {
        bytes,
        entries: view.memtables.iter().map(|table| table.len()).sum(),
        frozen,
    };
    stats.filters = FilterStats {
        spared: lsm.reading.filters.spared.load(Ordering::Relaxed),
        misled: lsm.reading.filters.misled.load(Ordering::Relaxed),
        bytes: filter_bytes(&view.version, &lsm.reading),
    };
    Stats {
        levels,
        logs,
        cache: lsm.reading.cache.stats(),
        damage: lsm.reading.damages.stats(),
        ..stats
    }
}
