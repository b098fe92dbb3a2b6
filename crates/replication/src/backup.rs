//! A backup's side of a region: reporting, catching up, and following.
//!
//! ```text
//!          prepare               offer                  checkpoint applied, logs complete
//!   Idle ──────────▶ Reported ──────────▶ Syncing ─────────────────────────────▶ Following
//!    ▲                  │ first edit or flush, where nothing was to catch up ───────▲ │
//!    └─────────────────────── link down, from anywhere ───────────────────────────────┘
//! ```
//!
//! Edits, and a checkpoint is one, are applied one at a time, in order: the driver *examines* an
//! edit and tells which parts of segments this member does not hold; they are *fetched* from the
//! primary, a few at a time; then the edit is applied. An edit that names a segment which was
//! shipped needs no fetch. Shipments belong to edits that come behind them; if a checkpoint stands
//! for such an edit, nobody asks for them any more, and they are given up: at the latest when the
//! edit comes, which is then of no use either. Where the primary no longer has a segment that an edit names, a new
//! checkpoint is asked for, and the edits in between are dropped.
//!
//! Invariants, asserted here:
//!
//! - I3: an edit is handed to [`BackupAction::Apply`] only when the examination of that very edit found
//!   nothing missing.
//! - Edits are applied in rising order, and nothing of an attempt that is over is acted upon.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use argosy_base::{EditSeq, FlushRange, SegmentPart};

/// Fetches under way at one time.
pub const FETCHES_MAX: usize = 2;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupEvent {
    /// The link to the primary is gone.
    LinkDown,
    /// The primary asks to revoke the windows and to report.
    Prepare {
        /// The primary's number for what follows.
        attempt: u64,
    },
    /// The primary offers a checkpoint; the driver keeps it under its number.
    Offer {
        /// The attempt it belongs to.
        attempt: u64,
        /// The edit that the checkpoint stands for.
        seq: EditSeq,
    },
    /// The primary sends an edit; the driver keeps it under its number.
    Edit {
        /// The attempt it belongs to.
        attempt: u64,
        /// The edit.
        seq: EditSeq,
    },
    /// What [`BackupAction::Examine`] found.
    Examined {
        /// The edit.
        seq: EditSeq,
        /// What this member does not hold.
        missing: Vec<SegmentPart>,
    },
    /// A part that was fetched is here.
    Fetched {
        /// The part.
        part: SegmentPart,
    },
    /// The primary no longer has a part that was to be fetched.
    Gone {
        /// The part.
        part: SegmentPart,
    },
    /// Edit `seq` is durable here and part of the version.
    Applied {
        /// The edit.
        seq: EditSeq,
    },
    /// The primary writes nothing to the windows until it has heard that they have memory.
    Rest {
        /// The attempt it belongs to.
        attempt: u64,
    },
    /// The primary asks for memory for the windows.
    Wake {
        /// The attempt it belongs to.
        attempt: u64,
    },
    /// The primary asks to make `range` durable.
    Flush {
        /// The attempt it belongs to.
        attempt: u64,
        /// What to flush.
        range: FlushRange,
    },
    /// `range` is durable here.
    Flushed {
        /// What was flushed.
        range: FlushRange,
    },
}

/// What the driver has to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupAction {
    /// Revoke the windows, find where the log ends, offer fresh windows with the same bytes, and
    /// send the report under `attempt`.
    Report {
        /// To be repeated in the report.
        attempt: u64,
    },
    /// Tell, as [`BackupEvent::Examined`], what edit `seq` names that is not held here.
    Examine {
        /// The edit.
        seq: EditSeq,
    },
    /// Ask the primary for `part`.
    Fetch {
        /// The part.
        part: SegmentPart,
    },
    /// Make edit `seq` durable and part of the version.
    Apply {
        /// The edit.
        seq: EditSeq,
    },
    /// Forget the edits up to `seq` that were kept: they are applied, or superseded.
    Forget {
        /// The last edit to forget.
        seq: EditSeq,
    },
    /// Tell the primary that every edit up to `seq` is applied.
    SendApplied {
        /// The attempt.
        attempt: u64,
        /// The edit.
        seq: EditSeq,
    },
    /// Tell the primary that the checkpoint is applied, and where the log now ends.
    SendCaughtUp {
        /// The attempt.
        attempt: u64,
    },
    /// Ask the primary for a new checkpoint.
    SendCheckpointWanted {
        /// The attempt.
        attempt: u64,
    },
    /// A checkpoint stands for an edit that has come: what was shipped for that edit goes, unless
    /// the checkpoint names it. Where the checkpoint is applied already, `now`; else when it is.
    GiveUpArrivals {
        /// Nothing is left to be applied.
        now: bool,
    },
    /// Give the memory of the own windows back, unless something in them is not durable here.
    Release,
    /// Take memory for the own windows again, and tell the primary that they are awake, under `attempt`.
    Allocate {
        /// To be repeated in the message.
        attempt: u64,
    },
    /// Make `range` of the own windows durable.
    Persist {
        /// What to flush.
        range: FlushRange,
    },
    /// Tell the primary that `range` is durable here.
    SendFlushed {
        /// The attempt.
        attempt: u64,
        /// What was flushed.
        range: FlushRange,
    },
}

