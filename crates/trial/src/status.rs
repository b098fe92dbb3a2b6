//! What servers say of themselves on their admin ports, as far as a trial looks at it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use argosy_base::KeyRange;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::TrialError;

/// How long an admin port may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Longest page of an admin port that is read.
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// The part of a server's status that a trial looks at.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    /// Its regions, as it sees them.
    pub regions: Vec<RegionStatus>,
    /// What it did for other copies, and they for its own.
    #[serde(default)]
    pub replication: ReplicationStatus,
    /// Its device.
    #[serde(default)]
    pub device: DeviceStatus,
    /// What became of copies that could not be used.
    #[serde(default)]
    pub scrub: ScrubStatus,
}

/// Copies that became equal, since the server was started.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicationStatus {
    /// Bytes that it has fetched or received to catch up.
    #[serde(rename = "catch_up_bytes_total")]
    pub catch_up_bytes: u64,
    /// Records that were given up where it opened a copy that was cut.
    #[serde(rename = "cut_records_total")]
    pub cut_records: u64,
}

/// A device in [`Status`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceStatus {
    /// Bytes of its segments that are in use.
    pub used_bytes: u64,
}

/// Copies that were set aside, in [`Status`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ScrubStatus {
    /// Those that were begun anew.
    #[serde(rename = "refilled_copies_total")]
    pub refilled_copies: u64,
}

/// A region in [`Status`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RegionStatus {
    /// Its number.
    pub id: u64,
    /// The server that leads it, where one is known.
    pub primary: Option<u64>,
    /// All that hold a copy.
    #[serde(default)]
    pub members: Vec<u64>,
    /// How it is here.
    #[serde(default)]
    pub state: String,
    /// Its backups, where it is led here.
    #[serde(default)]
    pub backups: Vec<BackupStatus>,
    from: Bound,
    to: Option<Bound>,
}

/// A backup in [`RegionStatus`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BackupStatus {
    /// Its server.
    pub server: u64,
    /// How it is.
    pub state: String,
}

/// A bound of a region in [`RegionStatus`].
#[derive(Clone, Debug, Deserialize)]
struct Bound {
    base64: String,
}

/// A region as a server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Its number.
    pub id: u64,
    /// Its keys.
    pub range: KeyRange,
    /// The server that is its primary, where one is known.
    pub primary: Option<usize>,
}

/// What an admin port answered.
pub(crate) struct Page {
    /// The number that says how it went.
    pub code: String,
    /// What follows the head.
    pub body: String,
}

/// A page of an admin port.
///
/// # Errors
/// It does not answer.
pub(crate) fn page(admin: SocketAddr, path: &str) -> std::io::Result<Page> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = body.to_owned();
    Ok(Page { code, body })
}

fn odd(what: &dyn std::fmt::Display) -> TrialError {
    TrialError::Cluster(format!("a server's status: {what}"))
}

/// The status that a page is.
///
/// # Errors
/// It is none.
pub(crate) fn status_of(page: &str) -> Result<Status, TrialError> {
    serde_json::from_str(page).map_err(|error| odd(&error))
}

/// The regions that a status tells of, in the order of their numbers.
///
/// # Errors
/// It is none.
pub(crate) fn regions_of(page: &str) -> Result<Vec<Region>, TrialError> {
    let status = status_of(page)?;
    let bytes = |bound: &Bound| {
        let bytes = STANDARD.decode(&bound.base64);
        bytes.map_err(|error| odd(&error))
    };
    let mut regions = Vec::new();
    let mut found = status.regions;
    found.sort_by_key(|region| region.id);
    for region in &found {
        let to = region.to.as_ref().map(bytes).transpose()?;
        regions.push(Region {
            id: region.id,
            range: KeyRange::new(bytes(&region.from)?, to),
            primary: region
                .primary
                .and_then(|primary| usize::try_from(primary).ok()),
        });
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_of_regions() {
        let status = r#"{"regions": [
            {"id": 2, "primary": 0, "from": {"text": "c", "base64": "Yw=="}, "to": null},
            {"id": 1, "primary": 2, "from": {"text": "", "base64": ""}, "to": {"text": "c", "base64": "Yw=="}}
        ], "more": 1}"#;
        let regions = regions_of(status).unwrap();
        assert_eq!(regions.len(), 2);
        assert_eq!(
            regions[0].range,
            KeyRange::new("", Some(b"c".to_vec())),
            "they are ordered"
        );
        assert_eq!(regions[1].range, KeyRange::new("c", None));
        assert_eq!(regions[1].primary, Some(0));
        assert!(regions_of("{}").is_err());
    }
}
