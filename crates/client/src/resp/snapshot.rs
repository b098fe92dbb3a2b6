//! Reads from a snapshot over the Redis protocol: `KV.SNAPSHOT`, and the words that reads have more.

use std::time::Duration;

use super::client::{RespClient, as_read, odd};
use super::parse::Reply;
use crate::error::ClientError;

impl RespClient {
    /// Opens a snapshot of all regions, each at one moment, and returns its name. It ends after so many whole seconds,
    /// up to an hour, unless it is [renewed](Self::renew_snapshot).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn open_snapshot(&mut self, lease: Duration) -> Result<String, ClientError> {
        let seconds = lease.as_secs().to_string();
        let words: [&[u8]; 4] = [b"KV.SNAPSHOT", b"OPEN", b"TTL", seconds.as_bytes()];
        match self.read(&words)? {
            Reply::Bulk(Some(name)) => Ok(String::from_utf8_lossy(&name).into_owned()),
            reply => Err(as_read(odd("KV.SNAPSHOT", &reply))),
        }
    }

    /// Gives the snapshot `name` a lease of so many seconds. Returns whether it was open in every region.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn renew_snapshot(&mut self, name: &str, lease: Duration) -> Result<bool, ClientError> {
        let seconds = lease.as_secs().to_string();
        let words: [&[u8]; 5] = [
            b"KV.SNAPSHOT",
            b"RENEW",
            name.as_bytes(),
            b"TTL",
            seconds.as_bytes(),
        ];
        self.told_of_snapshot(&words)
    }

    /// Closes the snapshot `name`. Returns whether it was open in every region.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn close_snapshot(&mut self, name: &str) -> Result<bool, ClientError> {
        self.told_of_snapshot(&[b"KV.SNAPSHOT", b"CLOSE", name.as_bytes()])
    }

    fn told_of_snapshot(&mut self, words: &[&[u8]]) -> Result<bool, ClientError> {
        match self.read(words)? {
            Reply::Integer(open) => Ok(open == 1),
            reply => Err(as_read(odd("KV.SNAPSHOT", &reply))),
        }
    }

    /// Has gets and pages read from the snapshot `name` from now on, or what is there now with `None`. Reads of several
    /// keys at once always read what is there now.
    pub fn read_from(&mut self, name: Option<String>) {
        self.snapshot = name;
    }
}
