//! A member of a group that does not serve, and what the courier has brought to it.
//!
//! 1. A checkpoint catches it up. It fetches of that what it lacks, and nothing else.
//! 2. From then on it is live: what is appended is written to its windows, and edits are applied in their order.
//! 3. Where an edit names what the primary has no more, it is detached and begins again.
//!
//! Its position never goes back, except where another primary begins with less than it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use argosy_base::{EditSeq, Epoch, Instant, LogId, Lsn, SegmentNumber, SegmentPart};
use argosy_device::Buffer;

use super::primary::Primary;
use crate::conformance::{Machine, STEPS_MAX};
use crate::shipment::Shipment;
use crate::source::{LogPlace, Next, Piece};
use crate::stored::StoredPart;
use crate::{
    CopyError, CopyEvent, EditNotice, Follower, LogEnd, Pin, PinnedCheckpoint, SealedSegment,
    Source, Stored,
};

/// How often an edit is examined before all is here that it names.
const FETCHES: usize = 8;

/// See the module documentation.
pub(super) struct Backup {
    pub(super) machine: Machine,
    pub(super) copy: Box<dyn Follower>,
    /// Up to where each log has been written to its windows.
    at: BTreeMap<LogId, LogPlace>,
    edits: VecDeque<EditNotice>,
    applying: Option<EditSeq>,
    applied: EditSeq,
    /// Where it stood when that was asked last.
    stood: Lsn,
    /// Segments that came ahead of their edit and are stored.
    ahead: BTreeSet<SegmentNumber>,
    stage: Stage,
    /// Its windows have no memory.
    rests: bool,
}

/// Whether a backup is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Detached,
    Live,
}

/// What came of the next edit of a backup.
pub(super) enum NextEdit {
    /// There is none to apply at present.
    None,
    /// It is being applied.
    Submitted,
    /// The primary has gone on, and has no more what it names.
    Gone,
}

