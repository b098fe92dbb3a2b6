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
use parking_lot::{Mutex, MutexGuard};

use super::context::Context;
use super::convert;
use super::counters::Counted;
use super::link::{FETCH_SLOTS, SHIP_SLOTS, SendError};
use super::local::LocalRegion;
use super::region::Driver;
use super::serving::Serving;
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
struct Fetched {
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

/// What other members fetch. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct FetchQueue(Mutex<Vec<Fetched>>);

impl FetchQueue {
    /// Taken alone.
    fn lock(&self) -> MutexGuard<'_, Vec<Fetched>> {
        self.0.lock()
    }

    /// `peer` fetches part of a segment. It is read in the background.
    pub(super) fn push(&self, peer: ServerId, asked: Asked, context: &Context<'_>) {
        let session = context.link(peer).session();
        let mut fetches = self.lock();
        let of_peer = |fetch: &&Fetched| (fetch.peer, fetch.session) == (peer, session);
        let waiting = fetches.iter().filter(of_peer).count();
        if waiting >= usize::from(FETCH_SLOTS) || asked.slot >= FETCH_SLOTS {
            drop(fetches);
            return context.reset_link(peer, "a fetch names no slot that is free");
        }
        fetches.push(Fetched {
            peer,
            session,
            asked,
            bytes: None,
        });
        drop(fetches);
        context.wake(asked.region);
    }

    /// Reads what other members have asked for of the region, which is `local`, and sends it to them.
    pub(super) fn serve(&self, local: &LocalRegion<'_>) -> Progress {
        let context = local.context;
        let mut progress = Progress::default();
        let of_region = |fetch: &mut Fetched| fetch.asked.region == local.region.id();
        let waiting: Vec<_> = self.lock().extract_if(.., of_region).collect();
        for mut fetch in waiting {
            context.world.ledger.turn_to(Activity::IndexShipping);
            if context.link(fetch.peer).session() != fetch.session {
                progress.made = true;
                continue;
            }
            let bytes = fetch.bytes.take();
            let bytes = bytes.unwrap_or_else(|| read_for(&fetch.asked, local));
            match fetch.send(&bytes, context) {
                Ok(()) | Err(SendError::Down | SendError::TooLong { .. }) => progress.made = true,
                Err(SendError::Full) => {
                    fetch.bytes = Some(bytes);
                    self.lock().push(fetch);
                    progress.idle_for = Some(AGAIN);
                }
            }
        }
        progress
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// What is `asked` for of the region, which is `local`.
fn read_for(asked: &Asked, local: &LocalRegion<'_>) -> Bytes {
    let part = SegmentPart {
        number: asked.segment,
        from: asked.from,
        to: asked.to,
    };
    let reader = match &*local.region.driver() {
        Driver::Primary(driver) => driver.reader(),
        Driver::Backup(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
    };
    match reader {
        Some(reader) => reader.read(part),
        None => local.at_device("it reads for another member", |driver| match driver {
            Driver::Primary(driver) => driver.read(part),
            Driver::Backup(copy) => copy.read(part),
            Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
        }),
    }
}

impl Fetched {
    /// Writes what was read into the asker's slot. [`SendError::Full`]: nothing was sent.
    fn send(&self, bytes: &Bytes, context: &Context<'_>) -> Result<(), SendError> {
        let (peer, asked) = (self.peer, &self.asked);
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
                context.count(Counted::FetchesRefused);
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
        let mut link = context.link(peer);
        if link.session() != self.session {
            return Err(SendError::Down);
        }
        link.land(SHIP_SLOTS + asked.slot, bytes, header, &message)
    }
}
