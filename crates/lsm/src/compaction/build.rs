//! Turns a sorted source into level segments, in bounded steps that wait for nothing.
//!
//! ```text
//!            merge                  write, offer
//!  source ---------> builder -----------------------> outputs ----> edit
//! ```
//!
//! A step does what can be done at once and returns:
//!
//! 1. Finished segments are offered to the observer, in order, until it refuses one, and their
//!    writes are asked for. A segment's bytes are let go when both are done; where the cache has room left,
//!    its leaves, or pages of medium values, stay in memory, since what was written last is likely to be read.
//! 2. Unless `HELD_MAX` finished segments are still held, pairs are merged into the present
//!    segment, about `step_bytes` of them. A full segment takes a place on the device, and its write
//!    is submitted.
//! 3. Behind the last pair, when nothing is held any more, the build is done.
//!
//! A build makes self-contained segments, or a tree: then each finished leaf segment goes on to its index
//! ([`growing`](super::growing)), and the index segments which that finishes are written and offered like others,
//! before more pairs are merged. The nodes of a segment get their parents when the segment has its
//! place, so segments are offered bottom-up.
//!
//! Tombstones are left out where no run below the target may hold their key. What has expired by the
//! region's time as of the build's beginning becomes a tombstone: it may shadow something older. A flush may put
//! medium values in segments of their own, and a merge into the last level takes them in place again
//! ([`medium`](super::medium)).
//!
//! Reading may block the calling thread: sources read ahead in long reads. Invariant: outputs are
//! in key order without overlap, each stands for its first key up to its last, and until an edit
//! names them they exist for nobody (I3).

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::range::successor;
use argosy_base::{KeyRange, Pointer, SegmentNumber};
use argosy_device::Purpose;
use argosy_engine::{EngineError, Observer, SealedSegment};

use super::below::Below;
use super::growing::GrowingTree;
use super::references::{Passed, PointerCounts};
use super::target::number_of;
pub(crate) use super::target::{RunShape, Target};
use super::values::{Finished, Turned, Values};
use crate::addresses::Pointers;
use crate::cache::{CacheKey, NodeCache};
use crate::edit::{LevelSegment, Reference};
use crate::level::tree_builder::TreeStep;
use crate::level::{BuiltSegment, Leaf, SegmentBuilder, SegmentReader};
use crate::merge::Source;
use crate::names::{Entry, Form, SegmentName, Tree};
use crate::segments::StoredSegment;
use crate::settings::HELD_MAX;
use crate::storage::Storage;
use crate::version::Version;

/// What a step of a build may use.
pub(crate) struct Tools<'a> {
    /// Gives segments their numbers and places.
    pub storage: &'a mut Storage,
    /// Who ships what is built.
    pub observer: Option<&'a dyn Observer>,
    /// Keeps leaves of outputs, while it has room.
    pub cache: Option<&'a Arc<NodeCache>>,
    /// What the outputs are, for who may use how much of the reserve.
    pub purpose: Purpose,
    /// Bytes to merge, roughly.
    pub step_bytes: usize,
    /// A planted mistake: what has expired is left out, whatever it shadows.
    pub forgets_expired: bool,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// Something was done.
    Progress,
    /// A write, the observer or a segment number is waited for.
    Waiting,
    /// The device has no free segment. Give the build up, so that others have what it holds.
    DeviceFull,
    /// All outputs are written and taken.
    Done,
}

/// A finished segment whose bytes are still needed.
struct Held {
    name: SegmentName,
    form: Form,
    sealed: SealedSegment,
    stored: Arc<StoredSegment>,
    offered: bool,
}

impl Held {
    /// Puts what readers look for in the segment into `cache`, if that has room left for all of it.
    fn stay_in(&self, cache: &Arc<NodeCache>) {
        let has_room = || cache.makes_room(self.sealed.bytes.len());
        match self.form {
            Form::SelfContained if has_room() => self.keep_leaves(cache),
            Form::Medium if has_room() => {
                self.stored.keep_pages(self.name, &self.sealed.bytes, cache);
            }
            _ => {}
        }
    }

    /// Opens the segment's reader, and puts its leaves into `cache`, if the reader is pinned there: by it they are
    /// found again when the segment is given away.
    fn keep_leaves(&self, cache: &Arc<NodeCache>) {
        let SealedSegment { number, bytes, .. } = &self.sealed;
        let key = CacheKey::reader(self.name.region, *number);
        let len = u32::try_from(bytes.len()).expect("a segment has at most 2 MiB");
        let open = |_: &StoredSegment| SegmentReader::open(self.name, len, &**bytes);
        let opened = self.stored.reader(key, cache, open);
        let (Ok(_), Some(reader)) = (opened, self.stored.pinned_reader()) else {
            return;
        };
        for leaf in 0..reader.leaves() {
            let span = reader.leaf_span(leaf);
            let built = &bytes[span.start as usize..span.end as usize];
            // It has just been made: it is not checked.
            cache.keep_leaf(CacheKey::leaf(self.name, leaf), Leaf::of_built(built));
        }
    }
}

