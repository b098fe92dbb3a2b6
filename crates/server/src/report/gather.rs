//! Names that both who gathers the status and who makes metrics of it use.

use argosy_engine::BusyReason;

/// The part of memory that front ends take.
pub(crate) const CLIENTS: &str = "clients";

/// Why a write finds no room, in the order of [`BusyReason`].
pub(crate) const REASONS: [&str; 4] = ["log_windows", "memtable", "compaction_debt", "device_full"];

/// The name of `reason`.
pub(crate) const fn reason_name(reason: BusyReason) -> &'static str {
    REASONS[reason as usize]
}
