//! What a planner wants: steps of regions, and the map in which they have happened.

use std::sync::Arc;

use argosy_base::{Instant, RegionId, ServerId};
use argosy_coordinator::{ClusterMap, Deed, JobState, PromotionClaim};

use crate::groups::GroupChange;
use crate::health::Health;

/// What a planner wants.
#[derive(Clone, Debug, Default)]
pub struct MasterPlan {
    /// What is to happen, at most one step for each region.
    pub steps: Vec<GroupStep>,
    /// The map in which all of it has happened; `None` where that is nothing.
    pub map: Option<Arc<ClusterMap>>,
    /// When there may be more to do, although nothing has changed.
    pub again: Option<Instant>,
    /// Whether something is about to change: a region waits for reports, and not for long yet, or a server leaves.
    pub is_under_way: bool,
    /// What jobs had to do, and comes to nothing.
    pub moot: Vec<Moot>,
    /// Nothing is to be done, and nothing will be, however much time passes, unless what was read changes.
    pub is_at_rest: bool,
}

/// A step of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupStep {
    /// Nobody serves it any more.
    Raise {
        /// The region.
        region: RegionId,
        /// Who served it.
        primary: ServerId,
        /// Why that one does not any more.
        reason: RaiseReason,
    },
    /// It has a new primary.
    Promote {
        /// The region.
        region: RegionId,
        /// Who serves it.
        primary: ServerId,
        /// The report for which it was chosen. A cut copy may lack what was acknowledged last.
        claim: PromotionClaim,
    },
    /// Its group is another one.
    Regroup {
        /// The region.
        region: RegionId,
        /// How.
        change: GroupChange,
    },
}

impl GroupStep {
    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        match self {
            Self::Raise { region, .. }
            | Self::Promote { region, .. }
            | Self::Regroup { region, .. } => *region,
        }
    }
}

/// Why a primary does not serve any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseReason {
    /// Its copy is not what its claim says.
    Refused,
    /// It is in this health, and another member in a better one.
    Unfit(Health),
}

/// A deed of an open job that comes to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moot {
    /// The deed.
    pub deed: Deed,
    /// How its job ends, if that was all of it.
    pub state: JobState,
    /// Why.
    pub remark: &'static str,
}
