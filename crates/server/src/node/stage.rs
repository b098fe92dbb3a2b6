//! What a primary's driver has of its region: a copy that opens, the open store, or neither.

use std::sync::Arc;

use argosy_engine::Source;

use super::follower::Follower;
use super::refilling::Unusable;
use super::serving::Serving;

/// How far the own copy of a primary has come.
pub(super) enum Stage {
    /// Waiting for reports, or adopting.
    Opening(Box<Follower>),
    /// Open.
    Serving(Arc<Serving>),
    /// The own copy is too damaged to be used, and waits to be refilled.
    Damaged(Box<Unusable>),
    /// Between the others, and after a failure.
    Closed(String),
}

impl Stage {
    /// The open region, as backups copy it.
    pub(super) fn source(&self) -> Option<&dyn Source> {
        match self {
            Self::Serving(engine) => engine.source(),
            Self::Opening(_) | Self::Damaged(_) | Self::Closed(_) => None,
        }
    }
}
