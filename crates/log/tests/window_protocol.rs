//! The protocol between the writer of a log's windows and their readers, in every order that the memory model
//! allows.
//!
//! `windows.rs` is compiled here once more, over the atomics of the model checker `loom` instead of the
//! standard library's (`sync`), and over memory of which a few words are kept. Loom then runs each test again
//! and again, with another interleaving of the threads each time, and with another of the values that a relaxed
//! load may return. What a reader is given is of the window that it asked for, or it is told that it is not there.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::wrong_self_convention,
    reason = "some of the source's parts serve others, and lints look at them where they live"
)]

#[path = "../src"]
mod log {
    pub(crate) mod windows;

    /// What windows take from there.
    mod segment {
        pub(crate) use argosy_log::segment::{
            Geometry, WINDOW_HEADER_BYTES, WindowName, Writer, decode_window_header,
            encode_window_header,
        };
        pub(crate) const HEADER_BYTES: usize = 64;
    }

    /// The twin of `src/sync.rs`.
    mod sync {
        use std::ops::Range;

        use argosy_memory::MemoryError;

        use super::segment::WINDOW_HEADER_BYTES;
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

        /// Memory of which the first two words of the payload are kept; no reader looks at the header of a
        /// window that is written.
        pub(crate) struct SharedMemory {
            len: usize,
            words: [AtomicU64; 2],
        }

        impl SharedMemory {
            pub(crate) fn new(len: usize) -> Self {
                let words = [(); 2].map(|()| AtomicU64::new(0));
                Self { len, words }
            }

            pub(crate) fn len(&self) -> usize {
                self.len
            }

            pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
                if at >= WINDOW_HEADER_BYTES {
                    let words = &self.words[(at - WINDOW_HEADER_BYTES) / 8..];
                    for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
                        let bytes = bytes.try_into().expect("eight bytes");
                        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
                    }
                }
            }

            pub(crate) fn fill_zero(&self, range: Range<usize>) {
                assert!(range.end <= WINDOW_HEADER_BYTES, "nothing is padded here");
            }

            pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
                let words = &self.words[(at - WINDOW_HEADER_BYTES) / 8..];
                for (word, out) in words.iter().zip(out.chunks_exact_mut(8)) {
                    out.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
                }
            }

            pub(crate) fn peek(&self, _at: usize, _len: usize) -> Vec<u8> {
                unreachable!("nobody opens what another process has written")
            }

            pub(crate) fn release(&self) -> Result<(), MemoryError> {
                for word in &self.words {
                    word.store(0, Ordering::Relaxed);
                }
                Ok(())
            }

            pub(crate) fn allocate(&self) -> Result<(), MemoryError> {
                Ok(())
            }
        }
    }

    use std::sync::Arc;

    use argosy_base::{Epoch, LogId, Lsn, RegionId, SegmentNumber};

    use super::chain::LogSegment;

    /// Bytes of a window: the least that there may be.
    pub(crate) const WINDOW: u32 = 20 << 10;
    /// What a record is here.
    pub(crate) type Record = [u8; 16];

    /// The windows of a log, of which two are in memory, and its only segment.
    pub(crate) struct Log {
        windows: windows::LogWindows,
        segment: LogSegment,
    }

    impl Log {
        /// A log whose first window has `record`.
        pub(crate) fn with(record: &Record) -> Self {
            let geometry = segment::Geometry::new(4 * WINDOW as usize, WINDOW as usize, 2);
            let slot = |_| Arc::new(sync::SharedMemory::new(geometry.slot_bytes()));
            let slots = (0..geometry.slots()).map(slot).collect();
            let windows = windows::LogWindows::new(RegionId(1), LogId::FIRST, geometry, slots);
            let segment = LogSegment {
                log: LogId::FIRST,
                ordinal: 0,
                number: SegmentNumber(1),
                epoch: Epoch(1),
                base_lsn: Lsn(1),
                end: None,
            };
            let log = Self { windows, segment };
            log.write(0, record);
            log
        }

        /// Enters window `index`, and writes `record` to its front.
        pub(crate) fn write(&self, index: u32, record: &Record) {
            let writer = segment::Writer::default();
            self.windows.enter(&self.segment, index * WINDOW, writer);
            self.windows.write(&self.segment, index * WINDOW, record);
        }

        /// Rests, and writes `record` behind the first record of window `index`, at which the log continues.
        pub(crate) fn continue_with(&self, index: u32, record: &Record) {
            let writer = segment::Writer::default();
            let at = index * WINDOW + 8;
            self.windows.release();
            self.windows.allocate().expect("there is room");
            self.windows.enter(&self.segment, at, writer);
            self.windows.write(&self.segment, at, &record[8..]);
        }

        /// What stands in front of window `index`, if that is in memory.
        pub(crate) fn read(&self, index: u32) -> Option<Record> {
            let mut out = Record::default();
            let there = self.windows.read(&self.segment, index * WINDOW, &mut out);
            there.then_some(out)
        }
    }
}

mod chain {
    pub(crate) use argosy_log::LogSegment;
}

use log::{Log, Record};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

const FIRST: Record = [1; 16];
const THIRD: Record = [3; 16];

/// The slot of the first window is taken over by the third while somebody reads the first.
#[test]
fn a_window_that_is_taken_over_is_whole_or_not_there() {
    loom::model(|| {
        let log = Arc::new(Log::with(&FIRST));
        let reader = loom::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                let read = log.read(0);
                assert!(read.is_none_or(|read| read == FIRST), "{read:?}");
            }
        });
        log.write(2, &THIRD);
        reader.join().expect("it read what it asked for");
        assert_eq!((log.read(0), log.read(2)), (None, Some(THIRD)));
    });
}

/// Who was told of a record finds it.
#[test]
fn what_was_published_is_there() {
    loom::model(|| {
        let log = Arc::new(Log::with(&FIRST));
        let published = Arc::new(AtomicBool::new(false));
        let reader = loom::thread::spawn({
            let (log, published) = (Arc::clone(&log), Arc::clone(&published));
            move || {
                if published.load(Ordering::Acquire) {
                    assert_eq!(log.read(2), Some(THIRD));
                }
            }
        });
        log.write(2, &THIRD);
        published.store(true, Ordering::Release);
        reader.join().expect("it read what it was told of");
    });
}

/// A log rests, and continues in the same window, while somebody reads what it had there.
#[test]
fn what_a_rest_has_taken_is_not_there() {
    loom::model(|| {
        let log = Arc::new(Log::with(&FIRST));
        let reader = loom::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                let read = log.read(0);
                assert!(read.is_none_or(|read| read == FIRST), "{read:?}");
            }
        });
        log.continue_with(0, &THIRD);
        reader.join().expect("it read what it asked for");
        assert_eq!(log.read(0), None, "the device has it");
    });
}
