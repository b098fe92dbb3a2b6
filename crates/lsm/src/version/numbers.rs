//! Which log segment has a number.
//!
//! Numbers are given out in rising order, so as a rule each log is sorted by them as it is by ordinals, and nothing
//! has to be kept: a search in the log finds one. Once a segment came whose number is below that of the last in its
//! log, every number is kept with the log and the ordinal, from then on.

use std::sync::Arc;

use argosy_base::{LogKind, SegmentNumber};

use super::LogEntry;
use crate::edit::LogSegment;

/// All logs of a version, by [`LogKind::index`], each by ordinal.
pub(super) type Logs = [Arc<Vec<LogEntry>>; LogKind::ALL.len()];

/// See the module documentation. Belongs to the logs of one version. Clones share. Sorted, and in one piece: an
/// edit copies it, as it does the log.
#[derive(Clone, Debug, Default)]
pub(super) struct LogNumbers(Arc<Vec<Named>>);

/// A number, and the log and the ordinal of the segment that has it.
type Named = (SegmentNumber, LogKind, u64);

impl LogNumbers {
    /// The segment `number` in `logs`, if it is in one.
    pub(super) fn find<'l>(&self, logs: &'l Logs, number: SegmentNumber) -> Option<&'l LogEntry> {
        if self.0.is_empty() {
            return logs.iter().find_map(|log| {
                let at = log.partition_point(|entry| entry.segment.number < number);
                log.get(at).filter(|entry| entry.segment.number == number)
            });
        }
        let (_, log, ordinal) = self.0[self.place(number).ok()?];
        let log = &logs[log.index()];
        log.get(log.partition_point(|entry| entry.segment.ordinal < ordinal))
    }

    /// `segment` became the last one of its log in `logs`; `before` was that.
    pub(super) fn added(
        &mut self,
        logs: &Logs,
        segment: LogSegment,
        before: Option<SegmentNumber>,
    ) {
        let named = |log: LogSegment| (log.number, log.log, log.ordinal);
        if !self.0.is_empty() {
            let (Ok(at) | Err(at)) = self.place(segment.number);
            Arc::make_mut(&mut self.0).insert(at, named(segment));
        } else if before.is_some_and(|before| before > segment.number) {
            let all = logs.iter().flat_map(|log| log.iter());
            let mut all: Vec<_> = all.map(|entry| named(entry.segment)).collect();
            all.sort_unstable_by_key(|(number, ..)| *number);
            self.0 = Arc::new(all);
        }
    }

    /// The segment `number` was taken out of its log, which keeps its last one.
    pub(super) fn removed(&mut self, number: SegmentNumber) {
        if let Ok(at) = self.place(number) {
            Arc::make_mut(&mut self.0).remove(at);
        }
    }

    /// Where `number` is, or would be.
    fn place(&self, number: SegmentNumber) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(number, ..)| *number)
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::{Epoch, Lsn};
    use argosy_device::Purpose;

    use super::*;
    use crate::storage::StoredSegment;
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
        for (kind, list) in [(LogKind::Recovery, recovery), (LogKind::Large, large)] {
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
                let log = Arc::make_mut(&mut logs[kind.index()]);
                let before = log.last().map(|last| last.segment.number);
                log.push(LogEntry { segment, stored });
                numbers.added(&logs, segment, before);
                check(&logs, &numbers);
            }
        }
        for number in removed.iter().map(|number| SegmentNumber(*number)) {
            for log in &mut logs {
                Arc::make_mut(log).retain(|entry| entry.segment.number != number);
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
