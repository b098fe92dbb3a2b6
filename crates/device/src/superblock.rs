//! The superblock: what a device is, and how often it has been opened. Two copies in device
//! segment 0.
//!
//! ```text
//! byte   0 magic: [u8; 8] = "ARGOSYSB"
//!        8 version_major: u16     a program refuses majors that it does not know
//!       10 version_minor: u16
//!       12 checksum: u32          of the other 508 bytes, under (superblock, the copy's place)
//!       16 generation: u64        of two good copies the higher is newer
//!       24 incarnation: u64       how often the device was opened
//!       32 device_id: u128
//!       48 cluster_id: u128
//!       64 server: u32
//!       68 segments: u32          of the device, segment 0 included
//!       72 segment_size: u32
//!       76 block_size: u32
//!       80 compat: u64            features that an older program may ignore
//!       88 ro_compat: u64         ... may ignore if it only reads
//!       96 incompat: u64          ... must know
//!      104 created_by: [u8; 64]   text, zeros behind it
//!      168 zero: [u8; 344]
//! ```
//!
//! Bytes 0 to 16 and what the checksum covers are the same in every version. The whole is 512
//! bytes, which a device writes at once or not at all; the rest of its block is zero.
//!
//! Both copies are written at every open, one after the other with a sync behind each. So at any
//! instant one of them is good, and the loss of one later loses nothing.

use argosy_base::codec::{Malformed, Reader};
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{Identity, Incarnation, Kind, ServerId};

use crate::Buffer;

/// Where the copies lie, in bytes of device segment 0: a block each, far apart.
pub(crate) const COPIES_AT: [u32; 2] = [0, 64 << 10];

/// Bytes of a superblock; what a device writes at once.
pub(crate) const SUPERBLOCK_BYTES: usize = 512;

/// Most bytes of the name of the program that made the store.
pub const CREATED_BY_BYTES_MAX: usize = 64;

const MAGIC: &[u8; 8] = b"ARGOSYSB";
const VERSION_MAJOR: u16 = 1;
const VERSION_MINOR: u16 = 0;
const CHECKSUM_AT: usize = 12;

/// The sizes as they are stored.
const STORED_SEGMENT_SIZE: u32 = 2 << 20;
const STORED_BLOCK_SIZE: u32 = 4096;
const _: () = assert!(STORED_SEGMENT_SIZE as usize == SEGMENT_SIZE);
const _: () = assert!(STORED_BLOCK_SIZE as usize == BLOCK_SIZE);

/// Features of each class that this program knows: none yet.
const RO_COMPAT_KNOWN: u64 = 0;
const INCOMPAT_KNOWN: u64 = 0;

/// A superblock whose checksum was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Of two good copies the higher is newer.
    pub generation: u64,
    /// How often the device was opened.
    pub incarnation: Incarnation,
    /// Random; names the device in the region map.
    pub device_id: u128,
    /// The cluster that the server belongs to.
    pub cluster_id: u128,
    /// The server that the device belongs to.
    pub server: ServerId,
    /// Segments of the device, segment 0 included.
    pub segments: u32,
    /// Features that a program which does not know them may ignore.
    pub compat: u64,
    /// The program that made the store; at most [`CREATED_BY_BYTES_MAX`] bytes.
    pub created_by: String,
}

/// Why a stored copy is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// Nothing of the kind was ever here.
    Absent,
    /// The bytes are not those that were written.
    Damaged(&'static str),
    /// Written by a program that knows more than this one: what, in words.
    Unknown(String),
}

impl From<Malformed> for Rejected {
    fn from(malformed: Malformed) -> Self {
        Self::Damaged(malformed.what)
    }
}

fn identity(copy: usize) -> Identity {
    Identity::of_server(Kind::Superblock, COPIES_AT[copy])
}

fn checksum(copy: usize, bytes: &[u8]) -> u32 {
    let head = identity(copy).checksum(&bytes[..CHECKSUM_AT]);
    argosy_base::checksum::extend(head, &bytes[CHECKSUM_AT + 4..SUPERBLOCK_BYTES])
}

impl Superblock {
    /// The block that is written as `copy`.
    pub(crate) fn encode(&self, copy: usize) -> Buffer {
        let mut out = Vec::with_capacity(SUPERBLOCK_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION_MAJOR.to_le_bytes());
        out.extend_from_slice(&VERSION_MINOR.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.device_id.to_le_bytes());
        out.extend_from_slice(&self.cluster_id.to_le_bytes());
        out.extend_from_slice(&self.server.0.to_le_bytes());
        out.extend_from_slice(&self.segments.to_le_bytes());
        out.extend_from_slice(&STORED_SEGMENT_SIZE.to_le_bytes());
        out.extend_from_slice(&STORED_BLOCK_SIZE.to_le_bytes());
        out.extend_from_slice(&self.compat.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        assert!(
            self.created_by.len() <= CREATED_BY_BYTES_MAX,
            "a program's name is short"
        );
        out.extend_from_slice(self.created_by.as_bytes());
        out.resize(SUPERBLOCK_BYTES, 0);
        let sum = checksum(copy, &out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        Buffer::from_slice(&out)
    }

    /// Reads what is stored as `copy`; `bytes` are its block.
    pub(crate) fn decode(copy: usize, bytes: &[u8]) -> Result<Self, Rejected> {
        let bytes = bytes
            .get(..SUPERBLOCK_BYTES)
            .ok_or(Rejected::Damaged("a superblock is cut short"))?;
        let mut reader = Reader::new("a superblock is malformed", bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(Rejected::Absent);
        }
        let (major, minor) = (reader.u16()?, reader.u16()?);
        if reader.u32()? != checksum(copy, bytes) {
            return Err(Rejected::Damaged("the checksum of a superblock is wrong"));
        }
        if major != VERSION_MAJOR {
            return Err(Rejected::Unknown(format!(
                "it has format {major}.{minor}; this program knows {VERSION_MAJOR}"
            )));
        }
        let mut superblock = Self {
            generation: reader.u64()?,
            incarnation: Incarnation(reader.u64()?),
            device_id: read_u128(&mut reader)?,
            cluster_id: read_u128(&mut reader)?,
            server: ServerId(reader.u32()?),
            segments: reader.u32()?,
            compat: 0,
            created_by: String::new(),
        };
        let sizes = (reader.u32()?, reader.u32()?);
        superblock.compat = reader.u64()?;
        let unknown = (reader.u64()? & !RO_COMPAT_KNOWN) | (reader.u64()? & !INCOMPAT_KNOWN);
        let name = reader.take(CREATED_BY_BYTES_MAX)?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        superblock.created_by = String::from_utf8_lossy(&name[..end]).into_owned();
        if unknown != 0 {
            return Err(Rejected::Unknown(format!(
                "it uses features {unknown:#x} that this program does not know"
            )));
        }
        if sizes != (STORED_SEGMENT_SIZE, STORED_BLOCK_SIZE) {
            let (segment, block) = sizes;
            return Err(Rejected::Unknown(format!(
                "it has segments of {segment} bytes and blocks of {block}"
            )));
        }
        let counts = [superblock.generation, superblock.incarnation.0];
        if superblock.segments < 2 || counts.contains(&u64::MAX) {
            return Err(Rejected::Damaged("a superblock names no segments"));
        }
        Ok(superblock)
    }
}

fn read_u128(reader: &mut Reader<'_>) -> Result<u128, Malformed> {
    let low = u128::from(reader.u64()?);
    let high = u128::from(reader.u64()?);
    Ok(high << 64 | low)
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
