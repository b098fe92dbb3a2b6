//! Looks up what is about to be freed on the count.
//!
//! A segment of the large log goes when as many bytes of pointers into it were dropped as ever came into the
//! levels ([`LogUse`](crate::version::LogUse)). A pointer that was dropped twice would free what lives. So in
//! debug builds and in the simulator ([`Settings::check_frees`](crate::Settings::check_frees)) each record of
//! such a segment is looked for in every run of the version without the segment: none may point to it. This
//! reads the segment and a leaf for each record in each run, so production does without.

use std::sync::Arc;

use argosy_base::range::successor;
use argosy_base::{KeyRange, Pointer};
use argosy_engine::Reach;
use argosy_log::sweep::Sweep;

use crate::edit::{Edit, LogSegment};
use crate::merge::Source as _;
use crate::names::LevelError;
use crate::names::logs::LARGE_LOG;
use crate::read::ReadAhead;
use crate::read::sources::{Input, RunInput, RunReading, RunSource};
use crate::settings::Settings;
use crate::version::{Run, Version};

/// A record that levels point to, in a segment that `edit`, the step from `before` to `after`, frees on the
/// count: its key, and where it is. `None`: there is none, as far as it can be read.
pub(crate) fn pointed_to(
    before: &Arc<Version>,
    after: &Version,
    edit: &Edit,
    settings: &Settings,
) -> Option<(Vec<u8>, Pointer)> {
    let freed = edit.logs.removed.iter();
    let mut freed = freed
        .filter(|(log, number)| *log == LARGE_LOG && !edit.evacuated.contains(number))
        .filter_map(|(_, number)| before.log_segment(*number));
    freed.find_map(|entry| {
        let mut read = |_: &LogSegment, offset: u32, out: &mut [u8]| entry.stored.read(offset, out);
        let mut sweep = Sweep::new(
            before.region(),
            settings.layout.log_geometry(),
            entry.segment,
        );
        while let Ok(Some(swept)) = sweep.next(&mut read) {
            let mut runs = after.runs().map(|(_, run)| run);
            if runs.any(|run| points_to(before, run, swept.key, swept.at).unwrap_or(false)) {
                return Some((swept.key.to_vec(), swept.at));
            }
        }
        None
    })
}

/// Whether `run` binds `key` to the record at `at` of `before`. Where pointers hold places, only `before` still knows
/// what lies there.
fn points_to(
    before: &Arc<Version>,
    run: &Run,
    key: &[u8],
    at: Pointer,
) -> Result<bool, LevelError> {
    let Some(entry) = run.find(key).filter(|entry| entry.segment.large_bytes > 0) else {
        return Ok(false);
    };
    let reading = RunReading {
        region: before.region(),
        ahead: ReadAhead::SCAN,
        cache: None,
        reach: Reach::Device,
        resolve: Some(Arc::clone(before)),
        counts: false,
    };
    let input = Input {
        entry: entry.clone(),
        range: KeyRange::new(key, Some(successor(key))),
    };
    let input = RunInput {
        inputs: vec![input],
        tree: run.tree.clone(),
    };
    let source = RunSource::new(reading, input)?;
    let found = source.key().and_then(|_| source.entry().pointer());
    Ok(found.is_some_and(|(found, _)| found == at))
}
