//! A copy's whole state, for another member to start from.

use argosy_base::EditSeq;

/// An edit that states everything that a copy consists of, and how far its logs go. Only an engine reads the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last edit of the group that it includes.
    pub seq: EditSeq,
    /// The edit, encoded.
    pub bytes: Vec<u8>,
}
