//! What servers say to each other. A message is a ring header (kind, region, epoch, request
//! number) and a payload; this module is the payloads.
//!
//! ```text
//! kind  message            payload
//!    1  Prepare            attempt addresses: u8 refill: flag
//!    2  Report             attempt position standing: u8 count (key: u64 grant: u64)[count]
//!    3  CaughtUp           attempt position
//!    4  Offer              attempt seq len bytes
//!    5  Edit               attempt seq len bytes
//!    6  Applied            seq
//!    7  CheckpointWanted   attempt
//!    8  Flush              attempt range commit
//!    9  Flushed            range
//!   10  Ship               attempt segment len crc32c slot place
//!   11  Stored             attempt slot
//!   12  Fetch              segment from to slot
//!   13  Fetched            slot status len crc32c
//!   14  Adopt
//!   15  Room               free reserve
//!   16  Places             attempt count (segment place)[count]
//!   17  Commit             commit
//!   18  Compact            upto
//!   19  Compacted          upto
//!   20  Call               call
//!   21  Answer             answer
//!   22  More               attempt seq from bytes
//!   23  MoreWanted         attempt seq to
//!   24  Failed             attempt damaged: flag why
//!   25  Whole              attempt
//!   26  Rest               attempt
//!   27  Wake               attempt
//!   28  Awake              attempt
//!   29 to 33  Lease        (see `lease`)
//!   34  Seated
//!
//! position := edit lsn count (log ordinal segment end flushed)[count]
//! range    := log ordinal segment from to       flag := 0: u8 | 1: u8
//! call     := request                           answer := response        (see `api`)
//! log      := id: u8
//! ```
//!
//! The id of a log is 1 to [`LOGS_MAX`]. In a position the ids rise. Which logs a region has depends on the engine. A
//! backup refuses to flush a log that it does not have, and a primary ignores it.
//!
//! Numbers are variable-length integers unless a width is given; byte strings are a length and bytes. `crc32c` (fixed,
//! 4 bytes) covers bytes that were written one-sided into a landing slot before the message: of a shipped segment as
//! its version edit states it, of fetched bytes with the identity (message, region, segment number, epoch 0, offset
//! `from`).
//!
//! `addresses` is what pointers inside level segments name: 0 segment numbers, 1 places. A *place* is the device
//! segment in which the sender has a segment. Where pointers name places, a shipped segment's are the sender's: it
//! says where the shipped segment itself lies, for pointers to it, and by Places where the segments of the large log
//! lie: all of them when it begins to speak to a backup under an attempt, and ahead of each Edit those that the edit
//! adds. In fetched bytes pointers hold segment numbers in any case.
//!
//! Edits and checkpoints have no bound, and messages have one ([`MESSAGE_BYTES_MAX`](crate::ring::MESSAGE_BYTES_MAX)).
//! Edit and Offer carry the first bytes, and `len`, the length of the whole. The receiver asks for what follows:
//! MoreWanted allows bytes up to `to`, at most [`WINDOW_MESSAGES`] ahead of what it has, or says with 0 that it wants
//! nothing of it. More carries bytes from `from` on, without a gap. Of one region a sender has one such transfer under
//! way, and what comes behind it waits; a new Offer takes the place of a transfer that has not ended.
//!
//! Calls and answers are of bounded length ([`LONG_BYTES_MAX`]), and longer than a message may be. They go as several
//! ring messages, one directly behind the other, with the same header but that the kind of all but the last has the
//! bit [`CONTINUED`]. Their payloads together are the payload.
//!
//! Unknown kinds, and payloads that end early or late, are refused, calls and answers when they are read. What
//! messages may say is part of the ring's version: a server never gets to see one of another version.

mod lease;
mod read;
mod write;

use alloc::vec::Vec;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{LOGS_MAX, WINDOW_SLOTS_MAX};
use argosy_base::{
    AddressMode, Descriptor, DeviceSegment, EditSeq, FlushRange, Lsn, Position, SegmentNumber,
    Standing,
};

pub use self::lease::{
    EPOCH_BYTES_MAX, EPOCHS_MAX, HolderSession, LeaseAsked, LeaseMessage, ObeyedEpoch,
};
use self::read::{
    descriptors, failed, fetched, flag, offset, part_of_edit, places, position, range, room,
    segment, ship, state, up_to,
};
use self::write::{put_all, put_range};

/// Longest `why` of a [`Message::Failed`], in bytes.
pub const WHY_BYTES_MAX: usize = 1024;

/// Most windows of one [`Message::Report`]: those of all logs.
pub const WINDOWS_MAX: usize = LOGS_MAX * WINDOW_SLOTS_MAX;

/// Most segments of one [`Message::Places`].
pub const PLACES_MAX: usize = 4096;

