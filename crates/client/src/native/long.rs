//! Values of over 1 MiB: read and written part by part, each a request of its own, so that no connection has to
//! have room for more than one.
//!
//! *In.* The server says under which version the parts go, and how long they are. When all have been answered,
//! what stands for the value is written, with its checksum and on the terms that there are: that makes it visible.
//! Whatever fails before that has had no effect that anybody sees; servers remove such parts by and by.
//!
//! *Out.* In the place of such a value a server tells what stands for it. Where a part is not there, the value has
//! been overwritten since, and the key is looked up again. What is returned is compared with the checksum.

use argosy_base::Outcome;
use argosy_base::checksum::extend;
use argosy_base::codec::Malformed;
use argosy_wire::api::SnapshotId;
use argosy_wire::native::{Flags, Long, Op, PartOf, Status};

use super::client::{BRIEF, odd};
use super::run::{Caller, Sending};
use crate::error::ClientError;

/// How often a value is looked up that is overwritten all the time.
const TRIES_MAX: usize = 16;

/// What a key was found to be bound to.
enum Looked {
    Absent,
    Whole(Vec<u8>),
    Long(Long),
}

impl Caller {
    /// The value of `key` that `long` stands for, from snapshot `at`, or what the key is bound to now where that
    /// is `None` and the value is there no more.
    pub(super) fn whole(
        &self,
        key: &[u8],
        mut long: Long,
        at: Option<SnapshotId>,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        for _ in 0..TRIES_MAX {
            if let Some(value) = self.parts(key, &long, at)? {
                return Ok(Some(value));
            }
            if at.is_some() {
                return Err(odd("a snapshot lacks a part of a value"));
            }
            match self.look(key)? {
                Looked::Absent => return Ok(None),
                Looked::Whole(value) => return Ok(Some(value)),
                Looked::Long(newer) => long = newer,
            }
        }
        Err(ClientError::Unavailable {
            what: "the value is overwritten faster than it is read; try again".to_owned(),
            outcome: Outcome::NotApplied,
        })
    }

    /// What a write found, which had `bytes` standing for it: it cannot be looked up again.
    pub(super) fn overwritten(
        &self,
        key: &[u8],
        bytes: &[u8],
        applied: bool,
    ) -> Result<Vec<u8>, ClientError> {
        let why = match self.parts(key, &long_in(bytes)?, None) {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "it has been removed".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(ClientError::Unavailable {
            what: format!("what the key was bound to before cannot be read: {why}"),
            outcome: match applied {
                true => Outcome::Applied,
                false => Outcome::NotApplied,
            },
        })
    }

    /// Bytes of the value of `key`, if it is one in parts.
    pub(super) fn length_in_parts(&self, key: &[u8]) -> Result<Option<u64>, ClientError> {
        Ok(match self.look(key)? {
            Looked::Long(long) => Some(long.len),
            Looked::Absent | Looked::Whole(_) => None,
        })
    }

    /// Writes the parts of `value`. Returns what stands for it.
    pub(super) fn put_parts(&self, key: &[u8], value: &[u8]) -> Result<Long, ClientError> {
        let len = value.len() as u64;
        let asked = Long {
            len,
            ..Long::default()
        };
        let part = PartOf {
            long: asked,
            index: 0,
            at: None,
            key,
            bytes: b"",
        };
        let (_, payload) = self.about_part(Op::Begin, BRIEF, &part)?;
        let mut long = long_in(&payload)?;
        if long.len != len {
            return Err(odd("a value was begun with another length"));
        }
        let parts = value.chunks(long.part_len as usize);
        for (index, bytes) in (0..).zip(parts) {
            long.checksum = extend(long.checksum, bytes);
            let part = PartOf {
                long,
                index,
                at: None,
                key,
                bytes,
            };
            let (status, _) = self.about_part(Op::PutPart, BRIEF, &part)?;
            if status != Status::Done {
                return Err(odd(&format!("a part was answered by {status:?}")));
            }
        }
        Ok(long)
    }

    /// The value whose parts `long` names; `None` where one is not there.
    fn parts(
        &self,
        key: &[u8],
        long: &Long,
        at: Option<SnapshotId>,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let len = usize::try_from(long.len).map_err(|_| odd("a value is too long"))?;
        let (mut value, mut checksum) = (Vec::with_capacity(len), 0);
        let reply_bytes = long.part_len as usize + BRIEF;
        for index in 0..long.parts() {
            let asked = PartOf {
                long: *long,
                index,
                at,
                key,
                bytes: b"",
            };
            let (status, part) = self.about_part(Op::GetPart, reply_bytes, &asked)?;
            match status {
                Status::Value if value.len() + part.len() <= len => {
                    checksum = extend(checksum, &part);
                    value.extend_from_slice(&part);
                }
                Status::Absent => return Ok(None),
                Status::Value => break,
                other => return Err(odd(&format!("a part was answered by {other:?}"))),
            }
        }
        if (value.len(), checksum) == (len, long.checksum) {
            return Ok(Some(value));
        }
        Err(ClientError::Storage {
            what: "the parts of the value are not what was written".to_owned(),
            outcome: Outcome::NotApplied,
        })
    }

    /// What `key` is bound to, or stands for it.
    fn look(&self, key: &[u8]) -> Result<Looked, ClientError> {
        let mut sending = Sending {
            op: Op::Get,
            flags: Flags::default(),
            key,
            parts: &[key],
            reply_bytes: self.shared.guess.bytes(),
        };
        let mut payload = Vec::new();
        let reply = self.run(&mut sending, self.deadline_from_now(), &mut payload)?;
        Ok(match reply.status {
            Status::Absent => Looked::Absent,
            Status::Value => Looked::Whole(payload),
            Status::Long => Looked::Long(long_in(&payload)?),
            other => return Err(odd(&format!("a get was answered by {other:?}"))),
        })
    }

    /// Asks for something about a part of a value, or the whole. Each has the deadline for itself.
    fn about_part(
        &self,
        op: Op,
        reply_bytes: usize,
        part: &PartOf<'_>,
    ) -> Result<(Status, Vec<u8>), ClientError> {
        let mut front = Vec::new();
        part.encode(&mut front);
        let mut sending = Sending {
            op,
            flags: Flags::default(),
            key: part.key,
            parts: &[&front, part.bytes],
            reply_bytes,
        };
        let mut payload = Vec::new();
        let reply = self.run(&mut sending, self.deadline_from_now(), &mut payload)?;
        Ok((reply.status, payload))
    }
}

/// What stands for a value in parts.
pub(super) fn long_in(bytes: &[u8]) -> Result<Long, ClientError> {
    Long::decode(bytes).map_err(|error: Malformed| odd(&error.to_string()))
}
