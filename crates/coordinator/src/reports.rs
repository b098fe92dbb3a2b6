//! What a server tells the master: two ephemeral values, which vanish with the server's session.
//!
//! Under `servers/<id>` it says that it is there, as JSON:
//!
//! ```json
//! { "schema": "argosy.server.v1", "incarnation": 7, "leaving": true, "heard": [1], "unreachable": [2] }
//! ```
//!
//! | | what it is | default |
//! |---|---|---|
//! | `incarnation` | the number of its start | |
//! | `leaving` | it is about to stop, and wants to lead nothing | false |
//! | `heard` | servers that it has heard of since it has said that it is about to stop | nobody |
//! | `unreachable` | servers that it has not reached for as long as the servers' setting says | nobody |
//!
//! Under `reports/<id>` it says what it has, and wants:
//!
//! ```json
//! { "schema": "argosy.report.v1", "incarnation": 7, "map": 42,
//!   "copies": [{ "region": 1, "epoch": 5, "status": "cut", "cut": 3, "edit": 17, "lsn": 4711 }],
//!   "opening": [2], "refused": [{ "region": 3, "epoch": 6 }], "failed": [4],
//!   "wishes": [{ "region": 5, "epoch": 6, "remove": [2], "add": [3], "fill": [1] }] }
//! ```
//!
//! - `map`: the version of the region map whose views it has taken; the rest is not older.
//! - `copies`: its copies of regions that are recovering, each as it was when the server had obeyed `epoch`: it had
//!   revoked all grants before; and of regions whose group it is not in, at any epoch. Of these it names each that it
//!   has, from its first report on: one whose place is not known yet as partial, at epoch 0, which none is obeyed at.
//! - `opening`: regions of which it is the primary, and which it does not serve yet.
//! - `refused`: regions of which it is the primary under `epoch`, and which it does not open: its copy is not what the
//!   claim says.
//! - `failed`: regions whose store has failed here, and is no copy any more before a restart.
//! - `wishes`: changes to groups that it leads under `epoch`: members that it cannot reach, copies that hold all that
//!   is committed, servers to fill.
//!
//! Each list is empty by default, and names a region at most once. Texts that are longer than their bound
//! ([`PRESENCE_BYTES_MAX`], [`REPORT_BYTES_MAX`]), of another version, or of another form are refused. A report counts
//! together with the presence of the same incarnation.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{EditSeq, Epoch, Incarnation, Lsn, RegionId, ServerId};
use serde::{Deserialize, Serialize};

use crate::contract::EntryVersion;
use crate::region::CopyStatus;

/// The key above those of [`Presence`].
pub const SERVERS_KEY: &str = "servers";

/// The key above those of [`ServerReport`].
pub const REPORTS_KEY: &str = "reports";

/// What a presence calls itself.
pub const PRESENCE_SCHEMA: &str = "argosy.server.v1";

/// What a report calls itself.
pub const REPORT_SCHEMA: &str = "argosy.report.v1";

/// Longest presence, in bytes: it names all servers of a large cluster.
pub const PRESENCE_BYTES_MAX: usize = 16 << 10;

/// Longest report, in bytes: it has something to say of 4096 regions.
pub const REPORT_BYTES_MAX: usize = 1 << 20;

/// The key of the presence of `server`.
#[must_use]
pub fn presence_key(server: ServerId) -> String {
    format!("{SERVERS_KEY}/{}", server.0)
}

/// The key of the report of `server`.
#[must_use]
pub fn report_key(server: ServerId) -> String {
    format!("{REPORTS_KEY}/{}", server.0)
}

/// The server whose key ends in `name`, as the children of [`SERVERS_KEY`] do.
#[must_use]
pub fn server_of(name: &str) -> Option<ServerId> {
    let id = name.parse().ok().map(ServerId)?;
    (id.0.to_string() == name).then_some(id)
}

/// That a server is there. See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// The number of its start.
    pub incarnation: Incarnation,
    /// It is about to stop.
    pub leaving: bool,
    /// Servers that it has heard of since it has said so.
    pub heard: BTreeSet<ServerId>,
    /// Servers that it cannot reach.
    pub unreachable: BTreeSet<ServerId>,
}

