//! Hands out what windows hold of a segment, piece by piece, for another member's windows.

use argosy_engine::source::{LogPlace, Next, Piece};

use crate::chain::LogSegment;
use crate::segment::{WINDOW_HEADER_BYTES, Writer, encode_window_header};
use crate::windows::LogWindows;

impl LogWindows {
    /// Fills `piece` with the bytes of `segment` from byte `from` on, up to `end` or the end of their window. `end`
    /// lies behind byte `from` of the segment, in this segment or in a later one of the chain.
    pub fn piece(&self, segment: &LogSegment, from: u32, end: LogPlace, piece: &mut Piece) -> Next {
        let geometry = self.geometry();
        let from_place = LogPlace {
            ordinal: segment.ordinal,
            offset: from,
        };
        // Behind the last record of a sealed segment lie marks, which the primary asks to have flushed. So windows that
        // the writer has left are copied up to their ends.
        let last = match segment.ordinal == end.ordinal {
            true => end.offset,
            false => geometry.segment_bytes(),
        };
        if from >= last {
            return Next::Skip(from_place.next_segment());
        }
        let index = geometry.window_index(from);
        let to = last.min(geometry.window_end(index));
        piece.bytes.resize((to - from) as usize, 0);
        if !self.read(segment, from, &mut piece.bytes) {
            // Nothing behind the end of a segment is needed: what is still to be flushed has its window.
            return match segment.end.is_some_and(|end| from >= end) {
                true => Next::Skip(from_place.next_segment()),
                false => Next::Gone,
            };
        }
        let within = from % geometry.window_bytes();
        piece.slot = geometry.slot(segment.ordinal, index);
        piece.at = WINDOW_HEADER_BYTES + within as usize;
        piece.next = LogPlace {
            offset: to,
            ..from_place
        };
        piece.header.clear();
        if within == 0 || self.resumes_at(segment, from) {
            // Made of what is known: the own slot may hold another window by now.
            let stamp = self.memory(piece.slot).stamp();
            let writer = Writer {
                boot: stamp.boot,
                incarnation: stamp.incarnation,
            };
            let header = encode_window_header(self.region(), segment, index, writer);
            piece.header.extend_from_slice(&header);
            piece.header.resize(WINDOW_HEADER_BYTES, 0);
        }
        Next::Write
    }
}

#[cfg(test)]
#[path = "piece_tests.rs"]
mod tests;
