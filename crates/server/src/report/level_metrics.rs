//! `/metrics`: levels and logs, of all copies here.

use super::families::Families;
use super::status::Status;

pub(super) fn levels(page: &mut Families, status: &Status) {
    let all = || status.regions.iter().flat_map(|region| &region.levels);
    let deepest = all().map(|level| level.level).max().unwrap_or(0);
    let mut bytes = page.gauge(
        "argosy_level_bytes",
        "Bytes of segments, by level, of all copies here.",
    );
    for level in 1..=deepest.max(1) {
        let sum = all().filter(|l| l.level == level).map(|l| l.bytes).sum();
        bytes.count(&[("level", &level.to_string())], sum);
    }
    type Of = fn(&super::status::LogStatus) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "argosy_log_bytes",
            "Bytes of records in sealed log segments, of all copies here.",
            |log| log.bytes,
        ),
        (
            "argosy_log_dead_bytes",
            "Of these, bytes that no level points to: what garbage collection could free.",
            |log| log.dead_bytes,
        ),
    ];
    for (name, help, of) in families {
        let mut family = page.gauge(name, help);
        for log in ["recovery", "large"] {
            let logs = status.regions.iter().flat_map(|region| &region.logs);
            let sum = logs.filter(|l| l.log == log).map(of).sum();
            family.count(&[("log", log)], sum);
        }
    }
}
