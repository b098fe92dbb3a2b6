//! What other members fetch from this server: parts of segments, read for them.
//!
//! A fetch waits in a queue until a step of its region reads it: a slow device holds up no link, no
//! beat and no message of other regions. Segments of a region that is open here are read without its
//! driver's lock, so that its writes are acknowledged meanwhile. What was read is written into the
//! asker's landing slot; while the fabric takes no more writes, it waits here.
//!
//! The queue holds at most [`FETCH_SLOTS`] fetches of each peer: it has no more slots.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{RegionId, SegmentNumber, SegmentPart, ServerId};
use argosy_engine::{Pin, Progress};
use argosy_wire::message::{FetchStatus, Message};

use super::context::Context;
use super::counters::Counted;
use super::link::{FETCH_SLOTS, SHIP_SLOTS, SendError};
use super::region::Driver;
use super::serving::Serving;
use super::{Node, convert};
use crate::activity::Activity;

/// When what was read is sent again, while the fabric takes no more writes.
const AGAIN: Duration = Duration::from_millis(1);

/// What a member asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) region: RegionId,
    pub(super) segment: SegmentNumber,
    pub(super) from: u32,
    pub(super) to: u32,
    /// The asker's slot.
    pub(super) slot: u8,
}

/// Bytes of a segment, or why there are none; `None` where the segment is not here.
type Bytes = Option<Result<Vec<u8>, String>>;

/// A fetch that waits.
#[derive(Debug)]
pub(super) struct Fetched {
    peer: ServerId,
    /// The session of the link that it came by: what came by an earlier one is of no use.
    session: u32,
    asked: Asked,
    /// What was read already.
    bytes: Option<Bytes>,
}

/// The versions of a region that backups read from.
pub(crate) struct Reader {
    pub(super) engine: Arc<Serving>,
    pub(super) pins: Vec<Pin>,
}

impl Reader {
    /// Part of a segment, whole blocks; `None` where it is gone. Reads the device.
    pub(crate) fn read(&self, part: SegmentPart) -> Option<Result<Vec<u8>, String>> {
        let bytes = self.engine.source()?.read(part, &self.pins)?;
        Some(
            bytes
                .map(|bytes| bytes.to_vec())
                .map_err(|error| error.to_string()),
        )
    }
}

impl Node {
    /// `peer` fetches part of a segment. It is read in the background.
    pub(super) fn asked_to_read(&self, peer: ServerId, asked: Asked) {
        let session = self.link(peer).session();
        let mut fetches = self.device_care.fetches();
        let of_peer = |fetch: &&Fetched| (fetch.peer, fetch.session) == (peer, session);
        let waiting = fetches.iter().filter(of_peer).count();
        if waiting >= usize::from(FETCH_SLOTS) || asked.slot >= FETCH_SLOTS {
            drop(fetches);
            return self.link(peer).reset("a fetch names no slot that is free");
        }
        fetches.push(Fetched {
            peer,
            session,
            asked,
            bytes: None,
        });
        drop(fetches);
        self.wake(asked.region);
    }

    /// Reads what other members have asked for of `region`, and sends it to them.
    pub(super) fn serve_fetches(&self, region: RegionId) -> Progress {
        let mut progress = Progress::default();
        let of_region = |fetch: &mut Fetched| fetch.asked.region == region;
        let waiting: Vec<_> = self
            .device_care
            .fetches()
            .extract_if(.., of_region)
            .collect();
        for mut fetch in waiting {
            self.world.ledger.turn_to(Activity::IndexShipping);
            if self.link(fetch.peer).session() != fetch.session {
                progress.made = true;
                continue;
            }
            let bytes = fetch.bytes.take();
            let bytes = bytes.unwrap_or_else(|| self.read_for(&fetch.asked));
            match self.send_fetched(&fetch, &bytes) {
                Ok(()) | Err(SendError::Down | SendError::TooLong { .. }) => progress.made = true,
                Err(SendError::Full) => {
                    fetch.bytes = Some(bytes);
                    self.device_care.fetches().push(fetch);
                    progress.idle_for = Some(AGAIN);
                }
            }
        }
        progress
    }

    /// How many wait.
    pub(super) fn fetches_waiting(&self) -> usize {
        self.device_care.fetches().len()
    }

    fn read_for(&self, asked: &Asked) -> Bytes {
        let region = self.region(asked.region)?;
        let part = SegmentPart {
            number: asked.segment,
            from: asked.from,
            to: asked.to,
        };
        let reader = match &*region.driver() {
            Driver::Primary(driver) => driver.reader(),
            Driver::Backup(_) | Driver::AtDevice(_) | Driver::Failed(_) => None,
        };
        match reader {
            Some(reader) => reader.read(part),
            None => self.at_device(
                region,
                "it reads for another member",
                |driver| match driver {
                    Driver::Primary(driver) => driver.read(part),
                    Driver::Backup(copy) => copy.read(part),
                    Driver::AtDevice(_) | Driver::Failed(_) => None,
                },
            ),
        }
    }

    /// Writes what was read into the asker's slot. [`SendError::Full`]: nothing was sent.
    fn send_fetched(&self, fetch: &Fetched, bytes: &Bytes) -> Result<(), SendError> {
        let context = Context { node: self };
        let (peer, asked) = (fetch.peer, &fetch.asked);
        let refuse = |status| {
            let slot = asked.slot;
            let refusal = Message::Fetched {
                slot,
                status,
                len: 0,
                checksum: 0,
            };
            context.send(peer, asked.region, &refusal);
            Ok(())
        };
        let bytes = match bytes {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                tracing::error!(region = asked.region.0, %error, "cannot serve a fetch");
                self.telling.counters().count(Counted::FetchesRefused);
                return refuse(FetchStatus::Failed);
            }
            None => return refuse(FetchStatus::Gone),
        };
        let len = u32::try_from(bytes.len()).expect("a segment has at most 2 MiB");
        let message = Message::Fetched {
            slot: asked.slot,
            status: FetchStatus::Ok,
            len,
            checksum: convert::fetched_checksum(asked.region, asked.segment, asked.from, bytes),
        };
        let header = context.header(asked.region, message.kind());
        let mut link = self.link(peer);
        if link.session() != fetch.session {
            return Err(SendError::Down);
        }
        link.land(SHIP_SLOTS + asked.slot, bytes, header, &message)
    }
}
