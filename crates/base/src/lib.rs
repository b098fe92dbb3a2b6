//! The nouns that every crate of Argosy shares: numbers with a meaning, limits, key ranges, the
//! checksum, and what an error asks of its caller.
//!
//! Reading order: [`ids`] (numbers and names), [`addresses`] (the meaning of pointers),
//! [`durability`] (when writes are acknowledged), [`limits`] (bounds), [`range`], [`keys`] (lists of keys),
//! [`batch`] (batches of writes), [`expiry`] (when what they put ends), `seen` (what they depend on), [`request_name`]
//! (their names), [`ops`] (their bytes), [`change`] (computed changes), [`long`] (the keys of long values),
//! [`composite`] (those of hashes, sorted sets and sets), [`logs`] (a region's logs, and a member's position in
//! them), [`checksum`], [`codec`] (numbers as bytes), [`outcome`] (remedies
//! and the fate of a write), [`clock`] (time), [`shared`] (memory that others write), [`info`] (the names of a server's
//! figures), [`mutants`](mod@mutants) (planted mistakes).
//!
//! This crate performs no I/O and needs no operating system: it is `no_std` with `alloc`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addresses;
pub mod batch;
pub mod change;
pub mod checksum;
pub mod clock;
pub mod codec;
pub mod composite;
pub mod durability;
pub mod expiry;
pub mod grant;
pub mod ids;
pub mod info;
pub mod keys;
pub mod limits;
pub mod logs;
pub mod long;
pub mod mutants;
pub mod ops;
pub mod outcome;
pub mod range;
pub mod request_name;
mod seen;
pub mod shared;
pub mod standing;

pub use addresses::AddressMode;
pub use batch::{BatchError, Condition, Expiry, Guard, Op, Seen, WriteBatch, WriteOptions};
pub use change::{Change, Changed, Only, Refusal, Was};
pub use checksum::{Identity, Kind};
pub use clock::{Clock, Instant, Moment};
pub use durability::DurabilityMode;
pub use grant::{Descriptor, Grant, MemoryKey};
pub use ids::{
    DeviceSegment, EditSeq, Epoch, Incarnation, Lsn, Pointer, RegionId, SegmentNumber, ServerId,
};
pub use keys::{KeyList, Wanted};
pub use limits::{BLOCK_SIZE, SEGMENT_SIZE};
pub use logs::{FlushRange, LogId, LogPosition, PerLog, Position, SegmentPart};
pub use outcome::{Outcome, Remedy};
pub use range::{Direction, KeyRange};
pub use request_name::{ClientId, RequestName};
pub use shared::Shared;
pub use standing::Standing;
