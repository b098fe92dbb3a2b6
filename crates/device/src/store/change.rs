//! The handle of a catalog change: callers poll it, or block until it has ended.

use std::sync::Arc;

use super::Store;
use crate::catalog::CATALOG_BYTES_MAX;
use crate::io::DeviceError;

/// A change of the catalog that is being made durable.
#[derive(Clone)]
pub struct CatalogChange {
    pub(super) store: Arc<Store>,
    /// `None`: refused for want of room in the catalog.
    pub(super) number: Option<u64>,
}

impl CatalogChange {
    /// How the change ended, or `None` while it is under way. Polls drive the changes, of all
    /// regions together: without any, they stand.
    #[must_use]
    pub fn poll(&self) -> Option<Result<(), DeviceError>> {
        let Some(number) = self.number else {
            return Some(Err(DeviceError::CatalogFull {
                max: CATALOG_BYTES_MAX,
            }));
        };
        self.store.advance_catalog();
        self.store.lock_catalog().result(number)
    }

    /// Blocks until the change has ended. For opening, closing and tools.
    ///
    /// # Errors
    /// As [`poll`](Self::poll). Where the file system that holds the device has no room ([`DeviceError::is_full`]), the
    /// change stays under way, and is durable once there is room.
    pub fn wait(&self) -> Result<(), DeviceError> {
        loop {
            if let Some(result) = self.poll() {
                return result;
            }
            let ticket = self.store.lock_catalog().waits_for();
            // Any other end is for the next poll to judge.
            let ended = ticket.map_or(Ok(()), |ticket| self.store.wait(&ticket));
            if ended.as_ref().is_err_and(DeviceError::is_full) {
                return ended;
            }
        }
    }
}