/// What is being done about the first edit of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    Nothing,
    Examining,
    Fetching {
        waiting: VecDeque<SegmentPart>,
        under_way: Vec<SegmentPart>,
    },
    Applying,
    /// Waiting for a new checkpoint.
    Stuck,
}

/// An edit that is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queued {
    seq: EditSeq,
    checkpoint: bool,
}

/// A region's backup. See the module documentation.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The attempt that the primary speaks under, once it has.
    attempt: Option<u64>,
    applied: EditSeq,
    /// Edits to apply, in rising order; the first is being worked on.
    queue: VecDeque<Queued>,
    work: Work,
    /// What the primary asked to make durable under this attempt, and is not. As many as the primary flushes at a time.
    flushes: Vec<FlushRange>,
    /// An edit whose application was begun under an attempt that is over. It cannot be taken
    /// back: nothing else is applied before it has ended.
    straggler: Option<Straggler>,
}

/// What is left of an attempt that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Straggler {
    /// The last edit that was kept under it: those behind the one that is being applied are of no use. The
    /// primary's next ones have the same numbers, and may be others, where it lost its copy.
    last: EditSeq,
}

impl Backup {
    /// A backup whose version stands at edit `applied`.
    #[must_use]
    pub const fn new(applied: EditSeq) -> Self {
        Self {
            attempt: None,
            applied,
            queue: VecDeque::new(),
            work: Work::Nothing,
            flushes: Vec::new(),
            straggler: None,
        }
    }

    /// The attempt that is acted upon, if there is one.
    #[must_use]
    pub const fn attempt(&self) -> Option<u64> {
        self.attempt
    }

    /// The last edit applied.
    #[must_use]
    pub const fn applied(&self) -> EditSeq {
        self.applied
    }

    /// Whether an edit is being applied that cannot be taken back, although its attempt is over.
    #[must_use]
    pub const fn has_straggler(&self) -> bool {
        self.straggler.is_some()
    }

    /// Whether an edit is still waiting for something.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// One step. Messages of an attempt that is over change nothing.
    pub fn step(&mut self, event: BackupEvent, actions: &mut Vec<BackupAction>) {
        match event {
            BackupEvent::LinkDown => self.reset(actions),
            BackupEvent::Prepare { attempt } => {
                self.reset(actions);
                self.attempt = Some(attempt);
                if self.straggler.is_none() {
                    actions.push(BackupAction::Report { attempt });
                }
            }
            BackupEvent::Offer { attempt, seq } if self.attempt == Some(attempt) => {
                self.offered(seq, actions);
            }
            BackupEvent::Edit { attempt, seq } if self.attempt == Some(attempt) => {
                if seq > self.last() {
                    self.queue.push_back(Queued {
                        seq,
                        checkpoint: false,
                    });
                    self.work_on(actions);
                } else {
                    let now = self.queue.is_empty();
                    actions.push(BackupAction::GiveUpArrivals { now });
                }
            }
            BackupEvent::Rest { attempt } if self.attempt == Some(attempt) => {
                actions.push(BackupAction::Release);
            }
            BackupEvent::Wake { attempt } if self.attempt == Some(attempt) => {
                actions.push(BackupAction::Allocate { attempt });
            }
            BackupEvent::Offer { .. }
            | BackupEvent::Edit { .. }
            | BackupEvent::Rest { .. }
            | BackupEvent::Wake { .. } => {}
            BackupEvent::Examined { seq, missing } => self.examined(seq, missing, actions),
            BackupEvent::Fetched { part } => self.fetched(part, actions),
            BackupEvent::Gone { part } => self.gone(part, actions),
            BackupEvent::Applied { seq } => self.applied_one(seq, actions),
            BackupEvent::Flush { attempt, range } => {
                if self.attempt == Some(attempt) {
                    self.flushes.push(range);
                    actions.push(BackupAction::Persist { range });
                }
            }
            BackupEvent::Flushed { range } => self.flushed(range, actions),
        }
    }

    /// Whether an edit that comes now is of use: the driver keeps no other. Under the number of a
    /// checkpoint that stands for it, the checkpoint is kept.
    #[must_use]
    pub fn takes(&self, attempt: u64, seq: EditSeq) -> bool {
        self.attempt == Some(attempt) && seq > self.last()
    }

    /// The last edit that is applied, or is to be.
    fn last(&self) -> EditSeq {
        self.queue.back().map_or(self.applied, |queued| queued.seq)
    }

