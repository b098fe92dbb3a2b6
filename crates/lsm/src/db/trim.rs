//! Which log segments an edit can take away.
//!
//! A segment of the recovery log is needed while it holds an LSN that replay would begin with; one
//! of the large log as long, and as long as pointers into it count
//! ([`LogUse`](crate::version::LogUse)), or into one before it with a
//! value that may reach into it: a pointer names the segment in which a value begins. Where collecting
//! has moved all that lived in it, and what moved it is in the levels, pointers into it are hidden, and
//! it is *evacuated*: it goes although levels point into it. With what a
//! segment begins is read from it once, when it would be free otherwise ([`unknown_beginning`]); until
//! then it counts as the rest of a value. The last segment of a chain stays, and so does one that is
//! not sealed. An edit is written first and trimmed afterwards, so that the pointers that it drops
//! and adds are counted. A segment of the medium log goes with the last pointer into it.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_base::{AddressMode, LogKind, Lsn, SegmentNumber};

use crate::edit::{Edit, LogSegment, MEDIUM_LOG, Place, Reference, RunId};
use crate::version::Version;

/// The highest LSN in each sealed log segment, as far as it is known.
#[derive(Debug)]
pub(crate) struct LastLsns {
    known: BTreeMap<SegmentNumber, Lsn>,
    /// For segments from before the engine started: the last LSN of the history then.
    before: Lsn,
    /// Whether a segment of the large log begins with the rest of a value, where that was read.
    inside_value: BTreeMap<SegmentNumber, bool>,
    /// Of these, those that could not be read.
    unread: BTreeSet<SegmentNumber>,
    /// Segments of the large log of which all that lived was written again, and the LSN up to which
    /// writes took it out of them.
    moved: BTreeMap<SegmentNumber, Lsn>,
}

impl LastLsns {
    /// Nothing is known but that all segments end at or below `before`.
    pub(crate) const fn new(before: Lsn) -> Self {
        Self {
            known: BTreeMap::new(),
            before,
            inside_value: BTreeMap::new(),
            unread: BTreeSet::new(),
            moved: BTreeMap::new(),
        }
    }

    /// No LSN in `number` is above `last`.
    pub(crate) fn set(&mut self, number: SegmentNumber, last: Lsn) {
        self.known.insert(number, last);
    }

    /// No LSN in `number` is above this.
    pub(crate) fn get(&self, number: SegmentNumber) -> Lsn {
        self.known.get(&number).copied().unwrap_or(self.before)
    }

    /// Whether large-log segment `number` begins with the rest of a value.
    pub(crate) fn set_inside_value(&mut self, number: SegmentNumber, inside: bool) {
        self.inside_value.insert(number, inside);
    }

    /// The beginning of large-log segment `number` cannot be read. It counts as the rest of a value, so that the
    /// segment stays, until [`look_again`](Self::look_again).
    pub(crate) fn set_unread(&mut self, number: SegmentNumber) {
        self.inside_value.insert(number, true);
        self.unread.insert(number);
    }

    /// What could not be read is unknown again.
    pub(crate) fn look_again(&mut self) {
        for number in std::mem::take(&mut self.unread) {
            self.inside_value.remove(&number);
        }
    }

    /// Nothing in large-log segment `number` lives any more, by writes up to `last`.
    pub(crate) fn set_moved(&mut self, number: SegmentNumber, last: Lsn) {
        self.moved.insert(number, last);
    }

    /// Up to where writes took everything out of segment `number`, if they did.
    pub(crate) fn moved(&self, number: SegmentNumber) -> Option<Lsn> {
        self.moved.get(&number).copied()
    }

    /// Whether all pointers of levels into segment `number` are hidden by entries of the levels, where these
    /// hold everything below `replay_from`.
    fn is_hidden(&self, number: SegmentNumber, version: &Version, replay_from: Lsn) -> bool {
        let logical = version.addresses() == AddressMode::Logical;
        let moved = self.moved(number).filter(|_| logical);
        moved.is_some_and(|last| last < replay_from)
    }

    /// The segment is gone.
    fn forget(&mut self, number: SegmentNumber) {
        self.moved.remove(&number);
        self.known.remove(&number);
        self.inside_value.remove(&number);
        self.unread.remove(&number);
    }
}

