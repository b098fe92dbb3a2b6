//! What has to hold of keys beside those that a batch writes: a guard, and what was read, on which the batch was
//! computed. The latter is a list in two pieces of memory, however long it is.

use alloc::vec::Vec;

use crate::Lsn;

/// What has to hold of a key that a batch does not write, for the batch to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It is bound.
    Present,
    /// It has not been written since it had this version: see
    /// [`Condition::Version`](crate::Condition::Version).
    Unwritten(Lsn),
    /// It is bound to the head of a [composite](crate::composite) of this version. The head is written with the batch:
    /// its number is changed by so much, and where none is left it is removed. So many who change different elements
    /// of a composite at the same time do not stand in each other's way.
    Counts {
        /// The version of the composite.
        version: u128,
        /// What is added to the number.
        change: i64,
    },
}

/// What a read told of a key, on which a batch was computed: the batch is written only while that is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// 1 to [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// Whether it was bound. A bulk load, which gives keys no new version, changes this.
    pub bound: bool,
    /// The version that the read told: see [`Condition::Version`](crate::Condition::Version).
    pub version: Lsn,
}

/// A list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenKeys {
    /// Keys back to back.
    keys: Vec<u8>,
    /// Of each where it ends, whether it was bound, and its version.
    ends: Vec<(usize, bool, Lsn)>,
}

impl SeenKeys {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            keys: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Appends what was `seen` of a key.
    pub(crate) fn push(&mut self, seen: Seen<'_>) {
        self.keys.extend_from_slice(seen.key);
        self.ends.push((self.keys.len(), seen.bound, seen.version));
    }

    /// All of it, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Seen<'_>> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |&(end, bound, version)| {
            let key = &self.keys[start..end];
            start = end;
            Seen {
                key,
                bound,
                version,
            }
        })
    }

    /// Bytes of keys.
    pub(crate) const fn bytes(&self) -> usize {
        self.keys.len()
    }
}
