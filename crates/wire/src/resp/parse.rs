//! Reads requests off a byte stream that arrives in pieces of any size.
//!
//! The caller keeps the bytes; the [`Parser`] keeps how far it has read and where the arguments lie.
//! In steps:
//!
//! 1. The caller shows everything from the first byte of the present request to the end of what
//!    has arrived ([`Parser::parse`]).
//! 2. [`Step::Incomplete`]: more bytes are needed. The caller appends them behind the others and
//!    asks again; the parser goes on where it stood and looks again at one header at most.
//! 3. [`Step::Request`]: [`Parser::args`] gives the arguments as slices of the caller's bytes. Before
//!    the next `parse` the caller drops that many bytes from the front.
//! 4. A request of over [`REQUEST_BYTES_MAX`] is not kept: its bytes are read past
//!    ([`Step::Discard`]) down to its end ([`Step::Oversized`]), and the stream stays usable.
//! 5. A [`ProtocolError`] ends the stream: where the next request begins is not known any more.
//!
//! Invariants: a length is compared with its limit before anything depends on it; memory grows by
//! what has arrived, never by what was announced (8 bytes for each argument seen, and an argument
//! has at least 6 bytes itself); requests do not nest.

mod kept;
mod long;

use alloc::vec::Vec;
use core::fmt;

use argosy_base::limits::{BATCH_BYTES_MAX, BATCH_PAIRS_MAX, VALUE_BYTES_MAX};

use super::inline;
pub use kept::Kept;

/// Most arguments of a request, its name included, as in Redis. The longest that can be carried out
/// is far shorter (see [`REQUEST_BYTES_MAX`]).
pub const ARGS_MAX: u32 = 1 << 20;

/// Longest single argument that may be announced, in bytes, as in Redis.
pub const BULK_BYTES_MAX: u32 = 512 << 20;

/// Longest inline request, in bytes, as in Redis.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Longest request that is kept, in bytes. The largest batch fits with its protocol overhead.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;

/// Bytes of the longest header of an array or of a bulk string: its type, 10 digits, CRLF.
const HEADER_BYTES_MAX: usize = 13;

const _: () = assert!(
    BATCH_BYTES_MAX + (2 * BATCH_PAIRS_MAX + 2) * (HEADER_BYTES_MAX + 2) <= REQUEST_BYTES_MAX,
    "the largest MSET is kept"
);
const _: () = assert!(INLINE_BYTES_MAX < REQUEST_BYTES_MAX);

/// Why a byte stream is not a sequence of requests. The connection is answered once, and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An array's count is no number from 0 to [`ARGS_MAX`].
    #[error("invalid multibulk length")]
    ArrayCount,
    /// An argument is not a bulk string; arrays within arrays are refused this way too.
    #[error("expected '$', got '{}'", Shown(*.0))]
    NotBulk(u8),
    /// A bulk string's length is no number from 0 to [`BULK_BYTES_MAX`].
    #[error("invalid bulk length")]
    BulkLength,
    /// The bytes of a bulk string are not followed by CRLF: its length was wrong.
    #[error("expected CRLF after a bulk string of the announced length")]
    BulkEnd,
    /// An inline request has no end within [`INLINE_BYTES_MAX`].
    #[error("too big inline request")]
    InlineLength,
    /// A quote of an inline request is not closed, or is not followed by a blank.
    #[error("unbalanced quotes in request")]
    InlineQuotes,
}

/// A byte as it may appear in a message.
struct Shown(u8);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            byte @ b' '..=b'~' => write!(f, "{}", char::from(byte)),
            byte => write!(f, "\\x{byte:02x}"),
        }
    }
}

/// What a look at the bytes has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The request goes on behind the end of what was shown.
    Incomplete,
    /// A whole request lies in the first `bytes` bytes. It has at least one argument.
    Request {
        /// Bytes to drop before the next [`Parser::parse`].
        bytes: usize,
    },
    /// Nothing to answer lies in the first `bytes` bytes (at least one): an empty line, an empty
    /// array, or a piece of a request that is too long to be kept.
    Discard {
        /// Bytes to drop before the next [`Parser::parse`].
        bytes: usize,
    },
    /// The third argument of a request, `SET`'s value, has more than
    /// [`VALUE_BYTES_MAX`] bytes: it is to be taken as it comes ([`Parser::take_long`]), or parsed on.
    /// No other argument of a request is offered.
    Long {
        /// Bytes in front of it, of the arguments that [`Parser::args`] gives.
        bytes: usize,
        /// Bytes that it has.
        len: u32,
    },
    /// A request that was too long to be kept ends `bytes` bytes on. It wants one error as answer.
    Oversized {
        /// Bytes to drop before the next [`Parser::parse`].
        bytes: usize,
        /// Bytes of the whole request.
        request_bytes: u64,
        /// Bytes of its longest argument.
        longest_bytes: u32,
    },
}