/// What a server has, and wants. See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// The number of its start.
    pub incarnation: Incarnation,
    /// The version of the region map whose views it has taken.
    pub map: EntryVersion,
    /// Its copies of regions that are recovering, and of those whose group it is not in.
    pub copies: BTreeMap<RegionId, CopyReport>,
    /// Regions that it opens, and does not serve yet.
    pub opening: BTreeSet<RegionId>,
    /// Regions that it does not open under this epoch.
    pub refused: BTreeMap<RegionId, Epoch>,
    /// Regions whose store has failed.
    pub failed: BTreeSet<RegionId>,
    /// Changes to groups that it leads.
    pub wishes: BTreeMap<RegionId, Wish>,
}

/// What a copy is, and that it has obeyed an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The epoch that it has obeyed.
    pub epoch: Epoch,
    /// What is certain of it.
    pub status: CopyStatus,
    /// The epoch of its last cut; 0 where it has none.
    pub cut: Epoch,
    /// Its last edit.
    pub edit: EditSeq,
    /// The end of its logs.
    pub lsn: Lsn,
}

impl CopyReport {
    /// A copy that is there, and nothing more is known of it yet.
    pub const UNKNOWN: Self = Self {
        epoch: Epoch(0),
        status: CopyStatus::Partial,
        cut: Epoch(0),
        edit: EditSeq(0),
        lsn: Lsn(0),
    };
}

/// Changes that a primary asks for. They count only while the region's epoch is this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The epoch of its view.
    pub epoch: Epoch,
    /// Members that are not to be members any more.
    pub remove: Vec<ServerId>,
    /// Copies that are being filled, and hold all that is committed.
    pub add: Vec<ServerId>,
    /// Servers that are to be filled.
    pub fill: Vec<ServerId>,
}

/// Why a value is neither a presence nor a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// It is too long.
    #[error("what a server says has {len} bytes: at most {max}")]
    TooLong {
        /// Bytes of the value.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// It was written by another version.
    #[error("what a server says has schema {found:?}; this program knows {known:?}")]
    UnknownSchema {
        /// What it calls itself.
        found: String,
        /// What is read.
        known: &'static str,
    },
    /// It is no JSON of this form.
    #[error("what a server says cannot be read: {reason}")]
    Malformed {
        /// What the parser says.
        reason: String,
    },
    /// A list names a region twice.
    #[error("a server says two things of {region}")]
    Twice {
        /// The region.
        region: RegionId,
    },
}

impl Presence {
    /// Reads one from its JSON.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(json: &[u8]) -> Result<Self, ReportError> {
        let raw: RawPresence = read(json, PRESENCE_BYTES_MAX, PRESENCE_SCHEMA)?;
        Ok(Self {
            incarnation: Incarnation(raw.incarnation),
            leaving: raw.leaving,
            heard: raw.heard.into_iter().map(ServerId).collect(),
            unreachable: raw.unreachable.into_iter().map(ServerId).collect(),
        })
    }

    /// Its JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        write(&RawPresence {
            schema: PRESENCE_SCHEMA.to_owned(),
            incarnation: self.incarnation.0,
            leaving: self.leaving,
            heard: self.heard.iter().map(|id| id.0).collect(),
            unreachable: self.unreachable.iter().map(|id| id.0).collect(),
        })
    }
}

