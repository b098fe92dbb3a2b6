//! The files of the embedded coordinator: transactions, snapshots and heartbeats.
//!
//! ```text
//! 0           8         10     11     12         16
//! +-----------+---------+------+------+----------+------+
//! | magic     | version | kind | zero | checksum | body |
//! +-----------+---------+------+------+----------+------+
//!
//! magic       := "argosyco"       version := 2: u16       checksum: u32, of the body
//!
//! transaction := number: u64  previous: u32  count: varint  change[count]          kind 1
//! snapshot    := generation: u64  number: u64  previous: u32                       kind 2
//!                count: varint  session[count]  count: varint  pair[count]
//! heartbeat   := session: u64  counter: u64                                        kind 3
//!
//! change      := 1: u8  pair
//!              | 2: u8  key: string
//!              | 3: u8  session
//!              | 4: u8  id: u64
//!              | 5: u8
//! pair        := key: string  version: u64  owner: u64  value: string
//! session     := id: u64  timeout in milliseconds: u32
//! string      := length: varint  bytes
//! ```
//!
//! Integers are little-endian, varints those of `base`. The changes: put, remove, begin and end of a
//! session, and *seal*, which stands alone in its transaction. An owner of 0 is none. Transactions
//! have numbers without gaps; each states the checksum of the one before (`previous`; of the first
//! one it is 0), and a snapshot states number and checksum of the last one that it includes. The
//! checksum is seeded with the kind of file. In a snapshot sessions and keys rise strictly, so equal
//! states are equal bytes. The name of a session is the number of the transaction that begins it. No number
//! is above 2^63 - 1.
//!
//! Version 1 was one text file a key. It is refused, as later versions are.

use argosy_base::codec::{Reader, put_string, put_varint};
use argosy_base::{Identity, Kind};

use crate::contract::{
    Entry, EntryVersion, KEY_BYTES_MAX, KEYS_MAX, OPS_MAX, SESSIONS_MAX, STATE_BYTES_MAX,
    SessionId, VALUE_BYTES_MAX,
};
use crate::state::{State, StateChange};

const MAGIC: &[u8; 8] = b"argosyco";
const VERSION: u16 = 2;
const HEADER_BYTES: usize = 16;

/// Most changes of a transaction: one for each operation, and one more where a session replaces
/// another.
const CHANGES_MAX: usize = OPS_MAX + 1;

/// Most bytes around key and value of a pair: a tag, two lengths, version and owner.
const PAIR_BYTES: usize = 1 + 2 * 4 + 2 * 8;

/// Longest file of a transaction: the values of one multi, its keys, and what is around them.
pub(crate) const TRANSACTION_BYTES_MAX: usize =
    HEADER_BYTES + 16 + VALUE_BYTES_MAX + CHANGES_MAX * (KEY_BYTES_MAX + PAIR_BYTES);

/// Longest file of a snapshot.
pub(crate) const SNAPSHOT_BYTES_MAX: usize =
    HEADER_BYTES + 32 + STATE_BYTES_MAX + KEYS_MAX * PAIR_BYTES + SESSIONS_MAX * 12;

/// Highest number of a generation or a transaction. Nobody comes so far; a name or a file that says so is
/// not ours.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// Bytes of a heartbeat.
pub(crate) const HEARTBEAT_BYTES: usize = HEADER_BYTES + 16;

