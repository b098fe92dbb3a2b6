//! How a connection begins, and the region map that a client asks for.
//!
//! Client and server meet at a Unix socket of the server. The client says [`Hello`]; the server
//! answers [`Welcome`], with which it passes two descriptors (the shared memory, and an eventfd that
//! wakes the server), or [`Refusal`]. After that the socket carries nothing: while it is open, both
//! live.
//!
//! ```text
//! hello   := "argosycl"  lowest: u16  highest: u16  requests: u32  replies: u32  zero: [u8; 12]
//! answer  := "argosysv"  version: u16  why: u16  server: u32  incarnation: u64  cluster: u128
//!            requests: u32  replies: u32  map: u32  text: u16  zero: [u8; 10]  text bytes
//! map     := count server*  count region*
//! server  := id: u32  resp: string  native: string
//! region  := id: u32  epoch: u32  primary: u32  from: string  to: string?
//! ```
//!
//! `lowest` and `highest` are the versions that the client speaks; `version` is the one that the
//! server chose of them. `requests` and `replies` are the sizes that the client would like, and those
//! that it gets, which may be smaller. `why` is 0 in a welcome; in a refusal the text says more.
//! `map` is the map's fingerprint: the CRC-32C of its bytes.

use alloc::string::String;
use alloc::vec::Vec;

use argosy_base::checksum::{Identity, Kind, extend};
use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::range::Starts;
use argosy_base::{Epoch, Incarnation, KeyRange, RegionId, ServerId};

/// The version of the protocol that is spoken here, the only one. 2: batches in the form of ring version
/// 4 ([`Request::Write`](crate::api::Request)). 3: a multi-get may be answered by the values of its first keys.
/// 4: scans in the form of ring version 7. 5: writes on terms, and looks. 6: writes may remove ranges.
/// 7: versions may be asked for. 8: snapshots.
/// 9: values of over 1 MiB, in parts. 10: regions may be flushed and compacted. 11: writes may have names.
pub const VERSION: u16 = 12;

const CLIENT: u64 = u64::from_le_bytes(*b"argosycl");
const SERVER: u64 = u64::from_le_bytes(*b"argosysv");

/// Most servers and regions believed. A reply has room for fewer: see [`RegionMap`].
const COUNT_MAX: usize = 1 << 20;
/// Longest address believed.
const ADDRESS_BYTES_MAX: usize = 4096;

/// What a client begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The lowest version that it speaks.
    pub lowest: u16,
    /// The highest.
    pub highest: u16,
    /// Bytes that it would like for requests.
    pub requests: u32,
    /// Bytes that it would like for replies.
    pub replies: u32,
}

impl Hello {
    /// Bytes of it.
    pub const BYTES: usize = 32;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&CLIENT.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.lowest.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.highest.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.requests.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.replies.to_le_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, Malformed> {
        let mut r = Reader::new("the beginning of a client", bytes);
        if r.u64()? != CLIENT {
            return Err(r.malformed());
        }
        Ok(Self {
            lowest: r.u16()?,
            highest: r.u16()?,
            requests: r.u32()?,
            replies: r.u32()?,
        })
    }
}

/// What a server takes a client in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that is spoken.
    pub version: u16,
    /// The server.
    pub server: ServerId,
    /// The server's start.
    pub incarnation: Incarnation,
    /// The cluster.
    pub cluster: u128,
    /// Bytes for requests.
    pub requests: u32,
    /// Bytes for replies.
    pub replies: u32,
    /// The fingerprint of the server's region map.
    pub map: u32,
}

/// Why a server does not take a client in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// They have no version in common.
    #[error("{0}")]
    Version(String),
    /// There is no room for another client. Try again later.
    #[error("{0}")]
    NoRoom(String),
}

impl Welcome {
    /// Bytes of the answer without its text.
    pub const BYTES: usize = 64;
    /// Longest text.
    pub const TEXT_BYTES_MAX: usize = 1024;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&SERVER.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.server.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.cluster.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.requests.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.replies.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.map.to_le_bytes());
        bytes
    }

    /// Reads what a server answered: a welcome, or a refusal without its text and the length of the
    /// text that follows.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are neither.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Result<Self, (Refusal, usize)>, Malformed> {
        let mut r = Reader::new("the answer of a server", bytes);
        if r.u64()? != SERVER {
            return Err(r.malformed());
        }
        let (version, why) = (r.u16()?, r.u16()?);
        let welcome = Self {
            version,
            server: ServerId(r.u32()?),
            incarnation: Incarnation(r.u64()?),
            cluster: u128::from(r.u64()?) | u128::from(r.u64()?) << 64,
            requests: r.u32()?,
            replies: r.u32()?,
            map: r.u32()?,
        };
        let text = usize::from(r.u16()?);
        if text > Self::TEXT_BYTES_MAX {
            return Err(r.malformed());
        }
        match why {
            0 => Ok(Ok(welcome)),
            1 => Ok(Err((Refusal::Version(String::new()), text))),
            2 => Ok(Err((Refusal::NoRoom(String::new()), text))),
            _ => Err(r.malformed()),
        }
    }
}

