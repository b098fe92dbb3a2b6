//! Keeps log segments behind the end of the history when it is cut ([`cut_segments`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::BLOCK_SIZE;
use argosy_device::{Buffer, DeviceError, RegionEntry};
use argosy_engine::catalog::{discard_cut, id_of_cut};
use argosy_log::CutSegment;
use argosy_log::segment::{HeaderError, check_segment_header, encode_segment_header};

use super::Storage;
use crate::cut_segments;
use crate::edit::LogSegment;
use crate::names::logs::{LOGS, Recovered};
use crate::shape::Shape;

impl Storage {
    /// Has the catalog keep what `recovered` found behind the end of the history, before that is cut. Returns how many
    /// log segments are kept: none where the device is full, and then those of earlier cuts go, too, since an opening
    /// may need the room; and none where the catalog is. Blocks until that is durable.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn keep_cut(&mut self, recovered: &Recovered) -> Result<usize, DeviceError> {
        let (store, version) = (Arc::clone(self.store()), Arc::clone(self.current()));
        if store.room().is_full() {
            discard_cut(&store, self.region())?;
            self.note_cut_segments();
            return Ok(0);
        }
        let shape = Shape::of(self.settings()).to_word();
        let mut kept = 0;
        for log in LOGS {
            let Some(id) = id_of_cut(self.region(), log) else {
                continue;
            };
            let found = recovered.cut.iter().filter(|cut| cut.log == log);
            let chosen: Vec<_> = first_and_last(found)
                .filter_map(|cut| version.log_segment(cut.number))
                .map(|entry| entry.stored.place())
                .collect();
            if chosen.is_empty() {
                continue;
            }
            let mut places = chosen.clone();
            if self.settings().mutants.keep_every_cut() {
                let before = store.region(id).map(|entry| entry.manifest);
                places.splice(0..0, before.into_iter().flatten());
            }
            let change = store.set_region(RegionEntry {
                region: id,
                manifest: places,
                words: [recovered.last.next().0, shape],
            });
            match change.wait() {
                Ok(()) => kept += chosen.len(),
                Err(DeviceError::CatalogFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.note_cut_segments();
        Ok(kept)
    }

    /// Writes the headers of cut segments anew that are damaged or of an earlier owner: each is sealed in front of its
    /// first record now. Whatever cannot be read stays as it is. Blocks until that is durable.
    ///
    /// # Errors
    /// The device's, of a write.
    pub(crate) fn mend_cut(&self) -> Result<(), DeviceError> {
        let region = self.region();
        let places: BTreeSet<_> = cut_segments::places(self.store(), region).collect();
        if places.is_empty() {
            return Ok(());
        }
        let mut any = false;
        for entry in LOGS.into_iter().flat_map(|log| self.current().log(log)) {
            let (segment, stored) = (&entry.segment, &entry.stored);
            if segment.end != Some(0) || !places.contains(&stored.place()) {
                continue;
            }
            let mut block = Buffer::zeroed(BLOCK_SIZE);
            if stored.read(0, &mut block).is_err() {
                continue;
            }
            let whole = LogSegment {
                end: None,
                ..*segment
            };
            if check_segment_header(&block, region, &whole) == Err(HeaderError::Invalid) {
                let header = encode_segment_header(region, &whole);
                block[..header.len()].copy_from_slice(&header);
                let _ = stored.write(0, Arc::new(block), 0..BLOCK_SIZE);
                stored.wait()?;
                any = true;
            }
        }
        match any {
            true => self.store().wait(&self.store().sync()),
            false => Ok(()),
        }
    }
}

fn first_and_last<'c>(
    mut found: impl DoubleEndedIterator<Item = &'c CutSegment>,
) -> impl Iterator<Item = &'c CutSegment> {
    let first = found.next();
    first.into_iter().chain(found.next_back())
}
