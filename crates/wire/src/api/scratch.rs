//! Memory for what a request borrows, for requests that are built piece by piece, or kept.

use alloc::vec::Vec;

use argosy_base::{KeyList, KeyRange, WriteBatch};

/// Memory for the keys, the batch or the range of one request at a time.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Of a request about one key.
    pub key: Vec<u8>,
    /// Of a write or a bulk load.
    pub batch: WriteBatch,
    /// Of a scan.
    pub range: KeyRange,
    /// Of a request about several keys.
    pub keys: KeyList,
}

impl Scratch {
    /// Replaces the key.
    pub fn set_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }
}
