//! How a command ends: the exit codes, which scripts may rely on.
//!
//! | code | means |
//! |---|---|
//! | 0 | done |
//! | 1 | the operation failed |
//! | 2 | the command line is wrong |
//! | 3 | what was named does not exist, or a condition does not hold |
//! | 4 | nothing answered, or not in time: try again |
//! | 6 | the cluster is not healthy |
//! | 7 | the configuration is wrong |
//! | 8 | data is not what was written |
//!
//! A second Ctrl-C ends a command at once, with 130 (or 143 for SIGTERM).

use std::process::ExitCode;

/// Why a command failed, split by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// Look at the message.
    #[error("{0}")]
    Failed(String),
    /// Correct the command line.
    #[error("{0}")]
    Usage(String),
    /// Name something that exists.
    #[error("{0}")]
    NotFound(String),
    /// Try again later.
    #[error("{0}")]
    Unreachable(String),
    /// Look what is wrong with the cluster.
    #[error("{0}")]
    Unhealthy(String),
    /// Correct the configuration.
    #[error("{0}")]
    Config(String),
    /// Data is not what was written: restore it from another member.
    #[error("{0}")]
    Corrupt(String),
}

impl CommandFailure {
    /// The system has no random numbers.
    #[expect(clippy::needless_pass_by_value, reason = "errors are mapped to it")]
    pub(crate) fn no_random(error: std::io::Error) -> Self {
        Self::io(
            "read",
            std::path::Path::new(argosy_device::random::SOURCE),
            &error,
        )
    }

    /// A failed operation: what was tried on what, and what the system said.
    pub fn io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Failed(format!("cannot {what} {}: {error}", path.display()))
    }

    /// The exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Unreachable(_) => 4,
            Self::Unhealthy(_) => 6,
            Self::Config(_) => 7,
            Self::Corrupt(_) => 8,
        })
    }
}

/// An error and all that caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
