//! The only crate that opens data files.
//!
//! A device is a file or a raw block device, cut in segments of 2 MiB. [`Device`] is the outside
//! world in a few methods; a real one ([`FileDevice`]) and a faulty one in memory
//! ([`MemoryDevice`]) stand behind it. [`Store`] puts superblocks, the catalog of regions and the
//! allocator of reference-counted segments on top. [`SystemClock`] is the clock of every program, and [`random`]
//! draws the names of stores.
//!
//! Reading order: [`buffer`] (memory for direct I/O), [`io`] (requests, tickets), [`Device`], [`store`].
//!
//! This crate knows segments and regions by number, and nothing of keys.

mod ahead;
mod allocator;
mod beneath;
mod blank;
pub mod buffer;
mod catalog;
mod clock;
pub mod file;
mod fixed;
pub mod io;
pub mod lock;
pub mod mem_device;
mod opening;
pub mod pages;
mod queue;
pub mod random;
pub mod read_only;
mod ring;
mod rng;
pub mod store;
mod superblock;
mod switch;
#[cfg(test)]
mod testing;

pub use ahead::BegunRead;
pub use allocator::Purpose;
pub use buffer::Buffer;
pub use catalog::{RegionChange, RegionEntry};
pub use clock::SystemClock;
pub use file::{Accounts, FileDevice, FileSettings};
pub use io::{Counters, Device, DeviceError, Io, LOOK_EVERY, OpKind, Read, Ticket, Waker};
pub use mem_device::{Crash, FaultCounters, MemoryDevice, Misdirected};
pub use opening::{HeadBlock, check_blank};
pub use pages::Pages;
pub use read_only::ReadOnlyFile;
pub use ring::IoMethod;
pub use store::{CatalogChange, Dump, FormatOptions, Room, SegmentHandle, Store, StoreSettings};
pub use superblock::{CREATED_BY_BYTES_MAX, Superblock};