impl Backup {
    /// `copy`, which nobody has caught up.
    pub(super) fn new(machine: Machine, copy: Box<dyn Follower>) -> Self {
        Self {
            machine,
            copy,
            at: BTreeMap::new(),
            edits: VecDeque::new(),
            applying: None,
            applied: EditSeq(0),
            stood: Lsn(0),
            ahead: BTreeSet::new(),
            stage: Stage::Detached,
            rests: false,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.stage == Stage::Live
    }

    pub(super) const fn applied(&self) -> EditSeq {
        self.applied
    }

    /// It may have what the primary has not, so its position may go back once.
    pub(super) const fn allow_less(&mut self) {
        self.stood = Lsn(0);
    }

    /// What it reports, which never goes back.
    fn report(&mut self) {
        let lsn = self.copy.position().lsn;
        assert!(
            lsn >= self.stood,
            "a copy stood at {}, and now at {lsn}",
            self.stood
        );
        self.stood = lsn;
    }

    /// Takes its windows back.
    pub(super) fn detach(&mut self) {
        let fresh = self.machine.renew_windows();
        let position = self.copy.detach(fresh).expect("logs that are whole");
        self.rests = false;
        self.stage = Stage::Detached;
        self.ahead.clear();
        assert_eq!(position, self.copy.position(), "what a detach returns");
        self.report();
    }

    /// Catches it up by a checkpoint. Returns how many finished segments it had and did not fetch.
    pub(super) fn catch_up(&mut self, primary: &Primary) -> u64 {
        let PinnedCheckpoint { checkpoint, pin } = primary.source.checkpoint();
        self.edits.clear();
        self.applying = None;
        self.applied = EditSeq(0);
        self.copy.learn_places(&primary.source.places());
        let had = self.copy.stored();
        let fetched = self.fetch(&*primary.source, &checkpoint.bytes, &[pin]);
        let fetched = fetched.expect("it is pinned");
        let spared = match self.copy.builds_levels() {
            true => 0,
            false => check_fetched(&fetched, &*had, &*primary.store.stored()),
        };
        drop(had);
        let seq = self.copy.submit(&checkpoint.bytes);
        assert_eq!(seq.expect("nothing is missing"), checkpoint.seq);
        let applied = CopyEvent::EditApplied(checkpoint.seq);
        let mut steps = (0..STEPS_MAX).map(|_| self.copy.step().expect("a device without faults"));
        assert!(steps.any(|events| events.contains(&applied)), "it ends");
        self.report();
        self.stage = Stage::Live;
        self.applied = checkpoint.seq;
        let position = self.copy.position();
        let logs = position.logs.iter();
        self.at = logs
            .map(|(log, at)| {
                let (ordinal, offset) = (at.ordinal, at.end);
                (log, LogPlace { ordinal, offset })
            })
            .collect();
        spared
    }

    /// Takes an edit, which is applied after those before it.
    pub(super) fn queue(&mut self, edit: &EditNotice) {
        self.copy.learn_places(&edit.log_places);
        self.edits.push_back(edit.clone());
    }

    /// Begins to apply the next edit, unless one is being applied.
    pub(super) fn submit_next(&mut self, source: &dyn Source) -> NextEdit {
        if self.applying.is_some() {
            return NextEdit::None;
        }
        let Some(edit) = self.edits.pop_front() else {
            return NextEdit::None;
        };
        if edit.seq <= self.applied {
            return NextEdit::None;
        }
        if self.fetch(source, &edit.bytes, &[]).is_none() {
            return NextEdit::Gone;
        }
        let seq = self.copy.submit(&edit.bytes);
        self.applying = Some(seq.expect("nothing is missing"));
        NextEdit::Submitted
    }

    /// The edit that was submitted is applied.
    pub(super) fn edit_applied(&mut self, seq: EditSeq) {
        assert_eq!(self.applying.take(), Some(seq), "it was submitted");
        self.applied = seq;
    }

    /// Gives it what `edit` names, and returns the parts; `None` where the primary has gone on.
    fn fetch(
        &mut self,
        source: &dyn Source,
        edit: &[u8],
        pins: &[Pin],
    ) -> Option<Vec<SegmentPart>> {
        let mut fetched = Vec::new();
        // What it has in the place of something else may lead it astray once.
        for _ in 0..FETCHES {
            let missing = self.copy.missing(edit).expect("an edit of the primary");
            if missing.is_empty() {
                return Some(fetched);
            }
            for part in &missing {
                self.fetch_part(source, *part, pins)?;
            }
            fetched.extend(missing);
        }
        panic!("what is missing does not come to an end: {fetched:?}");
    }

    fn fetch_part(&mut self, source: &dyn Source, part: SegmentPart, pins: &[Pin]) -> Option<()> {
        let number = part.number;
        assert!(!self.ahead.contains(&number), "{number} came ahead");
        let bytes = source.read(part, pins)?;
        let bytes = Arc::new(bytes.expect("a whole segment"));
        match self.copy.put_part(part.number, part.from, &bytes) {
            // What it points to comes later in the list.
            Ok(()) | Err(CopyError::Unplaced { .. }) => Some(()),
            Err(error) => panic!("{part:?} was asked for: {error}"),
        }
    }

    /// Writes one log to its windows, up to `end`.
    pub(super) fn write_log(&mut self, source: &dyn Source, end: &LogEnd) {
        let upto = LogPlace {
            ordinal: end.ordinal,
            offset: end.end,
        };
        let mut piece = Piece::default();
        loop {
            let at = self.at.entry(end.log).or_default();
            match source.piece(end.log, *at, upto, &mut piece) {
                Next::End => return,
                Next::Skip(next) => *at = next,
                Next::Gone => panic!("{at:?} is needed, and no window has it"),
                Next::Write => {
                    *at = piece.next;
                    let logs = self.machine.windows().iter();
                    let mut of_log = logs.filter(|slots| slots.log == end.log);
                    let slots = &of_log.next().expect("a log of the engine").slots;
                    if !piece.header.is_empty() {
                        slots[piece.slot].write(0, &piece.header);
                    }
                    slots[piece.slot].write(piece.at, &piece.bytes);
                }
            }
        }
    }

    /// Gives it a finished segment, if it takes segments ahead of their edits.
    pub(super) fn take_ahead(&mut self, segment: &SealedSegment, epoch: Epoch) {
        let SealedSegment {
            number,
            checksum,
            place,
            ..
        } = *segment;
        let bytes = Buffer::from_slice(&segment.bytes);
        let mut shipment = Shipment::new(number, epoch, bytes, checksum, place);
        let whole = shipment.check(self.copy.region());
        whole.expect("a segment as it was finished");
        match self.copy.rewrite(&mut shipment) {
            Ok(()) => {}
            // It points to a segment that only its edit makes known.
            Err(CopyError::Unplaced { .. }) => return,
            Err(error) => panic!("{number} is not rewritten: {error}"),
        }
        match self.copy.put(shipment) {
            Ok(()) => {}
            Err(CopyError::Refused { .. }) => {
                assert!(!self.copy.holds_unnamed(), "{number} was refused");
            }
            Err(error) => panic!("{number} is not put: {error}"),
        }
    }

    /// A segment that came ahead is stored, so no edit has it fetched.
    pub(super) fn came_ahead(&mut self, number: SegmentNumber) {
        self.ahead.insert(number);
    }

    /// Has it build levels for a while.
    pub(super) fn build(&mut self, now: Instant) {
        for _ in 0..4 {
            let built = self.copy.build(now).expect("a device without faults");
            if !built {
                return;
            }
        }
    }

    /// Gives the memory of its windows back, which have everything durable.
    pub(super) fn rest(&mut self) {
        self.rests = self.copy.rest();
        assert!(self.rests, "a backup has all that is durable everywhere");
    }

    /// Gives its windows memory again, if they rest.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.rests) {
            self.copy.wake().expect("there is memory");
            let mut slots = self.machine.windows().iter().flat_map(|log| &log.slots);
            assert!(slots.all(|slot| slot.is_allocated()), "they are awake");
        }
    }
}

/// Makes sure that nothing was `fetched` of the finished segments that a copy `had` and that the primary `has`, too.
/// Returns how many these are.
fn check_fetched(fetched: &[SegmentPart], had: &dyn Stored, has: &dyn Stored) -> u64 {
    let of_levels = |stored: &dyn Stored| -> BTreeMap<SegmentNumber, StoredPart> {
        let parts = stored.parts().into_iter();
        parts.map(|part| (part.number, part)).collect()
    };
    let (had, has) = (of_levels(had), of_levels(has));
    let mut spared = 0;
    for (number, part) in &has {
        let Some(here) = had.get(number).filter(|here| here.log == part.log) else {
            continue;
        };
        let is_whole = match part.log {
            Some(_) => here.len >= part.len,
            None => here.len == part.len,
        };
        if is_whole {
            let again = fetched.iter().find(|fetched| fetched.number == *number);
            assert!(again.is_none(), "{again:?} is here");
            spared += u64::from(part.log.is_none());
        }
    }
    spared
}
