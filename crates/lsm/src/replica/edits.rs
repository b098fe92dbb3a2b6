//! Taking edits: what they name and is not held here, what arrives, and how they are submitted.

use std::sync::Arc;

use argosy_base::{DeviceSegment, EditSeq, Epoch, SegmentNumber, SegmentPart};
use argosy_device::{Buffer, Purpose};
use argosy_engine::{CopyError, CopyEvent};

use super::held::Held;
use super::localized::localized;
use super::needs::{LogNeed, log_needs};
use super::places::{Arrival, purpose_of};
use super::{Fill, Replica, ReplicaError, Shipment, block_down, block_up};
use crate::addresses::Addressing;
use crate::edit::{Edit, LogSegment, MEDIUM_LOG};
use crate::storage::StorageError;
use crate::version::EditError;

/// What a part that was found missing belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A level segment.
    Level {
        epoch: Epoch,
        len: u32,
        checksum: u32,
        /// Its bytes are as they were built, and have this checksum, whoever they come from.
        as_built: bool,
    },
    /// A log segment.
    Log(LogSegment),
}

/// An edit under way.
pub(super) struct Submitted {
    /// The group's number of it.
    seq: EditSeq,
    /// This member's.
    local: EditSeq,
    checkpoint: bool,
    /// It is another member's, whose log may go on in the block in which it ends here.
    adopted: bool,
    /// Log bytes that are durable when it is.
    needs: Vec<LogNeed>,
}

impl Replica {
    /// The parts of segments that have to be put here before `edit` can be submitted: the bytes of
    /// the next edit, or of a checkpoint. Empty: submit it.
    ///
    /// # Errors
    /// [`StorageError::Malformed`] when the bytes are no edit.
    pub fn missing(&mut self, edit: &[u8]) -> Result<Vec<SegmentPart>, ReplicaError> {
        let edit = Edit::decode(edit).map_err(StorageError::from)?;
        self.start_waiting();
        let edit = self.localized(edit);
        Ok(self.missing_here(&edit))
    }

    /// `edit`, the group's, as this member applies it.
    fn localized(&mut self, edit: Edit) -> Edit {
        if !self.builds_levels() {
            return edit;
        }
        let edit = localized(edit, &self.storage, &self.logs);
        self.make_way(&edit);
        edit
    }

    fn missing_here(&mut self, edit: &Edit) -> Vec<SegmentPart> {
        self.incoming.expected.clear();
        self.incoming.named = edit.added.iter().map(|(_, _, s)| s.number).collect();
        let mut parts = Vec::new();
        let addresses = self.settings().layout.addresses;
        self.incoming.note_counted(edit, addresses);
        for segment in Held::by(self).missing(edit) {
            self.incoming.expected.insert(
                segment.number,
                Expected::Level {
                    epoch: segment.epoch,
                    len: segment.len,
                    checksum: segment.checksum,
                    as_built: !addresses.rewrites(segment),
                },
            );
            parts.push(SegmentPart {
                number: segment.number,
                from: 0,
                to: segment.len,
            });
        }
        for need in log_needs(edit, self.storage.head()).into_values() {
            if let Some(from) = self.logs.missing(&need, self.storage.head()) {
                let number = need.segment.number;
                self.incoming
                    .expected
                    .insert(number, Expected::Log(need.segment));
                let to = block_up(need.to);
                parts.push(SegmentPart { number, from, to });
            }
        }
        parts
    }

