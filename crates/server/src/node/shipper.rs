//! Writing a primary's log, one-sided, into one backup's windows, and finished segments into its landing
//! slots.
//!
//! An [`Attachment`] remembers up to where each log has been written to the backup. A *ship*
//! writes everything behind that, window by window: for each piece the bytes from the primary's
//! own window, at the same place of the backup's, and in front of the first piece of a window the
//! window's header. A ship is complete when all writes up to its last have ended well. While the
//! fabric takes no more writes, what is left waits, and is part of the next ship: no ship is counted
//! before all that it is to cover has been taken.
//!
//! ```text
//! own windows     ▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒      ▓ written to the backup   ▒ this ship
//! backup's        ▓▓▓▓▓▓▓▓▓▓▓▓
//! ```

use std::collections::{BTreeSet, VecDeque};

use argosy_base::{LogKind, Position, RegionId, ServerId};
use argosy_engine::{LogEnd, SealedSegment};
use argosy_fabric::{Fabric, FabricError, RemoteMemory};
use argosy_lsm::edit::LogSegment;
use argosy_lsm::log::segment::{WINDOW_HEADER_BYTES, Writer, encode_window_header};
use argosy_lsm::log::{Geometry, LogWindows};
use argosy_wire::message::Message;

use super::context::Context;
use super::keys;
use super::link::SendError;
use crate::activity::Activity;

/// Why a backup can no longer be written to: it has to report anew.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShipError {
    /// Its memory was revoked, or cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// It lacks bytes that the primary's windows no longer hold.
    #[error("the backup's {log} ends at {segment}, byte {end}, before the primary's windows")]
    TooFarBehind {
        /// The log.
        log: LogKind,
        /// Where it ends: the segment's place in the chain.
        segment: u64,
        /// And the byte in it.
        end: u32,
    },
}

/// Up to where one log has been written: the segment's place in the chain, and the byte.
type Place = (u64, u32);

/// A backup that is being written to. See the module documentation.
pub(crate) struct Attachment {
    region: RegionId,
    member: ServerId,
    /// The backup's windows by log and slot, connected when they are first written.
    windows: [Vec<Option<Box<dyn RemoteMemory>>>; LogKind::ALL.len()],
    at: [Place; LogKind::ALL.len()],
    /// Numbers the writes.
    write: u64,
    under_way: BTreeSet<u64>,
    /// Ships under way: number, and last write.
    ships: VecDeque<(u64, u64)>,
    ship: u64,
    /// The fabric did not take all that was to be shipped.
    behind: bool,
    /// A write has ended since, so that it may take more.
    has_room: bool,
    bytes: Vec<u8>,
    bytes_written: u64,
}

impl Attachment {
    /// A backup whose copy of the log ends at `position`; `ship` was the last ship to it.
    pub(crate) fn new(
        region: RegionId,
        member: ServerId,
        slots: usize,
        position: &Position,
        ship: u64,
    ) -> Self {
        let place =
            |log: LogKind| position.logs[log.index()].map_or((0, 0), |at| (at.ordinal, at.end));
        let windows = || std::iter::repeat_with(|| None).take(slots).collect();
        Self {
            region,
            member,
            windows: [windows(), windows()],
            at: [place(LogKind::Recovery), place(LogKind::Large)],
            write: 0,
            under_way: BTreeSet::new(),
            ships: VecDeque::new(),
            ship,
            behind: false,
            has_room: false,
            bytes: Vec::new(),
            bytes_written: 0,
        }
    }

    /// Bytes written to the backup since it was attached.
    pub(crate) const fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Whether something waits that the fabric did not take, and may take now: ship again.
    pub(crate) const fn goes_on(&self) -> bool {
        self.behind && self.has_room
    }

    /// Writes everything of `own` up to `ends`; `chain` names the segments of a log from the one
    /// on in which the backup's copy ends. Returns the ship's number; `None` where the fabric did not
    /// take all of it, and the rest waits until it [goes on](Self::goes_on).
    pub(crate) fn ship(
        &mut self,
        fabric: &dyn Fabric,
        own: [&LogWindows; LogKind::ALL.len()],
        chains: [&[LogSegment]; LogKind::ALL.len()],
        ends: [Option<LogEnd>; LogKind::ALL.len()],
    ) -> Result<Option<u64>, ShipError> {
        (self.behind, self.has_room) = (false, false);
        for log in LogKind::ALL {
            if let Some(end) = ends[log.index()] {
                match self.ship_log(fabric, own[log.index()], chains[log.index()], end) {
                    Err(ShipError::Fabric(FabricError::Full)) => {
                        self.behind = true;
                        return Ok(None);
                    }
                    result => result?,
                }
            }
        }
        self.ship += 1;
        self.ships.push_back((self.ship, self.write));
        Ok(Some(self.ship))
    }