impl Refusal {
    /// As bytes, text included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (why, text) = match self {
            Self::Version(text) => (1u16, text),
            Self::NoRoom(text) => (2, text),
        };
        let text = &text.as_bytes()[..text.len().min(Welcome::TEXT_BYTES_MAX)];
        let len = u16::try_from(text.len()).expect("cut");
        let mut bytes = [0; Welcome::BYTES];
        bytes[..8].copy_from_slice(&SERVER.to_le_bytes());
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&why.to_le_bytes());
        bytes[52..54].copy_from_slice(&len.to_le_bytes());
        [&bytes, text].concat()
    }

    /// The same refusal with its text.
    #[must_use]
    pub fn with_text(self, text: String) -> Self {
        match self {
            Self::Version(_) => Self::Version(text),
            Self::NoRoom(_) => Self::NoRoom(text),
        }
    }
}

/// A server, as clients know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapServer {
    /// Its name.
    pub id: ServerId,
    /// Where it speaks the Redis protocol.
    pub resp: String,
    /// The Unix socket where clients of its host meet it; empty where there is none.
    pub native: String,
}

/// A region, as clients know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRegion {
    /// Its name.
    pub id: RegionId,
    /// Its keys.
    pub range: KeyRange,
    /// The number of its configuration.
    pub epoch: Epoch,
    /// Who serves it.
    pub primary: ServerId,
}

/// Who serves which keys. A map that was decoded covers all keys without gap or overlap.
///
/// A region takes 15 bytes and its two bounds: 39 with bounds of 12 bytes, so that a map of 1,000 regions is 38 KiB
/// long,
/// and one of 100,000 is 3.7 MiB, which is more than a reply has room for
/// ([`Shape::BYTES_MAX`](super::Shape::BYTES_MAX)). In memory it is some 150 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionMap {
    /// The servers.
    pub servers: Vec<MapServer>,
    /// The regions in the order of their keys.
    pub regions: Vec<MapRegion>,
}

impl RegionMap {
    /// Appends the map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.servers.len() as u64);
        for server in &self.servers {
            out.extend_from_slice(&server.id.0.to_le_bytes());
            put_string(out, server.resp.as_bytes());
            put_string(out, server.native.as_bytes());
        }
        put_varint(out, self.regions.len() as u64);
        for region in &self.regions {
            for number in [region.id.0, region.epoch.0, region.primary.0] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            put_string(out, &region.range.from);
            out.push(u8::from(region.range.to.is_some()));
            if let Some(to) = &region.range.to {
                put_string(out, to);
            }
        }
    }

    /// The fingerprint of an encoded map.
    #[must_use]
    pub fn fingerprint(encoded: &[u8]) -> u32 {
        extend(Identity::of_server(Kind::Client, 0).seed(), encoded)
    }

    /// Reads a map.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are none, or it leaves out keys.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new("a region map", bytes);
        let mut map = Self::default();
        for _ in 0..r.length(COUNT_MAX)? {
            map.servers.push(MapServer {
                id: ServerId(r.u32()?),
                resp: text(&mut r)?,
                native: text(&mut r)?,
            });
        }
        for _ in 0..r.length(COUNT_MAX)? {
            let (id, epoch, primary) = (r.u32()?, r.u32()?, r.u32()?);
            let from = r.string(KEY_BYTES_MAX)?.to_vec();
            let to = match r.u8()? {
                0 => None,
                1 => Some(r.string(KEY_BYTES_MAX)?.to_vec()),
                _ => return Err(r.malformed()),
            };
            map.regions.push(MapRegion {
                id: RegionId(id),
                range: KeyRange { from, to },
                epoch: Epoch(epoch),
                primary: ServerId(primary),
            });
        }
        if r.rest().is_empty() && map.covers_all() {
            Ok(map)
        } else {
            Err(r.malformed())
        }
    }

    /// Whether every key lies in one region, and every primary is known.
    fn covers_all(&self) -> bool {
        let mut next = Some(&[][..]);
        for region in &self.regions {
            let known = self.server(region.primary).is_some();
            if !known || next != Some(region.range.from.as_slice()) || region.range.is_empty() {
                return false;
            }
            next = region.range.to.as_deref();
        }
        next.is_none()
    }

    /// Where its regions begin, for [`index_of`](Self::index_of).
    #[must_use]
    pub fn starts(&self) -> Starts {
        Starts::new(self.regions.iter().map(|region| &*region.range.from))
    }

    /// The place of the region that `key` lies in; `starts` are this map's.
    #[inline]
    #[must_use]
    pub fn index_of(&self, starts: &Starts, key: &[u8]) -> usize {
        starts.index_of(key, |index| &*self.regions[index].range.from)
    }

    /// A server.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&MapServer> {
        self.servers.iter().find(|server| server.id == id)
    }
}

fn text(r: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = r.string(ADDRESS_BYTES_MAX)?.to_vec();
    String::from_utf8(bytes).map_err(|_| r.malformed())
}
