//! What steps do: ranges of the log become durable, and an image takes the place of half of the log.
//!
//! 1. The segment that is written is sealed. The map as of then is what the image will have.
//! 2. Once all of it is committed, the image is written, and an edit that names it in place of the log so far, and new
//!    log segments.
//! 3. The new log segments are used once the edit is everywhere: only then every member can make sense of them.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{EditSeq, Instant, SegmentNumber};
use argosy_device::{DeviceError, Purpose};

use super::disk::Disk;
use super::edit::{RingSegment, ToyEdit};
use super::map::Map;
use super::ring::Whose;
use super::store::{Replaced, ToyStore};
use crate::EditNotice;

/// What steps work with.
pub(super) struct Background {
    disk: Disk,
    image: Option<ImageToCome>,
    /// Edits that the observer was not told of.
    untold: VecDeque<Arc<[u8]>>,
    next_flush: Option<Instant>,
}

/// An image that is not made yet.
struct ImageToCome {
    map: Map,
    /// It replaces the segments in front of this one.
    ordinal: u64,
}

impl Background {
    /// Of a store whose last edit, on `disk`, nobody was told of.
    pub(super) fn new(disk: Disk) -> Self {
        let untold = VecDeque::from([disk.edit.encode().into()]);
        Self {
            disk,
            image: None,
            untold,
            next_flush: None,
        }
    }

    /// Does all that can be done now. Returns whether there was anything, and when a flush is due.
    pub(super) fn step(
        &mut self,
        store: &ToyStore,
        now: Instant,
    ) -> Result<(bool, Instant), DeviceError> {
        let mut made = self.tell(store);
        let asked = store.take_flush_asked();
        let interval = store.toy.flush_interval;
        let due = *self.next_flush.get_or_insert(now + interval);
        if asked || now >= due {
            self.next_flush = Some(now + interval);
            store.close_open();
        }
        made |= self.flush(store)?;
        made |= self.step_image(store)?;
        Ok((made, due))
    }

    /// Images and edits that are under way.
    pub(super) fn pending(&self) -> usize {
        usize::from(self.image.is_some()) + self.untold.len()
    }

    /// Tells the observer of edits.
    fn tell(&mut self, store: &ToyStore) -> bool {
        let mut any = false;
        while let Some(bytes) = self.untold.pop_front() {
            any = true;
            if let Some(observer) = &store.observer {
                observer.edit_committed(&EditNotice {
                    seq: ToyEdit::decode(&bytes).map_or(EditSeq(0), |edit| edit.seq),
                    bytes,
                    log_places: Arc::new([]),
                });
            }
        }
        any
    }

    /// Makes closed ranges durable.
    pub(super) fn flush(&self, store: &ToyStore) -> Result<bool, DeviceError> {
        let (ranges, table) = {
            let mut state = store.state();
            (state.ring.take_ranges(), state.table.clone())
        };
        let Some((last, _)) = ranges.last() else {
            return Ok(false);
        };
        let mut bytes_written = 0;
        for (range, bytes) in &ranges {
            bytes_written += bytes.len() as u64;
            // An image has what is not in the chain any more.
            if let Some(stored) = table.get(&range.segment) {
                stored.write(range.from, bytes)?;
            }
        }
        self.disk.sync()?;
        let mut state = store.state();
        let whose = match store.observer {
            Some(_) => Whose::Here,
            None => Whose::All,
        };
        state.ring.note(last.ordinal, last.to, whose);
        state.stats.log_work.write_bytes += bytes_written;
        state.stats.log_work.recovery_write_bytes += bytes_written;
        Ok(true)
    }

    /// Begins an image where it is time, and makes it once all of it is committed.
    fn step_image(&mut self, store: &ToyStore) -> Result<bool, DeviceError> {
        if self.image.is_none() {
            let mut state = store.state();
            let is_due = state.ring.spare() <= store.toy.windows / 2 || state.wants_room;
            let has_more = state.all.last > state.edit.last;
            if !is_due || !has_more || state.everywhere < state.edit.seq {
                return Ok(false);
            }
            let last = state.all.last;
            let ordinal = state.ring.seal_current(last);
            store.tell_appended(&mut state);
            state.wants_room = false;
            self.image = Some(ImageToCome {
                map: state.all.clone(),
                ordinal,
            });
        }
        let Some(image) = self
            .image
            .take_if(|image| image.map.last <= store.marks.committed_lsn())
        else {
            return Ok(false);
        };
        match self.make(store, &image) {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => {
                self.image = Some(image);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn make(&mut self, store: &ToyStore, image: &ImageToCome) -> Result<(), DeviceError> {
        let before = store.state().edit.clone();
        let mut edit = ToyEdit {
            seq: before.seq.next(),
            epoch: store.epoch,
            checkpoint: false,
            last: image.map.last,
            time: image.map.time,
            next_number: before.next_number,
            ..ToyEdit::default()
        };
        let written = self.disk.write_image(
            &image.map,
            store.epoch,
            store.toy.part_bytes,
            &mut edit.next_number,
        )?;
        edit.image_bytes = written.bytes;
        edit.image = written.parts;
        let kept = before
            .logs
            .iter()
            .filter(|log| log.ordinal >= image.ordinal);
        edit.logs = kept.copied().collect();
        let new = complete_chain(&mut self.disk, &mut edit, image.ordinal, store.toy.windows)?;
        self.disk.commit(edit.clone())?;
        let mut state = store.state();
        state.stats.work.edits += 1;
        state.stats.work.flushes += 1;
        state.stats.work.write_bytes += edit.image_bytes;
        state.ring.drop_before(image.ordinal);
        state.ring.extend(&new);
        let (upto, time) = (image.map.last, image.map.time);
        state.all.forget_removed(upto, time);
        state.committed.forget_removed(upto, time);
        state.table = self.disk.table.clone();
        state.replaced = Some(Replaced {
            seq: edit.seq,
            ordinal: image.ordinal,
            upto,
        });
        self.untold.push_back(edit.encode().into());
        let seq = edit.seq;
        state.edit = Arc::new(edit);
        if store.observer.is_none() {
            state.applied_everywhere(seq);
        } else if store.toy.mutants.use_early() {
            state.ring.use_all();
        }
        drop(state);
        self.tell(store);
        Ok(())
    }
}

/// Completes the chain of `edit` to `count` segments, of which the first has `ordinal`. Returns those that are new.
pub(super) fn complete_chain(
    disk: &mut Disk,
    edit: &mut ToyEdit,
    ordinal: u64,
    count: usize,
) -> Result<Vec<RingSegment>, DeviceError> {
    let mut new = Vec::new();
    while edit.logs.len() < count {
        let segment = RingSegment {
            ordinal: edit.logs.last().map_or(ordinal, |last| last.ordinal + 1),
            number: next_number(&mut edit.next_number),
            epoch: edit.epoch,
            needed: 0,
        };
        disk.allocate(segment.number, Purpose::Log)?;
        edit.logs.push(segment);
        new.push(segment);
    }
    Ok(new)
}

fn next_number(next: &mut SegmentNumber) -> SegmentNumber {
    let number = *next;
    *next = next.next();
    number
}
