//! Whether the windows that a killed process left are whole, where it alone wrote them.

use argosy_base::Lsn;

use super::logs::recover_logs;
use super::{LeftWindows, Problem, ProblemKind};
use crate::db::promote::find_behind;
use crate::settings::Settings;
use crate::version::Version;

/// What is wrong with `windows` of the region of `version`, which has no other members. Where logs cannot be
/// read at all [`verify_region`](super::verify_region) says so.
#[must_use]
pub fn verify_windows(
    version: &Version,
    windows: &LeftWindows,
    settings: &Settings,
) -> Vec<Problem> {
    let geometry = settings.layout.log_geometry();
    let Ok(recovered) = recover_logs(version, geometry, windows, |_| {}) else {
        return Vec::new();
    };
    let in_levels = Lsn(version.replay_from().0.saturating_sub(1));
    let behind = find_behind(version, geometry, windows, recovered.last.max(in_levels));
    let problem = behind.map(|behind| Problem {
        kind: ProblemKind::Damaged,
        part: "log windows".to_owned(),
        region: Some(version.region()),
        number: Some(behind.number),
        place: None,
        offset: behind.offset,
        what: format!(
            "{} is missing, and {} records from there on are whole, the first of them here",
            behind.missing, behind.records
        ),
    });
    problem.into_iter().collect()
}
