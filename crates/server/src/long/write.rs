//! Writes a value part by part: each part once there are bytes for it, one at a time, and then the head, which makes
//! the value visible.
//!
//! Nobody sees parts without a head. So where one of them cannot be written, or the head is not, whoever writes the
//! value lets go of it: the parts are swept. They may also be [taken back](Writing::take_back) at once.

use argosy_engine::long::{LongWriter, Versions};
use argosy_engine::{BatchError, Expiry, WriteBatch, WriteOptions};
use argosy_wire::api::Plan;

/// A value while it is written. See the module documentation.
#[derive(Debug)]
pub(crate) struct Writing {
    writer: LongWriter,
    /// A part is being written.
    waits: bool,
}

impl Writing {
    /// Of the value of `key`, of `len` bytes, under a version of its own.
    ///
    /// # Errors
    /// Where no key or no value is like that.
    pub(crate) fn begin(key: &[u8], len: u64, versions: &Versions) -> Result<Self, BatchError> {
        Ok(Self {
            writer: LongWriter::new(key, len, versions.draw())?,
            waits: false,
        })
    }

    /// Bytes of the next part; `None`: there is none, and the head comes once no part is being written.
    pub(crate) fn next_bytes(&self) -> Option<usize> {
        self.writer.next_bytes()
    }

    /// Whether a part is being written. Nothing else is, meanwhile.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    /// The call that writes the next part, which is `bytes`.
    pub(crate) fn part(&mut self, bytes: &[u8], batch: &mut WriteBatch) -> Plan {
        debug_assert!(!self.waits, "one part at a time");
        self.writer.part(bytes, batch);
        self.waits = true;
        Plan::Write(WriteOptions::default())
    }

    /// The part has been written.
    pub(crate) const fn wrote(&mut self) {
        self.waits = false;
    }

    /// The call that makes the value visible, on the conditions of `options`. The batch is empty but for what is
    /// expected.
    pub(crate) fn head(
        &self,
        expiry: Expiry,
        options: WriteOptions,
        batch: &mut WriteBatch,
    ) -> Plan {
        debug_assert!(!self.waits, "the head comes last");
        self.writer.head(expiry, batch);
        Plan::Write(options)
    }

    /// The call that removes what was written, where the head was not.
    pub(crate) fn take_back(&self, batch: &mut WriteBatch) -> Plan {
        self.writer.take_back_each(batch);
        Plan::Write(WriteOptions::default())
    }
}
