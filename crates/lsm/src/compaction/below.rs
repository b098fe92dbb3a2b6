//! What lies below a build's target: whether a tombstone may still hide something there.

use argosy_base::KeyRange;

use crate::version::{LevelEntry, Version};

/// The runs below a target, asked in rising key order whether they may hold a key.
#[derive(Debug, Default)]
pub struct Below {
    /// Per run: its segments, and the first of them that does not end before the last key asked.
    runs: Vec<(Vec<LevelEntry>, usize)>,
}

impl Below {
    /// The runs of `version` in `level` and below, as far as they have keys of `range`.
    #[must_use]
    pub fn new(version: &Version, level: u8, range: &KeyRange) -> Self {
        let runs = version.runs();
        Self {
            runs: runs
                .filter(|(number, _)| *number >= level)
                .map(|(_, run)| (run.overlapping(range).to_vec(), 0))
                .filter(|(segments, _)| !segments.is_empty())
                .collect(),
        }
    }

    /// Whether a run may hold `key`, which is not below the last key asked for.
    pub(super) fn may_hold(&mut self, key: &[u8]) -> bool {
        self.runs.iter_mut().any(|(segments, at)| {
            while let Some(entry) = segments.get(*at) {
                let range = &entry.segment.range;
                if range.to.as_ref().is_some_and(|to| to.as_slice() <= key) {
                    *at += 1;
                    continue;
                }
                return range.from.as_slice() <= key;
            }
            false
        })
    }
}
