//! What can be set about a region's storage. Plain data: a server reads it from its configuration,
//! a test or the simulator makes everything small so that little data does much.
//!
//! All members of a group use the same geometry (`node_bytes`, `segment_bytes`, `window_bytes`,
//! `window_slots`) and the same `addresses`, since they hold equal bytes; the rest may differ from
//! member to member.

use std::time::Duration;

use argosy_base::AddressMode;
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_engine::LogSpec;

use crate::level::format::segment_bytes_min;
use crate::names::logs::{LOGS, log_name};

/// Most segments that a merge has finished and holds the bytes of: one that is being written, one that is being
/// shipped, and one that was just finished. A medium segment may come on top that ends with the last.
pub(crate) const HELD_MAX: usize = 3;

/// Segments that a merge reads at most while the device is full, so that those of several regions
/// find room beside each other.
pub(crate) const FULL_PART_MAX: usize = 4;

/// Where the values of pairs are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Every value in the leaves, except that of a pair over a quarter of a node.
    InPlace,
    /// Every value in the large log.
    Separated,
    /// Small pairs in the leaves, large ones in the large log; medium ones in the medium log until they
    /// come to the last level, and then in the leaves.
    #[default]
    Hybrid,
}

/// What a compaction takes of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// A part of it, and what that overlaps below. Segments are self-contained.
    #[default]
    Partial,
    /// All of it and all of the level below, into one tree across segments, as the papers do it.
    WholeLevel,
}

argosy_base::mutants! {
    /// Planted mistakes, all off. The simulator switches one on to prove that its checker finds it;
    /// nothing else sets them.
    pub struct Mutants {
        /// An edit is appended to the manifest without waiting for the data that it names.
        commit_before_durable,
        /// Segments that an edit removes are given back although a snapshot or scan still reads them.
        free_under_snapshot,
        /// Recovery goes on behind the first missing LSN.
        recover_past_hole,
        /// A backup applies an edit although a segment that it names has not arrived.
        commit_before_arrival,
        /// A backup leaves one pointer in so many as it came.
        skip_rewrite,
        /// Garbage collection moves values although their keys were written meanwhile.
        move_unconditionally,
        /// Short segments are not packed into fewer when the device is full.
        skip_packing,
        /// A merge leaves out what has expired, whatever older value it shadows.
        drop_expired,
        /// Edits do not tell the region's time.
        forget_time,
        /// A memtable becomes a run without the ranges that it removes.
        drop_ranges,
        /// A segment is evacuated before what was moved out of it is in the levels.
        evacuate_early,
        /// Pointers that a merge dropped are dropped again by the next one, if it was given up.
        count_twice,
        /// Where a range tombstone cut a part off a segment, pointers outside of the part are dropped, too.
        count_out_of_bounds,
        /// A pointer of a memtable counts as added although it is not written.
        count_unwritten,
        /// Merges leave out what they found damaged, and consume it all the same.
        lose_damaged,
        /// Parts are ingested although keys of their range are bound.
        ingest_over,
        /// A part that waits has flushes and merges under way given up, instead of waiting for its turn.
        ingest_gives_up,
        /// A change is made of what is committed, not of what was written last.
        change_committed,
        /// A key that is found in the levels counts as never written since.
        forget_version,
        /// A key whose pair a merge has removed, as it was over, counts as written no later than before.
        keep_version,
        /// A window is used again once it is flushed here, whether or not it is elsewhere.
        reuse_early,
        /// The logs count as resting while they are written: backups release windows that are not durable.
        rest_early,
        /// Segment numbers are given out before every member has recorded that they may be in use.
        number_early,
        /// A log goes on in a segment whose edit not every member has.
        provide_early,
        /// Logs do not end in marks, and flushes are told without.
        forget_mark,
        /// What an edit frees is used as soon as the edit is durable in the manifest, without a witness.
        forget_witness,
        /// Recovery ignores log points: it cuts a log at a damaged record although levels point behind that.
        forget_points,
        /// A flush tells how far the large log is durable of no segment but the one in which it ends.
        forget_unsealed,
        /// Cut segments are kept beside those of earlier cuts.
        keep_every_cut,
    }
}

impl Mutants {
    /// Those of the logs.
    pub(crate) fn of_logs(self) -> argosy_log::Mutants {
        let mut planted = argosy_log::Mutants::default();
        if self.reuse_early() {
            planted.plant("reuse_early");
        }
        planted
    }
}