/// Where an argument lies.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// The arguments of a request, its name first.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// How many arguments there are, the name included.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a request has a name")]
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`, or `None` behind the last.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        Some(&self.bytes[span.start as usize..span.end as usize])
    }

    /// The argument at `index`.
    ///
    /// # Panics
    /// Where there is none: the caller has compared with [`len`](Self::len).
    #[inline]
    #[must_use]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).expect("the caller knows the arity")
    }

    /// The request that the arguments from `first` on are; `None` where there are none.
    #[must_use]
    pub fn request_at(self, first: usize) -> Option<Self> {
        let spans = self.spans.get(first..).filter(|spans| !spans.is_empty())?;
        Some(Self { spans, ..self })
    }

    /// All arguments from `first` on.
    pub fn from(self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.spans[first.min(self.spans.len())..]
            .iter()
            .map(move |span| &bytes[span.start as usize..span.end as usize])
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.from(0).map(<[u8]>::escape_ascii))
            .finish()
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At the first byte of a request.
    Begin,
    /// In an inline request, of which `searched` bytes hold no LF.
    Inline { searched: usize },
    /// Before the header of the next of `left` arguments.
    Header { left: u32 },
    /// In the bytes of an argument behind which `left` more follow.
    Bulk { left: u32, len: u32 },
    /// In an argument that the caller takes as it comes: `rest` bytes of it are to come, and `left` arguments
    /// behind it.
    Long { left: u32, rest: u32 },
    /// A request has been given out, and its bytes will be dropped.
    Done,
}

/// What is known of a request that is too long to be kept.
#[derive(Clone, Copy, Debug, Default)]
struct Oversize {
    dropped: u64,
    longest: u32,
    /// Bytes still to come of the argument that is being read past, CRLF included.
    bulk_left: u64,
}

/// Reads requests off a stream. See the module's description for the steps.
#[derive(Debug)]
pub struct Parser {
    state: State,
    /// How far into the shown bytes the parser has read.
    at: usize,
    spans: Vec<Span>,
    /// The words of an inline request without their quotes, back to back.
    words: Vec<u8>,
    inline: bool,
    /// The caller has taken an argument of the present request as it came.
    took: bool,
    oversize: Option<Oversize>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

impl Parser {
    /// A parser at the first byte of a request.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: State::Begin,
            at: 0,
            spans: Vec::new(),
            words: Vec::new(),
            inline: false,
            took: false,
            oversize: None,
        }
    }

    /// The arguments of the request that was found last, where `bytes` are those shown then.
    ///
    /// # Panics
    /// May panic where other bytes are given.
    #[inline]
    #[must_use]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args {
            bytes: if self.inline { &self.words } else { bytes },
            spans: &self.spans,
        }
    }

    /// Whether the last request was an inline one.
    #[inline]
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        self.inline
    }

    /// Gives memory back that an unusually long request has needed. To be called where all that
    /// was shown has been dropped.
    pub fn shrink(&mut self) {
        const SPANS_KEPT: usize = 1 << 8;
        const WORDS_KEPT: usize = 4 << 10;
        if matches!(self.state, State::Begin | State::Done) {
            self.spans.clear();
            self.spans.shrink_to(SPANS_KEPT);
            self.words.clear();
            self.words.shrink_to(WORDS_KEPT);
            self.state = State::Begin;
            self.at = 0;
        }
    }

    /// Bytes of memory that the parser holds beside the caller's buffer.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.words.capacity()
    }

    /// Looks for the end of the present request in `bytes`, which begin at its first byte that has
    /// not been dropped.
    ///
    /// # Errors
    /// Where `bytes` are not a request. The stream has to be given up.
    pub fn parse(&mut self, bytes: &[u8]) -> Result<Step, ProtocolError> {
        loop {
            match self.state {
                State::Done => {
                    self.state = State::Begin;
                    self.at = 0;
                }
                State::Begin => {
                    let Some(&first) = bytes.first() else {
                        return Ok(Step::Incomplete);
                    };
                    self.spans.clear();
                    self.at = 0;
                    self.took = false;
                    self.inline = first != b'*';
                    if self.inline {
                        self.state = State::Inline { searched: 0 };
                        continue;
                    }
                    let Some(count) = self.header(bytes, ARRAY)? else {
                        return Ok(Step::Incomplete);
                    };
                    if count == 0 {
                        return Ok(self.done_without_request());
                    }
                    self.state = State::Header { left: count };
                }
                State::Long { left, rest } => match self.parse_long(bytes, left, rest)? {
                    Some(step) => return Ok(step),
                    None => continue,
                },
                State::Inline { searched } => return self.parse_inline(bytes, searched),
                State::Header { .. } | State::Bulk { .. } if self.oversize.is_some() => {
                    return self.read_past(bytes);
                }
                State::Header { left } => {
                    if let Some(step) = self.parse_header(bytes, left)? {
                        return Ok(step);
                    }
                }
                State::Bulk { left, len } => {
                    if let Some(step) = self.parse_bulk(bytes, left, len)? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    /// Reads an argument's header. `None`: go on.
    #[inline]
    fn parse_header(&mut self, bytes: &[u8], left: u32) -> Result<Option<Step>, ProtocolError> {
        if let Some(&kind) = bytes.get(self.at)
            && kind != b'$'
        {
            return Err(ProtocolError::NotBulk(kind));
        }
        let Some(len) = self.header(bytes, BULK)? else {
            return Ok(Some(Step::Incomplete));
        };
        self.state = State::Bulk {
            left: left - 1,
            len,
        };
        if self.at + len as usize + 2 > REQUEST_BYTES_MAX {
            let longest = self
                .spans
                .iter()
                .map(|span| span.end - span.start)
                .chain([len])
                .max();
            self.oversize = Some(Oversize {
                dropped: 0,
                longest: longest.unwrap_or(len),
                bulk_left: u64::from(len) + 2,
            });
        }
        let long = len as usize > VALUE_BYTES_MAX && self.spans.len() == 2 && !self.took;
        Ok(long.then_some(Step::Long {
            bytes: self.at,
            len,
        }))
    }

    /// Reads an argument's bytes. `None`: go on.
    #[inline]
    fn parse_bulk(
        &mut self,
        bytes: &[u8],
        left: u32,
        len: u32,
    ) -> Result<Option<Step>, ProtocolError> {
        let start = self.at;
        let end = start + len as usize;
        // A wrong byte right behind the argument is found as soon as it is there.
        if bytes.get(end).is_some_and(|&byte| byte != b'\r') {
            return Err(ProtocolError::BulkEnd);
        }
        let Some(&last) = bytes.get(end + 1) else {
            return Ok(Some(Step::Incomplete));
        };
        if last != b'\n' {
            return Err(ProtocolError::BulkEnd);
        }
        self.spans.push(Span {
            start: position(start),
            end: position(end),
        });
        self.at = end + 2;
        if left > 0 {
            self.state = State::Header { left };
            return Ok(None);
        }
        self.state = State::Done;
        Ok(Some(Step::Request { bytes: self.at }))
    }

    fn done_without_request(&mut self) -> Step {
        self.state = State::Done;
        Step::Discard { bytes: self.at }
    }

    /// Reads `kind`, a number and CRLF at the present position. `None`: not all of it is there.
    #[inline]
    fn header(&mut self, bytes: &[u8], kind: Header) -> Result<Option<u32>, ProtocolError> {
        let header = bytes.get(self.at..).unwrap_or_default();
        let mut value = 0u32;
        for (index, &byte) in header.iter().enumerate().skip(1) {
            match byte {
                b'0'..=b'9' => {
                    // Ten digits are enough for every limit; a leading zero is no number here.
                    let padded = index > 1 && value == 0;
                    value = value
                        .checked_mul(10)
                        .and_then(|value| value.checked_add(u32::from(byte - b'0')))
                        .filter(|value| *value <= kind.max && !padded)
                        .ok_or(kind.invalid)?;
                }
                b'\r' if index > 1 => {
                    return match header.get(index + 1) {
                        None => Ok(None),
                        Some(b'\n') => {
                            self.at += index + 2;
                            Ok(Some(value))
                        }
                        Some(_) => Err(kind.invalid),
                    };
                }
                _ => return Err(kind.invalid),
            }
        }
        Ok(None)
    }

    /// Goes on in a request that is too long to be kept.
    fn read_past(&mut self, bytes: &[u8]) -> Result<Step, ProtocolError> {
        let mut oversize = self.oversize.unwrap_or_default();
        loop {
            match self.state {
                State::Header { left } => {
                    if let Some(&kind) = bytes.get(self.at)
                        && kind != b'$'
                    {
                        return Err(ProtocolError::NotBulk(kind));
                    }
                    let Some(len) = self.header(bytes, BULK)? else {
                        break;
                    };
                    oversize.longest = oversize.longest.max(len);
                    oversize.bulk_left = u64::from(len) + 2;
                    self.state = State::Bulk {
                        left: left - 1,
                        len,
                    };
                }
                State::Bulk { left, .. } => {
                    let shown = (bytes.len() - self.at) as u64;
                    let data = oversize.bulk_left.saturating_sub(2).min(shown);
                    self.at += usize::try_from(data).expect("no more than what is shown");
                    oversize.bulk_left -= data;
                    while oversize.bulk_left <= 2 && oversize.bulk_left > 0 {
                        let Some(&byte) = bytes.get(self.at) else {
                            break;
                        };
                        if byte != [b'\n', b'\r'][usize::from(oversize.bulk_left == 2)] {
                            return Err(ProtocolError::BulkEnd);
                        }
                        self.at += 1;
                        oversize.bulk_left -= 1;
                    }
                    if oversize.bulk_left > 0 {
                        break;
                    }
                    if left == 0 {
                        return Ok(self.end_oversized(oversize));
                    }
                    self.state = State::Header { left };
                }
                State::Begin | State::Inline { .. } | State::Long { .. } | State::Done => {
                    unreachable!("only arrays are read past")
                }
            }
        }
        let read = core::mem::take(&mut self.at);
        oversize.dropped += read as u64;
        self.oversize = Some(oversize);
        self.spans.clear();
        Ok(match read {
            0 => Step::Incomplete,
            bytes => Step::Discard { bytes },
        })
    }

    fn end_oversized(&mut self, oversize: Oversize) -> Step {
        self.state = State::Done;
        self.oversize = None;
        self.spans.clear();
        Step::Oversized {
            bytes: self.at,
            request_bytes: oversize.dropped + self.at as u64,
            longest_bytes: oversize.longest,
        }
    }

    fn parse_inline(&mut self, bytes: &[u8], searched: usize) -> Result<Step, ProtocolError> {
        let window = &bytes[..bytes.len().min(INLINE_BYTES_MAX)];
        let found = window[searched..].iter().position(|&byte| byte == b'\n');
        let Some(end) = found.map(|found| searched + found) else {
            if bytes.len() >= INLINE_BYTES_MAX {
                return Err(ProtocolError::InlineLength);
            }
            self.state = State::Inline {
                searched: window.len(),
            };
            return Ok(Step::Incomplete);
        };
        self.at = end + 1;
        let line = &bytes[..end];
        self.words.clear();
        for word in inline::split(line.strip_suffix(b"\r").unwrap_or(line), &mut self.words) {
            let (start, end) = word?;
            self.spans.push(Span {
                start: position(start),
                end: position(end),
            });
        }
        if self.spans.is_empty() {
            return Ok(self.done_without_request());
        }
        self.state = State::Done;
        Ok(Step::Request { bytes: self.at })
    }
}

fn position(at: usize) -> u32 {
    u32::try_from(at).expect("a request that is kept is short")
}

/// The header of an array or of a bulk string: its bound, and the error where it is no number
/// within it.
#[derive(Clone, Copy)]
struct Header {
    max: u32,
    invalid: ProtocolError,
}

const ARRAY: Header = Header {
    max: ARGS_MAX,
    invalid: ProtocolError::ArrayCount,
};

const BULK: Header = Header {
    max: BULK_BYTES_MAX,
    invalid: ProtocolError::BulkLength,
};

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
