//! What can go wrong with an embedded store, what to do about it, and what became of the write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::{Outcome, Remedy};
use argosy_device::DeviceError;
use argosy_engine::{BatchError, BusyReason, EngineError};
use argosy_lsm::ReplicaError;
use argosy_lsm::db::bulk_loader::BulkLoadError;
use argosy_lsm::pins::PinError;
use argosy_memory::MemoryError;

/// What this module's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store did not do what it was asked. [`remedy`](Self::remedy) says what to do about it, and
/// [`outcome`](Self::outcome) whether a write took effect.
///
/// ```
/// # fn main() -> Result<(), argosy_embedded::Error> {
/// # let path = tempfile::tempdir().unwrap();
/// let db = argosy_embedded::Db::open(&path)?;
/// let error = db.put("", "a key has at least one byte").unwrap_err();
/// assert_eq!(error.remedy(), argosy_embedded::Remedy::Correct);
/// assert_eq!(error.outcome(), argosy_embedded::Outcome::NotApplied);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key, value or batch is over a limit. Correct it.
    #[error(transparent)]
    Limit(#[from] BatchError),
    /// No table is named so: a name has 1 to [`TABLE_NAME_BYTES_MAX`](crate::TABLE_NAME_BYTES_MAX) bytes, none of them
    /// zero. Correct it.
    #[error("a name of {0} bytes: those of tables have 1 to 255 bytes, none of them zero")]
    TableName(usize),
    /// The builder was told what cannot work. Correct it.
    #[error("{0}")]
    Settings(String),
    /// Another [`Db`](crate::Db), of this process or another one, has the directory open.
    #[error(
        "{} is open already{by}: share one `Db` (it can be cloned), or close the other first",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// By whom, where that is known, in words.
        by: String,
    },
    /// There is a store, but not one of this kind.
    #[error("{} {what}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What it is instead, and what would open it.
        what: &'static str,
    },
    /// The system refused something while the store was being opened.
    #[error("cannot {what} {}: {kind}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        kind: std::io::ErrorKind,
    },
    /// The store could not be opened: its device failed, or what it holds is damaged.
    #[error("cannot open {}: {what}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do about it.
        remedy: Remedy,
    },
    /// The log windows are not this store's, are in use by another one, or are not as a killed process left
    /// them: gone, or damaged. Nothing was changed.
    /// [`Builder::accept_loss`](crate::Builder::accept_loss) opens a store whose windows are gone or damaged.
    #[error("cannot open {}: {what}", path.display())]
    Windows {
        /// The store's directory.
        path: PathBuf,
        /// Which windows, what is wrong with them, and what would help.
        what: String,
        /// What to do about it.
        remedy: Remedy,
    },
    /// There was no room for the write for as long as it may wait. Nothing of it was applied.
    #[error("not applied after {} ms of waiting: {reason}", waited.as_millis())]
    Busy {
        /// What there was no room in.
        reason: BusyReason,
        /// How long it waited.
        waited: Duration,
    },
    /// The write is applied, but the device failed, or stayed full, before it was durable: it may be lost.
    #[error("applied, but it could not be made durable: {0}")]
    NotDurable(EngineError),
    /// The store takes no more writes since a write or a sync of its device failed, or since stored bytes are
    /// damaged. Nothing of this one was applied; reads go on. Reopen it.
    #[error("not applied: the store takes no more writes: {0}")]
    Ended(EngineError),
    /// The engine's: the device failed, stored bytes are damaged, or it takes no more writes.
    #[error(transparent)]
    Engine(EngineError),
    /// Writing a long value took so long that its parts were taken for abandoned ones. It was not applied: write
    /// it again.
    #[error("not applied: the value took too long to be written; write it again")]
    Swept,
    /// A checkpoint that is there already, is not there, or is damaged.
    #[error("checkpoint: {0}")]
    Checkpoint(PinError),
    /// Pairs that cannot be bulk-loaded, or are out of order. None of them was.
    #[error("nothing was bulk-loaded: {0}")]
    BulkLoad(BulkLoadError),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

impl Error {
    pub(crate) fn system(what: &'static str, path: impl Into<PathBuf>, e: &std::io::Error) -> Self {
        let (path, kind) = (path.into(), e.kind());
        Self::System { what, path, kind }
    }

    pub(crate) fn opening(path: impl Into<PathBuf>, error: &DeviceError) -> Self {
        let path = path.into();
        let (what, remedy) = (error.to_string(), error.remedy());
        match error {
            DeviceError::InUse { here, .. } => Self::in_use(path, *here),
            _ => Self::Open { path, what, remedy },
        }
    }

    /// The windows of the store at `path` cannot be used.
    pub(crate) fn windows(path: impl Into<PathBuf>, error: &MemoryError) -> Self {
        let path = path.into();
        let (what, remedy) = (error.to_string(), error.remedy());
        match error {
            MemoryError::OtherWindows { .. } | MemoryError::WindowsInUse { .. } => {
                Self::Windows { path, what, remedy }
            }
            _ => Self::Open { path, what, remedy },
        }
    }

    /// The store is open: in this process, if it is `here`, or in another one.
    pub(crate) fn in_use(path: impl Into<PathBuf>, here: bool) -> Self {
        let by = match here {
            true => " in this process (a `Db` of it is left, or a snapshot, scan or checkpoint)",
            false => " in another process",
        };
        Self::InUse {
            path: path.into(),
            by: by.to_owned(),
        }
    }

    pub(crate) fn recovering(path: impl AsRef<Path>, error: &ReplicaError) -> Self {
        let path = path.as_ref();
        if let ReplicaError::DamagedWindow { .. } = error {
            return crate::unclosed::lost(path, &error.to_string());
        }
        Self::Open {
            path: path.to_path_buf(),
            what: error.to_string(),
            remedy: error.remedy(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Limit(_)
            | Self::TableName(_)
            | Self::Settings(_)
            | Self::Foreign { .. }
            | Self::System { .. } => Remedy::Correct,
            Self::Checkpoint(PinError::Manifest(_) | PinError::Corrupt(..)) => Remedy::Repair,
            Self::Checkpoint(_) | Self::BulkLoad(_) => Remedy::Correct,
            Self::InUse { .. } | Self::Busy { .. } | Self::Swept => Remedy::Retry,
            Self::Open { remedy, .. } | Self::Windows { remedy, .. } => *remedy,
            // A full device: once there is room, a flush makes it durable.
            Self::NotDurable(error @ EngineError::Busy(_)) => error.remedy(),
            Self::NotDurable(_) | Self::Ended(_) | Self::Closed => Remedy::Reopen,
            Self::Engine(error) => error.remedy(),
        }
    }

    /// What became of the write that met it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotDurable(_) => Outcome::Unknown,
            Self::Engine(error) => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Limit(error) => Self::Limit(error),
            EngineError::Busy(reason) => Self::Busy {
                reason,
                waited: Duration::ZERO,
            },
            error => Self::Engine(error),
        }
    }
}
