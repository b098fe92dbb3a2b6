//! The toy as other members copy it.

use argosy_base::{EditSeq, LogId, SegmentNumber, SegmentPart};
use argosy_device::Buffer;

use super::disk::Table;
use super::ring::LOG;
use super::store::ToyStore;
use crate::source::{LogPlace, Next, Piece};
use crate::{Checkpoint, EngineError, Pin, PinnedCheckpoint, Source};

impl Source for ToyStore {
    fn piece(&self, log: LogId, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        match log == LOG {
            true => self.state().ring.piece(from, end, piece),
            false => Next::End,
        }
    }

    fn flushed_everywhere(&self, log: LogId, segment: SegmentNumber, to: u32) {
        if log == LOG {
            self.state().ring.note(segment, to, false);
        }
    }

    fn edit_applied_everywhere(&self, seq: EditSeq) {
        self.state().applied_everywhere(seq);
        self.wake();
    }

    fn covers_flushed(&self) -> bool {
        self.state().ring.keeps_up()
    }

    fn checkpoint(&self) -> PinnedCheckpoint {
        let state = self.state();
        let edit = state.edit.to_checkpoint(|log| state.ring.durable_here(log));
        PinnedCheckpoint {
            checkpoint: Checkpoint {
                seq: edit.seq,
                bytes: edit.encode(),
            },
            pin: Pin::new(state.table.clone().into()),
        }
    }

    fn read(&self, part: SegmentPart, pins: &[Pin]) -> Option<Result<Buffer, EngineError>> {
        let SegmentPart { number, from, to } = part;
        let table = self.state().table.clone();
        let mut pinned = pins.iter().filter_map(Pin::get::<Table>);
        let of_pin = || pinned.find_map(|table| table.get(&number));
        let stored = table.get(&number).or_else(of_pin)?;
        let len = to.checked_sub(from)?;
        Some(stored.read(from, len).map_err(EngineError::from))
    }
}
