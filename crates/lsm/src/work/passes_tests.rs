//! What an engine goes through at each edit must not grow with the store: all of it, once the edit is written until
//! the next job is chosen, by entries and nodes that are copied or gone through and bytes of nodes that are made.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn};

use super::census::{Census, Episode, Pressure, Wanted, choose};
use super::settled::SettledLogs;
use super::shadowed::ShadowEstimate;
use super::truncation::{LastLsns, truncate_logs, unknown_beginning};
use crate::compaction::Choice;
use crate::compaction::below::Below;
use crate::compaction::cut::Cut;
use crate::compaction::medium::MediumExtent;
use crate::compaction::pick::{l1_price, pick};
use crate::compaction::plan::{MergePlan, shape};
use crate::compaction::policy::{Aim, Growth, L1Policy, Packing, PartLimits, Policy};
use crate::compaction::whole::pick_whole;
use crate::damage::Shut;
use crate::edit::Edit;
use crate::settings::Settings;
use crate::shared::work::{self, Work};
use crate::version::Version;
use crate::version::growth_tests::{Bench, FEW, MANY};

/// What an engine keeps up.
struct Kept {
    lasts: LastLsns,
    settled: Arc<SettledLogs>,
    shadows: ShadowEstimate,
    pressure: Pressure,
    episode: Episode,
    settings: Settings,
}

fn policy(l0_bytes: u64) -> Policy {
    Policy {
        gather: None,
        aim: Aim::Levels,
        nothing_shut: true,
        sparse: BTreeSet::new(),
        l1: L1Policy {
            runs: 8,
            is_read_triggered: false,
        },
        growth: Growth {
            factor: 8,
            l0_bytes,
        },
        part: PartLimits {
            bytes: 8 << 20,
            segments_max: 64,
            whole_segments_max: 0,
        },
        reclaim: true,
        packing: Packing {
            bytes: 0,
            segments: 64,
            first: None,
        },
        drain: Some(64 << 20),
        lowers: true,
        behind: None,
    }
}

impl Kept {
    /// Of `version`, which is gone through once.
    fn new(version: &Version) -> Self {
        let settings = Settings::default();
        let lasts = LastLsns::new(Lsn(0));
        let mut settled = SettledLogs::new(settings.layout.segment_bytes as u64);
        settled.catch_up(version, &lasts);
        let mut shadows = ShadowEstimate::default();
        shadows.shadowed(version);
        Self {
            lasts,
            settled: Arc::new(settled),
            shadows,
            pressure: Pressure::default(),
            episode: Episode::default(),
            settings,
        }
    }

    /// What is looked at before `edit` is handed in.
    fn before(&mut self, version: &Version, edit: &mut Edit) {
        truncate_logs(version, 18, &mut self.lasts, edit);
        let cut = [KeyRange::new(
            "user00000000000000500000",
            Some(b"user00000000000000501000".to_vec()),
        )];
        drop(Cut::new(version, &cut));
    }

    /// What is looked at once `edit` has led to `version`.
    fn after(&mut self, version: &Version, edit: &Edit) {
        Arc::make_mut(&mut self.settled).follow(edit, version, &self.lasts);
        self.shadows.follow(edit, version);
        let _ = unknown_beginning(version, 18, &self.lasts);
        let shadowed = self.shadows.shadowed(version);
        Arc::make_mut(&mut self.settled).catch_up(version, &self.lasts);
        let settled = Arc::clone(&self.settled);
        let census = Census::of(version, &self.lasts, shadowed, settled, &self.settings);
        self.pressure.goal(&census, 0, &self.settings);
        let wanted = Wanted {
            goal: 1 << 30,
            refs_max: 1 << 20,
            moved: &BTreeSet::new(),
            unflushed: 0,
            batch: 0,
            active: 0,
            flushes: false,
            skipped: &BTreeSet::new(),
        };
        choose(&census, &wanted, &mut self.episode);
        let _ = MediumExtent::of(version, &self.settings);
        let _ = Below::new(version, 1, &KeyRange::all());
        let shape = shape(version, &Shut::default());
        let _ = l1_price(&shape);
        // Nothing is full; the last level is.
        for l0_bytes in [1 << 40, 1] {
            let _ = pick_whole(&shape, &policy(l0_bytes));
            let picked = pick(&shape, &policy(l0_bytes));
            if let Some(Choice::Merge { level, range }) = picked.map(|picked| picked.choice) {
                let _ = MergePlan::new(version, level, &range);
            }
        }
        let rests = Policy {
            reclaim: false,
            lowers: false,
            ..policy(1 << 40)
        };
        assert_eq!(pick(&shape, &rests), None);
        let _ = version.memory_bytes();
    }
}

/// What the edits cost of a version of so many segments.
fn costs(segments: u64) -> [Work; 3] {
    let mut bench = Bench::new(segments);
    let mut kept = Kept::new(&bench.version);
    [Bench::compaction, Bench::flush, Bench::upkeep].map(|edit| {
        let mut edit = edit(&bench);
        edit.logs.removed.clear();
        let before = bench.version.clone();
        let ((), made) = work::of(|| kept.before(&before, &mut edit));
        let applied = bench.apply(&edit);
        let ((), looked) = work::of(|| kept.after(&bench.version, &edit));
        Work {
            steps: made.steps + applied.steps + looked.steps,
            bytes: made.bytes + applied.bytes + looked.bytes,
        }
    })
}

#[test]
fn all_passes_of_an_edit_do_not_grow_with_the_store() {
    let (few, many) = (costs(FEW), costs(MANY));
    for (which, (few, many)) in few.iter().zip(many).enumerate() {
        println!("edit {which}: {few:?} and {many:?}");
        let grows = 2 * many.steps > 3 * few.steps || 2 * many.bytes > 3 * few.bytes;
        assert!(!grows, "edit {which}: {few:?} and {many:?}");
    }
    // A walk through a list of the larger version costs more.
    assert!(many.iter().all(|cost| cost.steps < 9000), "{many:?}");
}
