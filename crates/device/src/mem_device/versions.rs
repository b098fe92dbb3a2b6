//! What a crash may leave of a block.

use std::sync::Arc;

pub(super) type Block = Arc<[u8]>;

/// The contents of one block that a crash may leave.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    /// What no crash takes away; `None`: zeros.
    pub(super) durable: Option<Block>,
    /// Later contents, oldest first, each with the number of the write that brought it.
    pub(super) unsynced: Vec<(u64, Block)>,
}

impl Versions {
    pub(super) fn newest(&self) -> Option<&Block> {
        let unsynced = self.unsynced.last().map(|(_, block)| block);
        unsynced.or(self.durable.as_ref())
    }

    /// Content number `index`: 0 is the durable one.
    pub(super) fn get(&self, index: usize) -> Option<&Block> {
        match index.checked_sub(1) {
            None => self.durable.as_ref(),
            Some(index) => Some(&self.unsynced[index].1),
        }
    }
}
