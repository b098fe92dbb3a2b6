//! What is done with all regions as a whole.

use argosy_wire::api::{Maintenance, Request};
use argosy_wire::native::{Flags, Op};

use super::client::{BRIEF, Client};
use super::run::Sending;
use crate::error::ClientError;

impl Client {
    /// Returns once everything that was written before, by anybody, is durable on every member of its region.
    /// What this client has submitted and not waited for need not be among it.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`], or [`ClientError::Lost`] at the deadline, where a member is away or does not
    /// keep up: it goes on all the same, and whoever asks again waits for the rest. [`ClientError::Storage`]
    /// where a primary's device has failed.
    pub fn make_durable(&self) -> Result<(), ClientError> {
        self.maintain(Maintenance::Flush)
    }

    /// Merges each region into one level, and drops what is overwritten or deleted; returns once every member
    /// has that. It reads and writes all that there is: give it a [deadline](Self::with_deadline) to match, or
    /// ask again.
    ///
    /// # Errors
    /// As [`make_durable`](Self::make_durable); [`ClientError::Unavailable`] where a device is full.
    pub fn compact(&self) -> Result<(), ClientError> {
        self.maintain(Maintenance::Compact)
    }

    fn maintain(&self, what: Maintenance) -> Result<(), ClientError> {
        let mut body = Vec::new();
        Request::Maintain { what }.encode(&mut body);
        let parts: [&[u8]; 1] = [&body];
        // Any server will do.
        let mut sending = Sending {
            op: Op::Maintain,
            flags: Flags::default(),
            key: b"",
            parts: &parts,
            reply_bytes: BRIEF,
        };
        let mut payload = Vec::new();
        self.run(&mut sending, self.deadline_from_now(), &mut payload)?;
        Ok(())
    }
}