    /// Takes a part that [`missing`](Self::missing) named, since it was called last.
    ///
    /// # Errors
    /// [`CopyError::Damaged`] when the bytes are not those of the part, [`CopyError::Refused`]
    /// when it was not named, [`CopyError::Gone`] where its sender lacks what it points to;
    /// [`DeviceError::Full`](argosy_device::DeviceError::Full).
    pub fn put_part(
        &mut self,
        number: SegmentNumber,
        from: u32,
        bytes: &Arc<Buffer>,
    ) -> Result<(), ReplicaError> {
        match self.incoming.expected.get(&number).copied() {
            Some(Expected::Level {
                epoch,
                len,
                checksum,
                as_built,
            }) => {
                if from != 0 || bytes.len() != len as usize {
                    let what = "not the whole segment";
                    return Err(CopyError::Damaged { number, what }.into());
                }
                let copy = Buffer::from_slice(bytes);
                let place = DeviceSegment::default();
                let mut shipment = Shipment::new(number, epoch, copy, checksum, place);
                // Pointers that were rewritten give it another one: who sends it has checked each node.
                if as_built {
                    shipment.check(self.region())?;
                }
                self.rewrite_fetched(&mut shipment)?;
                self.put(shipment)
            }
            Some(Expected::Log(segment)) => self.fill_log(&segment, from, bytes),
            None => Err(CopyError::Refused {
                number,
                what: "this part was not asked for",
            }
            .into()),
        }
    }

    /// Rewrites the pointers of a fetched segment, and checks all of its bytes.
    pub(super) fn rewrite_fetched(&mut self, shipment: &mut Shipment) -> Result<(), ReplicaError> {
        let Self { storage, logs, .. } = self;
        self.incoming.rewrite_fetched(shipment, storage, logs)
    }

    /// Begins to write a finished level segment, which was [checked](Shipment::check) and
    /// [rewritten](Self::rewrite). One that is held already is taken for the same.
    ///
    /// # Errors
    /// [`CopyError::Damaged`] when it is too long; the device's, above all that it is full.
    pub fn put(&mut self, shipment: Shipment) -> Result<(), ReplicaError> {
        let Shipment {
            number,
            epoch,
            bytes,
            checksum,
            place,
            uses,
        } = shipment;
        let len = u32::try_from(bytes.len());
        let Some(len) = len
            .ok()
            .filter(|len| *len <= self.logs.geometry.segment_bytes())
        else {
            let what = "it is longer than a segment";
            return Err(CopyError::Damaged { number, what }.into());
        };
        let fetched = place == DeviceSegment::default();
        let placed = (self.incoming.arrivals.get(&number))
            .is_some_and(|arrival| Held::by(self).is_placed(arrival));
        let counted = self.incoming.counted_of(number).filter(|_| fetched);
        if let Some(before) = self.incoming.arrivals.get_mut(&number) {
            let same = (before.epoch, before.len, before.checksum) == (epoch, len, checksum);
            let as_many = before.counted.is_none() || before.counted == counted;
            if same && placed && as_many && before.uses == uses {
                before.stale = false;
                before.told = false;
                before.fetched |= fetched;
                return Ok(());
            }
            self.incoming.arrivals.remove(&number);
            self.storage.abandon(number);
        }
        let was_missing = fetched && self.incoming.expected.contains_key(&number);
        if !was_missing && self.has_level_segment(number, epoch, len, checksum) {
            // It was fetched meanwhile, and its edit was submitted.
            self.events.push(CopyEvent::SegmentStored(number));
            return Ok(());
        }
        self.forget_fill(number);
        let purpose = purpose_of(fetched);
        let stored = self.storage.allocate(number, purpose).or_else(|error| {
            // What no edit has named can be fetched once one does.
            if error.is_full() && self.forget_unnamed() {
                self.storage.allocate(number, purpose)
            } else {
                Err(error)
            }
        })?;
        let _ = stored.write(0, Arc::new(bytes), 0..len as usize);
        let arrival = Arrival {
            epoch,
            len,
            checksum,
            stored,
            fetched,
            counted,
            theirs: (!fetched).then_some(place),
            uses,
            told: false,
            stale: false,
        };
        self.incoming.arrivals.insert(number, arrival);
        Ok(())
    }

