//! What lies below a build's target: whether a tombstone may still shadow something there.

use std::sync::Arc;

use argosy_base::KeyRange;

use crate::edit::LevelSegment;
use crate::shared::List;
use crate::version::{LevelEntry, Version};

/// The runs below a target, asked in rising key order whether they may hold a key.
#[derive(Debug, Default)]
pub(crate) struct Below {
    runs: Vec<RunBelow>,
}

/// A run of them.
#[derive(Debug)]
struct RunBelow {
    segments: List<LevelEntry>,
    /// Behind the last of its segments that are asked.
    end: usize,
    /// The first of them that does not end before the last key asked; `None`: there is none.
    ahead: Option<LevelEntry>,
}

impl RunBelow {
    fn may_hold(&mut self, key: &[u8]) -> bool {
        let ends_before = |segment: &Arc<LevelSegment>| {
            let to = segment.range.to.as_ref();
            to.is_some_and(|to| to.as_slice() <= key)
        };
        if self
            .ahead
            .as_ref()
            .is_some_and(|ahead| ends_before(&ahead.segment))
        {
            let at = self.segments.partition_point(ends_before);
            self.ahead = self.segments.range(at..self.end).next().cloned();
        }
        let ahead = self.ahead.as_ref();
        ahead.is_some_and(|ahead| ahead.segment.range.from.as_slice() <= key)
    }
}

impl Below {
    /// The runs of `version` in `level` and below, as far as they have keys of `range`.
    #[must_use]
    pub(crate) fn new(version: &Version, level: u8, range: &KeyRange) -> Self {
        let runs = version.runs();
        Self {
            runs: runs
                .filter(|(number, _)| *number >= level)
                .filter_map(|(_, run)| {
                    let places = run.places_overlapping(range);
                    let ahead = run.segments.range(places.clone()).next()?.clone();
                    Some(RunBelow {
                        segments: run.segments.clone(),
                        end: places.end,
                        ahead: Some(ahead),
                    })
                })
                .collect(),
        }
    }

    /// Whether a run may hold `key`, which is not below the last key asked for.
    pub(super) fn may_hold(&mut self, key: &[u8]) -> bool {
        self.runs.iter_mut().any(|run| run.may_hold(key))
    }
}