impl ServerReport {
    /// Reads one from its JSON.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(json: &[u8]) -> Result<Self, ReportError> {
        let raw: RawReport = read(json, REPORT_BYTES_MAX, REPORT_SCHEMA)?;
        let refused = |raw: RawRefusal| (raw.region, Epoch(raw.epoch));
        let named = |region: u32| (region, ());
        Ok(Self {
            incarnation: Incarnation(raw.incarnation),
            map: EntryVersion(raw.map),
            copies: by_region(raw.copies.into_iter().map(RawCopy::decode))?,
            opening: by_region(raw.opening.into_iter().map(named))?
                .into_keys()
                .collect(),
            refused: by_region(raw.refused.into_iter().map(refused))?,
            failed: by_region(raw.failed.into_iter().map(named))?
                .into_keys()
                .collect(),
            wishes: by_region(raw.wishes.into_iter().map(RawWish::decode))?,
        })
    }

    /// Its JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let refused = |(region, epoch): (&RegionId, &Epoch)| RawRefusal {
            region: region.0,
            epoch: epoch.0,
        };
        let copies = self.copies.iter();
        let wishes = self.wishes.iter();
        write(&RawReport {
            schema: REPORT_SCHEMA.to_owned(),
            incarnation: self.incarnation.0,
            map: self.map.0,
            copies: copies
                .map(|(region, copy)| RawCopy::encode(*region, copy))
                .collect(),
            opening: self.opening.iter().map(|region| region.0).collect(),
            refused: self.refused.iter().map(refused).collect(),
            failed: self.failed.iter().map(|region| region.0).collect(),
            wishes: wishes
                .map(|(region, wish)| RawWish::encode(*region, wish))
                .collect(),
        })
    }
}

// --- The JSON form ---

/// What is read first, of a value of any version.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPresence {
    schema: String,
    incarnation: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    leaving: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    heard: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unreachable: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReport {
    schema: String,
    incarnation: u64,
    map: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    copies: Vec<RawCopy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    opening: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RawRefusal>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wishes: Vec<RawWish>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCopy {
    region: u32,
    epoch: u32,
    status: CopyStatus,
    cut: u32,
    edit: u64,
    lsn: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRefusal {
    region: u32,
    epoch: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWish {
    region: u32,
    epoch: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remove: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    add: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fill: Vec<u32>,
}

impl RawCopy {
    fn encode(region: RegionId, copy: &CopyReport) -> Self {
        Self {
            region: region.0,
            epoch: copy.epoch.0,
            status: copy.status,
            cut: copy.cut.0,
            edit: copy.edit.0,
            lsn: copy.lsn.0,
        }
    }

    fn decode(self) -> (u32, CopyReport) {
        let copy = CopyReport {
            epoch: Epoch(self.epoch),
            status: self.status,
            cut: Epoch(self.cut),
            edit: EditSeq(self.edit),
            lsn: Lsn(self.lsn),
        };
        (self.region, copy)
    }
}

impl RawWish {
    fn encode(region: RegionId, wish: &Wish) -> Self {
        let numbers = |ids: &[ServerId]| ids.iter().map(|id| id.0).collect();
        Self {
            region: region.0,
            epoch: wish.epoch.0,
            remove: numbers(&wish.remove),
            add: numbers(&wish.add),
            fill: numbers(&wish.fill),
        }
    }

    fn decode(self) -> (u32, Wish) {
        let names = |ids: Vec<u32>| ids.into_iter().map(ServerId).collect();
        let wish = Wish {
            epoch: Epoch(self.epoch),
            remove: names(self.remove),
            add: names(self.add),
            fill: names(self.fill),
        };
        (self.region, wish)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "so serde calls it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

fn by_region<T>(
    said: impl Iterator<Item = (u32, T)>,
) -> Result<BTreeMap<RegionId, T>, ReportError> {
    let mut all = BTreeMap::new();
    for (region, what) in said {
        let region = RegionId(region);
        if all.insert(region, what).is_some() {
            return Err(ReportError::Twice { region });
        }
    }
    Ok(all)
}

fn read<T: for<'a> Deserialize<'a>>(
    json: &[u8],
    max: usize,
    known: &'static str,
) -> Result<T, ReportError> {
    let len = json.len();
    if len > max {
        return Err(ReportError::TooLong { len, max });
    }
    let malformed = |e: serde_json::Error| ReportError::Malformed {
        reason: e.to_string(),
    };
    let Head { schema: found } = serde_json::from_slice(json).map_err(malformed)?;
    if found != known {
        return Err(ReportError::UnknownSchema { found, known });
    }
    serde_json::from_slice(json).map_err(malformed)
}

fn write(raw: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(raw).expect("plain data has a JSON form")
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