    /// Whether segments have arrived that the edit which was examined last does not name.
    #[must_use]
    pub fn holds_unnamed(&self) -> bool {
        let mut numbers = self.incoming.arrivals.keys();
        numbers.any(|number| !self.incoming.named.contains(number))
    }

    /// Gives up the segments that arrived and that the edit which was examined last does not name:
    /// the primary may have given up the work that they belong to. Whether there were any. One that
    /// an edit names after all is missing then, and fetched.
    pub fn forget_unnamed(&mut self) -> bool {
        let named = std::mem::take(&mut self.incoming.named);
        let any = self.give_up(|number, _| !named.contains(&number));
        self.incoming.named = named;
        any
    }

    /// Whether the version names a level segment of this number, epoch, length and checksum.
    fn has_level_segment(
        &self,
        number: SegmentNumber,
        epoch: Epoch,
        len: u32,
        checksum: u32,
    ) -> bool {
        let entry = self.storage.head().finished_segment(number);
        let segment = entry.map(|entry| &entry.segment);
        let wanted = (number, epoch, len, checksum);
        segment.is_some_and(|s| (s.number, s.epoch, s.len, s.checksum) == wanted)
    }

    /// Takes log bytes from another member, behind those that are held: whole blocks.
    fn fill_log(
        &mut self,
        segment: &LogSegment,
        from: u32,
        bytes: &Arc<Buffer>,
    ) -> Result<(), ReplicaError> {
        let number = segment.number;
        let known = self.logs.fills.get(&number);
        let known = known.is_some_and(|fill| one_segment(&fill.segment, segment));
        let held = self.storage.head().log_segment(number);
        let held = held.filter(|entry| one_segment(&entry.segment, segment));
        if let Some(entry) = held.filter(|_| !known) {
            // It was sealed here, and ends further behind.
            let end = block_down(entry.segment.end.unwrap_or(0));
            let fill = Fill {
                written: end,
                durable: end,
                ..Fill::new(*segment, Arc::clone(&entry.stored))
            };
            self.logs.fills.insert(number, fill);
        } else if !known {
            self.forget_fill(number);
            self.incoming.arrivals.remove(&number);
            self.storage.abandon(number);
            let stored = self.storage.allocate(number, Purpose::Metadata)?;
            self.logs.fills.insert(number, Fill::new(*segment, stored));
        }
        let fill = self.logs.fills.get_mut(&number).expect("made above");
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let to = from.saturating_add(len);
        if from > fill.written || to > self.logs.geometry.segment_bytes() {
            let what = "not the part that comes next";
            return Err(CopyError::Refused { number, what }.into());
        }
        // A flush of the own window may have been faster with some of it.
        if to > fill.written {
            let skip = (fill.written - from) as usize;
            let data = Arc::clone(bytes);
            let _ = fill.stored.write(fill.written, data, skip..bytes.len());
            fill.written = to;
            // Behind the end of a sealed one stands nothing, up to the end of its block.
            fill.end = fill.end.max(segment.end.map_or(to, |end| end.min(to)));
        }
        Ok(())
    }

    /// Forgets a log segment that no version of this replica names.
    fn forget_fill(&mut self, number: SegmentNumber) {
        if self.logs.fills.remove(&number).is_some() {
            self.storage.abandon(number);
        }
    }

    /// A checkpoint will come, or stands for edits that come: level segments that have arrived by now
    /// and that the checkpoint does not name go when it is applied.
    pub fn expect_checkpoint(&mut self) {
        for arrival in self.incoming.arrivals.values_mut() {
            arrival.stale = true;
        }
    }

    /// Gives up the arrivals of which the last checkpoint has decided.
    pub fn give_up_arrivals(&mut self) {
        self.give_up(|_, arrival| arrival.stale);
    }

    /// Gives up the arrivals under numbers that segments of this copy have.
    pub(super) fn give_up_doubles(&mut self) {
        let head = Arc::clone(self.storage.head());
        self.give_up(|number, _| head.stored(number).is_some());
    }

