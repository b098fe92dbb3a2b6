//! The region map as JSON, in the coordinator. Keys are hexadecimal digits, since a key may be any bytes:
//!
//! ```json
//! {
//!   "schema": "argosy.cluster.v3",
//!   "cluster": "00112233445566778899aabbccddeeff",
//!   "replication": "send-index",
//!   "addresses": "rewrite",
//!   "durability": "sync",
//!   "copies": 3,
//!   "servers": [{ "id": 0, "resp": "127.0.0.1:7379", "admin": "127.0.0.1:7480",
//!                 "device": "8899aabbccddeeff0011223344556677" }],
//!   "regions": [
//!     { "id": 1, "from": "", "to": "6d", "epoch": 1, "primary": 0, "members": [0, 1, 2] },
//!     { "id": 2, "from": "6d", "to": null, "epoch": 7, "state": "recovering", "primary": 1,
//!       "members": [1, 2], "filling": [0], "since": 4, "last": [0, 1, 2],
//!       "claim": { "status": "whole", "cut": 1, "edit": 12, "lsn": 4711, "member": true } }
//!   ]
//! }
//! ```
//!
//! What is left out is at its default, so that a person sees what is unusual:
//!
//! | | what it is | default |
//! |---|---|---|
//! | `addresses` | what pointers inside level segments name | "logical" |
//! | `durability` | when writes are acknowledged | "last-write" |
//! | `device` | the id of the device that has the server's data | the server has none yet |
//! | `state` | "serving" or "recovering" | "serving" |
//! | `filling` | who is to become a member | nobody |
//! | `since` | the epoch of the last promotion | 1 |
//! | `last` | the members before that promotion | `members` |
//! | `claim` | the report for which the primary was chosen | the primary is the first |
//!
//! `copies` says how many members a region is to have; a group that is smaller, because a member was removed, gets
//! another. A server that finds another device than the map names for it, or none, does not start as if it were new.
//!
//! Version 1 had no `device`, and version 2 nothing of `copies` and of a region's last promotion. Both are refused.

use argosy_base::{AddressMode, DurabilityMode, EditSeq, Epoch, KeyRange, Lsn, RegionId, ServerId};
use serde::{Deserialize, Serialize};

use crate::map::{ClusterId, ClusterMap, DeviceId, MapError, Replication, Server};
use crate::region::{CopyStatus, PromotionClaim, Region, RegionState};

/// What the only layout that is read calls itself.
pub const SCHEMA: &str = "argosy.cluster.v3";

/// What is read first, of a map of any version.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMap {
    schema: String,
    cluster: String,
    replication: Replication,
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    copies: u32,
    servers: Vec<RawServer>,
    regions: Vec<RawRegion>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    id: u32,
    resp: String,
    admin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRegion {
    id: u32,
    from: String,
    to: Option<String>,
    epoch: u32,
    #[serde(default, skip_serializing_if = "is_serving")]
    state: RegionState,
    primary: u32,
    members: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    filling: Vec<u32>,
    #[serde(default = "first", skip_serializing_if = "is_first")]
    since: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<RawClaim>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    status: CopyStatus,
    cut: u32,
    edit: u64,
    lsn: u64,
    member: bool,
}

fn is_serving(state: &RegionState) -> bool {
    *state == RegionState::Serving
}

const fn first() -> u32 {
    1
}

fn is_first(epoch: &u32) -> bool {
    *epoch == first()
}

impl ClusterMap {
    /// Reads a map from its JSON.
    ///
    /// # Errors
    /// Why it is not one.
    pub fn parse(json: &[u8]) -> Result<Self, MapError> {
        let malformed = |e: serde_json::Error| MapError::Malformed {
            reason: e.to_string(),
        };
        let head: Head = serde_json::from_slice(json).map_err(malformed)?;
        if head.schema != SCHEMA {
            return Err(MapError::UnknownSchema { found: head.schema });
        }
        let raw: RawMap = serde_json::from_slice(json).map_err(malformed)?;
        raw.decode()
    }

    /// The map as JSON, with a line's end behind it.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let raw = RawMap::encode(self);
        let mut json = serde_json::to_vec_pretty(&raw).expect("plain data has a JSON form");
        json.push(b'\n');
        json
    }
}