    /// Ends the attempt.
    fn reset(&mut self, actions: &mut Vec<BackupAction>) {
        self.attempt = None;
        self.flushes.clear();
        if let Some(last) = self.queue.back().map(|queued| queued.seq) {
            if self.work == Work::Applying || self.straggler.is_some() {
                self.straggler = Some(Straggler { last });
            } else {
                actions.push(BackupAction::Forget { seq: last });
            }
        }
        self.queue.clear();
        self.work = Work::Nothing;
    }

    /// A checkpoint stands for everything before it, so what is queued is dropped, but for an
    /// edit that is being applied.
    fn offered(&mut self, seq: EditSeq, actions: &mut Vec<BackupAction>) {
        let applying = self.work == Work::Applying;
        self.queue.truncate(usize::from(applying));
        if !applying {
            self.work = Work::Nothing;
        }
        self.queue.push_back(Queued {
            seq,
            checkpoint: true,
        });
        self.work_on(actions);
    }

    /// Begins with the first edit of the queue, unless something is under way.
    fn work_on(&mut self, actions: &mut Vec<BackupAction>) {
        if self.work != Work::Nothing || self.straggler.is_some() {
            return;
        }
        if let Some(first) = self.queue.front() {
            self.work = Work::Examining;
            actions.push(BackupAction::Examine { seq: first.seq });
        }
    }

    fn examined(
        &mut self,
        seq: EditSeq,
        missing: Vec<SegmentPart>,
        actions: &mut Vec<BackupAction>,
    ) {
        let first = self.queue.front().map(|queued| queued.seq);
        if self.work != Work::Examining || first != Some(seq) {
            return;
        }
        if missing.is_empty() {
            self.work = Work::Applying;
            actions.push(BackupAction::Apply { seq });
        } else {
            self.work = Work::Fetching {
                waiting: missing.into(),
                under_way: Vec::new(),
            };
            self.fetch_more(actions);
        }
    }

    /// Keeps fetches under way, and examines the edit again when the last has come.
    fn fetch_more(&mut self, actions: &mut Vec<BackupAction>) {
        let Work::Fetching { waiting, under_way } = &mut self.work else {
            return;
        };
        while under_way.len() < FETCHES_MAX {
            let Some(part) = waiting.pop_front() else {
                break;
            };
            under_way.push(part);
            actions.push(BackupAction::Fetch { part });
        }
        if under_way.is_empty() {
            self.work = Work::Nothing;
            self.work_on(actions);
        }
    }

    fn fetched(&mut self, part: SegmentPart, actions: &mut Vec<BackupAction>) {
        let Work::Fetching { under_way, .. } = &mut self.work else {
            return;
        };
        let Some(at) = under_way.iter().position(|fetch| *fetch == part) else {
            return;
        };
        under_way.swap_remove(at);
        self.fetch_more(actions);
    }

    fn gone(&mut self, part: SegmentPart, actions: &mut Vec<BackupAction>) {
        let Work::Fetching { under_way, .. } = &self.work else {
            return;
        };
        if !under_way.contains(&part) {
            return;
        }
        let attempt = self.attempt.expect("nothing is fetched outside an attempt");
        self.work = Work::Stuck;
        actions.push(BackupAction::SendCheckpointWanted { attempt });
    }

    /// What was asked for under an attempt that is over is told to nobody.
    fn flushed(&mut self, range: FlushRange, actions: &mut Vec<BackupAction>) {
        let asked = self.flushes.iter().position(|asked| *asked == range);
        if let (Some(attempt), Some(asked)) = (self.attempt, asked) {
            self.flushes.swap_remove(asked);
            actions.push(BackupAction::SendFlushed { attempt, range });
        }
    }

    fn applied_one(&mut self, seq: EditSeq, actions: &mut Vec<BackupAction>) {
        // A checkpoint may state the version that is there: for the log bytes that it names.
        assert!(
            seq >= self.applied,
            "edits are applied in order: {seq} after {}",
            self.applied
        );
        self.applied = seq;
        if let Some(Straggler { last }) = self.straggler.take() {
            actions.push(BackupAction::Forget { seq: last });
            if let Some(attempt) = self.attempt {
                actions.push(BackupAction::Report { attempt });
            }
            return;
        }
        actions.push(BackupAction::Forget { seq });
        let first = self
            .queue
            .pop_front()
            .expect("an edit is applied from the queue");
        assert_eq!(
            (first.seq, &self.work),
            (seq, &Work::Applying),
            "one edit at a time"
        );
        self.work = Work::Nothing;
        let attempt = self.attempt.expect("nothing is queued outside an attempt");
        actions.push(BackupAction::SendApplied { attempt, seq });
        if first.checkpoint {
            actions.push(BackupAction::SendCaughtUp { attempt });
        }
        self.work_on(actions);
    }
}
