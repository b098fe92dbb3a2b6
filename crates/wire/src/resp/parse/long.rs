//! An argument that the caller takes as it comes, so that nobody has to keep it.

use super::{Parser, ProtocolError, State, Step};

impl Parser {
    /// What was offered as [`Step::Long`] is taken by the caller: the arguments in front of it are to be dropped,
    /// and then what comes is it, for as long as [`long_left`](Self::long_left) says. Behind it the parser goes
    /// on: the request that it finds has only the arguments behind the long one, or none.
    ///
    /// # Panics
    /// Where nothing was offered.
    pub fn take_long(&mut self) {
        let State::Bulk { left, len } = self.state else {
            panic!("nothing was offered");
        };
        self.oversize = None;
        self.took = true;
        self.at = 0;
        self.state = State::Long { left, rest: len };
    }

    /// Bytes that are still to come of the argument that the caller takes.
    #[must_use]
    pub const fn long_left(&self) -> Option<usize> {
        match self.state {
            State::Long { rest, .. } if rest > 0 => Some(rest as usize),
            _ => None,
        }
    }

    /// The caller has taken, and dropped, so many bytes of it.
    ///
    /// # Panics
    /// Where they are more than were to come.
    pub fn took_long(&mut self, bytes: usize) {
        let State::Long { rest, .. } = &mut self.state else {
            panic!("nothing is being taken");
        };
        let bytes = u32::try_from(bytes).expect("an argument is not that long");
        *rest = rest.checked_sub(bytes).expect("no more than there is");
    }

    /// Reads what is behind an argument that the caller has taken. `None`: go on.
    pub(super) fn parse_long(
        &mut self,
        bytes: &[u8],
        left: u32,
        rest: u32,
    ) -> Result<Option<Step>, ProtocolError> {
        let wrong = |at: usize, is: u8| bytes.get(at).is_some_and(|byte| *byte != is);
        if rest == 0 && (wrong(0, b'\r') || wrong(1, b'\n')) {
            return Err(ProtocolError::BulkEnd);
        }
        if rest > 0 || bytes.len() < 2 {
            return Ok(Some(Step::Incomplete));
        }
        self.spans.clear();
        self.at = 2;
        if left > 0 {
            self.state = State::Header { left };
            return Ok(None);
        }
        self.state = State::Done;
        Ok(Some(Step::Request { bytes: 2 }))
    }
}
