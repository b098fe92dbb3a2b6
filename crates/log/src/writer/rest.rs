//! Rest: a log that nobody writes to needs no memory for windows.

use argosy_memory::MemoryError;

use super::LogWriter;

impl LogWriter {
    /// Whether everything that was appended is durable on every member, and a mark that is durable there, too, says so:
    /// nobody needs the windows.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.cursor.at == self.ranges.open_from() && self.ranges.are_done() && !self.lacks_mark()
    }

    /// Gives the memory of the windows back. [Wake](Self::wake) the log before the next append.
    ///
    /// # Panics
    /// When the log is not [settled](Self::is_settled).
    pub fn rest(&mut self) {
        assert!(self.is_settled(), "what windows hold is durable elsewhere");
        self.windows.release();
    }

    /// Takes memory for the windows again.
    ///
    /// # Errors
    /// Where there is none; the log still rests, then.
    pub fn wake(&mut self) -> Result<(), MemoryError> {
        self.windows.allocate()?;
        if let Some(current) = self.current.filter(|_| !self.at_window_start()) {
            let from = self.offset_in(&current, self.cursor.at);
            self.windows.enter(&current, from, self.writer);
        }
        Ok(())
    }
}
