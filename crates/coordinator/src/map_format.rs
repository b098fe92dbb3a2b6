//! The bytes of the region map: an index and shards, each a value of its own in the coordinator.
//!
//! ```text
//! cluster              the index
//! cluster/shard-N      shard N: regions whose ranges follow each other
//!
//! 0           8         10     12         16
//! +-----------+---------+------+----------+------+
//! | magic     | version | zero | checksum | body |
//! +-----------+---------+------+----------+------+
//!
//! magic    := "argosymi" | "argosyms"    version := 1: u16    zero := 0: u16    checksum: u32, of the body
//!
//! index    := entry: varint  cluster: u128  replication: u8  addresses: u8  durability: u8  copies: varint
//!             count: varint  server[count]  next: varint  count: varint  place[count]
//! server   := id: varint  resp: string  admin: string  count: varint  device: u128 [count]
//! place    := shard: varint  entry: varint  bytes: varint  regions: varint  from: string
//!
//! shard    := shard: varint  entry: varint  from: string  count: varint  region[count]
//! region   := flags: u8  id: varint  end?  epoch: varint  primary: varint  members: servers
//!             promotion?  filling: servers?  last: servers?
//! end      := shared: varint  rest: string
//! promotion:= since: varint  status: u8  cut: varint  edit: varint  lsn: varint  member: u8
//! servers  := count: varint  id: varint [count]
//! string   := length: varint  bytes
//! ```
//!
//! Integers are little-endian, varints those of `base`. `entry` is the version that the key gets with this value, so
//! that of the index names the map's version; a place says which entry of its shard belongs to this map, how long
//! that is, and where its keys begin. Places are in the order of their keys; no shard is named twice, and all are below
//! `next`, which is the number of the next new shard. Numbers are never used again.
//!
//! A region begins where the one before it ends, the first of a shard at `from`. Its end has the first `shared` bytes
//! of its beginning, and then `rest`. `flags` says what is there, the rest of its bits are 0:
//!
//! | bit | it says | otherwise |
//! |---|---|---|
//! | 1 | it is recovering | it is served |
//! | 2 | it has an end | it reaches to the very last key |
//! | 4 | its primary was promoted: `promotion` follows | the primary is the first |
//! | 8 | `filling` follows | nobody is being filled |
//! | 16 | `last` follows: the members before that promotion | these are the `members` |
//!
//! Modes of replication: none 0, send-index 1, build-index 2; of durability: last-write 0, last-flush 1, sync 2. A
//! status is whole 0, or cut 1. The checksum is that of a file of the coordinator with 65 (an index) or 66 (a shard) in
//! the place of its kind. Nothing follows a body, so equal maps that are cut alike are equal bytes.
//!
//! A region of three members takes some 20 bytes and its key, 30 more once its primary was promoted.
//!
//! Before, the map was one JSON text under `cluster` (`argosy.cluster.v3`). It is refused.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{
    AddressMode, DurabilityMode, EditSeq, Epoch, Identity, KeyRange, Kind, Lsn, RegionId, ServerId,
};

use crate::contract::EntryVersion;
use crate::map::{ClusterId, ClusterMap, DeviceId, MapError, Replication, Server};
use crate::region::{CopyStatus, PromotionClaim, Region, RegionState};

/// Longest shard, in bytes: so are half of the values that a ZooKeeper takes.
pub const SHARD_BYTES_MAX: usize = 512 << 10;

/// Longest index, in bytes.
pub const INDEX_BYTES_MAX: usize = 512 << 10;

/// Most shards.
pub const SHARDS_MAX: usize = 1024;

/// Most servers.
const SERVERS_MAX: usize = 4096;

/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 4096;

/// Most servers of one list of a region.
const MEMBERS_MAX: usize = 1024;

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const INDEX: Form = Form {
    magic: *b"argosymi",
    identity: Identity::of_server(Kind::Coordinator, 65),
    bytes_max: INDEX_BYTES_MAX,
};
const SHARD: Form = Form {
    magic: *b"argosyms",
    identity: Identity::of_server(Kind::Coordinator, 66),
    bytes_max: SHARD_BYTES_MAX,
};

const RECOVERING: u8 = 1;
const HAS_END: u8 = 2;
const PROMOTED: u8 = 4;
const FILLING: u8 = 8;
const LAST: u8 = 16;

const MODES: [Replication; 3] = [
    Replication::None,
    Replication::SendIndex,
    Replication::BuildIndex,
];
const STATUSES: [CopyStatus; 2] = [CopyStatus::Whole, CopyStatus::Cut];

/// What an index and a shard differ in.
struct Form {
    magic: [u8; 8],
    identity: Identity,
    bytes_max: usize,
}

