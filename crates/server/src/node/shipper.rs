//! Writing a primary's log, one-sided, into one backup's windows, and finished segments into its landing
//! slots.
//!
//! An [`Attachment`] writes to the windows that the backup granted in its report, and to no others: those of a later
//! report are another attachment's. It begins to connect to all of them when there is first something to write.
//! Before it is connected to the last, nothing is written; what was appended meanwhile is part of the first ship. There
//! is one attempt for each window, and none is begun anew: where one fails, the backup has to report anew, and grants
//! its windows anew. An attachment that is dropped before gives the attempts up.
//! It remembers up to where each log has been written to the backup. A *ship*
//! writes everything behind that, piece by piece, as the engine hands it out ([`Source::piece`]): the
//! bytes from the primary's own window, at the same place of the backup's, and in front of the first
//! piece of a window the window's header. A ship is complete when all writes up to its last have
//! ended well. While the fabric takes no more writes, what is left waits, and is part of the next
//! ship: no ship is counted before all that it is to cover has been taken.
//!
//! No window is written over one that the backup has not flushed. The engine sees to that for members, whose flushes
//! it waits for; for a copy that is being filled, the driver tells what it has [not flushed](Unflushed).
//!
//! ```text
//! own windows     ▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒      ▓ written to the backup   ▒ this ship
//! backup's        ▓▓▓▓▓▓▓▓▓▓▓▓
//! ```

use std::collections::{BTreeSet, VecDeque};

use argosy_base::{Descriptor, FlushRange, LogId, PerLog, Position, RegionId, ServerId};
use argosy_engine::source::{LogPlace, Next, Piece};
use argosy_engine::{LogEnd, LogSpec, SealedSegment, Source};
use argosy_fabric::{Fabric, FabricError};
use argosy_wire::message::Message;

use super::connection::Connection;
use super::context::Context;
use super::keys;
use super::link::SendError;
use crate::activity::Activity;

/// The first range of a log that a backup has not flushed, and was or will be asked to.
pub(crate) type Unflushed<'a> = &'a dyn Fn(LogId) -> Option<FlushRange>;

/// Why a backup can no longer be written to: it has to report anew.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShipError {
    /// Its memory was revoked, or cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// It lacks bytes that the primary's windows no longer hold.
    #[error("the backup's {log} ends at {segment}, byte {end}, before the primary's windows")]
    TooFarBehind {
        /// The name of the log.
        log: &'static str,
        /// Where it ends: the segment's place in the chain.
        segment: u64,
        /// And the byte in it.
        end: u32,
    },
}

/// A backup, and the windows that it grants under the present attempt.
pub(crate) struct Granting<'a> {
    pub(crate) region: RegionId,
    pub(crate) member: ServerId,
    pub(crate) windows: &'a [Descriptor],
}

/// A window of a backup's.
#[derive(Default)]
struct ShippedWindow {
    /// Its grant; `None` where there is none.
    granted: Option<Descriptor>,
    connection: Connection,
}

/// A log that is written to a backup.
struct ShippedLog {
    spec: LogSpec,
    /// The backup's windows by slot.
    windows: Vec<ShippedWindow>,
    /// Up to where the log has been written.
    at: LogPlace,
    /// The first range that the backup has not flushed.
    unflushed: Option<FlushRange>,
}

impl ShippedLog {
    /// A log of which the backup has what `position` says.
    fn new(spec: &LogSpec, position: &Position, backup: &Granting<'_>) -> Self {
        let at = position.logs.get(spec.id);
        let window = |slot| {
            let key = keys::window(backup.region, spec.id, slot);
            let mut granted = backup.windows.iter();
            ShippedWindow {
                granted: granted.find(|of| of.key == key).copied(),
                connection: Connection::None,
            }
        };
        Self {
            spec: *spec,
            windows: (0..spec.slots).map(window).collect(),
            at: at.map_or_else(LogPlace::default, |at| LogPlace {
                ordinal: at.ordinal,
                offset: at.end,
            }),
            unflushed: None,
        }
    }
}

impl ShippedLog {
    /// Whether what is written next takes the slot of a window that the backup has not flushed.
    fn would_lose_some(&self) -> bool {
        let Some(range) = self.unflushed else {
            return false;
        };
        let window = |ordinal: u64, offset: u32| {
            let window_bytes = self.spec.window_bytes as u64;
            ordinal * self.spec.segment_windows + u64::from(offset) / window_bytes
        };
        let slots = self.spec.slots as u64;
        let next = window(self.at.ordinal, self.at.offset);
        next >= window(range.ordinal, range.from) + slots
    }

    fn too_far_behind(&self) -> ShipError {
        ShipError::TooFarBehind {
            log: self.spec.name,
            segment: self.at.ordinal,
            end: self.at.offset,
        }
    }
}

/// How far an attachment is connected to the backup's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// There was nothing to write.
    NotYet,
    /// It is connecting.
    InPart,
    /// To all that are granted.
    All,
}

/// A backup that is being written to. See the module documentation.
pub(crate) struct Attachment {
    member: ServerId,
    reached: Reached,
    logs: Vec<ShippedLog>,
    /// Numbers the writes.
    write: u64,
    under_way: BTreeSet<u64>,
    /// Ships under way: number, and last write.
    ships: VecDeque<(u64, u64)>,
    ship: u64,
    /// The fabric did not take all that was to be shipped, or is still connecting.
    behind: bool,
    /// A write has ended since, or the last connection was made, so that it may take more.
    has_room: bool,
    piece: Piece,
    bytes_written: u64,
}

