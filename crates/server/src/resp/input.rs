//! What a session has received and not carried out yet: a buffer, and the parser that reads it.
//!
//! Bytes are appended behind, read request by request, and dropped from the front when more is
//! appended. The arguments of the request that was read last stay where they are until then, so
//! commands borrow them. What is kept is at most the longest request that is kept at all and one
//! read more.

use argosy_wire::resp::parse::REQUEST_BYTES_MAX;
use argosy_wire::resp::{Args, Parser, ProtocolError, Step as Parsed};

use super::pool::Pool;

/// Bytes that are little enough to be copied into a buffer of their length where memory is scarce.
pub(super) const TIGHT_BYTES: usize = 8 << 10;

/// What was received and not carried out yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that are done with.
    start: usize,
    /// Where in `buffer` the request begins that was read last. It ends at `start`.
    request: usize,
    parser: Parser,
    /// Nothing more will come.
    pub(super) ended: bool,
}

impl Input {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.request = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are not taken yet.
    pub(super) const fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub(super) fn parse(&mut self) -> Result<Parsed, ProtocolError> {
        let step = self.parser.parse(&self.buffer[self.start..])?;
        const HEADER_BYTES: usize = 16;
        let kept = self.buffer.len() - self.start;
        assert!(
            step != Parsed::Incomplete || kept <= REQUEST_BYTES_MAX + HEADER_BYTES,
            "no request is kept that is longer than the limit"
        );
        Ok(step)
    }

    /// The first `bytes` bytes are done with; if they were a request, [`args`](Self::args) gives it
    /// until more is received or parsed.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.request = self.start;
        self.start += bytes;
    }

    /// The arguments in the first `bytes` bytes of a request that goes on.
    pub(super) fn args_before(&self, bytes: usize) -> Args<'_> {
        self.parser
            .args(&self.buffer[self.start..self.start + bytes])
    }

    /// The argument behind the first `bytes` bytes is taken as it comes.
    pub(super) fn take_long(&mut self, bytes: usize) {
        self.consume(bytes);
        self.parser.take_long();
    }

    /// Bytes that are still to come of such an argument, and those of it that are here.
    pub(super) fn long(&self) -> Option<(usize, &[u8])> {
        let left = self.parser.long_left()?;
        let here = &self.buffer[self.start..];
        Some((left, &here[..here.len().min(left)]))
    }

    /// So many bytes of it are done with.
    pub(super) fn took_long(&mut self, bytes: usize) {
        self.consume(bytes);
        self.parser.took_long(bytes);
    }

    pub(super) fn args(&self) -> Args<'_> {
        self.parser.args(&self.buffer[self.request..self.start])
    }

    /// Throws away what was received, and the memory for it.
    pub(super) fn clear(&mut self) {
        self.buffer = Vec::new();
        self.parser = Parser::new();
        self.start = 0;
        self.request = 0;
    }

    pub(super) const fn is_inline(&self) -> bool {
        self.parser.is_inline()
    }

    /// Bytes of memory that are held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.capacity() + self.parser.memory_bytes()
    }

    pub(super) fn borrow_buffer(&mut self, pool: &mut Pool) {
        pool.lend(&mut self.buffer);
    }

    /// Puts what is kept, if that is little, into a buffer of its length.
    pub(super) fn tighten(&mut self, pool: &mut Pool) {
        let rest = self.buffer.len() - self.start;
        if rest <= TIGHT_BYTES && self.buffer.capacity() > 2 * TIGHT_BYTES {
            let kept = self.buffer.split_off(self.start);
            self.buffer.clear();
            self.start = 0;
            self.request = 0;
            pool.take_back(&mut self.buffer);
            self.buffer = kept;
        }
    }

    /// Gives back what is not needed while there is no input.
    pub(super) fn return_buffer(&mut self, pool: &mut Pool) {
        if self.is_empty() {
            self.buffer.clear();
            self.start = 0;
            self.request = 0;
            self.parser.shrink();
            pool.take_back(&mut self.buffer);
        }
    }
}