/// A build under way.
pub(crate) struct Build<S> {
    source: S,
    target: Target,
    below: Below,
    values: Values,
    builder: Option<SegmentBuilder>,
    /// Where the segments make up one.
    tree: Option<GrowingTree>,
    /// Finished, but without a place on the device.
    unplaced: Option<BuiltSegment>,
    /// There was none for a medium segment.
    no_room: bool,
    held: VecDeque<Held>,
    outputs: Vec<LevelSegment>,
    counts: PointerCounts,
    /// Bytes of keys and values that were merged, and that nobody was told of.
    merged_bytes: u64,
}

impl<S: Source> Build<S> {
    /// A build of everything in `source`; `below` knows the runs that its tombstones may shadow.
    #[must_use]
    pub(crate) fn new(source: S, target: Target, below: Below) -> Self {
        Self {
            tree: target.tree().map(GrowingTree::new),
            source,
            target,
            below,
            builder: None,
            unplaced: None,
            no_room: false,
            values: Values::Stay,
            held: VecDeque::new(),
            outputs: Vec::new(),
            counts: PointerCounts::default(),
            merged_bytes: 0,
        }
    }

    /// The same, with medium values where `values` says.
    #[must_use]
    pub(crate) fn with(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// The same, of a source that is made of levels of `version`: their pointers are counted already.
    #[must_use]
    pub(crate) fn of_levels(self, version: Arc<Version>) -> Self {
        Self {
            counts: PointerCounts::of_levels(version),
            ..self
        }
    }

    /// Plants the mistake `count_unwritten`.
    pub(crate) const fn count_unwritten(&mut self, planted: bool) {
        self.counts.count_unwritten(planted);
    }

    /// The pointers that come into the levels with the outputs or leave them, once the build is done. To be
    /// asked once. `head` is a version that has what the pointers lead to.
    ///
    /// # Errors
    /// A pointer leads to a place where `head` has nothing.
    pub(crate) fn references(&mut self, head: &Version) -> Result<Vec<Reference>, EngineError> {
        let Self {
            counts,
            source,
            values,
            target,
            ..
        } = self;
        let number_of = |high| number_of(high, *target, values, head);
        let counted = counts.references(source, number_of);
        counted.map_err(leads_nowhere)
    }

    /// Does a bounded piece of the work.
    ///
    /// # Errors
    /// When the source cannot be read, or a write failed. The build is over.
    pub(crate) fn step(&mut self, tools: &mut Tools<'_>) -> Result<Stepped, EngineError> {
        let mut moved = self.let_go(tools)?;
        if self.unplaced.is_some() && self.held.len() < HELD_MAX {
            match self.place(tools)? {
                true => moved = true,
                false => return Ok(Stepped::DeviceFull),
            }
        }
        let grown = self.grow(tools)?;
        moved |= grown == Grown::Progress;
        if self.unplaced.is_none() && self.held.len() < HELD_MAX && grown != Grown::Waiting {
            moved |= self.merge(tools)?;
        }
        if self.no_room {
            return Ok(Stepped::DeviceFull);
        }
        Ok(match (self.is_done(), moved) {
            (true, _) => Stepped::Done,
            (false, true) => Stepped::Progress,
            (false, false) => Stepped::Waiting,
        })
    }

    /// Whether all outputs are written and taken.
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.source.key().is_none()
            && self.builder.is_none()
            && !self.values.is_open()
            && self.unplaced.is_none()
            && self.held.is_empty()
            && self.tree.as_ref().is_none_or(GrowingTree::is_done)
    }

    /// Where the tree begins, once the build is done: `None` where it makes none, or no pair was left.
    #[must_use]
    pub(crate) fn tree(&self) -> Option<Tree> {
        self.tree.as_ref().and_then(GrowingTree::root)
    }

    /// The finished segments: those with pairs in key order, index segments of a tree in between, and
    /// medium segments.
    #[must_use]
    pub(crate) fn outputs(&self) -> &[LevelSegment] {
        &self.outputs
    }

    /// The same, from now on without them: they are not [abandoned](Self::abandon) with the rest.
    pub(crate) fn take_outputs(&mut self) -> Vec<LevelSegment> {
        std::mem::take(&mut self.outputs)
    }

    /// Bytes of keys and values that were merged since the last call.
    pub(crate) const fn take_worked(&mut self) -> u64 {
        std::mem::replace(&mut self.merged_bytes, 0)
    }