/// Where a part of the map's regions lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPlace {
    /// The shard's number.
    pub shard: u64,
    /// The version of its key that belongs to the map.
    pub entry: EntryVersion,
    /// How long it is.
    pub bytes: usize,
    /// How many regions it has.
    pub regions: usize,
    /// Where its keys begin.
    pub from: Vec<u8>,
}

/// An index that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapIndex {
    /// The version that its key had with it.
    pub(crate) entry: EntryVersion,
    head: MapHead,
    /// The number of the next new shard.
    pub(crate) next: u64,
    pub(crate) places: Vec<ShardPlace>,
}

/// All of a map but its regions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MapHead {
    cluster: ClusterId,
    replication: Replication,
    addresses: AddressMode,
    durability: DurabilityMode,
    copies: u32,
    servers: Vec<Server>,
    devices: BTreeMap<ServerId, DeviceId>,
}

/// A shard that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapShard {
    pub(crate) shard: u64,
    pub(crate) entry: EntryVersion,
    /// Where its keys begin.
    from: Vec<u8>,
    pub(crate) regions: Vec<Region>,
}

impl MapIndex {
    /// That of `map`, whose regions lie at `places`.
    pub(crate) fn of(
        map: &ClusterMap,
        entry: EntryVersion,
        next: u64,
        places: Vec<ShardPlace>,
    ) -> Self {
        let devices = map.servers().iter().filter_map(|server| {
            let device = map.device(server.id)?;
            Some((server.id, device))
        });
        Self {
            entry,
            head: MapHead {
                cluster: map.cluster(),
                replication: map.replication(),
                addresses: map.addresses(),
                durability: map.durability(),
                copies: map.copies(),
                servers: map.servers().to_vec(),
                devices: devices.collect(),
            },
            next,
            places,
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// It would be longer than [`INDEX_BYTES_MAX`].
    pub(crate) fn encode(&self) -> Result<Vec<u8>, MapError> {
        let (head, mut out) = (&self.head, Vec::new());
        put_varint(&mut out, self.entry.0);
        out.extend_from_slice(&head.cluster.0.to_le_bytes());
        out.push(place_of(&MODES, &head.replication));
        out.push(place_of(&AddressMode::ALL, &head.addresses));
        out.push(place_of(&DurabilityMode::ALL, &head.durability));
        put_varint(&mut out, head.copies.into());
        put_varint(&mut out, head.servers.len() as u64);
        for server in &head.servers {
            put_varint(&mut out, server.id.0.into());
            put_string(&mut out, server.resp.as_bytes());
            put_string(&mut out, server.admin.as_bytes());
            let device = head.devices.get(&server.id);
            put_varint(&mut out, u64::from(device.is_some()));
            if let Some(device) = device {
                out.extend_from_slice(&device.0.to_le_bytes());
            }
        }
        put_varint(&mut out, self.next);
        put_varint(&mut out, self.places.len() as u64);
        for place in &self.places {
            put_varint(&mut out, place.shard);
            put_varint(&mut out, place.entry.0);
            put_varint(&mut out, place.bytes as u64);
            put_varint(&mut out, place.regions as u64);
            put_string(&mut out, &place.from);
        }
        INDEX.close(&out)
    }

    /// The map of this index with these regions.
    pub(crate) fn into_map(self, regions: Vec<Region>) -> Result<ClusterMap, MapError> {
        let head = self.head;
        let map = ClusterMap::new(head.cluster, head.replication, head.servers, regions)?
            .with_addresses(head.addresses)
            .with_durability(head.durability)
            .with_copies(head.copies)?;
        let devices = head.devices.into_iter();
        Ok(devices.fold(map, |map, (server, device)| map.with_device(server, device)))
    }

    /// The index that `bytes` are.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        let mut r = INDEX.open(bytes)?;
        let entry = EntryVersion(r.varint()?);
        let mut head = MapHead {
            cluster: ClusterId(u128_of(&mut r)?),
            replication: one_of(&mut r, &MODES)?,
            addresses: one_of(&mut r, &AddressMode::ALL)?,
            durability: one_of(&mut r, &DurabilityMode::ALL)?,
            copies: small(&mut r)?,
            servers: Vec::new(),
            devices: BTreeMap::new(),
        };
        for _ in 0..r.length(SERVERS_MAX)? {
            let id = ServerId(small(&mut r)?);
            head.servers.push(Server {
                id,
                resp: text(&mut r)?,
                admin: text(&mut r)?,
            });
            if r.length(1)? == 1 {
                head.devices.insert(id, DeviceId(u128_of(&mut r)?));
            }
        }
        let next = r.varint()?;
        let (mut places, mut names) = (Vec::new(), BTreeSet::new());
        for _ in 0..r.length(SHARDS_MAX)? {
            let place = ShardPlace {
                shard: r.varint()?,
                entry: EntryVersion(r.varint()?),
                bytes: r.length(SHARD_BYTES_MAX)?,
                regions: r.length(SHARD_BYTES_MAX)?,
                from: r.string(KEY_BYTES_MAX)?.to_vec(),
            };
            if next <= place.shard || !names.insert(place.shard) {
                return Err(malformed(
                    "it names a shard twice, or one that is not there yet",
                ));
            }
            places.push(place);
        }
        r.finish()?;
        Ok(Self {
            entry,
            head,
            next,
            places,
        })
    }
}

impl MapShard {
    /// The shard that `bytes` are.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        let mut r = SHARD.open(bytes)?;
        let (shard, entry) = (r.varint()?, EntryVersion(r.varint()?));
        let begins = r.string(KEY_BYTES_MAX)?.to_vec();
        let mut from = Some(begins.clone());
        let mut regions = Vec::new();
        for _ in 0..r.length(SHARD_BYTES_MAX)? {
            let from_key = from.ok_or(malformed("a region follows the very last key"))?;
            let region = region(&mut r, from_key)?;
            from = region.range.to.clone();
            regions.push(region);
        }
        r.finish()?;
        Ok(Self {
            shard,
            entry,
            from: begins,
            regions,
        })
    }
}