/// Settings of one region's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of one memtable before it is frozen.
    pub l0_bytes: usize,
    /// Most bytes of both logs, padding included, that one memtable may stand for before it is frozen.
    pub l0_log_bytes: u64,
    /// Most memtables, the active one included; writers wait beyond.
    pub memtables_max: usize,
    /// Bytes that memtables may take before the cache gives way to them. All that there may be unless it is
    /// said; those that only snapshots see come on top.
    pub memtable_share_bytes: Option<usize>,
    /// Bytes of the cache of nodes and records.
    pub cache_bytes: usize,
    /// Bytes of a leaf; a power of two from 512 to 32 KiB.
    pub node_bytes: usize,
    /// Bytes of each segment that are used: whole blocks, at most [`SEGMENT_SIZE`].
    pub segment_bytes: usize,
    /// Bytes of a log window: at least two blocks, a divisor of `segment_bytes`.
    pub window_bytes: usize,
    /// Windows of each log, at least 2.
    pub window_slots: usize,
    /// How many times larger a level may be than the one above it; at least 2.
    pub growth_factor: u32,
    /// Sorted runs in L1 that start a compaction into L2; fewer do once reads trigger it. Up to a third more
    /// are awaited while L2 holds more than four times as much as they do.
    pub l1_runs: usize,
    /// Sorted runs in L1 at which writers wait.
    pub l1_runs_max: usize,
    /// Where values are kept.
    pub placement: Placement,
    /// What the pointers inside level segments name. A region stays as it was made.
    pub addresses: AddressMode,
    /// Pairs of fewer bytes are small.
    pub small_bytes: usize,
    /// Pairs of at least as many bytes are large.
    pub large_bytes: usize,
    /// Log records become durable at least this often.
    pub flush_interval: Duration,
    /// How long nothing is appended before the log windows give their memory back.
    pub rest_after: Duration,
    /// How many segment numbers are reserved by one edit.
    pub number_block: u64,
    /// What the medium log may take on the device, in hundredths of what the levels take, beside as much as
    /// all memtables and the runs of L1: beyond, levels are merged earlier. 0: there is no medium log.
    pub medium_log_percent: u32,
    /// Levels from which on flushes put values into the medium log. With less than 3, none between spares
    /// rewriting them.
    pub medium_levels_min: usize,
    /// What a compaction takes of a level. May change from one opening to the next: levels that were
    /// made in the other way are read as they are, until they are merged.
    pub compaction: Compaction,
    /// What the region may take on the device, in hundredths of what lives in it, beside the
    /// [floor](Self::space_floor): beyond, dead values are collected. At least 100.
    pub max_space_amplification: u32,
    /// In place of the [floor](Self::space_floor) that follows from other settings.
    pub space_floor_bytes: Option<u64>,
    /// Input bytes that one part of a compaction aims at.
    pub compaction_part_bytes: u64,
    /// Bytes that one background step reads or merges at most, roughly.
    pub step_bytes: usize,
    /// Opening goes on where windows that a killed process left are damaged in front of records that they
    /// hold: the history then ends where they are damaged. Only regions without other members ask.
    pub accept_loss: bool,
    /// What is about to be freed because no pointer into it is counted any more is looked for in all levels
    /// first. For debug builds and the simulator: it costs reads.
    pub check_frees: bool,
    /// For the simulator.
    pub mutants: Mutants,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            l0_bytes: 64 << 20,
            l0_log_bytes: 256 << 20,
            memtables_max: 3,
            memtable_share_bytes: None,
            cache_bytes: 64 << 20,
            node_bytes: 4 << 10,
            segment_bytes: SEGMENT_SIZE,
            window_bytes: 512 << 10,
            window_slots: 4,
            growth_factor: 8,
            l1_runs: 12,
            l1_runs_max: 24,
            placement: Placement::Hybrid,
            addresses: AddressMode::Logical,
            small_bytes: 100,
            large_bytes: 1000,
            flush_interval: Duration::from_secs(1),
            rest_after: Duration::from_secs(30),
            number_block: 1024,
            medium_log_percent: 200,
            medium_levels_min: 3,
            compaction: Compaction::Partial,
            max_space_amplification: 150,
            space_floor_bytes: None,
            compaction_part_bytes: 32 << 20,
            step_bytes: 256 << 10,
            accept_loss: false,
            check_frees: cfg!(debug_assertions),
            mutants: Mutants::default(),
        }
    }
}

/// A setting that cannot work. Correct it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value}: must be {must}")]
pub struct SettingsError {
    /// The setting's name.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// What it must be.
    pub must: &'static str,
}

impl Settings {
    /// How logs are cut into segments and windows.
    #[must_use]
    pub fn log_geometry(&self) -> argosy_log::Geometry {
        argosy_log::Geometry::new(self.segment_bytes, self.window_bytes, self.window_slots)
    }