/// Most bytes of one segment and its place in a [`Message::Places`]: two variable-length integers.
pub const PLACE_BYTES_MAX: usize = 10 + 5;

/// Most bytes of a payload beside the bytes of an edit that it carries: attempt, number, length or place, and
/// the length of the byte string, as variable-length integers; in [`Message::Places`] attempt and count.
pub const PART_FRAME_BYTES: usize = 4 * 10;

/// How many of the longest messages of their ring an edit may be asked for in at one time.
pub const WINDOW_MESSAGES: usize = 4;

/// Set in the kind of a ring message whose payload goes on in the next one. DO NOT CHANGE.
pub const CONTINUED: u8 = 0x80;

/// Longest payload that goes as several ring messages, in bytes: of a batch with all that is said of each of its
/// operations, or of an answer with the longest value behind a full page.
pub const LONG_BYTES_MAX: usize = 2 << 20;

/// How a fetch ended. DO NOT CHANGE THE VALUES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FetchStatus {
    /// The bytes are in the slot.
    Ok = 0,
    /// The source no longer has the segment.
    Gone = 1,
    /// The source could not read it.
    Failed = 2,
}

/// One message between two servers, about one region where the header names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Primary to backup: revoke your windows and report.
    Prepare {
        /// To be repeated.
        attempt: u64,
        /// What pointers inside the primary's level segments name.
        addresses: AddressMode,
        /// Your copy is damaged: set it aside and begin it anew before you report.
        refill: bool,
    },
    /// Backup to primary: this is where I stand.
    Report {
        /// Of the prepare.
        attempt: u64,
        /// Where it stands.
        position: Position,
        /// What it is certain to hold.
        standing: Standing,
        /// The windows that it grants you under this attempt, at most [`WINDOWS_MAX`].
        windows: Vec<Descriptor>,
    },
    /// Backup to primary: the checkpoint is applied.
    CaughtUp {
        /// Of the prepare.
        attempt: u64,
        /// Where it stands.
        position: Position,
    },
    /// Primary to backup: a checkpoint edit, or its first bytes.
    Offer {
        /// Of the prepare; 0 to a primary that adopts.
        attempt: u64,
        /// The edit that the checkpoint stands for.
        seq: EditSeq,
        /// Bytes of the whole checkpoint.
        len: u64,
        /// The first of them.
        bytes: &'a [u8],
    },
    /// Primary to backup: a committed edit, or its first bytes.
    Edit {
        /// Of the prepare.
        attempt: u64,
        /// The edit.
        seq: EditSeq,
        /// Bytes of the whole edit, encoded.
        len: u64,
        /// The first of them.
        bytes: &'a [u8],
    },
    /// More bytes of the edit or checkpoint that was begun last.
    More {
        /// As it was begun.
        attempt: u64,
        /// As it was begun.
        seq: EditSeq,
        /// How many bytes of it were sent before.
        from: u64,
        /// The next.
        bytes: &'a [u8],
    },
    /// Send on what you have begun.
    MoreWanted {
        /// As it was begun.
        attempt: u64,
        /// As it was begun.
        seq: EditSeq,
        /// Up to this byte; 0: it is of no use.
        to: u64,
    },
    /// Backup to primary: every edit up to this one is applied.
    Applied {
        /// Of the prepare.
        attempt: u64,
        /// The edit.
        seq: EditSeq,
    },
    /// Backup to primary: an edit names what you no longer have.
    CheckpointWanted {
        /// Of the prepare.
        attempt: u64,
    },
    /// Primary to backup: make a range of your windows durable.
    Flush {
        /// Of the prepare.
        attempt: u64,
        /// What to flush.
        range: FlushRange,
        /// Everything up to here is committed.
        commit: Lsn,
    },
    /// Backup to primary: it is durable.
    Flushed {
        /// Of the prepare, as it was asked.
        attempt: u64,
        /// What was flushed.
        range: FlushRange,
    },
    /// Primary to backup: a finished segment lies in a landing slot.
    Ship {
        /// Of the prepare.
        attempt: u64,
        /// The segment.
        segment: SegmentNumber,
        /// Its bytes in the slot.
        len: u32,
        /// Their checksum, as the edit will state it.
        checksum: u32,
        /// The sender's slot.
        slot: u8,
        /// Where the sender has it.
        place: DeviceSegment,
    },
    /// Backup to primary: the slot is free again.
    Stored {
        /// Of the prepare, as it was shipped.
        attempt: u64,
        /// The sender's slot.
        slot: u8,
    },
    /// Write part of a segment into my landing slot.
    Fetch {
        /// The segment.
        segment: SegmentNumber,
        /// First byte.
        from: u32,
        /// Byte behind the last.
        to: u32,
        /// The asker's slot.
        slot: u8,
    },
    /// The end of a fetch.
    Fetched {
        /// The asker's slot.
        slot: u8,
        /// How it ended.
        status: FetchStatus,
        /// Bytes in the slot.
        len: u32,
        /// Their checksum.
        checksum: u32,
    },
    /// Opening primary to backup: offer me your version and the ends of your logs.
    Adopt,
    /// My device has so much room.
    Room {
        /// Segments that nobody uses.
        free: u32,
        /// How many of them are kept from writers.
        reserve: u32,
    },
    /// Primary to backup: these segments of my large log lie here.
    Places {
        /// Of the prepare.
        attempt: u64,
        /// The segments, at most [`PLACES_MAX`], and where the sender has them.
        places: Vec<(SegmentNumber, DeviceSegment)>,
    },
    /// Primary to backup: everything up to here is committed by now.
    Commit {
        /// The commit LSN.
        commit: Lsn,
    },
    /// Primary to backup that builds its own levels: merge everything into one, once you have all up to here.
    Compact {
        /// The last LSN that has to be among it.
        upto: Lsn,
    },
    /// Backup to primary: a full compaction has merged everything up to here.
    Compacted {
        /// The last LSN that was among it.
        upto: Lsn,
    },
    /// Backup to primary: my copy has failed and follows no more; its windows are revoked. Also the answer to
    /// [`Prepare`](Self::Prepare), until the backup's process is started again.
    Failed {
        /// Of the prepare.
        attempt: u64,
        /// What is stored is damaged, and the copy can be begun anew.
        damaged: bool,
        /// Why, for people: UTF-8, at most [`WHY_BYTES_MAX`].
        why: &'a str,
    },
    /// Primary to backup: your copy holds everything that was acknowledged.
    Whole {
        /// Of the prepare.
        attempt: u64,
    },
    /// Primary to backup: all of the logs is durable everywhere, and nothing is written to your windows before you say
    /// that they are awake. Give their memory back.
    Rest {
        /// Of the prepare.
        attempt: u64,
    },
    /// Primary to backup: take memory for your windows again.
    Wake {
        /// Of the prepare.
        attempt: u64,
    },
    /// Backup to primary: my windows have memory.
    Awake {
        /// Of the prepare.
        attempt: u64,
    },
    /// To the primary: my copy has taken its place under you. What you have said of it before was not heard: begin.
    Seated,
    /// About leases, between two servers.
    Lease(LeaseMessage),
    /// A client's [`Request`](crate::api::Request), forwarded to the region's primary, as it travels.
    Call(&'a [u8]),
    /// Its [`Response`](crate::api::Response), as it travels.
    Answer(&'a [u8]),
}

impl<'a> Message<'a> {
    /// The kind that goes into the header. DO NOT CHANGE THE VALUES.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Prepare { .. } => 1,
            Self::Report { .. } => 2,
            Self::CaughtUp { .. } => 3,
            Self::Offer { .. } => 4,
            Self::Edit { .. } => 5,
            Self::Applied { .. } => 6,
            Self::CheckpointWanted { .. } => 7,
            Self::Flush { .. } => 8,
            Self::Flushed { .. } => 9,
            Self::Ship { .. } => 10,
            Self::Stored { .. } => 11,
            Self::Fetch { .. } => 12,
            Self::Fetched { .. } => 13,
            Self::Adopt => 14,
            Self::Room { .. } => 15,
            Self::Places { .. } => 16,
            Self::Commit { .. } => 17,
            Self::Compact { .. } => 18,
            Self::Compacted { .. } => 19,
            Self::Call(_) => 20,
            Self::Answer(_) => 21,
            Self::More { .. } => 22,
            Self::MoreWanted { .. } => 23,
            Self::Failed { .. } => 24,
            Self::Whole { .. } => 25,
            Self::Rest { .. } => 26,
            Self::Wake { .. } => 27,
            Self::Awake { .. } => 28,
            Self::Lease(message) => message.kind(),
            Self::Seated => 34,
        }
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Prepare { .. }
            | Self::Report { .. }
            | Self::CaughtUp { .. }
            | Self::CheckpointWanted { .. }
            | Self::Failed { .. }
            | Self::Whole { .. }
            | Self::Rest { .. }
            | Self::Wake { .. }
            | Self::Awake { .. } => self.encode_state(out),
            Self::Offer {
                attempt,
                seq,
                len: at,
                bytes,
            }
            | Self::Edit {
                attempt,
                seq,
                len: at,
                bytes,
            }
            | Self::More {
                attempt,
                seq,
                from: at,
                bytes,
            } => {
                put_all(out, &[*attempt, seq.0, *at]);
                put_string(out, bytes);
            }
            Self::MoreWanted { attempt, seq, to } => put_all(out, &[*attempt, seq.0, *to]),
            Self::Applied { attempt, seq } => put_all(out, &[*attempt, seq.0]),
            Self::Flush {
                attempt,
                range,
                commit,
            } => {
                put_varint(out, *attempt);
                put_range(out, range);
                put_varint(out, commit.0);
            }
            Self::Flushed { attempt, range } => {
                put_varint(out, *attempt);
                put_range(out, range);
            }
            Self::Ship { .. } | Self::Places { .. } => self.encode_shipping(out),
            Self::Fetch { .. } | Self::Fetched { .. } => self.encode_fetching(out),
            Self::Stored { attempt, slot } => {
                put_varint(out, *attempt);
                out.push(*slot);
            }
            Self::Adopt | Self::Seated => {}
            Self::Room { free, reserve } => put_all(out, &[(*free).into(), (*reserve).into()]),
            Self::Commit { commit: lsn }
            | Self::Compact { upto: lsn }
            | Self::Compacted { upto: lsn } => put_varint(out, lsn.0),
            Self::Lease(message) => message.encode(out),
            Self::Call(bytes) | Self::Answer(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Appends the payload of a message about parts of segments that are fetched.
    fn encode_fetching(&self, out: &mut Vec<u8>) {
        match self {
            Self::Fetch {
                segment,
                from,
                to,
                slot,
            } => {
                put_all(out, &[segment.0, u64::from(*from), u64::from(*to)]);
                out.push(*slot);
            }
            Self::Fetched {
                slot,
                status,
                len,
                checksum,
            } => {
                out.push(*slot);
                out.push(*status as u8);
                put_varint(out, u64::from(*len));
                out.extend_from_slice(&checksum.to_le_bytes());
            }
            _ => {}
        }
    }

    /// Appends the payload of a message about finished segments.
    fn encode_shipping(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ship {
                attempt,
                segment,
                len,
                checksum,
                slot,
                place,
            } => {
                put_all(out, &[*attempt, segment.0, u64::from(*len)]);
                out.extend_from_slice(&checksum.to_le_bytes());
                out.push(*slot);
                put_varint(out, u64::from(place.0));
            }
            Self::Places { attempt, places } => {
                put_all(out, &[*attempt, places.len() as u64]);
                for (segment, place) in places {
                    put_all(out, &[segment.0, u64::from(place.0)]);
                }
            }
            _ => {}
        }
    }

    /// Reads the payload of a message of `kind`.
    ///
    /// # Errors
    /// [`Malformed`] where the kind is unknown or the payload is not one of that kind.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("a message between servers", payload);
        let r = &mut reader;
        let message = match kind {
            1 => Self::Prepare {
                attempt: r.varint()?,
                addresses: AddressMode::from_raw(r.u8()?.into()).ok_or_else(|| r.malformed())?,
                refill: flag(r)?,
            },
            2 => Self::Report {
                attempt: r.varint()?,
                position: position(r)?,
                standing: Standing::from_raw(r.u8()?).ok_or_else(|| r.malformed())?,
                windows: descriptors(r)?,
            },
            3 => Self::CaughtUp {
                attempt: r.varint()?,
                position: position(r)?,
            },
            4 | 5 | 22 => part_of_edit(kind, r)?,
            6 => Self::Applied {
                attempt: r.varint()?,
                seq: EditSeq(r.varint()?),
            },
            7 => Self::CheckpointWanted {
                attempt: r.varint()?,
            },
            8 => Self::Flush {
                attempt: r.varint()?,
                range: range(r)?,
                commit: Lsn(r.varint()?),
            },
            9 => Self::Flushed {
                attempt: r.varint()?,
                range: range(r)?,
            },
            10 => ship(r)?,
            11 => Self::Stored {
                attempt: r.varint()?,
                slot: r.u8()?,
            },
            12 => Self::Fetch {
                segment: segment(r)?,
                from: offset(r)?,
                to: offset(r)?,
                slot: r.u8()?,
            },
            13 => fetched(r)?,
            14 => Self::Adopt,
            15 => room(r)?,
            16 => places(r)?,
            17..=19 => up_to(kind, Lsn(r.varint()?)),
            20 => Self::Call(r.take(r.rest().len())?),
            21 => Self::Answer(r.take(r.rest().len())?),
            23 => Self::MoreWanted {
                attempt: r.varint()?,
                seq: EditSeq(r.varint()?),
                to: r.varint()?,
            },
            24 => failed(r)?,
            25..=28 => state(kind, r.varint()?),
            34 => Self::Seated,
            29..=33 => Self::Lease(LeaseMessage::read(kind, r)?),
            _ => return Err(r.malformed()),
        };
        reader.finish()?;
        Ok(message)
    }
}