    /// Gives up the arrivals that `is_over` names. Whether there were any.
    fn give_up(&mut self, is_over: impl Fn(SegmentNumber, &Arrival) -> bool) -> bool {
        let mut any = false;
        let over = |number: &SegmentNumber, arrival: &mut Arrival| is_over(*number, arrival);
        for (number, arrival) in self.incoming.arrivals.extract_if(.., over) {
            any = true;
            self.storage.abandon(number);
            if !arrival.told {
                // Whoever sent it may send the next.
                self.events.push(CopyEvent::SegmentStored(number));
            }
        }
        any
    }

    /// Begins to apply `edit`, the bytes of the next edit or of a checkpoint.
    /// [`step`](Self::step) tells when it is durable, part of the version, and its append has its witness.
    ///
    /// # Errors
    /// [`CopyError::Missing`] when something that it names is not here;
    /// [`StorageError::Edit`] when it does not fit; the device's, above all that it is full.
    /// Nothing was begun then.
    pub fn submit_edit(&mut self, bytes: &[u8]) -> Result<EditSeq, ReplicaError> {
        self.submit(bytes, false)
    }

    /// The same of a checkpoint of a backup, which this primary adopts. Where the log ends in it, another
    /// backup may have more of the same block, which can be adopted from there.
    ///
    /// # Errors
    /// Those of [`submit_edit`](Self::submit_edit).
    pub fn submit_adopted(&mut self, bytes: &[u8]) -> Result<EditSeq, ReplicaError> {
        self.submit(bytes, true)
    }

    fn submit(&mut self, bytes: &[u8], adopted: bool) -> Result<EditSeq, ReplicaError> {
        let edit = Edit::decode(bytes).map_err(StorageError::from)?;
        let seq = edit.seq;
        self.check_order(&edit)?;
        self.start_waiting();
        let edit = self.localized(edit);
        if let Some(part) = self.missing_here(&edit).first() {
            return Err(CopyError::Missing {
                edit: seq,
                number: part.number,
                to: part.to,
            }
            .into());
        }
        self.make_room(&edit)?;
        let needs: Vec<_> = log_needs(&edit, self.storage.head())
            .into_values()
            .collect();
        for need in &needs {
            self.logs.write_up_to(&need.segment, need.to)?;
        }
        let replaces = self.replaces_levels(&edit);
        self.storage.commit(&edit)?;
        if replaces {
            self.levels_replaced();
        }
        let head = Arc::clone(self.storage.head());
        for (level, _, segment) in &edit.added {
            let arrival = self.incoming.arrivals.remove(&segment.number);
            let medium = arrival.filter(|_| *level == MEDIUM_LOG);
            if let Some(theirs) = medium.and_then(|arrival| arrival.theirs) {
                self.learn_places(&[(segment.number, theirs)]);
            }
        }
        let frees_medium = edit.removed.iter().any(|at| at.level == MEDIUM_LOG);
        if edit.checkpoint || !edit.logs.removed.is_empty() || frees_medium {
            self.incoming.prune_log_map(&head);
        }
        // What is sealed is complete; what the version does not have belongs to a checkpoint that
        // is still to come, or to none.
        self.logs.fills.retain(|number, fill| {
            let named = head.log_segment(*number);
            named.is_none_or(|entry| {
                entry.segment.end.is_none() && one_segment(&entry.segment, &fill.segment)
            })
        });
        for entry in head.open_logs() {
            let fill = Fill::new(entry.segment, Arc::clone(&entry.stored));
            self.logs.fills.entry(entry.segment.number).or_insert(fill);
        }
        if let Some(builder) = &mut self.builder {
            let needs = needs.iter();
            needs.for_each(|need| builder.needs(need.segment.number, need.to));
        }
        self.submitted.push_back(Submitted {
            seq,
            local: edit.seq,
            checkpoint: edit.checkpoint,
            adopted,
            needs,
        });
        Ok(seq)
    }

