//! The bytes of the redo log ([`JobLog`]).
//!
//! ```text
//! 0           8         10     12         16
//! +-----------+---------+------+----------+------+
//! | magic     | version | zero | checksum | body |
//! +-----------+---------+------+----------+------+
//!
//! magic    := "argosyjb"    version := 1: u16    zero := 0: u16    checksum: u32, of the body
//!
//! body     := next: u64  count: varint  job[count]
//! job      := id: u64  kind: u8  state: u8  server: u32  actor: u64  attempts: u32
//!             count: varint  region[count]  remark: string
//! region   := name: varint  epoch: varint  stage: u8
//! string   := length: varint  bytes, which are UTF-8
//! ```
//!
//! Integers are little-endian, varints those of `base`. Jobs rise by id, from 1, and all are below `next`. A region's
//! name is how far it lies above the one before it (above 0 for the first), at least 1. An actor of 0 is none. Kinds,
//! states and stages have the values of the types of these names. The checksum is that of a file of the coordinator
//! with 64 in the place of its kind. Nothing follows the body. So equal logs are equal bytes.
//!
//! What is longer than [`LOG_BYTES_MAX`], breaks a bound of the log, or is of another version is refused.

use std::collections::BTreeMap;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::{Epoch, Identity, Kind, RegionId, ServerId};

use crate::contract::SessionId;
use crate::job::{JobId, JobKind, JobRegion, JobState, REMARK_BYTES_MAX, RedoJob, RegionStage};
use crate::jobs::{ENDED_KEPT, JobLog, OPEN_MAX, REGIONS_MAX};

/// Longest log, in bytes: all regions with the largest numbers, and all remarks.
pub const LOG_BYTES_MAX: usize = 512 << 10;

/// Most bytes of a region, and of a job without its regions.
const REGION_BYTES: usize = 5 + 5 + 1;
const JOB_BYTES: usize = 8 + 1 + 1 + 4 + 8 + 4 + 3 + 2 + REMARK_BYTES_MAX;
const _: () = assert!(
    HEADER_BYTES + 10 + REGIONS_MAX * REGION_BYTES + (OPEN_MAX + ENDED_KEPT) * JOB_BYTES
        <= LOG_BYTES_MAX,
    "a log that keeps to its bounds can be read again"
);

const MAGIC: &[u8; 8] = b"argosyjb";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const IDENTITY: Identity = Identity::of_server(Kind::Coordinator, 64);

/// Why bytes are no redo log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobLogError {
    /// It was written by another version.
    #[error("the redo log has format {found}; this program knows {VERSION}")]
    UnknownVersion {
        /// What it calls itself.
        found: u16,
    },
    /// It is not what was written.
    #[error("the redo log cannot be read: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
}

impl From<Malformed> for JobLogError {
    fn from(_: Malformed) -> Self {
        damaged("it is malformed")
    }
}

const fn damaged(what: &'static str) -> JobLogError {
    JobLogError::Damaged { what }
}

impl JobLog {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.next().to_le_bytes().to_vec();
        put_varint(&mut body, self.jobs().len() as u64);
        self.jobs().for_each(|job| put_job(&mut body, job));
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&IDENTITY.checksum(&body).to_le_bytes());
        bytes.append(&mut body);
        bytes
    }

    /// The log that `bytes` are; an empty one where there are none.
    ///
    /// # Errors
    /// Why they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, JobLogError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if bytes.len() > LOG_BYTES_MAX {
            return Err(damaged("it is too long"));
        }
        let (header, body) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or(damaged("it is too short"))?;
        let mut header = Reader::new("redo log", header);
        if header.take(MAGIC.len())? != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let found = header.u16()?;
        if found != VERSION {
            return Err(JobLogError::UnknownVersion { found });
        }
        if header.u16()? != 0 || header.u32()? != IDENTITY.checksum(body) {
            return Err(damaged("its checksum is wrong"));
        }
        let mut reader = Reader::new("redo log", body);
        let next = reader.u64()?;
        let mut jobs = BTreeMap::new();
        let mut last = JobId(0);
        for _ in 0..reader.length(OPEN_MAX + ENDED_KEPT)? {
            let job = job(&mut reader)?;
            if job.id <= last {
                return Err(damaged("its jobs do not rise"));
            }
            last = job.id;
            jobs.insert(job.id, job);
        }
        reader.finish()?;
        Self::of(next, jobs).ok_or(damaged("it breaks its bounds"))
    }
}

fn put_job(out: &mut Vec<u8>, job: &RedoJob) {
    out.extend_from_slice(&job.id.0.to_le_bytes());
    out.extend_from_slice(&[job.kind as u8, job.state as u8]);
    out.extend_from_slice(&job.server.0.to_le_bytes());
    let actor = job.actor.map_or(0, |actor| actor.0);
    out.extend_from_slice(&actor.to_le_bytes());
    out.extend_from_slice(&job.attempts.to_le_bytes());
    put_varint(out, job.regions.len() as u64);
    let mut last = 0;
    for (id, region) in &job.regions {
        put_varint(out, u64::from(id.0 - last));
        put_varint(out, region.epoch.0.into());
        out.push(region.stage as u8);
        last = id.0;
    }
    put_string(out, job.remark.as_bytes());
}

fn job(reader: &mut Reader<'_>) -> Result<RedoJob, JobLogError> {
    let id = JobId(reader.u64()?);
    let kind = one_of(reader.u8()?, JobKind::ALL, |kind| kind as u8)?;
    let state = one_of(reader.u8()?, JobState::ALL, |state| state as u8)?;
    let server = ServerId(reader.u32()?);
    let actor = match reader.u64()? {
        0 => None,
        actor => Some(SessionId(actor)),
    };
    let attempts = reader.u32()?;
    let mut regions = BTreeMap::new();
    let mut last = 0_u32;
    for _ in 0..reader.length(REGIONS_MAX)? {
        let above = small(reader)?;
        let epoch = Epoch(small(reader)?);
        let stage = one_of(reader.u8()?, RegionStage::ALL, |stage| stage as u8)?;
        let id = last.checked_add(above).filter(|id| last < *id);
        last = id.ok_or(damaged("its regions do not rise"))?;
        regions.insert(RegionId(last), JobRegion { epoch, stage });
    }
    let remark = reader.string(REMARK_BYTES_MAX)?.to_vec();
    Ok(RedoJob {
        id,
        kind,
        state,
        server,
        actor,
        attempts,
        regions,
        remark: String::from_utf8(remark).map_err(|_| damaged("a remark is no text"))?,
    })
}

fn small(reader: &mut Reader<'_>) -> Result<u32, JobLogError> {
    u32::try_from(reader.varint()?).map_err(|_| damaged("a number is too large"))
}

fn one_of<T: Copy, const N: usize>(
    value: u8,
    all: [T; N],
    of: impl Fn(T) -> u8,
) -> Result<T, JobLogError> {
    let found = all.into_iter().find(|one| of(*one) == value);
    found.ok_or(damaged("it has a kind, state or stage that there is not"))
}

#[cfg(test)]
#[path = "jobs_format_tests.rs"]
mod tests;
