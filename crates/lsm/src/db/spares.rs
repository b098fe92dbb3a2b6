//! Log segments that are declared and not written yet, and how many of them each log needs.

use std::collections::VecDeque;

use argosy_base::{EditSeq, LogId};

use super::demand::Demand;
use crate::edit::LogSegment;
use crate::names::logs::{LOGS, Logs};

/// See the module documentation.
#[derive(Default)]
pub(super) struct Spares {
    /// Those whose edit is durable here, by the edit that declared them.
    waiting: VecDeque<(EditSeq, LogSegment)>,
    /// By log: what is known of how fast it goes through its segments.
    demand: [Demand; LOGS.len()],
}

impl Spares {
    /// The edit `seq` added this segment; it may be written once every member has the edit.
    pub(super) fn add(&mut self, seq: EditSeq, segment: LogSegment) {
        self.waiting.push_back((seq, segment));
    }

    /// Gives `logs` the segments whose edits everybody has. Returns whether there are any.
    pub(super) fn provide(&mut self, everywhere: EditSeq, logs: &mut Logs) -> bool {
        let mut any = false;
        while let Some((seq, segment)) = self.waiting.front().copied()
            && seq <= everywhere
        {
            self.waiting.pop_front();
            let log = logs.log_mut(segment.log);
            let segment_bytes = u64::from(log.windows().geometry().segment_bytes());
            let demand = &mut self.demand[segment.log.index()];
            demand.provided(log.at(), segment_bytes, log.is_at_its_end());
            log.provide_segment(segment);
            any = true;
        }
        any
    }

    /// Whether one for `log` is on its way.
    pub(super) fn has(&self, log: LogId) -> bool {
        self.waiting.iter().any(|(_, spare)| spare.log == log)
    }

    /// How many segments `log` needs, where none are on their way to it: at most `most`. They are asked for with that.
    pub(super) fn ask(&mut self, log: LogId, logs: &Logs, segment_bytes: u64, most: u64) -> u64 {
        let coming = self.has(log);
        let writer = logs.log(log);
        let demand = &mut self.demand[log.index()];
        if coming || !writer.wants_segment(demand.ahead(segment_bytes, most)) {
            return 0;
        }
        demand.ask(writer.at(), segment_bytes, most)
    }
}
