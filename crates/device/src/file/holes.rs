//! What of a file was ever written, as its file system tells: all else are holes, which read as zeros.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{SeekFrom as Seeking, seek};
use rustix::io::Errno;

/// Parts of a range that are looked at to find the end of what was written in it: two system calls for each.
const PARTS_MAX: usize = 16;

/// The first part from `at` on that was written, if the file system tells.
pub(super) fn written_from(file: &File, at: u64) -> Option<(u64, u64)> {
    let from = seek(file, Seeking::Data(at)).ok()?;
    let end = seek(file, Seeking::Hole(from)).ok()?;
    (end > from).then_some((from, end))
}

/// Behind which byte of `range` nothing was written; its end where the file system does not tell.
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
