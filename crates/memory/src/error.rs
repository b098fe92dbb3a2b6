//! Why there is no memory, and what its user does next.

use std::io;
use std::path::Path;
use std::sync::Arc;

use argosy_base::Remedy;

/// Why memory was not made, opened or given a name. Variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system refused to open, make or name a file. Correct the cause and start again.
    #[error("cannot {what} {path}: {source}")]
    Refused {
        /// What was tried, such as "open".
        what: &'static str,
        /// With what.
        path: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The file was written by something else, or by a version that this one does not know.
    #[error("{path}: {what}")]
    Unusable {
        /// The file.
        path: String,
        /// What it is.
        what: String,
    },
    /// A log window of another device lies where this one's belong. Nothing was changed.
    #[error(
        "{path} is a log window of another device ({found:032x}; this one is {device:032x}); it was left as it \
         is: name another directory for this store's windows, or put back the device that the window belongs \
         to; if that is gone for good, move the window away"
    )]
    OtherWindows {
        /// The window.
        path: String,
        /// The device that it says it belongs to.
        found: u128,
        /// The device whose windows are opened.
        device: u128,
    },
    /// Somebody else has the directory of the windows open. Nothing was changed.
    #[error(
        "the log windows in {path} are in use by another store: close that one, or name another directory for \
         this store's windows"
    )]
    WindowsInUse {
        /// The directory.
        path: String,
    },
}

impl MemoryError {
    /// The system refused to do `what` with the file `path`.
    pub(crate) fn refused(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Refused {
            what,
            path: path.display().to_string(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn unusable(path: &Path, what: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.display().to_string(),
            what: what.into(),
        }
    }

    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::WindowsInUse { .. } => Remedy::Retry,
            Self::Refused { .. } | Self::Unusable { .. } | Self::OtherWindows { .. } => {
                Remedy::Correct
            }
        }
    }

    /// Whether there was no room on the file system.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is(io::ErrorKind::StorageFull)
    }

    /// Whether a file was looked for and does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.is(io::ErrorKind::NotFound)
    }

    fn is(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Self::Refused { source, .. } if source.kind() == kind)
    }
}
