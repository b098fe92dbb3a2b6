//! Why a trial could not be held. That a history is wrong is no error: it is what a trial is there to find
//! ([`TrialVerdict`](crate::TrialVerdict)).

use std::io;
use std::path::PathBuf;

/// Why a trial could not be held.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A file or a directory is not what it has to be. Look at what the system said.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cluster did not start, or did not do what it was told. Look at its logs.
    #[error("{0}")]
    Cluster(String),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl TrialError {
    /// What was tried on `path`, for `map_err`.
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
