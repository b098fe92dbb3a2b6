//! Lines of bounded length from a file or from stdin, with their places: where each ends, and its
//! number. Where an earlier run has stopped, reading goes on there, of the same bytes only.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use argosy_base::checksum;
use argosy_base::limits::LONG_VALUE_BYTES_MAX;

use crate::failure::CommandFailure;

/// Longest line, in bytes: the largest pair fits, in hexadecimal and base64, and in TSV however it is escaped.
pub(super) const LINE_BYTES_MAX: usize = 4 * LONG_VALUE_BYTES_MAX + (1 << 20);
/// Bytes at the beginning of an input by which it is known again.
const HEAD_BYTES: usize = 64 << 10;
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// The beginning of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Head {
    /// How many bytes.
    pub(super) bytes: usize,
    /// Their checksum.
    pub(super) checksum: u32,
}

impl Head {
    fn take(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES - self.bytes;
        let bytes = &bytes[..bytes.len().min(room)];
        self.checksum = checksum::extend(self.checksum, bytes);
        self.bytes += bytes.len();
    }
}

/// Where reading stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Place {
    /// Bytes of all lines that were read.
    pub(super) offset: u64,
    /// How many these were.
    pub(super) lines: u64,
    /// How the input begins, as far as it was read.
    pub(super) head: Head,
}

/// See the module documentation.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    /// Bytes of the input, where that is known.
    pub(super) bytes: Option<u64>,
    place: Place,
    line: Vec<u8>,
    longest: usize,
}

/// What the next line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A line, without its end.
    Line(&'a [u8]),
    /// One that is over the limit. Its bytes were passed over.
    TooLong,
    /// There is none.
    End,
}

impl Lines {
    /// Reads `path`, `-` being stdin, from `place` on.
    pub(super) fn open(path: &Path, place: Place) -> Result<Self, CommandFailure> {
        let failed = |error: io::Error| CommandFailure::io("read", path, &error);
        if path == Path::new("-") {
            let mut input = BufReader::with_capacity(READ_BYTES, io::stdin());
            check_head(&mut input, place, path)?;
            let passed = place.offset - place.head.bytes as u64;
            io::copy(&mut Read::take(&mut input, passed), &mut io::sink()).map_err(failed)?;
            return Ok(Self::new(Box::new(input), None, place));
        }
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CommandFailure::NotFound(format!(
                    "there is no {}",
                    path.display()
                )));
            }
            file => file.map_err(failed)?,
        };
        let bytes = file.metadata().map_err(failed)?;
        // A pipe by name has no length, and no place to go to.
        let bytes = bytes.is_file().then_some(bytes.len());
        if place.offset > 0 {
            check_head(&mut file, place, path)?;
            file.seek(SeekFrom::Start(place.offset)).map_err(failed)?;
        }
        let input = BufReader::with_capacity(READ_BYTES, file);
        Ok(Self::new(Box::new(input), bytes, place))
    }

    fn new(input: Box<dyn BufRead>, bytes: Option<u64>, place: Place) -> Self {
        Self {
            input,
            bytes,
            place,
            line: Vec::new(),
            longest: LINE_BYTES_MAX,
        }
    }

    /// Where it stands: behind the last line.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// The line that was read last does not count: reading stands at `before`, where it began. Nothing
    /// is read any more.
    pub(super) fn give_back(&mut self, before: Place) {
        self.place = before;
        self.input = Box::new(io::empty());
    }

    /// The next line. The last need not have an end.
    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        self.line.clear();
        let mut too_long = false;
        loop {
            let bytes = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            if taken == 0 {
                if self.line.is_empty() && !too_long {
                    return Ok(Next::End);
                }
                break;
            }
            self.place.head.take(&bytes[..taken]);
            self.place.offset += taken as u64;
            too_long |= self.line.len() + taken > self.longest;
            if !too_long {
                self.line.extend_from_slice(&bytes[..end.unwrap_or(taken)]);
            }
            self.input.consume(taken);
            if end.is_some() {
                break;
            }
        }
        self.place.lines += 1;
        Ok(match too_long {
            true => Next::TooLong,
            false => Next::Line(&self.line),
        })
    }
}

/// Whether `input` begins as that of an earlier run did.
fn check_head(input: &mut dyn Read, place: Place, path: &Path) -> Result<(), CommandFailure> {
    let mut bytes = vec![0; place.head.bytes.min(HEAD_BYTES)];
    let mut head = Head::default();
    if input.read_exact(&mut bytes).is_ok() {
        head.take(&bytes);
    }
    if head == place.head {
        return Ok(());
    }
    Err(CommandFailure::Failed(format!(
        "{} does not begin as the input did that was interrupted: name the same one, or begin \
         anew without --resume",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], capacity: usize) -> Lines {
        let input = BufReader::with_capacity(capacity, io::Cursor::new(text.to_vec()));
        Lines::new(Box::new(input), None, Place::default())
    }

    #[test]
    fn lines_are_read_whatever_the_pieces_are() {
        let text = b"one\n\nthree\r\nlast";
        for capacity in [1, 2, 5, 100] {
            let mut lines = lines(text, capacity);
            for (line, offset) in [(&b"one"[..], 4), (b"", 5), (b"three\r", 12), (b"last", 16)] {
                assert_eq!(lines.next().unwrap(), Next::Line(line));
                assert_eq!(lines.place().offset, offset);
            }
            assert_eq!(lines.next().unwrap(), Next::End);
            assert_eq!(lines.place().lines, 4);
            let mut head = Head::default();
            head.take(text);
            assert_eq!(lines.place().head, head);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let mut text = vec![b'x'; (1 << 20) + 5];
        text.extend_from_slice(b"\nnext\n");
        let mut lines = lines(&text, 1 << 16);
        lines.longest = 1 << 20;
        assert_eq!(lines.next().unwrap(), Next::TooLong);
        assert!(lines.line.len() <= lines.longest);
        assert_eq!(lines.next().unwrap(), Next::Line(b"next"));
        assert_eq!(lines.next().unwrap(), Next::End);
        assert_eq!(lines.place().head.bytes, HEAD_BYTES);
    }
}
