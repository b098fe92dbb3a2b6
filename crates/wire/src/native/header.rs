//! Headers of requests and replies, and replies in their slots.

use alloc::vec::Vec;

use argosy_base::checksum::{Identity, Kind};
use argosy_base::{Epoch, RegionId, SegmentNumber, Shared};

use super::{END_BYTES, Garbage, MARK, Shape, end_mark};

/// Bytes of a header; every message is a multiple of it and begins at a multiple of it.
pub const HEADER_BYTES: usize = 32;

/// Where in a header its rendezvous word is: behind what the checksum covers.
pub const RENDEZVOUS_AT: usize = 24;

/// Bytes of a header that its checksum covers.
pub(super) const COVERED: usize = RENDEZVOUS_AT;

/// Longest payload that three bytes can count.
const LEN_MAX: usize = (1 << 24) - 1;

/// Bytes that a message with `payload` bytes takes.
#[inline]
#[must_use]
pub const fn message_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload + END_BYTES).next_multiple_of(HEADER_BYTES)
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Nothing, and without an answer: the next request is at the start of the ring.
    Noop = 0,
    /// An answer.
    Ping = 1,
    /// The region map.
    Map = 2,
    /// What a key is bound to. Payload: the key.
    Get = 3,
    /// Bind a key, on the condition in the flags. Payload: see [`put_pair`](super::put_pair).
    Put = 4,
    /// Remove a key. Payload: the key.
    Delete = 5,
    /// What several keys are bound to. Payload: see [`put_keys`](super::put_keys).
    MultiGet = 6,
    /// Operations of one region, together. Payload: a [`Request::Write`](crate::api::Request).
    Batch = 7,
    /// A page of a range. Payload: a [`Request::Scan`](crate::api::Request).
    Scan = 8,
    /// Operations of one region, together, on terms; ranges may be among what is removed. Payload: a
    /// [`Request::Write`](crate::api::Request).
    Write = 9,
    /// When the pair of a key expires, and how long its value is. Payload: the key.
    Look = 10,
    /// What a key is bound to, and the version of that. Payload: the key.
    GetVersion = 11,
    /// Open, renew or close a snapshot of all regions. Payload: a
    /// [`Request::Snapshot`](crate::api::Request).
    Snapshot = 12,
    /// A version for the parts of a value. Payload: a [`PartOf`](super::PartOf) of which only the key and
    /// the value's length count.
    Begin = 13,
    /// A part of a value. Payload: a [`PartOf`](super::PartOf).
    GetPart = 14,
    /// Write a part of a value, which nobody sees before its head is written, by [`Op::Write`]. Payload: a
    /// [`PartOf`](super::PartOf), and the bytes.
    PutPart = 15,
    /// Look after all regions as a whole. Payload: a [`Request::Maintain`](crate::api::Request). Answered by
    /// [`Status::Done`].
    Maintain = 16,
}

impl Op {
    const ALL: [Self; 17] = [
        Self::Noop,
        Self::Ping,
        Self::Map,
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::MultiGet,
        Self::Batch,
        Self::Scan,
        Self::Write,
        Self::Look,
        Self::GetVersion,
        Self::Snapshot,
        Self::Begin,
        Self::GetPart,
        Self::PutPart,
        Self::Maintain,
    ];

    fn of(byte: u8) -> Result<Self, Garbage> {
        let op = Self::ALL.get(usize::from(byte)).copied();
        op.ok_or(Garbage {
            what: "an operation",
            found: byte.into(),
        })
    }

    /// Whether it changes anything that anybody sees.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Put | Self::Delete | Self::Batch | Self::Write)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It was done; see the flags.
    Done = 1,
    /// The payload is the value.
    Value = 2,
    /// The key is not bound.
    Absent = 3,
    /// The condition did not hold; nothing was written.
    Refused = 4,
    /// The payload holds [`Values`](super::Values).
    Values = 5,
    /// The payload is a [`Response::Page`](crate::api::Response).
    Page = 6,
    /// The payload is a [`RegionMap`](super::RegionMap).
    Map = 7,
    /// The slot has to be as large as `needed`. What was to be written is written.
    TooSmall = 8,
    /// The region is not this server's, or has another epoch. Nothing was done.
    WrongServer = 9,
    /// The request failed. Payload: see [`put_failure`](super::put_failure).
    Failed = 10,
    /// The payload is a [`Response`](crate::api::Response): to [`Op::Write`], [`Op::Look`],
    /// [`Op::GetVersion`] and [`Op::Snapshot`].
    Answer = 11,
    /// The payload is a [`Long`](super::Long): the value is in parts, or is to be written in them.
    Long = 12,
}

