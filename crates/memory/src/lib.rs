//! Memory that processes of one host share.
//!
//! [`SharedMemory`] is memory that outlives a killed process, and that other threads and processes write while its
//! owner does nothing: log windows, message rings and landing slots are made of it. Its access word says who may
//! write. A [`WindowStore`] keeps such memory by name, in files ([`WindowFiles`]) or in this process
//! ([`AnonymousWindows`]). A [`BellFile`] wakes the parked thread of another process.
//! [`prefetch()`] fetches memory ahead of its use.
//!
//! Reading order: [`shared`], [`windows`], [`window_files`], [`bell`].
//!
//! This crate knows neither keys nor devices. Of a device it knows the number that says whose windows are whose.

pub mod bell;
pub mod directory;
pub mod error;
pub mod prefetch;
pub mod shared;
#[cfg(test)]
mod testing;
pub mod window_files;
pub mod windows;

pub use bell::{Bell, BellFile};
pub use directory::{make_directory, own_directory};
pub use error::MemoryError;
pub use prefetch::{prefetch, prefetch_at};
pub use shared::{BootId, Revoked, SharedMemory, Stamp};
pub use window_files::{
    Fallback, Others, WindowFiles, WindowFilesOptions, WindowsSetAside, latest_incarnation,
    lock_windows,
};
pub use windows::{AnonymousWindows, WindowStore};
