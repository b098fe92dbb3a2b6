//! The groups that a region's [settings](super::Settings) are in.

use std::time::Duration;

use argosy_base::AddressMode;
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE, WINDOW_SLOTS_MAX};
use argosy_engine::LogSpec;

use super::{Compaction, HELD_MAX, Placement, SettingsError, check};
use crate::level::format::segment_bytes_min;
use crate::names::logs::{LOGS, log_name};

/// How logs and levels are cut, and what their pointers name. Equal at all members of a group, since they hold
/// equal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a leaf; a power of two from 512 to 32 KiB.
    pub node_bytes: usize,
    /// Bytes of each segment that are used: whole blocks, at most [`SEGMENT_SIZE`].
    pub segment_bytes: usize,
    /// Bytes of a log window: at least two blocks, a divisor of `segment_bytes`.
    pub window_bytes: usize,
    /// Windows of each log: at least 2, at most [`WINDOW_SLOTS_MAX`].
    pub window_slots: usize,
    /// What the pointers inside level segments name. A region stays as it was made.
    pub addresses: AddressMode,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            node_bytes: 4 << 10,
            segment_bytes: SEGMENT_SIZE,
            window_bytes: 512 << 10,
            window_slots: 4,
            addresses: AddressMode::Logical,
        }
    }
}

impl Layout {
    /// Finds the first setting that cannot work.
    pub(super) fn validate(&self) -> Result<(), SettingsError> {
        check(&[
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
                (2..=WINDOW_SLOTS_MAX).contains(&self.window_slots),
                "2 to 64",
            ),
        ])
    }

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
            segment_windows: geometry.windows_per_segment().into(),
            slot_bytes: geometry.slot_bytes(),
        })
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
}

/// How large memtables become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemtableSettings {
    /// Bytes of one memtable before it is frozen.
    pub bytes: usize,
    /// Most bytes of both logs, padding included, that one memtable may stand for before it is frozen.
    pub log_bytes: u64,
    /// Most memtables, the active one included; writers wait beyond.
    pub count_max: usize,
    /// Bytes that memtables may take before the cache gives way to them. All that there may be unless it is
    /// said; those that only snapshots see come on top.
    pub share_bytes: Option<usize>,
    /// Regions of one server whose memtables may be as large as that. Where it serves more, all of them have smaller
    /// ones, so that they take no more together. `None`: however many it serves.
    pub regions: Option<usize>,
}

impl Default for MemtableSettings {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            log_bytes: 256 << 20,
            count_max: 3,
            share_bytes: None,
            regions: None,
        }
    }
}

impl MemtableSettings {
    /// Bytes that the logs of its memtables may take.
    #[must_use]
    pub const fn log_bytes_max(&self) -> u64 {
        self.count_max as u64 * self.log_bytes
    }
}

/// When logs are flushed, and when they rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Log records become durable at least this often.
    pub flush_interval: Duration,
    /// What is appended is flushed at once, and is not committed before it is durable everywhere.
    pub sync: bool,
    /// How long nothing is appended before the log windows give their memory back.
    pub rest_after: Duration,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            flush_interval: Duration::from_secs(1),
            sync: false,
            rest_after: Duration::from_secs(30),
        }
    }
}

/// How levels grow, and how they are compacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSettings {
    /// How many times larger a level may be than the one above it; at least 2.
    pub growth_factor: u32,
    /// Sorted runs in L1 that start a compaction into L2; fewer do once reads trigger it. Up to a third more
    /// are awaited while L2 holds more than four times as much as they do.
    pub l1_runs: usize,
    /// Sorted runs in L1 at which writers wait.
    pub l1_runs_max: usize,
    /// How many segment numbers are reserved by one edit.
    pub number_block: u64,
    /// What a compaction takes of a level. May change from one opening to the next: levels that were
    /// made in the other way are read as they are, until they are merged.
    pub compaction: Compaction,
    /// Input bytes that one part of a compaction aims at.
    pub part_bytes: u64,
    /// Bytes that one background step reads or merges at most, roughly.
    pub step_bytes: usize,
}

impl Default for LevelSettings {
    fn default() -> Self {
        Self {
            growth_factor: 8,
            l1_runs: 12,
            l1_runs_max: 24,
            number_block: 1024,
            compaction: Compaction::Partial,
            part_bytes: 32 << 20,
            step_bytes: 256 << 10,
        }
    }
}

impl LevelSettings {
    /// The most sorted runs in L1 that are awaited before a compaction starts.
    pub(crate) fn l1_runs_awaited_max(&self) -> usize {
        let most = self.l1_runs + self.l1_runs / 3;
        // Writers are slowed from the midpoint on.
        most.min(self.l1_runs.midpoint(self.l1_runs_max))
    }
}

/// Where values lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSettings {
    /// Where values are kept.
    pub placement: Placement,
    /// Pairs of fewer bytes are small.
    pub small_bytes: usize,
    /// Pairs of at least as many bytes are large.
    pub large_bytes: usize,
    /// What the medium log may take on the device, in hundredths of what the levels take, beside as much as
    /// all memtables and the runs of L1: beyond, levels are merged earlier. 0: there is no medium log.
    pub medium_log_percent: u32,
    /// Levels from which on flushes put values into the medium log. With less than 3, none between spares
    /// rewriting them.
    pub medium_levels_min: usize,
}

impl Default for ValueSettings {
    fn default() -> Self {
        Self {
            placement: Placement::Hybrid,
            small_bytes: 100,
            large_bytes: 1000,
            medium_log_percent: 200,
            medium_levels_min: 3,
        }
    }
}

/// How much a region may take on its device before garbage is collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceSettings {
    /// What the region may take on the device, in hundredths of what lives in it, beside the
    /// [floor](super::Settings::space_floor): beyond, garbage is collected. At least 100.
    pub amplification_max: u32,
    /// In place of the [floor](super::Settings::space_floor) that follows from other settings.
    pub floor_bytes: Option<u64>,
}

impl Default for SpaceSettings {
    fn default() -> Self {
        Self {
            amplification_max: 150,
            floor_bytes: None,
        }
    }
}

fn whole_blocks(bytes: usize) -> bool {
    bytes.is_multiple_of(BLOCK_SIZE)
}