    /// The logs of a region.
    #[must_use]
    pub fn logs(&self) -> [LogSpec; LOGS.len()] {
        let geometry = self.log_geometry();
        LOGS.map(|id| LogSpec {
            id,
            name: log_name(id),
            slots: geometry.slots(),
            window_bytes: geometry.window_bytes() as usize,
            slot_bytes: geometry.slot_bytes(),
        })
    }

    /// Small sizes for tests: little data fills many windows and segments.
    #[must_use]
    pub fn small() -> Self {
        Self {
            l0_bytes: 64 << 10,
            l0_log_bytes: 256 << 10,
            cache_bytes: 256 << 10,
            node_bytes: 1024,
            segment_bytes: 32 << 10,
            window_bytes: 16 << 10,
            number_block: 64,
            compaction_part_bytes: 128 << 10,
            step_bytes: 16 << 10,
            ..Self::default()
        }
    }

    /// Segments that a device with `regions` regions keeps from writers, so that it can be emptied
    /// when it is full (see [`Purpose`](argosy_device::Purpose)). For each region, that is twice
    /// what frees space:
    ///
    /// - the flush of one memtable: its bytes, an eighth for indexes and filters, and the segment
    ///   that is not full at the end, here and in the medium log;
    /// - a merge of the few segments that it reads on a full device, and as many that are left
    ///   trimmed until the next merge has consumed the rest of them.
    ///
    /// The other half are the log segments that opening takes, those that deletes take, a manifest
    /// that has grown, and the checkpoint that begins it anew.
    #[must_use]
    pub fn reserve_segments(&self, regions: usize) -> u32 {
        const MERGE: usize = 2 * FULL_PART_MAX;
        let flush = (self.l0_bytes + self.l0_bytes / 8) / self.segment_bytes + 2;
        let reserve = 2 * (flush + MERGE) * regions.max(1);
        u32::try_from(reserve).unwrap_or(u32::MAX)
    }

    /// Bytes of memory that flushes, merges and log writes of a region have in hand at most, roughly: of a
    /// flush and a merge at once, the segments that each holds, and what is read ahead.
    #[must_use]
    pub const fn work_bytes(&self) -> usize {
        let held = HELD_MAX + 1;
        let windows = self.window_slots * self.window_bytes;
        (held + 1) * self.segment_bytes + windows
    }

    /// Bytes of the log windows.
    #[must_use]
    pub const fn windows_bytes(&self) -> usize {
        LOGS.len() * self.window_slots * self.window_bytes
    }

    /// Gives the cache what is left of `memory` bytes beside windows, merges, `kept` bytes of buffers that are
    /// kept, and two memtables, but for a sixteenth: where entries of other lengths take the place of those that
    /// leave, or fewer, the allocator cannot give back what lies between those that stay. To a third memtable, as to
    /// those that only snapshots see, the cache gives way. Returns what all but the cache and that sixteenth take.
    pub fn divide(&mut self, memory: usize, kept: usize) -> usize {
        let share = self.memtables_max.min(2).saturating_mul(self.l0_bytes);
        self.memtable_share_bytes = Some(share);
        let work = self
            .windows_bytes()
            .saturating_add(self.work_bytes() + kept);
        let fixed = share.saturating_add(work);
        let left = memory.saturating_sub(fixed);
        self.cache_bytes = left - left / 16;
        fixed
    }

    /// Lets memtables stand for at most a 32nd of a device of `segments` segments each, so that
    /// logs find room beside what lives.
    pub(crate) fn fit_device(&mut self, segments: u32) {
        let share = u64::from(segments) * self.segment_bytes as u64 / 32;
        self.l0_log_bytes = self.l0_log_bytes.min(share.max(4096));
    }

    /// Bytes that a region may take whatever lives in it, beside the logs of its memtables: a few segments
    /// that are begun.
    #[must_use]
    pub fn space_floor(&self) -> u64 {
        let derived = 8 * self.segment_bytes as u64;
        self.space_floor_bytes.unwrap_or(derived)
    }

    /// The most sorted runs in L1 that are awaited before a compaction starts.
    pub(crate) fn l1_runs_awaited_max(&self) -> usize {
        let most = self.l1_runs + self.l1_runs / 3;
        // Writers are slowed from the midpoint on.
        most.min(self.l1_runs.midpoint(self.l1_runs_max))
    }

    /// Bytes that the medium log may take where the levels take `level_bytes`.
    pub(crate) fn medium_log_bound(&self, level_bytes: u64) -> u64 {
        if self.medium_log_percent == 0 {
            return 0;
        }
        let share = u128::from(level_bytes) * u128::from(self.medium_log_percent) / 100;
        let runs = (self.l1_runs + self.memtables_max) * self.l0_bytes;
        u64::try_from(share)
            .unwrap_or(u64::MAX)
            .saturating_add(runs as u64)
    }