/// What a file is. DO NOT CHANGE THE VALUES: they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum FileKind {
    Transaction = 1,
    Snapshot = 2,
    Heartbeat = 3,
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effects {
    /// These changes, in order.
    Changes(Vec<StateChange>),
    /// It ends its generation.
    Seal,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// Its number.
    pub number: u64,
    /// The checksum of the transaction before it.
    pub previous: u32,
    /// What it does.
    pub effects: Effects,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The generation that it begins.
    pub generation: u64,
    /// The last transaction that it includes.
    pub number: u64,
    /// The checksum of that transaction.
    pub previous: u32,
    /// The state behind that transaction.
    pub state: State,
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatRecord {
    /// Whose.
    pub session: SessionId,
    /// Rises with each.
    pub counter: u64,
}

impl TransactionRecord {
    /// The file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&self.previous.to_le_bytes());
        match &self.effects {
            Effects::Changes(changes) => {
                put_count(&mut body, changes.len());
                changes
                    .iter()
                    .for_each(|change| put_change(&mut body, change));
            }
            Effects::Seal => body.extend_from_slice(&[1, 5]),
        }
        sealed(FileKind::Transaction, &body)
    }

    /// What `file` holds.
    ///
    /// # Errors
    /// Why it is no such file as it was written.
    pub fn decode(file: &[u8]) -> Result<Self, &'static str> {
        let mut reader = opened(FileKind::Transaction, file)?;
        let mut read = || -> Result<Self, Unreadable> {
            let (number, previous) = (reader.u64()?, reader.u32()?);
            let effects = effects(&mut reader)?;
            reader.finish()?;
            Ok(Self {
                number,
                previous,
                effects,
            })
        };
        read().map_err(|Unreadable| "it is malformed")
    }
}

impl SnapshotRecord {
    /// The file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.generation.to_le_bytes());
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&self.previous.to_le_bytes());
        put_count(&mut body, self.state.sessions().len());
        for (session, timeout_ms) in self.state.sessions() {
            put_session(&mut body, session, timeout_ms);
        }
        put_count(&mut body, self.state.entries().len());
        for (key, entry) in self.state.entries() {
            put_pair(&mut body, key, entry);
        }
        sealed(FileKind::Snapshot, &body)
    }

    /// What `file` holds.
    ///
    /// # Errors
    /// Why it is no such file as it was written.
    pub fn decode(file: &[u8]) -> Result<Self, &'static str> {
        let mut reader = opened(FileKind::Snapshot, file)?;
        let mut read = || -> Result<Self, Unreadable> {
            let (generation, number) = (reader.u64()?, reader.u64()?);
            let previous = reader.u32()?;
            let state = state(&mut reader)?;
            reader.finish()?;
            let is_known = |(session, _): (SessionId, u32)| session.0 <= number;
            if generation.max(number) > NUMBER_MAX || !state.sessions().all(is_known) {
                return Err(Unreadable);
            }
            Ok(Self {
                generation,
                number,
                previous,
                state,
            })
        };
        read().map_err(|Unreadable| "it is malformed")
    }
}

impl HeartbeatRecord {
    /// The file. Its length is always the same.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.session.0.to_le_bytes().to_vec();
        body.extend_from_slice(&self.counter.to_le_bytes());
        sealed(FileKind::Heartbeat, &body)
    }

    /// What `file` holds.
    ///
    /// # Errors
    /// Why it is no such file as it was written.
    pub fn decode(file: &[u8]) -> Result<Self, &'static str> {
        let mut reader = opened(FileKind::Heartbeat, file)?;
        let mut read = || -> Result<Self, Unreadable> {
            let (session, counter) = (SessionId(reader.u64()?), reader.u64()?);
            reader.finish()?;
            Ok(Self { session, counter })
        };
        read().map_err(|Unreadable| "it is malformed")
    }
}

/// The checksum that the header of `file` states. The file has been decoded, or was encoded.
pub(crate) fn checksum_of(file: &[u8]) -> u32 {
    let stated = file
        .get(12..HEADER_BYTES)
        .and_then(|bytes| bytes.try_into().ok());
    stated.map_or(0, u32::from_le_bytes)
}

/// Bytes do not hold what they should.
struct Unreadable;

impl From<argosy_base::codec::Malformed> for Unreadable {
    fn from(_: argosy_base::codec::Malformed) -> Self {
        Self
    }
}

fn identity(kind: FileKind) -> Identity {
    Identity::of_server(Kind::Coordinator, u32::from(kind as u8))
}

fn sealed(kind: FileKind, body: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER_BYTES + body.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&[kind as u8, 0]);
    file.extend_from_slice(&identity(kind).checksum(body).to_le_bytes());
    file.extend_from_slice(body);
    file
}