/// Follows a chain from front to back, and knows how far values reach into later segments.
#[derive(Default)]
struct Reach {
    /// The last segment into which a value that is referenced may reach.
    to: Option<u64>,
    /// The segment before.
    before: Option<u64>,
}

impl Reach {
    /// Goes on to the next segment. Whether a value that is referenced reaches into it.
    fn enters(&mut self, ordinal: u64, inside_value: Option<bool>) -> bool {
        let follows = self.before.is_some_and(|before| before + 1 == ordinal);
        self.before = Some(ordinal);
        if !follows || inside_value == Some(false) {
            self.to = None;
        }
        self.to >= Some(ordinal)
    }

    /// The present segment is referenced.
    const fn begins(&mut self, ordinal: u64, reach: u64) {
        self.to = Some(ordinal + reach);
    }
}

/// A segment of the large log that would be free if it did not begin with the rest of a value, and of
/// which nobody has looked whether it does.
pub(crate) fn unknown_beginning(
    version: &Version,
    reach: u64,
    lasts: &LastLsns,
) -> Option<LogSegment> {
    let mut reached = Reach::default();
    let chain = version.log(LogKind::Large);
    let mut sealed = chain
        .range(0..chain.len().saturating_sub(1))
        .map(|entry| entry.segment)
        .filter(|segment| segment.end.is_some());
    sealed.find(|segment| {
        let number = segment.number;
        let known = lasts.inside_value.get(&number).copied();
        let entered = reached.enters(segment.ordinal, known);
        let replay_from = version.replay_from();
        let hidden = lasts.is_hidden(number, version, replay_from);
        let referenced = version.log_refs(number) > 0 && !hidden;
        if referenced {
            reached.begins(segment.ordinal, reach);
        }
        let old = lasts.get(number) < version.replay_from();
        entered && !referenced && old && known.is_none()
    })
}

/// How many segments of the large log a value may reach into behind the one in which it begins:
/// its bytes, a 16th for padding at the ends of windows, and headers.
pub(crate) const fn reach(segment_bytes: usize) -> u64 {
    (VALUE_BYTES_MAX + VALUE_BYTES_MAX / 8).div_ceil(segment_bytes) as u64
}

/// Adds to `edit`, which changes `version` and counts the pointers that it adds and drops, the removals
/// that it makes possible. `reach` is [`reach`] of the geometry.
pub(crate) fn trim(version: &Version, reach: u64, lasts: &mut LastLsns, edit: &mut Edit) {
    let replay_from = edit.replay_from.unwrap_or(version.replay_from());
    for log in LogKind::ALL {
        let mut reached = Reach::default();
        let chain = version.log(log);
        for entry in chain.range(0..chain.len().saturating_sub(1)) {
            let segment = entry.segment;
            let number = segment.number;
            let inside_value = lasts.inside_value.get(&number).copied();
            let mut referenced = reached.enters(segment.ordinal, inside_value);
            let pointed = log == LogKind::Large && refs_after(version, edit, number) > 0;
            if pointed && !lasts.is_hidden(number, version, replay_from) {
                reached.begins(segment.ordinal, reach);
                referenced = true;
            }
            if segment.end.is_some() && lasts.get(number) < replay_from && !referenced {
                edit.logs_removed.push((log, number));
                edit.evacuated.extend(pointed.then_some(number));
                lasts.forget(number);
            }
        }
    }
    for number in version.medium_log().keys() {
        if refs_after(version, edit, *number) == 0 {
            edit.removed.push(Place {
                level: MEDIUM_LOG,
                run: RunId(0),
                number: *number,
            });
        }
    }
}

/// Bytes to which pointers lead in segment `number` once `edit` is applied to `version`.
fn refs_after(version: &Version, edit: &Edit, number: SegmentNumber) -> u64 {
    let of = |reference: &Reference| reference.number;
    let change = edit.references.binary_search_by_key(&number, of);
    let change = change.ok().map(|at| edit.references[at]);
    let (added, dropped) = change.map_or((0, 0), |change| (change.added, change.dropped));
    (version.log_refs(number) + added).saturating_sub(dropped)
}