impl Status {
    const ALL: [Self; 12] = [
        Self::Done,
        Self::Value,
        Self::Absent,
        Self::Refused,
        Self::Values,
        Self::Page,
        Self::Map,
        Self::TooSmall,
        Self::WrongServer,
        Self::Failed,
        Self::Answer,
        Self::Long,
    ];

    fn of(byte: u8) -> Result<Self, Garbage> {
        let found = Self::ALL.into_iter().find(|status| *status as u8 == byte);
        found.ok_or(Garbage {
            what: "a status",
            found: byte.into(),
        })
    }
}

/// Bits of a request or a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Request: write only where the key is not bound.
    pub const IF_ABSENT: Self = Self(1);
    /// Request: write only where the key is bound.
    pub const IF_PRESENT: Self = Self(2);
    /// Request: scan from the highest key down, as the payload says, too.
    pub const REVERSE: Self = Self(4);
    /// Request: open a snapshot, as the payload says, too.
    pub const OPEN: Self = Self(8);
    /// Request: the value of the only put is a [`Long`](super::Long), whose parts have been written. Reply:
    /// so is the only value of an answer, or the last of a page, or the length that was looked up may be
    /// that of one, which a get tells.
    pub const LONG: Self = Self(16);
    /// Reply: a write took effect.
    pub const APPLIED: Self = Self(1);
    /// Reply: the key was bound before.
    pub const EXISTED: Self = Self(2);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`, if `on`.
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// A piece of the reply buffer, both in bytes and multiples of [`HEADER_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Where it begins in the reply buffer.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
}

impl Slot {
    /// The shortest slot: every failure fits, with the beginning of its text.
    pub const BYTES_MIN: usize = 64;

    fn check(self, shape: Shape) -> Result<Self, Garbage> {
        let aligned =
            self.offset.is_multiple_of(HEADER_BYTES) && self.bytes.is_multiple_of(HEADER_BYTES);
        let inside = self.offset <= shape.replies() && self.bytes <= shape.replies() - self.offset;
        if aligned && inside && self.bytes >= Self::BYTES_MIN {
            Ok(self)
        } else {
            Err(Garbage {
                what: "a reply slot",
                found: self.offset as u64,
            })
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub op: Op,
    /// On what condition.
    pub flags: Flags,
    /// Repeated by the reply.
    pub id: u32,
    /// The region that the client takes the keys to lie in; 0 where it does not matter.
    pub region: RegionId,
    /// The region's epoch, as the client knows it.
    pub epoch: Epoch,
    /// Where the reply goes.
    pub slot: Slot,
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// How the request ended.
    pub status: Status,
    /// What became of a write.
    pub flags: Flags,
    /// Of which request.
    pub id: u32,
    /// Bytes of slot that the answer would have needed; 0 where it has enough.
    pub needed: usize,
    /// The fingerprint of the server's region map.
    pub map: u32,
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) | usize::from(bytes[at + 1]) << 8 | usize::from(bytes[at + 2]) << 16
}

/// Three bytes at `at`.
#[inline]
fn put_short(bytes: &mut [u8], at: usize, value: usize) {
    debug_assert!(value <= LEN_MAX, "it fits three bytes");
    let value = u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    bytes[at..at + 3].copy_from_slice(&value[..3]);
}

#[inline]
fn put_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Lengths and offsets in a connection's memory are below 2^22.
pub(super) fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("a connection's memory is small")
}

impl Request {
    pub(super) fn encode(&self, payload: usize) -> [u8; COVERED] {
        let mut bytes = [0; COVERED];
        put_short(&mut bytes, 0, payload);
        bytes[3] = self.op as u8;
        put_word(&mut bytes, 4, self.id);
        put_word(&mut bytes, 8, self.region.0);
        put_word(&mut bytes, 12, self.epoch.0);
        put_word(&mut bytes, 16, narrow(self.slot.offset));
        put_short(&mut bytes, 20, self.slot.bytes);
        bytes[23] = self.flags.0;
        bytes
    }

    /// The header in `bytes`, and the length of its payload.
    pub(super) fn decode(bytes: &[u8; COVERED], shape: Shape) -> Result<(Self, usize), Garbage> {
        let op = Op::of(bytes[3])?;
        let slot = Slot {
            offset: word(bytes, 16) as usize,
            bytes: short(bytes, 20),
        };
        let slot = match op {
            Op::Noop => slot,
            _ => slot.check(shape)?,
        };
        let request = Self {
            op,
            flags: Flags(bytes[23]),
            id: word(bytes, 4),
            region: RegionId(word(bytes, 8)),
            epoch: Epoch(word(bytes, 12)),
            slot,
        };
        Ok((request, short(bytes, 0)))
    }
}

/// Which way a message goes.
#[derive(Clone, Copy)]
pub(super) enum Way {
    ToServer = 1,
    ToClient = 2,
}