    /// What it builds of.
    pub(crate) const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Blocks until the first of its writes has ended. `false`: none is under way.
    pub(crate) fn wait_for_device(&self) -> Result<bool, EngineError> {
        match self.held.front() {
            Some(held) => {
                held.stored.wait()?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Values that went to the medium log, or came from there; and bytes of it that were read.
    #[must_use]
    pub(crate) fn medium_values(&self) -> (u64, u64) {
        self.values.totals()
    }

    /// Offers finished segments and lets go of those that are written and taken.
    fn let_go(&mut self, tools: &Tools<'_>) -> Result<bool, EngineError> {
        let mut moved = false;
        for held in self.held.iter_mut().filter(|held| !held.offered) {
            held.offered = tools
                .observer
                .is_none_or(|observer| observer.segment_built(&held.sealed));
            if !held.offered {
                break;
            }
            moved = true;
        }
        while let Some(front) = self.held.front() {
            match front.stored.settled() {
                Some(Ok(())) if front.offered => {}
                Some(Err(error)) => return Err(error.into()),
                _ => break,
            }
            if let Some(cache) = tools.cache {
                front.stay_in(cache);
            }
            self.held.pop_front();
            moved = true;
        }
        Ok(moved)
    }

    /// Lets the tree take the nodes of finished segments.
    fn grow(&mut self, tools: &mut Tools<'_>) -> Result<Grown, EngineError> {
        let mut grown = Grown::Idle;
        while self.unplaced.is_none() && self.held.len() < HELD_MAX {
            let Some(tree) = &mut self.tree else { break };
            if self.source.key().is_none() && self.builder.is_none() {
                tree.end();
            }
            match tree.step(|| tools.storage.allocate_number()) {
                TreeStep::Idle => return Ok(grown),
                TreeStep::Progress => {}
                TreeStep::NeedsNumber => return Ok(Grown::Waiting),
                TreeStep::Finished(built) => {
                    self.unplaced = Some(built);
                    self.place(tools)?;
                }
            }
            grown = Grown::Progress;
        }
        Ok(grown)
    }

    /// Merges pairs until the step is used up, a segment is full, or the source has ended.
    fn merge(&mut self, tools: &mut Tools<'_>) -> Result<bool, EngineError> {
        let mut bytes = 0;
        while bytes < tools.step_bytes {
            let Some(key) = self.source.key() else {
                self.end_medium();
                if let Some(builder) = self.builder.take() {
                    self.unplaced = Some(self.finish(builder, tools)?);
                    self.place(tools)?;
                    return Ok(true);
                }
                break;
            };
            let entry = match self.target.pointers.turn() {
                true => with_place(self.source.entry(), tools.storage.head())?,
                false => self.source.entry(),
            };
            let mut passed = Passed {
                key_len: key.len(),
                before: entry.pointer(),
                after: None,
            };
            let entry = match entry.is_over(self.target.time) {
                true if tools.forgets_expired => {
                    self.counts.passed(passed);
                    self.source.advance()?;
                    continue;
                }
                true => Entry::Tombstone,
                false => entry,
            };
            let cost = value_bytes(&entry);
            let expiry = entry.expiry();
            let turned = self.values.turn(key, entry.lasting(), self.target, tools)?;
            let entry = match turned {
                Turned::Entry(entry) => entry.until(expiry),
                Turned::Waits => break,
                Turned::NoRoom => {
                    self.no_room = true;
                    break;
                }
                Turned::Full(finished) => {
                    self.hold(*finished);
                    return Ok(true);
                }
            };
            if entry != Entry::Tombstone || self.below.may_hold(key) {
                let behind = self.tree.as_ref().and_then(GrowingTree::last_key);
                let Some(builder) = begun(&mut self.builder, self.target, behind, tools) else {
                    break;
                };
                if !builder.add(key, entry) {
                    let full = self.builder.take().expect("it was there a moment ago");
                    if self.target.pointers.hold_places() {
                        self.end_medium();
                    }
                    self.unplaced = Some(self.finish(full, tools)?);
                    self.place(tools)?;
                    // The pair that did not fit begins the next segment, in the next step.
                    return Ok(true);
                }
                passed.after = entry.pointer();
            }
            self.counts.passed(passed);
            bytes += key.len() + cost.max(value_bytes(&entry)) + PAIR_OVERHEAD;
            self.source.advance()?;
            self.values.advanced();
        }
        self.merged_bytes += bytes as u64;
        Ok(bytes > 0)
    }

    /// Closes a segment. Where its pointers hold places, its footer lists the log segments by number.
    fn finish(
        &mut self,
        builder: SegmentBuilder,
        tools: &Tools<'_>,
    ) -> Result<BuiltSegment, EngineError> {
        let pointed = self.counts.end_segment();
        let head = tools.storage.head();
        let built = builder
            .finish_with(|high| number_of(high, self.target, &self.values, head))
            .map_err(leads_nowhere)?;
        Ok(BuiltSegment {
            large_bytes: pointed.large_bytes,
            medium_bytes: pointed.medium_bytes,
            ..built
        })
    }

    /// Gives up the segments that were made: the build is over, and nothing names them.
    pub(crate) fn abandon(&mut self, storage: &mut Storage) {
        for segment in self.outputs.drain(..) {
            storage.abandon(segment.number);
        }
        self.values.abandon(storage);
        self.held.clear();
    }

    /// Finishes the medium segment that is being filled.
    fn end_medium(&mut self) {
        if let Some(finished) = self.values.end() {
            self.hold(finished);
        }
    }

    /// Gives the finished segment a place and begins to write it. Returns false where the device
    /// is full, reserve and all: merges free more than they take, and a flush lets the log go.
    fn place(&mut self, tools: &mut Tools<'_>) -> Result<bool, EngineError> {
        let number = self.unplaced.as_ref().map(|built| built.name.number);
        let number = number.expect("a segment is waiting for its place");
        let stored = match tools.storage.allocate(number, tools.purpose) {
            Ok(stored) => stored,
            Err(error) if error.is_full() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut built = self
            .unplaced
            .take()
            .expect("a segment is waiting for its place");
        if let Some(tree) = &mut self.tree {
            tree.placed(&mut built, self.target.pointers.high_bits(&stored));
        }
        self.hold((built, stored));
        Ok(true)
    }

    /// Begins to write a finished segment, and keeps it until it is written and taken.
    fn hold(&mut self, (built, stored): Finished) {
        let segment = described(&built);
        let (name, form) = (built.name, built.form);
        let bytes = Arc::new(built.bytes);
        let len = bytes.len();
        stored.write(0, Arc::clone(&bytes), 0..len);
        self.held.push_back(Held {
            name,
            form,
            sealed: SealedSegment {
                number: segment.number,
                bytes,
                checksum: segment.checksum,
                place: stored.place(),
            },
            stored,
            offered: false,
        });
        self.outputs.push(segment);
    }
}

/// What the tree has done in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grown {
    Idle,
    Progress,
    /// A segment number is waited for.
    Waiting,
}

fn leads_nowhere(high: SegmentNumber) -> EngineError {
    EngineError::Corrupt {
        segment: high,
        offset: 0,
        what: "a level points to a place where the region has nothing",
    }
}

/// What a pair costs beside its bytes, so that a step over tiny pairs is bounded too.
const PAIR_OVERHEAD: usize = 16;

/// `entry` of a memtable, with the place of the log segment that it points to.
fn with_place<'a>(entry: Entry<'a>, head: &Version) -> Result<Entry<'a>, EngineError> {
    let Some((at, _)) = entry.pointer() else {
        return Ok(entry);
    };
    let stored = head.stored(at.segment()).ok_or(EngineError::Corrupt {
        segment: at.segment(),
        offset: at.offset(),
        what: "a memtable points into a log segment that is gone",
    })?;
    let at = Pointer::new(Pointers::Places.high_bits(stored), at.offset());
    Ok(entry.moved_to(at))
}

fn value_bytes(entry: &Entry<'_>) -> usize {
    match entry.lasting() {
        Entry::Inline(value) => value.len(),
        Entry::Pointer { .. } => 12,
        Entry::Tombstone | Entry::Until(..) => 0,
    }
}

/// The segment that is being filled, in `builder`: one of `target`, behind the key `behind`, is begun where there is
/// none. `None` where no number is left for it.
fn begun<'b>(
    builder: &'b mut Option<SegmentBuilder>,
    target: Target,
    behind: Option<&[u8]>,
    tools: &mut Tools<'_>,
) -> Option<&'b mut SegmentBuilder> {
    if builder.is_none() {
        let number = tools.storage.allocate_number()?;
        *builder = Some(target.builder(number, behind));
    }
    builder.as_mut()
}

/// What an edit says of a segment.
fn described(built: &BuiltSegment) -> LevelSegment {
    LevelSegment {
        number: built.name.number,
        epoch: built.name.epoch,
        len: u32::try_from(built.bytes.len()).expect("a segment has at most 2 MiB"),
        checksum: built.checksum,
        entries: built.entries,
        tombstones: built.tombstones,
        range: KeyRange::new(built.first_key.clone(), Some(successor(&built.last_key))),
        large_bytes: built.large_bytes,
        medium_bytes: built.medium_bytes,
        form: built.form,
    }
}
