//! Which log segment has a number.
//!
//! Numbers are given out in rising order, so as a rule each log is sorted by them as it is by ordinals, and nothing
//! has to be kept: a search in the log finds one. Once a segment came whose number is below that of the last in its
//! log, every number is kept with the log and the ordinal, from then on.

use argosy_base::{LogId, SegmentNumber};

use super::LogEntry;
use crate::edit::LogSegment;
use crate::names::logs::LOGS;
use crate::shared::{List, Map};

/// All logs of a version, by [`LogId::index`], each by ordinal.
pub(super) type Logs = [List<LogEntry>; LOGS.len()];

/// See the module documentation. Belongs to the logs of one version. Clones share.
#[derive(Clone, Debug, Default)]
pub(super) struct LogNumbers(Map<SegmentNumber, Named>);

/// The log and the ordinal of a segment.
type Named = (LogId, u64);

impl LogNumbers {
    /// The segment `number` in `logs`, if it is in one.
    pub(super) fn find<'l>(&self, logs: &'l Logs, number: SegmentNumber) -> Option<&'l LogEntry> {
        if self.0.is_empty() {
            let found = |log: &'l List<LogEntry>| {
                let last = log.last_of(|segment| segment.number <= number);
                last.filter(|entry| entry.segment.number == number)
            };
            // Readers look for segments of the large log, which comes last.
            return logs.iter().rev().find_map(found);
        }
        let (log, ordinal) = *self.0.get(&number)?;
        logs[log.index()].last_of(|segment| segment.ordinal <= ordinal)
    }

    /// `segment` became the last one of its log in `logs`; `before` was that.
    pub(super) fn added(
        &mut self,
        logs: &Logs,
        segment: LogSegment,
        before: Option<SegmentNumber>,
    ) {
        if !self.0.is_empty() {
            self.0
                .insert(segment.number, (segment.log, segment.ordinal));
        } else if before.is_some_and(|before| before > segment.number) {
            let all = logs.iter().flat_map(|log| log.iter());
            let named = all
                .map(|LogEntry { segment, .. }| (segment.number, (segment.log, segment.ordinal)));
            self.0 = named.collect();
        }
    }

    /// The segment `number` was taken out of its log, which keeps its last one.
    pub(super) fn removed(&mut self, number: SegmentNumber) {
        self.0.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use argosy_base::{Epoch, Lsn};
    use argosy_device::Purpose;

    use super::*;
    use crate::names::logs::{LARGE_LOG, RECOVERY_LOG};
    use crate::segments::StoredSegment;
    use crate::version::tests::store;

    /// The logs that have these numbers, and what finds them; each is looked for after every step.
    fn find_all(recovery: &[u64], large: &[u64], removed: &[u64]) -> LogNumbers {
        let store = store();
        let (mut logs, mut numbers) = (Logs::default(), LogNumbers::default());
        let check = |logs: &Logs, numbers: &LogNumbers| {
            for number in (0..40).map(SegmentNumber) {
                let all = logs.iter().flat_map(|log| log.iter());
                let expected = all
                    .map(|entry| entry.segment)
                    .find(|log| log.number == number);
                let found = numbers.find(logs, number).map(|entry| entry.segment);
                assert_eq!(found, expected, "{number}");
            }
        };
        for (kind, list) in [(RECOVERY_LOG, recovery), (LARGE_LOG, large)] {
            for (ordinal, number) in (0..).zip(list) {
                let segment = LogSegment {
                    log: kind,
                    ordinal: 2 * ordinal,
                    number: SegmentNumber(*number),
                    epoch: Epoch(1),
                    base_lsn: Lsn(1),
                    end: None,
                };
                let handle = store.allocate(Purpose::Write).unwrap();
                let stored = StoredSegment::new(segment.number, Arc::clone(&store), handle);
                let log = &mut logs[kind.index()];
                let before = log.last().map(|last| last.segment.number);
                log.push(LogEntry {
                    segment,
                    stored,
                    durable: 0,
                });
                numbers.added(&logs, segment, before);
                check(&logs, &numbers);
            }
        }
        for number in removed.iter().map(|number| SegmentNumber(*number)) {
            for log in &mut logs {
                let at = log.iter().position(|entry| entry.segment.number == number);
                at.map(|at| log.remove(at));
            }
            numbers.removed(number);
            check(&logs, &numbers);
        }
        numbers
    }

    #[test]
    fn numbers_that_rise_are_found_and_not_kept() {
        let numbers = find_all(&[1, 4, 9], &[2, 3, 30], &[4, 2]);
        assert!(numbers.0.is_empty());
    }

    #[test]
    fn numbers_that_do_not_rise_are_kept_and_found() {
        let numbers = find_all(&[5, 7, 6, 20], &[30, 1, 2, 9], &[7, 30, 1]);
        assert_eq!(numbers.0.len(), 5);
        let numbers = find_all(&[1, 2], &[9, 8], &[9]);
        assert_eq!(numbers.0.len(), 3);
    }
}
