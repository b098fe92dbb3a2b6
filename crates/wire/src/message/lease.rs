//! Messages about leases. They are between two servers and concern no region. Numbers as in [`super`]:
//!
//! ```text
//!   29  Wanted        session number term
//!   30  Granted       session number term rise
//!   31  HandedBack    incarnation through
//!   32  EpochsRisen   rise goes_on: flag count (region epoch)[count]
//!   33  ViewsTaken    session rise
//!
//! session := incarnation number
//! ```
//!
//! A *session* is one of the link, as the holder of leases names it: the start of its server and the number of the
//! link. `term` is in nanoseconds. A server names its session with ViewsTaken, of rise 0, when a link is up. It is
//! told then in EpochsRisen, as rise 1, which epochs the other one has obeyed, and of each that rises later. What is
//! long goes in several messages, one behind the other, of which all but the last say that it goes on.

use alloc::vec::Vec;
use core::time::Duration;

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::{Epoch, Incarnation, RegionId};

use super::read::flag;
use super::write::put_all;

/// Most epochs of one [`LeaseMessage::EpochsRisen`].
pub const EPOCHS_MAX: usize = 4096;

/// Most bytes of one of them: two variable-length integers of 32 bits.
pub const EPOCH_BYTES_MAX: usize = 2 * 5;

/// A session of the link, as the holder of leases names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderSession {
    /// The start of the holder's server.
    pub incarnation: Incarnation,
    /// The number that it gives the link.
    pub number: u64,
}

/// A lease that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAsked {
    /// Where it was asked for.
    pub session: HolderSession,
    /// The request's number.
    pub number: u64,
    /// The term that the holder reckons with; under 584 years.
    pub term: Duration,
}

/// The epoch of a region that a server has obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObeyedEpoch {
    /// The region.
    pub region: RegionId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// What two servers say to each other about leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseMessage {
    /// Grant me this lease.
    Wanted(LeaseAsked),
    /// It is promised.
    Granted {
        /// As it was asked for.
        asked: LeaseAsked,
        /// The last rise that the granter had obeyed in that session.
        rise: u64,
    },
    /// I have given up all leases that I have asked you for.
    HandedBack {
        /// The start of the holder's server.
        incarnation: Incarnation,
        /// The last request that is given up.
        through: u64,
    },
    /// I have obeyed these epochs: answer under none before them.
    EpochsRisen {
        /// The number of this rise in the session.
        rise: u64,
        /// More of it follows.
        goes_on: bool,
        /// The epochs, at most [`EPOCHS_MAX`].
        epochs: Vec<ObeyedEpoch>,
    },
    /// I have taken the views of all rises up to this one.
    ViewsTaken {
        /// In which session.
        session: HolderSession,
        /// The rise; 0: none, the session begins.
        rise: u64,
    },
}

impl LeaseMessage {
    /// The byte that says which message it is.
    pub(super) const fn kind(&self) -> u8 {
        match self {
            Self::Wanted(_) => 29,
            Self::Granted { .. } => 30,
            Self::HandedBack { .. } => 31,
            Self::EpochsRisen { .. } => 32,
            Self::ViewsTaken { .. } => 33,
        }
    }

    /// Appends its payload.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Wanted(asked) => put_asked(out, asked),
            Self::Granted { asked, rise } => {
                put_asked(out, asked);
                put_varint(out, *rise);
            }
            Self::HandedBack {
                incarnation,
                through,
            } => put_all(out, &[incarnation.0, *through]),
            Self::EpochsRisen {
                rise,
                goes_on,
                epochs,
            } => {
                put_varint(out, *rise);
                out.push(u8::from(*goes_on));
                put_varint(out, epochs.len() as u64);
                for of in epochs {
                    put_all(out, &[of.region.0.into(), of.epoch.0.into()]);
                }
            }
            Self::ViewsTaken { session, rise } => {
                put_all(out, &[session.incarnation.0, session.number, *rise]);
            }
        }
    }

    /// The message of `kind`, 29 to 33.
    pub(super) fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match kind {
            29 => Self::Wanted(asked(r)?),
            30 => Self::Granted {
                asked: asked(r)?,
                rise: r.varint()?,
            },
            31 => Self::HandedBack {
                incarnation: Incarnation(r.varint()?),
                through: r.varint()?,
            },
            32 => risen(r)?,
            _ => Self::ViewsTaken {
                session: session(r)?,
                rise: r.varint()?,
            },
        })
    }
}

fn put_asked(out: &mut Vec<u8>, asked: &LeaseAsked) {
    let session = asked.session;
    let term = u64::try_from(asked.term.as_nanos()).unwrap_or(u64::MAX);
    put_all(
        out,
        &[session.incarnation.0, session.number, asked.number, term],
    );
}

fn session(r: &mut Reader<'_>) -> Result<HolderSession, Malformed> {
    Ok(HolderSession {
        incarnation: Incarnation(r.varint()?),
        number: r.varint()?,
    })
}

fn asked(r: &mut Reader<'_>) -> Result<LeaseAsked, Malformed> {
    Ok(LeaseAsked {
        session: session(r)?,
        number: r.varint()?,
        term: Duration::from_nanos(r.varint()?),
    })
}

fn risen(r: &mut Reader<'_>) -> Result<LeaseMessage, Malformed> {
    let (rise, goes_on) = (r.varint()?, flag(r)?);
    let count = r.length(EPOCHS_MAX)?;
    let each = (0..count).map(|_| {
        let mut number = || u32::try_from(r.varint()?).map_err(|_| r.malformed());
        Ok(ObeyedEpoch {
            region: RegionId(number()?),
            epoch: Epoch(number()?),
        })
    });
    Ok(LeaseMessage::EpochsRisen {
        rise,
        goes_on,
        epochs: each.collect::<Result<_, Malformed>>()?,
    })
}
