//! Bulk load of sorted pairs, straight into the levels: the rules that pairs keep to, and the results.
//!
//! An engine takes pairs in *parts*, each of which it loads as a whole or not at all.

use argosy_device::DeviceError;

use crate::batch::check_key;
use crate::long::{check_users, is_any_head};
use crate::{BatchError, EngineError};

/// The number of a part. Later parts of an engine have higher numbers.
pub type Ticket = u64;

/// How the bulk load of a part ended.
#[derive(Clone, Debug)]
pub enum Taken {
    /// Every member has the pairs.
    Done,
    /// Keys of its range are bound already. Nothing of the part was bulk-loaded.
    NotEmpty,
    /// Others kept writing into its range. Nothing of the part was bulk-loaded.
    Contended,
    /// The device is full. Nothing of the part was bulk-loaded.
    Full,
    /// Stored data of its range cannot be read because of this error. Nothing of the part was bulk-loaded.
    Unreadable(EngineError),
}

/// Why pairs were not bulk-loaded. None of them was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkLoadError {
    /// A key or a value breaks a rule that all writes keep to.
    #[error(transparent)]
    Key(#[from] BatchError),
    /// A key does not sort above the one before.
    #[error("pair {0}: its key does not sort above the one before")]
    Unsorted(u64),
    /// A pair is too long.
    #[error("pair {pair}: it has {bytes} bytes; a bulk-loaded pair has at most {max}")]
    TooLong {
        /// Its place among the pairs, from 0.
        pair: u64,
        /// Bytes of key and value.
        bytes: usize,
        /// Most bytes that a pair may have.
        max: usize,
    },
    /// There is nothing to load.
    #[error("there are no pairs; hand in one at least")]
    Nothing,
    /// Other clients keep writing into the range.
    #[error("others keep writing keys of their range; stop them, or write the pairs")]
    Contended,
    /// The region has copies on other servers, and the calling thread must not wait for these.
    #[error("a replicated region takes sorted pairs in parts only: use KV.INGEST, or import")]
    Replicated,
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<DeviceError> for BulkLoadError {
    fn from(error: DeviceError) -> Self {
        Self::Engine(error.into())
    }
}

/// Checks that `pairs` may be bulk-loaded as one part: keys rise, and no pair has more than `max` bytes. Returns the
/// bytes of all keys and values.
///
/// # Errors
/// [`BulkLoadError::Nothing`], [`BulkLoadError::Key`], [`BulkLoadError::Unsorted`], [`BulkLoadError::TooLong`].
pub fn check_part(pairs: &[(Vec<u8>, Vec<u8>)], max: usize) -> Result<usize, BulkLoadError> {
    let mut last: Option<&[u8]> = None;
    let mut bytes = 0;
    for (pair, (key, value)) in (0..).zip(pairs) {
        check_key(key)?;
        check_users(key)?;
        if is_any_head(value) {
            return Err(BatchError::ValueReserved.into());
        }
        if last.is_some_and(|last| last >= key.as_slice()) {
            return Err(BulkLoadError::Unsorted(pair));
        }
        let long = key.len() + value.len();
        if long > max {
            let bytes = long;
            return Err(BulkLoadError::TooLong { pair, bytes, max });
        }
        last = Some(key);
        bytes += long;
    }
    match last {
        Some(_) => Ok(bytes),
        None => Err(BulkLoadError::Nothing),
    }
}
