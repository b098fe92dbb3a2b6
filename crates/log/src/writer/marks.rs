//! Marks by themselves, at the end of a log: what says that the last flush happened.

use argosy_base::{Kind, Lsn, SegmentNumber};
use argosy_device::Buffer;

use super::super::record::Record;
use super::super::segment::{BLOCK_BYTES, encode_segment_header, identity};
use super::{LogWriter, NoRoom};

impl LogWriter {
    /// Whether records were appended that no mark of this log covers yet.
    #[must_use]
    pub fn lacks_mark(&self) -> bool {
        self.written.last_mark < self.written.last_lsn
    }

    /// What the last mark says that was appended; 0 before the first.
    #[must_use]
    pub const fn last_mark(&self) -> Lsn {
        self.written.last_mark
    }

    /// What the last mark says that is durable on every member; 0 before the first.
    #[must_use]
    pub const fn marked(&self) -> Lsn {
        self.ranges.marked()
    }

    /// Appends a mark by itself, in a range of its own: one block, which says that everything up to the LSN of
    /// [`set_durable`](Self::set_durable) is durable on every member.
    ///
    /// # Errors
    /// When there is no room; no mark was written then.
    ///
    /// # Panics
    /// Where nothing is durable.
    pub fn append_mark(&mut self) -> Result<(), NoRoom> {
        assert!(self.durable > Lsn(0), "a mark says something");
        self.close_range_at_block();
        self.probe().room().ok_or(NoRoom::Full)?;
        if self.at_window_start() {
            self.enter();
        }
        let current = self.current.expect("a window has been entered");
        self.write_record(&current, &Record::mark(self.durable));
        self.close_range_at_block();
        Ok(())
    }

    /// A block that says behind the log's end that everything up to `durable` is, and its place. It is not
    /// appended: windows have none of it, and nobody is told. `None` where there is no segment for it.
    #[must_use]
    pub fn mark_behind_end(&self, durable: Lsn) -> Option<(SegmentNumber, u32, Buffer)> {
        let at = self.cursor.at;
        let inside = at.is_multiple_of(u64::from(BLOCK_BYTES))
            && !at.is_multiple_of(self.segment_bytes())
            && self.ranges.flushed_locally() >= at;
        let open = self.current.filter(|current| self.is_open(current));
        let mut bytes = Vec::new();
        let (segment, offset) = if let Some(open) = open.filter(|_| inside) {
            (open, self.offset_in(&open, at))
        } else {
            let next = self.segments.iter().find(|next| Some(**next) != open)?;
            bytes.extend_from_slice(&encode_segment_header(self.windows.region(), next));
            (*next, 0)
        };
        let behind = offset + u32::try_from(bytes.len()).expect("a header is short");
        let here = identity(Kind::LogRecord, self.windows.region(), &segment, behind);
        Record::mark(durable).encode(here, segment.base_lsn, &mut bytes);
        bytes.resize(BLOCK_BYTES as usize, 0);
        Some((segment.number, offset, Buffer::from_slice(&bytes)))
    }
}