/// The shard at `place`; `regions` are its regions, encoded one behind the other.
///
/// # Errors
/// It would be longer than [`SHARD_BYTES_MAX`].
pub(crate) fn encode_shard(place: &ShardPlace, regions: &[u8]) -> Result<Vec<u8>, MapError> {
    let mut out = Vec::with_capacity(regions.len() + 64);
    put_varint(&mut out, place.shard);
    put_varint(&mut out, place.entry.0);
    put_string(&mut out, &place.from);
    put_varint(&mut out, place.regions as u64);
    out.extend_from_slice(regions);
    SHARD.close(&out)
}

/// Most bytes of a shard around its regions, if it begins at a key of so many bytes.
pub(crate) const fn around_regions(from: usize) -> usize {
    HEADER_BYTES + 3 * 10 + 3 + from
}

/// Appends a region.
pub(crate) fn put_region(out: &mut Vec<u8>, region: &Region) {
    let promoted = region.claim.filter(|_| region.since > Epoch(1));
    let has_last = region.last != region.members;
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    out.push(
        flag(region.state == RegionState::Recovering, RECOVERING)
            | flag(region.range.to.is_some(), HAS_END)
            | flag(promoted.is_some(), PROMOTED)
            | flag(!region.filling.is_empty(), FILLING)
            | flag(has_last, LAST),
    );
    put_varint(out, region.id.0.into());
    if let Some(to) = &region.range.to {
        let both = to.iter().zip(&region.range.from);
        let shared = both.take_while(|(to, from)| to == from).count();
        put_varint(out, shared as u64);
        put_string(out, &to[shared..]);
    }
    put_varint(out, region.epoch.0.into());
    put_varint(out, region.primary.0.into());
    put_servers(out, &region.members);
    if let Some(claim) = promoted {
        put_varint(out, region.since.0.into());
        out.push(place_of(&STATUSES, &claim.status));
        put_varint(out, claim.cut.0.into());
        put_varint(out, claim.edit.0);
        put_varint(out, claim.lsn.0);
        out.push(u8::from(claim.member));
    }
    if !region.filling.is_empty() {
        put_servers(out, &region.filling);
    }
    if has_last {
        put_servers(out, &region.last);
    }
}

fn region(r: &mut Reader<'_>, from: Vec<u8>) -> Result<Region, MapError> {
    let flags = r.u8()?;
    let has = |flag: u8| flags & flag != 0;
    if flags & !(RECOVERING | HAS_END | PROMOTED | FILLING | LAST) != 0 {
        return Err(malformed("a region has a flag that there is not"));
    }
    let id = RegionId(small(r)?);
    let to = match has(HAS_END) {
        true => {
            let shared = r.length(from.len())?;
            let rest = r.string(KEY_BYTES_MAX - shared.min(KEY_BYTES_MAX))?;
            if rest
                .first()
                .is_some_and(|first| from.get(shared) == Some(first))
            {
                return Err(malformed("an end shares more than it says"));
            }
            Some([&from[..shared], rest].concat())
        }
        false => None,
    };
    let (epoch, primary) = (Epoch(small(r)?), ServerId(small(r)?));
    let members = servers(r)?;
    let (since, claim) = match has(PROMOTED) {
        true => {
            let since = Epoch(small(r)?);
            let claim = PromotionClaim {
                status: one_of(r, &STATUSES)?,
                cut: Epoch(small(r)?),
                edit: EditSeq(r.varint()?),
                lsn: Lsn(r.varint()?),
                member: one_of(r, &[false, true])?,
            };
            (since, Some(claim))
        }
        false => (Epoch(1), None),
    };
    let filling = if has(FILLING) {
        servers(r)?
    } else {
        Vec::new()
    };
    let last = if has(LAST) {
        servers(r)?
    } else {
        members.clone()
    };
    let says_more = has(FILLING) && filling.is_empty() || has(LAST) && last == members;
    if says_more || has(PROMOTED) && since <= Epoch(1) {
        return Err(malformed("a region says at length what is usual"));
    }
    Ok(Region {
        id,
        range: KeyRange::new(from, to),
        epoch,
        state: match has(RECOVERING) {
            true => RegionState::Recovering,
            false => RegionState::Serving,
        },
        primary,
        members,
        filling,
        since,
        last,
        claim,
    })
}