    /// Bytes that the logs of its memtables may take.
    #[must_use]
    pub const fn memtable_log_bytes_max(&self) -> u64 {
        self.memtables_max as u64 * self.l0_log_bytes
    }

    /// Bytes that a region may take in which `live` bytes live, beside the logs of its memtables.
    pub(crate) fn space_bound(&self, live: u64) -> u64 {
        let scaled = u128::from(live) * u128::from(self.max_space_amplification) / 100;
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        scaled.max(live).saturating_add(self.space_floor())
    }

    /// Finds the first setting that cannot work.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let rules = [
            (
                "node_bytes",
                self.node_bytes,
                self.node_bytes.is_power_of_two() && (512..=32 << 10).contains(&self.node_bytes),
                "a power of two from 512 to 32768",
            ),
            (
                "segment_bytes",
                self.segment_bytes,
                whole_blocks(self.segment_bytes)
                    && self.segment_bytes <= SEGMENT_SIZE
                    && self.segment_bytes >= segment_bytes_min(self.node_bytes),
                "whole blocks, from 20480 to 2097152, and at least a node and 12288 more",
            ),
            (
                "window_bytes",
                self.window_bytes,
                whole_blocks(self.window_bytes)
                    && self.window_bytes >= 2 * BLOCK_SIZE
                    && self.segment_bytes.is_multiple_of(self.window_bytes),
                "at least two blocks of 4096, and a divisor of segment_bytes",
            ),
            (
                "window_slots",
                self.window_slots,
                (2..=1024).contains(&self.window_slots),
                "2 to 1024",
            ),
            (
                "growth_factor",
                self.growth_factor as usize,
                (2..=64).contains(&self.growth_factor),
                "2 to 64",
            ),
            (
                "l1_runs",
                self.l1_runs,
                (1..=64).contains(&self.l1_runs),
                "1 to 64",
            ),
            (
                "l1_runs_max",
                self.l1_runs_max,
                self.l1_runs_max > self.l1_runs,
                "more than l1_runs",
            ),
            (
                "memtables_max",
                self.memtables_max,
                self.memtables_max >= 2,
                "at least 2",
            ),
            (
                "large_bytes",
                self.large_bytes,
                self.large_bytes >= self.small_bytes,
                "at least what small pairs have (100 unless it is said)",
            ),
        ];
        for (name, value, holds, must) in rules {
            if !holds {
                let value = value as u64;
                return Err(SettingsError { name, value, must });
            }
        }
        self.validate_bytes()
    }

    /// The settings that count bytes or segments and only have to be large enough.
    fn validate_bytes(&self) -> Result<(), SettingsError> {
        let at_least = [
            ("l0_bytes", self.l0_bytes as u64, 4096, "at least 4096"),
            ("l0_log_bytes", self.l0_log_bytes, 4096, "at least 4096"),
            ("step_bytes", self.step_bytes as u64, 4096, "at least 4096"),
            ("number_block", self.number_block, 16, "at least 16"),
            (
                "max_space_amplification",
                self.max_space_amplification.into(),
                100,
                "at least 100",
            ),
            (
                "compaction_part_bytes",
                self.compaction_part_bytes,
                self.segment_bytes as u64,
                "at least segment_bytes",
            ),
        ];
        for (name, value, least, must) in at_least {
            if value < least {
                return Err(SettingsError { name, value, must });
            }
        }
        Ok(())
    }
}

fn whole_blocks(bytes: usize) -> bool {
    bytes.is_multiple_of(BLOCK_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_come_with_it_work() {
        assert_eq!(Settings::default().validate(), Ok(()));
        assert_eq!(Settings::small().validate(), Ok(()));
    }

    #[test]
    fn a_setting_that_cannot_work_is_named() {
        let broken: [(&str, Settings); 6] = [
            (
                "window_bytes",
                Settings {
                    window_bytes: BLOCK_SIZE,
                    ..Settings::small()
                },
            ),
            (
                "node_bytes",
                Settings {
                    node_bytes: 1000,
                    ..Settings::small()
                },
            ),
            (
                "segment_bytes",
                Settings {
                    segment_bytes: 4 << 20,
                    ..Settings::small()
                },
            ),
            (
                "window_bytes",
                Settings {
                    window_bytes: 12 << 10,
                    ..Settings::small()
                },
            ),
            (
                "window_slots",
                Settings {
                    window_slots: 1,
                    ..Settings::small()
                },
            ),
            (
                "number_block",
                Settings {
                    number_block: 1,
                    ..Settings::small()
                },
            ),
        ];
        for (name, settings) in broken {
            let error = settings.validate().unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }
}
