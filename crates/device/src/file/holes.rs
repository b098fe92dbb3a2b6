//! What of a file was ever written, as its file system tells: all else are holes, which read as zeros.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{SeekFrom as Seeking, seek};
use rustix::io::Errno;

/// Most written parts of a range that are looked for. Each takes two system calls.
const PARTS_MAX: usize = 16;

/// The first part from `at` on that was written, if the file system tells.
pub(super) fn written_from(file: &File, at: u64) -> Option<(u64, u64)> {
    let from = seek(file, Seeking::Data(at)).ok()?;
    let end = seek(file, Seeking::Hole(from)).ok()?;
    (end > from).then_some((from, end))
}

/// The byte of `range` from which on nothing was written; its end where the file system does not tell, or where more
/// than [`PARTS_MAX`] parts were written.
pub(super) fn written_up_to(file: &File, range: Range<u64>) -> u64 {
    let mut last = range.start;
    for _ in 0..PARTS_MAX {
        let from = match seek(file, Seeking::Data(last)) {
            Ok(from) => from,
            // How a file system answers that there is none behind.
            Err(Errno::NXIO) => return last,
            Err(_) => return range.end,
        };
        if from >= range.end {
            return last;
        }
        match seek(file, Seeking::Hole(from)) {
            Ok(end) if end > from => last = end.min(range.end),
            _ => return range.end,
        }
        if last == range.end {
            return last;
        }
    }
    range.end
}
