//! Pairs that make copies large: each is written once, and what was acknowledged has to be there in the end.
//!
//! Without them a copy would be so small that nobody could tell the difference from all of it.

use std::net::SocketAddr;
use std::ops::Range;

use argosy_base::{Clock as _, Instant};
use argosy_bench::rng::mix;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, RespClient};
use argosy_device::SystemClock;
use parking_lot::Mutex;

use crate::error::TrialError;
use crate::faults::AGAIN;
use crate::keys::spread;
use crate::time::End;

/// Pairs that are sent together.
const TOGETHER: u32 = 64;

/// Bytes of a value.
const VALUE_BYTES: usize = 400;

/// The pairs. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Filler {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u32,
    acknowledged: Vec<Range<u32>>,
}

/// The name of a pair.
fn key(n: u32) -> Vec<u8> {
    spread("fill", n.into())
}

/// Its value.
fn value(n: u32) -> Vec<u8> {
    let mut value = format!("{n}:{:016x}:", mix(n.into())).into_bytes();
    value.resize(VALUE_BYTES, b'#');
    value
}

impl Filler {
    /// Writes so many more bytes, through the server at `addr`, until there is an error.
    ///
    /// # Errors
    /// What the server, or nobody, has answered. What was acknowledged before counts.
    pub(crate) fn write(&self, addr: SocketAddr, bytes: usize) -> Result<(), TrialError> {
        let failed =
            |error: ClientError| TrialError::Cluster(format!("pairs were not written: {error}"));
        let mut client = RespClient::connect(addr).map_err(failed)?;
        let mut left = bytes;
        while left > 0 {
            let from = {
                let mut state = self.state.lock();
                let from = state.next;
                state.next += TOGETHER;
                from
            };
            let pairs: Vec<_> = (from..from + TOGETHER)
                .map(|n| (key(n), value(n)))
                .collect();
            let commands: Vec<Vec<&[u8]>> = pairs
                .iter()
                .map(|(key, value)| vec![b"SET".as_slice(), key, value])
                .collect();
            client.commands(&commands).map_err(failed)?;
            let mut state = self.state.lock();
            state.acknowledged.push(from..from + TOGETHER);
            left = left.saturating_sub(pairs.len() * VALUE_BYTES);
        }
        Ok(())
    }

    /// How many pairs were acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        let state = self.state.lock();
        let counts = state.acknowledged.iter().map(|range| range.len());
        u64::try_from(counts.sum::<usize>()).expect("a count")
    }

    /// Reads all that was acknowledged, through the server at `addr`, and tells how many are not what was written.
    ///
    /// # Errors
    /// The server does not answer until `latest`.
    pub(crate) fn lost(&self, addr: SocketAddr, latest: Instant) -> Result<u64, TrialError> {
        let ranges = self.state.lock().acknowledged.clone();
        let end = End::default();
        let mut lost = 0;
        for range in ranges {
            loop {
                match read(addr, range.clone()) {
                    Ok(wrong) => {
                        lost += wrong;
                        break;
                    }
                    Err(error) if SystemClock.now() >= latest => {
                        return Err(TrialError::Cluster(format!(
                            "pairs could not be read in the end: {error}"
                        )));
                    }
                    Err(_) => _ = end.wait_until(SystemClock.now() + AGAIN),
                }
            }
        }
        Ok(lost)
    }
}

/// How many pairs of `range` are not what was written.
fn read(addr: SocketAddr, range: Range<u32>) -> Result<u64, ClientError> {
    let keys: Vec<_> = range.clone().map(key).collect();
    let commands: Vec<Vec<&[u8]>> = keys
        .iter()
        .map(|key| vec![b"GET".as_slice(), key])
        .collect();
    let replies = RespClient::connect(addr)?.commands(&commands)?;
    let wrong = range.zip(replies).filter(|(n, reply)| !is_there(*n, reply));
    Ok(u64::try_from(wrong.count()).expect("a count"))
}

fn is_there(n: u32, reply: &Reply) -> bool {
    matches!(reply, Reply::Bulk(Some(found)) if *found == value(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_not_there_or_another_one_counts() {
        assert!(is_there(7, &Reply::Bulk(Some(value(7)))));
        assert!(!is_there(7, &Reply::Bulk(Some(value(8)))));
        assert!(!is_there(7, &Reply::Bulk(None)));
        assert_ne!(key(7), key(8));
        assert_eq!(value(7).len(), VALUE_BYTES);
    }
}