impl Attachment {
    /// `backup`, whose copy of each of `logs` ends at `position`; `ship` was the last ship to it.
    pub(crate) fn new(
        backup: &Granting<'_>,
        logs: &[LogSpec],
        position: &Position,
        ship: u64,
    ) -> Self {
        let shipped = |spec: &LogSpec| ShippedLog::new(spec, position, backup);
        Self {
            member: backup.member,
            reached: Reached::NotYet,
            logs: logs.iter().map(shipped).collect(),
            write: 0,
            under_way: BTreeSet::new(),
            ships: VecDeque::new(),
            ship,
            behind: false,
            has_room: false,
            piece: Piece::default(),
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

    /// Whether writes are on their way, or wait until the fabric takes more.
    pub(crate) fn is_under_way(&self) -> bool {
        self.behind || !self.under_way.is_empty() || !self.ships.is_empty()
    }

    /// Whether the backup lacks anything of `source` up to `ends`. Writes nothing.
    pub(crate) fn lacks(
        &mut self,
        source: &dyn Source,
        ends: &PerLog<LogEnd>,
    ) -> Result<bool, ShipError> {
        for index in 0..self.logs.len() {
            let Some(end) = ends.get(self.logs[index].spec.id) else {
                continue;
            };
            if self.next_piece(index, *end, source)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes everything of `source` up to `ends`. Returns the ship's number; `None` where the fabric did not take all
    /// of it, and the rest waits until it [goes on](Self::goes_on).
    pub(crate) fn ship(
        &mut self,
        fabric: &dyn Fabric,
        source: &dyn Source,
        ends: &PerLog<LogEnd>,
        unflushed: Unflushed<'_>,
    ) -> Result<Option<u64>, ShipError> {
        (self.behind, self.has_room) = (false, false);
        for index in 0..self.logs.len() {
            let Some(end) = ends.get(self.logs[index].spec.id) else {
                continue;
            };
            self.logs[index].unflushed = unflushed(self.logs[index].spec.id);
            let taken = match self.ship_log(index, *end, fabric, source) {
                Err(ShipError::Fabric(FabricError::Full)) => false,
                result => result?,
            };
            if !taken {
                self.behind = true;
                return Ok(None);
            }
        }
        self.ship += 1;
        self.ships.push_back((self.ship, self.write));
        Ok(Some(self.ship))
    }

    /// Writes the log with this index up to `end`. Returns whether all of it was written: none is while the windows
    /// are being connected to.
    fn ship_log(
        &mut self,
        index: usize,
        end: LogEnd,
        fabric: &dyn Fabric,
        source: &dyn Source,
    ) -> Result<bool, ShipError> {
        while self.next_piece(index, end, source)? {
            let log = &self.logs[index];
            if log.would_lose_some() {
                return Err(log.too_far_behind());
            }
            if self.reached == Reached::NotYet {
                self.connect(fabric)?;
            }
            if self.reached != Reached::All {
                return Ok(false);
            }
            self.write_piece(index)?;
            self.logs[index].at = self.piece.next;
        }
        Ok(true)
    }

    /// Begins to connect to all windows, and has what is made at once.
    fn connect(&mut self, fabric: &dyn Fabric) -> Result<(), FabricError> {
        for log in &mut self.logs {
            for window in &mut log.windows {
                if let Some(granted) = window.granted {
                    let connecting = fabric.connect(self.member, granted, log.spec.slot_bytes);
                    window.connection = Connection::Connecting(connecting);
                }
            }
        }
        self.reached = Reached::InPart;
        self.step_connections()
    }

    fn step_connections(&mut self) -> Result<(), FabricError> {
        let mut all = true;
        for window in self.logs.iter_mut().flat_map(|log| &mut log.windows) {
            window.connection.step()?;
            all &= window.granted.is_none() || window.connection.is_made();
        }
        if all {
            self.reached = Reached::All;
        }
        Ok(())
    }

    /// Has `piece` hold the next bytes of the log with this index up to `end`. Returns whether there are any.
    fn next_piece(
        &mut self,
        index: usize,
        end: LogEnd,
        source: &dyn Source,
    ) -> Result<bool, ShipError> {
        let end = LogPlace {
            ordinal: end.ordinal,
            offset: end.end,
        };
        loop {
            let log = &mut self.logs[index];
            let from = log.at;
            match source.piece(log.spec.id, from, end, &mut self.piece) {
                Next::End => return Ok(false),
                Next::Skip(next) => log.at = next,
                Next::Write => return Ok(true),
                Next::Gone => return Err(log.too_far_behind()),
            }
        }
    }

    /// Writes the piece to the log with this index, and the window's header in front of its first.
    fn write_piece(&mut self, index: usize) -> Result<(), ShipError> {
        let piece = &self.piece;
        let window = &mut self.logs[index].windows[piece.slot];
        // What was not granted can be connected to no more than what was revoked.
        let remote = window.connection.remote().ok_or(FabricError::Revoked)?;
        if !piece.header.is_empty() {
            self.write += 1;
            remote.write(0, &piece.header, self.write)?;
            self.under_way.insert(self.write);
        }
        self.write += 1;
        remote.write(piece.at, &piece.bytes, self.write)?;
        self.under_way.insert(self.write);
        self.bytes_written += piece.bytes.len() as u64;
        Ok(())
    }

    /// The highest ship that is complete, if that has changed. Moves on what is being connected to.
    pub(crate) fn poll(&mut self) -> Result<Option<u64>, ShipError> {
        if self.reached == Reached::InPart {
            self.step_connections()?;
            self.has_room |= self.reached == Reached::All;
        }
        let windows = self.logs.iter_mut().flat_map(|log| &mut log.windows);
        for remote in windows.filter_map(|window| window.connection.remote()) {
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
