//! What can be set about a region's storage. Plain data: a server reads it from its configuration,
//! a test or the simulator makes everything small so that little data does much.
//!
//! All members of a group use the same [`Layout`], since they hold equal bytes; the rest may differ from
//! member to member.

mod groups;

pub use groups::{
    Layout, LevelSettings, LogSettings, MemtableSettings, SpaceSettings, ValueSettings,
};

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
        /// A copy keeps a segment that a checkpoint names, although it has given up what some of its pointers lead to.
        keep_trimmed,
        /// Garbage collection moves values although their keys were written meanwhile.
        move_unconditionally,
        /// Short segments are not packed into fewer when the device is full.
        skip_packing,
        /// A merge leaves out what has expired, whatever older value it shadows.
        drop_expired,
        /// Edits do not tell the region's time.
        forget_time,
        /// Edits do not tell which requests were applied.
        forget_duplicates,
        /// Whoever is promoted knows of no request that was applied.
        lose_duplicates,
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
        /// Parts are bulk-loaded although keys of their range are bound.
        bulk_load_over,
        /// A part that waits has flushes and merges under way given up, instead of waiting for its turn.
        bulk_load_gives_up,
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
        /// A cut does not tell that the logs lack what only the levels have.
        forget_gap,
        /// A flush tells how far the large log is durable of no segment but the one in which it ends.
        forget_unsealed,
        /// A backup tells that a range is flushed before it is synced.
        flush_unsynced,
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
    /// How logs and levels are cut, and what their pointers name. Equal at all members of a group, since they hold
    /// equal bytes.
    pub layout: Layout,
    /// How large memtables become.
    pub memtables: MemtableSettings,
    /// When logs are flushed, and when they rest.
    pub logs: LogSettings,
    /// How levels grow, and how they are compacted.
    pub levels: LevelSettings,
    /// Where values lie.
    pub values: ValueSettings,
    /// How much a region may take on its device before garbage is collected.
    pub space: SpaceSettings,
    /// Bytes of the cache of nodes and records.
    pub cache_bytes: usize,
    /// Bytes of these that others lend: they may be charged to it at any time.
    pub cache_lent: usize,
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
            layout: Layout::default(),
            memtables: MemtableSettings::default(),
            logs: LogSettings::default(),
            levels: LevelSettings::default(),
            values: ValueSettings::default(),
            space: SpaceSettings::default(),
            cache_bytes: 64 << 20,
            cache_lent: 0,
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
    /// These settings with `change` made to them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The smallest sizes that tests begin with: some hundred pairs make several levels of each kind of segment.
    #[must_use]
    pub fn tiny() -> Self {
        Self::default().with(|of| {
            of.memtables.bytes = 16 << 10;
            of.memtables.log_bytes = 256 << 10;
            of.cache_bytes = 64 << 10;
            of.layout.node_bytes = 512;
            of.layout.segment_bytes = 32 << 10;
            of.layout.window_bytes = 32 << 10;
            of.layout.window_slots = 40;
            of.levels.growth_factor = 2;
            of.levels.l1_runs = 2;
            of.levels.l1_runs_max = 5;
            of.levels.number_block = 32;
            of.levels.part_bytes = 64 << 10;
            of.levels.step_bytes = 8 << 10;
        })
    }

    /// Small sizes for tests: little data fills many windows and segments.
    #[must_use]
    pub fn small() -> Self {
        Self::default().with(|of| {
            of.memtables.bytes = 64 << 10;
            of.memtables.log_bytes = 256 << 10;
            of.cache_bytes = 256 << 10;
            of.layout.node_bytes = 1024;
            of.layout.segment_bytes = 32 << 10;
            of.layout.window_bytes = 16 << 10;
            of.levels.number_block = 64;
            of.levels.part_bytes = 128 << 10;
            of.levels.step_bytes = 16 << 10;
        })
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
        let flush =
            (self.memtables.bytes + self.memtables.bytes / 8) / self.layout.segment_bytes + 2;
        let reserve = 2 * (flush + MERGE) * regions.max(1);
        u32::try_from(reserve).unwrap_or(u32::MAX)
    }

    /// Gives the cache what is left of `memory` bytes beside windows, merges, `kept` bytes of buffers that are
    /// kept, and two memtables, but for a sixteenth: where entries of other lengths take the place of those that
    /// leave, or fewer, the allocator cannot give back what lies between those that stay. To a third memtable, as to
    /// those that only snapshots see, the cache gives way. Returns what all but the cache and that sixteenth take.
    pub fn divide(&mut self, memory: usize, kept: usize) -> usize {
        let share = self
            .memtables
            .count_max
            .min(2)
            .saturating_mul(self.memtables.bytes);
        self.memtables.share_bytes = Some(share);
        let work = self
            .layout
            .windows_bytes()
            .saturating_add(self.layout.work_bytes() + kept);
        let fixed = share.saturating_add(work);
        let left = memory.saturating_sub(fixed);
        self.cache_bytes = left - left / 16;
        fixed
    }

    /// Lets memtables stand for at most a 32nd of a device of `segments` segments each, so that
    /// logs find room beside what lives.
    pub(crate) fn fit_device(&mut self, segments: u32) {
        let share = u64::from(segments) * self.layout.segment_bytes as u64 / 32;
        self.memtables.log_bytes = self.memtables.log_bytes.min(share.max(4096));
    }

    /// Bytes that a region may take whatever lives in it, beside the logs of its memtables: a few segments
    /// that are begun.
    #[must_use]
    pub fn space_floor(&self) -> u64 {
        let derived = 8 * self.layout.segment_bytes as u64;
        self.space.floor_bytes.unwrap_or(derived)
    }

    /// Bytes that the medium log may take where the levels take `level_bytes`.
    pub(crate) fn medium_log_bound(&self, level_bytes: u64) -> u64 {
        if self.values.medium_log_percent == 0 {
            return 0;
        }
        let share = u128::from(level_bytes) * u128::from(self.values.medium_log_percent) / 100;
        let runs = (self.levels.l1_runs + self.memtables.count_max) * self.memtables.bytes;
        u64::try_from(share)
            .unwrap_or(u64::MAX)
            .saturating_add(runs as u64)
    }

    /// Bytes that a region may take in which `live` bytes live, beside the logs of its memtables.
    pub(crate) fn space_bound(&self, live: u64) -> u64 {
        let scaled = u128::from(live) * u128::from(self.space.amplification_max) / 100;
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        scaled.max(live).saturating_add(self.space_floor())
    }

    /// Finds the first setting that cannot work.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.layout.validate()?;
        check(&[
            (
                "growth_factor",
                self.levels.growth_factor as usize,
                (2..=64).contains(&self.levels.growth_factor),
                "2 to 64",
            ),
            (
                "l1_runs",
                self.levels.l1_runs,
                (1..=64).contains(&self.levels.l1_runs),
                "1 to 64",
            ),
            (
                "l1_runs_max",
                self.levels.l1_runs_max,
                self.levels.l1_runs_max > self.levels.l1_runs,
                "more than l1_runs",
            ),
            (
                "memtables_max",
                self.memtables.count_max,
                self.memtables.count_max >= 2,
                "at least 2",
            ),
            (
                "large_bytes",
                self.values.large_bytes,
                self.values.large_bytes >= self.values.small_bytes,
                "at least what small pairs have (100 unless it is said)",
            ),
        ])?;
        self.validate_bytes()
    }

    /// The settings that count bytes or segments and only have to be large enough.
    fn validate_bytes(&self) -> Result<(), SettingsError> {
        let at_least = [
            (
                "l0_bytes",
                self.memtables.bytes as u64,
                4096,
                "at least 4096",
            ),
            (
                "l0_log_bytes",
                self.memtables.log_bytes,
                4096,
                "at least 4096",
            ),
            (
                "step_bytes",
                self.levels.step_bytes as u64,
                4096,
                "at least 4096",
            ),
            ("number_block", self.levels.number_block, 16, "at least 16"),
            (
                "max_space_amplification",
                self.space.amplification_max.into(),
                100,
                "at least 100",
            ),
            (
                "compaction_part_bytes",
                self.levels.part_bytes,
                self.layout.segment_bytes as u64,
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

/// A setting's name and value, whether it can work, and what it must be.
type Rule = (&'static str, usize, bool, &'static str);

/// Finds the first of `rules` that is broken.
fn check(rules: &[Rule]) -> Result<(), SettingsError> {
    let broken = rules.iter().find(|(_, _, holds, _)| !holds);
    broken.map_or(Ok(()), |&(name, value, _, must)| {
        let value = value as u64;
        Err(SettingsError { name, value, must })
    })
}

#[cfg(test)]
mod tests {
    use argosy_base::limits::BLOCK_SIZE;

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
                Settings::small().with(|of| of.layout.window_bytes = BLOCK_SIZE),
            ),
            (
                "node_bytes",
                Settings::small().with(|of| of.layout.node_bytes = 1000),
            ),
            (
                "segment_bytes",
                Settings::small().with(|of| of.layout.segment_bytes = 4 << 20),
            ),
            (
                "window_bytes",
                Settings::small().with(|of| of.layout.window_bytes = 12 << 10),
            ),
            (
                "window_slots",
                Settings::small().with(|of| of.layout.window_slots = 65),
            ),
            (
                "number_block",
                Settings::small().with(|of| of.levels.number_block = 1),
            ),
        ];
        for (name, settings) in broken {
            let error = settings.validate().unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }
}