fn put_servers(out: &mut Vec<u8>, servers: &[ServerId]) {
    put_varint(out, servers.len() as u64);
    servers.iter().for_each(|id| put_varint(out, id.0.into()));
}

fn servers(r: &mut Reader<'_>) -> Result<Vec<ServerId>, MapError> {
    let count = r.length(MEMBERS_MAX)?;
    (0..count).map(|_| Ok(ServerId(small(r)?))).collect()
}

/// The index or shard that `bytes` are, written again: that is the same.
///
/// # Errors
/// Why they are neither.
pub fn rewritten(bytes: &[u8]) -> Result<Vec<u8>, MapError> {
    if bytes.starts_with(&INDEX.magic) {
        return MapIndex::decode(bytes)?.encode();
    }
    let shard = MapShard::decode(bytes)?;
    let mut regions = Vec::new();
    let all = shard.regions.iter();
    all.for_each(|region| put_region(&mut regions, region));
    let first = shard.regions.first();
    let place = ShardPlace {
        shard: shard.shard,
        entry: shard.entry,
        bytes: bytes.len(),
        regions: shard.regions.len(),
        from: first.map_or(shard.from, |region| region.range.from.clone()),
    };
    encode_shard(&place, &regions)
}

impl Form {
    /// A value with this body.
    fn close(&self, body: &[u8]) -> Result<Vec<u8>, MapError> {
        let bytes = HEADER_BYTES + body.len();
        if bytes > self.bytes_max {
            let max = self.bytes_max;
            return Err(MapError::TooLarge { bytes, max });
        }
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.identity.checksum(body).to_le_bytes());
        out.extend_from_slice(body);
        Ok(out)
    }

    /// The body of a value.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Reader<'a>, MapError> {
        if bytes.first() == Some(&b'{') {
            let found = "argosy.cluster.v3 or before (JSON under one key)".to_owned();
            return Err(MapError::UnknownFormat { found });
        }
        if bytes.len() > self.bytes_max {
            return Err(malformed("it is too long"));
        }
        let split = bytes.split_at_checked(HEADER_BYTES);
        let (header, body) = split.ok_or(malformed("it is too short"))?;
        let mut header = Reader::new("region map", header);
        if header.take(self.magic.len())? != self.magic {
            return Err(malformed("it does not begin as it should"));
        }
        let version = header.u16()?;
        if version != VERSION {
            let found = version.to_string();
            return Err(MapError::UnknownFormat { found });
        }
        if header.u16()? != 0 || header.u32()? != self.identity.checksum(body) {
            return Err(malformed("its checksum is wrong"));
        }
        Ok(Reader::new("region map", body))
    }
}

fn malformed(reason: &str) -> MapError {
    let reason = reason.to_owned();
    MapError::Malformed { reason }
}

impl From<Malformed> for MapError {
    fn from(error: Malformed) -> Self {
        malformed(&error.to_string())
    }
}

fn small(r: &mut Reader<'_>) -> Result<u32, MapError> {
    u32::try_from(r.varint()?).map_err(|_| malformed("a number is too large"))
}

fn u128_of(r: &mut Reader<'_>) -> Result<u128, MapError> {
    let (low, high) = (r.u64()?, r.u64()?);
    Ok(u128::from(low) | u128::from(high) << 64)
}

fn text(r: &mut Reader<'_>) -> Result<String, MapError> {
    let bytes = r.string(ADDRESS_BYTES_MAX)?.to_vec();
    String::from_utf8(bytes).map_err(|_| malformed("an address is no text"))
}

/// The place of `one` among `all`.
fn place_of<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let place = all.iter().position(|other| other == one);
    let place = place.expect("what is in a map is one of all");
    u8::try_from(place).expect("there are few")
}

fn one_of<T: Copy>(r: &mut Reader<'_>, all: &[T]) -> Result<T, MapError> {
    let found = all.get(usize::from(r.u8()?)).copied();
    found.ok_or(malformed("it has a mode or a status that there is not"))
}

#[cfg(test)]
#[path = "map_format_tests.rs"]
mod tests;