/// A reader of the body of `file`, whose header is right.
fn opened(kind: FileKind, file: &[u8]) -> Result<Reader<'_>, &'static str> {
    let (header, body) = file
        .split_at_checked(HEADER_BYTES)
        .ok_or("it is too short for a file of a coordinator")?;
    if &header[..8] != MAGIC {
        return Err("it is no file of a coordinator");
    }
    if header[8..10] != VERSION.to_le_bytes() {
        return Err("it was written by another version");
    }
    if header[10..12] != [kind as u8, 0] {
        return Err("it is a file of another kind");
    }
    match identity(kind).checksum(body) == checksum_of(file) {
        true => Ok(Reader::new("file of a coordinator", body)),
        false => Err("its checksum is wrong"),
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put_varint(out, count as u64);
}

fn put_session(out: &mut Vec<u8>, session: SessionId, timeout_ms: u32) {
    out.extend_from_slice(&session.0.to_le_bytes());
    out.extend_from_slice(&timeout_ms.to_le_bytes());
}

fn put_pair(out: &mut Vec<u8>, key: &str, entry: &Entry) {
    put_string(out, key.as_bytes());
    out.extend_from_slice(&entry.version.0.to_le_bytes());
    let owner = entry.owner.map_or(0, |owner| owner.0);
    out.extend_from_slice(&owner.to_le_bytes());
    put_string(out, &entry.value);
}

fn put_change(out: &mut Vec<u8>, change: &StateChange) {
    match change {
        StateChange::Put { key, entry } => {
            out.push(1);
            put_pair(out, key, entry);
        }
        StateChange::Remove { key } => {
            out.push(2);
            put_string(out, key.as_bytes());
        }
        StateChange::Begin {
            session,
            timeout_ms,
        } => {
            out.push(3);
            put_session(out, *session, *timeout_ms);
        }
        StateChange::End { session } => {
            out.push(4);
            out.extend_from_slice(&session.0.to_le_bytes());
        }
    }
}

fn effects(reader: &mut Reader<'_>) -> Result<Effects, Unreadable> {
    if reader.rest() == [1, 5] {
        reader.take(2)?;
        return Ok(Effects::Seal);
    }
    let count = reader.length(CHANGES_MAX)?;
    let changes = (0..count).map(|_| change(reader));
    Ok(Effects::Changes(changes.collect::<Result<_, _>>()?))
}

fn change(reader: &mut Reader<'_>) -> Result<StateChange, Unreadable> {
    Ok(match reader.u8()? {
        1 => {
            let key = key(reader)?;
            let entry = entry(reader)?;
            StateChange::Put { key, entry }
        }
        2 => StateChange::Remove { key: key(reader)? },
        3 => StateChange::Begin {
            session: SessionId(reader.u64()?),
            timeout_ms: reader.u32()?,
        },
        4 => StateChange::End {
            session: SessionId(reader.u64()?),
        },
        _ => return Err(Unreadable),
    })
}

fn key(reader: &mut Reader<'_>) -> Result<String, Unreadable> {
    let bytes = reader.string(KEY_BYTES_MAX)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Unreadable)
}

fn entry(reader: &mut Reader<'_>) -> Result<Entry, Unreadable> {
    let version = EntryVersion(reader.u64()?);
    let owner = match reader.u64()? {
        0 => None,
        owner => Some(SessionId(owner)),
    };
    let value = reader.string(VALUE_BYTES_MAX)?.to_vec();
    Ok(Entry {
        version,
        value,
        owner,
    })
}

fn state(reader: &mut Reader<'_>) -> Result<State, Unreadable> {
    let mut state = State::default();
    let mut touched = Vec::new();
    let mut apply = |change| state.apply(&change, &mut touched).map_err(|_| Unreadable);
    let mut last = None;
    for _ in 0..reader.length(SESSIONS_MAX)? {
        let (session, timeout_ms) = (SessionId(reader.u64()?), reader.u32()?);
        if last.replace(session).is_some_and(|last| last >= session) {
            return Err(Unreadable);
        }
        apply(StateChange::Begin {
            session,
            timeout_ms,
        })?;
    }
    let mut last: Option<String> = None;
    for _ in 0..reader.length(KEYS_MAX)? {
        let key = key(reader)?;
        let entry = entry(reader)?;
        if last.replace(key.clone()).is_some_and(|last| last >= key) {
            return Err(Unreadable);
        }
        apply(StateChange::Put { key, entry })?;
    }
    Ok(state)
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
