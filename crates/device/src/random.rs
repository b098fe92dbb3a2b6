//! Numbers that nobody has drawn before: names of stores, devices and clusters, and what versions begin with.

use std::fs::File;
use std::io::{self, Read};

/// Where they come from.
pub const SOURCE: &str = "/dev/urandom";

/// One of them.
///
/// # Errors
/// When [`SOURCE`] cannot be read.
pub fn number() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open(SOURCE)?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