impl RawMap {
    fn encode(map: &ClusterMap) -> Self {
        let server = |s: &Server| RawServer {
            id: s.id.0,
            resp: s.resp.clone(),
            admin: s.admin.clone(),
            device: map.device(s.id).map(|device| device.to_string()),
        };
        Self {
            schema: SCHEMA.to_owned(),
            cluster: map.cluster().to_string(),
            replication: map.replication(),
            addresses: match map.addresses() {
                AddressMode::Logical => None,
                other => Some(other.name().to_owned()),
            },
            durability: match map.durability() {
                DurabilityMode::LastWrite => None,
                other => Some(other.name().to_owned()),
            },
            copies: map.copies(),
            servers: map.servers().iter().map(server).collect(),
            regions: map.regions().iter().map(RawRegion::encode).collect(),
        }
    }

    fn decode(self) -> Result<ClusterMap, MapError> {
        let cluster = number(&self.cluster)?;
        let server = |s: &RawServer| Server {
            id: ServerId(s.id),
            resp: s.resp.clone(),
            admin: s.admin.clone(),
        };
        let addresses = match &self.addresses {
            None => AddressMode::default(),
            Some(name) => AddressMode::from_name(name).ok_or_else(|| MapError::Malformed {
                reason: format!("no address mode is called {name:?}"),
            })?,
        };
        let durability = match &self.durability {
            None => DurabilityMode::default(),
            Some(name) => DurabilityMode::from_name(name).ok_or_else(|| MapError::Malformed {
                reason: format!("no durability mode is called {name:?}"),
            })?,
        };
        let regions: Result<Vec<_>, _> = self.regions.into_iter().map(RawRegion::decode).collect();
        let mut map = ClusterMap::new(
            ClusterId(cluster),
            self.replication,
            self.servers.iter().map(server).collect(),
            regions?,
        )?
        .with_addresses(addresses)
        .with_durability(durability)
        .with_copies(self.copies)?;
        for server in &self.servers {
            if let Some(device) = &server.device {
                map = map.with_device(ServerId(server.id), DeviceId(number(device)?));
            }
        }
        Ok(map)
    }
}

impl RawRegion {
    fn encode(r: &Region) -> Self {
        let claim = |claim: PromotionClaim| RawClaim {
            status: claim.status,
            cut: claim.cut.0,
            edit: claim.edit.0,
            lsn: claim.lsn.0,
            member: claim.member,
        };
        Self {
            id: r.id.0,
            from: hex::encode(&r.range.from),
            to: r.range.to.as_deref().map(hex::encode),
            epoch: r.epoch.0,
            state: r.state,
            primary: r.primary.0,
            members: numbers(&r.members),
            filling: numbers(&r.filling),
            since: r.since.0,
            last: (r.last != r.members).then(|| numbers(&r.last)),
            claim: r.claim.map(claim),
        }
    }

    fn decode(self) -> Result<Region, MapError> {
        let to = self.to.as_deref().map(from_hex).transpose()?;
        let claim = |claim: RawClaim| PromotionClaim {
            status: claim.status,
            cut: Epoch(claim.cut),
            edit: EditSeq(claim.edit),
            lsn: Lsn(claim.lsn),
            member: claim.member,
        };
        let members = names(&self.members);
        Ok(Region {
            id: RegionId(self.id),
            range: KeyRange::new(from_hex(&self.from)?, to),
            epoch: Epoch(self.epoch),
            state: self.state,
            primary: ServerId(self.primary),
            filling: names(&self.filling),
            since: Epoch(self.since),
            last: self
                .last
                .map_or_else(|| members.clone(), |last| names(&last)),
            members,
            claim: self.claim.map(claim),
        })
    }
}

fn numbers(servers: &[ServerId]) -> Vec<u32> {
    servers.iter().map(|id| id.0).collect()
}

fn names(servers: &[u32]) -> Vec<ServerId> {
    servers.iter().copied().map(ServerId).collect()
}

fn from_hex(digits: &str) -> Result<Vec<u8>, MapError> {
    hex::decode(digits).map_err(|_| not_hex(digits))
}

/// A number of 128 bits, written most significant digit first, as a person reads it.
fn number(digits: &str) -> Result<u128, MapError> {
    let bytes: [u8; 16] = from_hex(digits)?.try_into().map_err(|_| not_hex(digits))?;
    Ok(bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

fn not_hex(digits: &str) -> MapError {
    MapError::Malformed {
        reason: format!("{digits:?} are not the hexadecimal digits that belong here"),
    }
}
