//! Names that both who gathers the status and who makes metrics of it use.

use argosy_engine::BusyReason;

/// The part of memory that front ends take.
pub(crate) const CLIENTS: &str = "clients";

/// Why a write finds no room, in the order of [`BusyReason`].
pub(crate) const REASONS: [&str; 6] = [
    "log_windows",
    "memtable",
    "compaction_debt",
    "space_debt",
    "device_full",
    "bulk_load",
];

/// The name of `reason`.
pub(crate) const fn reason_name(reason: BusyReason) -> &'static str {
    REASONS[reason as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_name() {
        assert_eq!(reason_name(BusyReason::LogWindows), "log_windows");
        assert_eq!(reason_name(BusyReason::BulkLoad), "bulk_load");
        assert_eq!(BusyReason::BulkLoad as usize + 1, REASONS.len());
    }
}