    /// An edit that is no checkpoint follows the one before it. A cut that begins a later epoch does not: whether this
    /// copy has all that is in front of it, its number does not say.
    fn check_order(&self, edit: &Edit) -> Result<(), StorageError> {
        let head = self.storage.head();
        let last = match self.builds_levels() {
            true => head.group_edit(),
            false => head.seq(),
        };
        if edit.checkpoint || Some(edit.seq.0) == last.0.checked_add(1) {
            return Ok(());
        }
        Err(StorageError::Edit(EditError::OutOfOrder {
            edit: edit.seq,
            version: last,
        }))
    }

    /// Takes places for what `edit` adds and no bytes came for: new log segments. They may use the
    /// last of the device, because the edits behind this one are what frees space.
    fn make_room(&mut self, edit: &Edit) -> Result<(), ReplicaError> {
        let head = Arc::clone(self.storage.head());
        for log in &edit.logs.added {
            let held = head.log_segment(log.number);
            let held = held.is_some_and(|entry| one_segment(&entry.segment, log));
            let pending = self.storage.pending().any(|s| s.number() == log.number);
            if !held && !pending {
                self.storage.allocate(log.number, Purpose::Metadata)?;
            }
        }
        if self.storage.settings().mutants.commit_before_arrival() {
            for (_, _, segment) in &edit.added {
                if self.storage.segment(segment.number).is_none() {
                    self.storage.allocate(segment.number, Purpose::Merge)?;
                }
            }
        }
        Ok(())
    }

    /// The edit that this member knows as `local` is durable and current.
    pub(super) fn committed(&mut self, local: EditSeq) -> Result<(), ReplicaError> {
        let submitted = self.submitted.pop_front_if(|first| first.local == local);
        match (submitted, &mut self.builder) {
            (Some(submitted), _) => self.applied(submitted),
            (None, Some(builder)) => {
                builder.committed(local, &mut self.storage);
                self.applied.push_back(None);
                Ok(())
            }
            (None, None) => panic!("{local} was not submitted here"),
        }
    }

    /// Whether a checkpoint is on its way.
    pub(super) fn is_catching_up(&self) -> bool {
        self.submitted.iter().any(|submitted| submitted.checkpoint)
    }

    /// An edit of the group is durable and current.
    fn applied(&mut self, submitted: Submitted) -> Result<(), ReplicaError> {
        for LogNeed { segment, to, .. } in submitted.needs {
            let number = segment.number;
            if let Some(builder) = &mut self.builder {
                builder.has(number, to);
            }
            if let Some(fill) = self.logs.fills.get_mut(&number) {
                let blocks = block_up(to);
                let durable = if blocks <= fill.written && !submitted.adopted {
                    blocks
                } else {
                    block_down(to)
                };
                fill.durable = fill.durable.max(durable);
                fill.written = match submitted.adopted {
                    true => fill.durable,
                    false => fill.written.max(durable),
                };
                fill.end = fill.end.max(to);
                fill.closed = fill.closed.max(to);
            }
        }
        if submitted.checkpoint {
            if self.builder.is_some() {
                // Nothing is shipped ahead of an edit: what came was for this checkpoint, or one before.
                self.expect_checkpoint();
            }
            self.give_up_arrivals();
            let head = self.storage.head();
            let orphans = self
                .logs
                .fills
                .keys()
                .filter(|n| head.stored(**n).is_none());
            for number in orphans.copied().collect::<Vec<_>>() {
                self.forget_fill(number);
            }
            self.refresh()?;
        }
        self.applied.push_back(Some(submitted.seq));
        Ok(())
    }
}

/// Whether both are the same log segment, sealed or not.
pub(super) fn one_segment(a: &LogSegment, b: &LogSegment) -> bool {
    LogSegment { end: None, ..*a } == LogSegment { end: None, ..*b }
}
