//! What a master is about: its part, and what of its work is under way.

use argosy_coordinator::{EntryVersion, MapWrite, RequestId, SessionId, StoredMap};

use crate::round::{Round, RoundMark};
use crate::steps::GroupStep;

/// A request while standing by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To create the key.
    Create,
    /// Who has it.
    Owner,
    /// Who is there.
    Servers,
}

/// What of an errand is not done yet, in bytes, and on which versions it is based.
#[derive(Debug)]
pub(crate) struct ErrandLeft {
    pub(crate) jobs_version: EntryVersion,
    pub(crate) note: Option<Vec<u8>>,
    pub(crate) act: Option<ActBytes>,
}

/// A change of the map.
#[derive(Debug)]
pub(crate) struct ActBytes {
    pub(crate) map: MapWrite,
    /// The log behind it.
    pub(crate) log: Vec<u8>,
    pub(crate) steps: Vec<GroupStep>,
}

/// What a master that leads knows of its last reading.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) map: Option<StoredMap>,
    /// What it was, if there was nothing to do, and will not be until it changes.
    pub(crate) at_rest: Option<RoundMark>,
}

/// A transaction on its way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: RequestId,
    pub(crate) sent: Sent,
    pub(crate) left: ErrandLeft,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It writes the log.
    Note,
    /// It sets the map, and the log with it.
    Act,
}

/// What a master that leads is at.
#[derive(Debug)]
pub(crate) enum Work {
    /// Until something happens.
    Rest,
    Reading(Box<Round>),
    Changing(Box<Pending>),
}

#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    Opening(RequestId),
    Standby {
        session: SessionId,
        asked: Option<Asked>,
    },
    Leading {
        session: SessionId,
        work: Work,
        known: Known,
    },
    Resigning(RequestId),
    Resigned,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    pub(crate) what: Ask,
}