/// The checksum of a message.
#[inline]
pub(super) fn message_checksum(
    way: Way,
    number: u64,
    header: &[u8; COVERED],
    payload: &[&[u8]],
) -> u32 {
    let identity = Identity {
        kind: Kind::Client,
        region: RegionId(0),
        segment: SegmentNumber(number),
        epoch: Epoch(0),
        offset: way as u32,
    };
    let header = core::iter::once(&header[..]);
    identity.checksum_of(header.chain(payload.iter().copied()))
}

/// The rendezvous word.
#[inline]
pub(super) const fn rendezvous(checksum: u32) -> u64 {
    checksum as u64 | (MARK as u64) << 32
}

/// The checksum in a rendezvous word.
#[inline]
pub(super) fn checksum_in(word: u64) -> Result<u32, Garbage> {
    let [low, high] = [word & u64::from(u32::MAX), word >> 32];
    if high == u64::from(MARK) {
        Ok(u32::try_from(low).expect("masked"))
    } else {
        Err(Garbage {
            what: "a message's mark",
            found: high,
        })
    }
}

/// Writes the mark at the end of the message of `bytes` at `at`.
pub(super) fn put_end(memory: &impl Shared, at: usize, bytes: usize, number: u32) {
    memory.write(at + bytes - END_BYTES, &end_mark(number).to_le_bytes());
}

/// Whether the mark at the end is there.
pub(super) fn has_end(memory: &impl Shared, at: usize, bytes: usize, number: u32) -> bool {
    let mut end = [0; END_BYTES];
    memory.read(at + bytes - END_BYTES, &mut end);
    u32::from_le_bytes(end) == end_mark(number)
}

/// Writes `reply`, whose payload is `parts` one behind the other, into `slot`. What does not fit is
/// answered by [`Status::TooSmall`], without a payload; a failure's text is cut short.
pub fn write_reply(
    memory: &impl Shared,
    shape: Shape,
    slot: Slot,
    mut reply: ReplyHeader,
    parts: &[&[u8]],
) {
    let at = shape.replies_at() + slot.offset;
    let mut len: usize = parts.iter().map(|part| part.len()).sum();
    let cut: [&[u8]; 1];
    let mut parts = parts;
    if message_bytes(len) > slot.bytes {
        let room = slot.bytes - HEADER_BYTES - END_BYTES;
        match (reply.status, parts) {
            (Status::Failed, [text]) => {
                cut = [&text[..room]];
                parts = &cut;
                len = room;
            }
            _ => {
                reply.needed = message_bytes(len);
                reply.status = Status::TooSmall;
                parts = &[];
                len = 0;
            }
        }
    }
    let mut header = [0; COVERED];
    put_short(&mut header, 0, len);
    header[3] = reply.status as u8;
    put_word(&mut header, 4, reply.id);
    put_word(
        &mut header,
        8,
        u32::try_from(reply.needed).unwrap_or(u32::MAX),
    );
    put_word(&mut header, 12, reply.map);
    header[23] = reply.flags.0;
    let checksum = message_checksum(Way::ToClient, reply.id.into(), &header, parts);
    let mut to = at + HEADER_BYTES;
    for part in parts {
        memory.write(to, part);
        to += part.len();
    }
    put_end(memory, at, message_bytes(len), reply.id);
    memory.write(at, &header);
    memory.store(at + COVERED, rendezvous(checksum));
}

/// Takes the reply to request `id` from `slot`, if it is there: its payload replaces what `payload`
/// held. The slot is free then.
///
/// # Errors
/// [`Garbage`] where what is there is no reply to that request.
pub fn read_reply(
    memory: &impl Shared,
    shape: Shape,
    slot: Slot,
    id: u32,
    payload: &mut Vec<u8>,
) -> Result<Option<ReplyHeader>, Garbage> {
    let at = shape.replies_at() + slot.offset;
    let rendezvous = memory.load(at + COVERED);
    if rendezvous == 0 {
        return Ok(None);
    }
    let expected = checksum_in(rendezvous)?;
    let mut header = [0; COVERED];
    memory.read(at, &mut header);
    let len = short(&header, 0);
    if message_bytes(len) > slot.bytes {
        return Err(Garbage {
            what: "a reply's length",
            found: len as u64,
        });
    }
    if !has_end(memory, at, message_bytes(len), id) {
        return Ok(None);
    }
    payload.clear();
    payload.resize(len, 0);
    memory.read(at + HEADER_BYTES, payload);
    let checksum = message_checksum(Way::ToClient, id.into(), &header, &[payload]);
    if checksum != expected || word(&header, 4) != id {
        return Err(Garbage {
            what: "a reply's checksum",
            found: expected.into(),
        });
    }
    Ok(Some(ReplyHeader {
        status: Status::of(header[3])?,
        flags: Flags(header[23]),
        id,
        needed: word(&header, 8) as usize,
        map: word(&header, 12),
    }))
}