    fn ship_log(
        &mut self,
        fabric: &dyn Fabric,
        own: &LogWindows,
        chain: &[LogSegment],
        end: LogEnd,
    ) -> Result<(), ShipError> {
        let geometry = own.geometry();
        let log = end.log;
        loop {
            let (ordinal, from) = self.at[log.index()];
            if (ordinal, from) >= (end.ordinal, end.end) {
                return Ok(());
            }
            let behind = ShipError::TooFarBehind {
                log,
                segment: ordinal,
                end: from,
            };
            let Some(segment) = chain.iter().find(|segment| segment.ordinal == ordinal) else {
                // It was trimmed: everything in it is in the levels by now.
                self.at[log.index()] = (ordinal + 1, 0);
                continue;
            };
            // Behind the last record of a sealed segment lie marks, which the primary asks to have flushed. Windows
            // that this writer has left are written to their ends.
            let last = match ordinal == end.ordinal {
                true => end.end,
                false => geometry.segment_bytes(),
            };
            if from >= last {
                self.at[log.index()] = (ordinal + 1, 0);
                continue;
            }
            let index = geometry.window_index(from);
            let to = last.min(geometry.window_end(index));
            let len = (to - from) as usize;
            self.bytes.resize(len, 0);
            if !own.read(segment, from, &mut self.bytes) {
                if segment.end.is_some_and(|end| from >= end) {
                    // Nothing behind the end of a segment is needed: what is still to be flushed has its window.
                    self.at[log.index()] = (ordinal + 1, 0);
                    continue;
                }
                return Err(behind);
            }
            self.write_piece(fabric, own, segment, from)?;
            self.at[log.index()] = (ordinal, to);
        }
    }

    /// Writes `bytes` at byte `from` of `segment`, and the window's header in front of its first.
    fn write_piece(
        &mut self,
        fabric: &dyn Fabric,
        own: &LogWindows,
        segment: &LogSegment,
        from: u32,
    ) -> Result<(), ShipError> {
        let geometry: Geometry = own.geometry();
        let index = geometry.window_index(from);
        let slot = geometry.slot(segment.ordinal, index);
        let remote = &mut self.windows[own.log().index()][slot];
        if remote.is_none() {
            let key = keys::window(self.region, own.log(), slot);
            *remote = Some(fabric.connect(self.member, key, geometry.slot_bytes())?);
        }
        let remote = remote.as_mut().expect("connected above");
        let start = if index == 0 {
            0
        } else {
            geometry.window_end(index - 1)
        };
        if from == start {
            // Made of what is known: the own slot may hold another window by now.
            let stamp = own.memory(slot).stamp();
            let writer = Writer {
                boot: stamp.boot,
                incarnation: stamp.incarnation,
            };
            let mut block = [0; WINDOW_HEADER_BYTES];
            let header = encode_window_header(self.region, segment, index, writer);
            block[..header.len()].copy_from_slice(&header);
            self.write += 1;
            remote.write(0, &block, self.write)?;
            self.under_way.insert(self.write);
        }
        self.write += 1;
        let at = WINDOW_HEADER_BYTES + (from - start) as usize;
        remote.write(at, &self.bytes, self.write)?;
        self.under_way.insert(self.write);
        self.bytes_written += self.bytes.len() as u64;
        Ok(())
    }

    /// The highest ship that is complete, if that has changed.
    pub(crate) fn poll(&mut self) -> Result<Option<u64>, ShipError> {
        for remote in self.windows.iter_mut().flatten().flatten() {
            while let Some(done) = remote.poll() {
                done.result?;
                self.has_room = true;
                self.under_way.remove(&done.seq);
            }
        }
        let first = self.under_way.first().copied().unwrap_or(u64::MAX);
        let mut complete = None;
        while let Some((ship, last)) = self.ships.front().copied() {
            if last >= first {
                break;
            }
            complete = Some(ship);
            self.ships.pop_front();
        }
        Ok(complete)
    }
}

/// What came of sending a segment.
pub(crate) enum Sent {
    /// It is on its way.
    Yes,
    /// No landing slot is free, or too much waits.
    NoRoom,
    /// The link is down.
    Down,
}

/// Writes a finished segment into a landing slot of `member`, and a message behind it.
pub(crate) fn send_segment(
    segment: &SealedSegment,
    region: RegionId,
    member: ServerId,
    attempt: u64,
    context: &Context<'_>,
) -> Sent {
    let mut link = context.link(member);
    if !link.is_open() {
        return Sent::Down;
    }
    let Some(slot) = link.free_ship_slot() else {
        return Sent::NoRoom;
    };
    let _span = context.ledger().during(Activity::IndexShipping);
    let len = u32::try_from(segment.bytes.len()).expect("a segment has at most 2 MiB");
    let message = Message::Ship {
        attempt,
        segment: segment.number,
        len,
        checksum: segment.checksum,
        slot,
        place: segment.place,
    };
    match link.land(
        slot,
        &segment.bytes,
        context.header(region, message.kind()),
        &message,
    ) {
        Ok(()) => Sent::Yes,
        Err(SendError::Full) => Sent::NoRoom,
        Err(SendError::Down | SendError::TooLong { .. }) => Sent::Down,
    }
}

#[cfg(test)]
#[path = "shipper_tests.rs"]
mod tests;
