//! The logs of a region.

use argosy_base::LogId;

/// Small and medium pairs until L0 is compacted. DO NOT CHANGE THE IDS: they are stored.
pub const RECOVERY_LOG: LogId = LogId::FIRST;

/// Large pairs, until they are garbage-collected.
pub const LARGE_LOG: LogId = LogId::new(2).expect("an id is above 0");

// 3 is kept for the medium log.

/// Every log that a region has, by rising id.
pub const LOGS: [LogId; 2] = [RECOVERY_LOG, LARGE_LOG];

/// The writers of these logs.
pub type Logs = argosy_log::LogGroup<{ LOGS.len() }>;

/// The history that these logs hold after a stop.
pub type Recovered = argosy_log::RecoveredLogs<{ LOGS.len() }>;

/// The log stored as `raw`, or `None` where a region has no log of that id.
#[must_use]
pub fn stored_log(raw: u8) -> Option<LogId> {
    LogId::new(raw).filter(|log| has_log(*log))
}

/// Whether a region has this log.
#[must_use]
pub fn has_log(log: LogId) -> bool {
    log.index() < LOGS.len()
}

/// A log's name in one word.
#[must_use]
pub fn log_word(log: LogId) -> &'static str {
    match log {
        RECOVERY_LOG => "recovery",
        LARGE_LOG => "large",
        _ => "unknown",
    }
}

/// A log's name.
#[must_use]
pub fn log_name(log: LogId) -> &'static str {
    match log {
        RECOVERY_LOG => "recovery log",
        LARGE_LOG => "large log",
        _ => "unknown log",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_log_keeps_its_stored_value() {
        assert_eq!(LOGS.map(LogId::raw), [1, 2]);
        assert_eq!([1, 2].map(stored_log), LOGS.map(Some));
        assert_eq!([0, 3, 8, 9].map(stored_log), [None; 4]);
    }
}
