//! Input that is sorted by key goes straight into the levels of its regions, chunk by chunk (`KV.INGEST`), as
//! long as nothing is bound in a chunk's range. A chunk that is refused is written as any other.
//!
//! Chunks of sorted input have no key in common, so it does not matter which of them is applied first. But for lines of
//! one hash, sorted set or set: a chunk that has such a line is divided by key as unsorted ones are, so that all lines
//! of the key go over one connection.

use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::limits::BATCH_BYTES_MAX;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, RespClient};
use parking_lot::Mutex;

use super::format::ParsedLine;

/// Most bytes of key and value of a pair that is bulk-loaded.
const PAIR_BYTES_MAX: usize = 32 << 10;
/// Refusals, one behind the other, after which nothing is bulk-loaded any more.
const REFUSALS_MAX: u64 = 8;

/// Whether the keys of the input have risen so far.
#[derive(Debug)]
pub(super) struct Order {
    last: Option<Vec<u8>>,
    /// Whether the last line had a part of a key, so that the next one may have another part of it.
    in_parts: bool,
    rises: bool,
}

impl Order {
    /// Nothing has been read. `wanted`: somebody is interested in it.
    pub(super) const fn new(wanted: bool) -> Self {
        Self {
            last: None,
            in_parts: false,
            rises: wanted,
        }
    }

    /// Whether keys have risen so far.
    pub(super) const fn rises(&self) -> bool {
        self.rises
    }

    /// Takes the next records. Returns whether they can be bulk-loaded together.
    pub(super) fn takes(&mut self, records: &[ParsedLine]) -> bool {
        if !self.rises || records.is_empty() {
            return false;
        }
        let (mut last, mut in_parts) = (self.last.as_deref(), self.in_parts);
        for record in records {
            let key = record.key.as_slice();
            let is_part = record.part().is_some();
            let goes_on = in_parts && is_part && last == Some(key);
            if last.is_some_and(|last| last >= key) && !goes_on {
                self.rises = false;
                return false;
            }
            (last, in_parts) = (Some(key), is_part);
        }
        (self.last, self.in_parts) = (last.map(<[u8]>::to_vec), in_parts);
        let bytes = |record: &ParsedLine| record.key.len() + record.value().map_or(0, <[u8]>::len);
        let fits = |record: &ParsedLine| {
            record.value().is_some() && record.expires.is_none() && bytes(record) <= PAIR_BYTES_MAX
        };
        records.iter().all(fits) && records.iter().map(bytes).sum::<usize>() <= BATCH_BYTES_MAX
    }
}

/// What became of the chunks that were to be bulk-loaded.
#[derive(Debug, Default)]
pub(super) struct BulkLoaded {
    pairs: AtomicU64,
    refusals: AtomicU64,
    /// What the first refusal was for.
    why: Mutex<Option<String>>,
}

impl BulkLoaded {
    /// Pairs that were bulk-loaded.
    pub(super) fn pairs(&self) -> u64 {
        self.pairs.load(Ordering::Relaxed)
    }

    /// Whether it makes sense to try.
    pub(super) fn goes_on(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) < REFUSALS_MAX
    }

    fn refused(&self, why: &str) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let mut first = self.why.lock();
        first.get_or_insert_with(|| why.to_owned());
    }

    /// Why a chunk was refused, once.
    pub(super) fn take_refusal(&self) -> Option<String> {
        let mut why = self.why.lock();
        match why.as_deref() {
            None | Some("") => None,
            Some(_) => why.replace(String::new()),
        }
    }

    /// Has `chunks` bulk-loaded, one request for each, all at the same time. Tells of each whether it was; one that
    /// was not, or of which that is not known, has to be written.
    pub(super) fn bulk_load(&self, client: &mut RespClient, chunks: &[&[ParsedLine]]) -> Vec<bool> {
        let words = |records: &&[ParsedLine]| {
            let pair = |record: &ParsedLine| {
                let value = record.value().unwrap_or_default();
                [record.key.clone(), value.to_vec()]
            };
            let mut words = vec![b"KV.INGEST".to_vec()];
            words.extend(records.iter().flat_map(pair));
            words
        };
        let commands: Vec<Vec<Vec<u8>>> = chunks.iter().map(words).collect();
        let commands: Vec<Vec<&[u8]>> = commands
            .iter()
            .map(|words| words.iter().map(Vec::as_slice).collect())
            .collect();
        let replies = match client.replies(&commands) {
            Ok(replies) => replies,
            Err(error) => {
                self.refused(&error.to_string());
                return vec![false; chunks.len()];
            }
        };
        let told = replies.iter().zip(chunks).map(|(reply, records)| {
            let refusal = match reply {
                Reply::Simple(_) => {
                    let pairs = records.len() as u64;
                    self.pairs.fetch_add(pairs, Ordering::Relaxed);
                    self.refusals.store(0, Ordering::Relaxed);
                    return true;
                }
                Reply::Error(line) => ClientError::of_error(line).to_string(),
                odd => format!("the answer is {odd:?}"),
            };
            self.refused(&refusal);
            false
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{Format, LineContent, parse};
    use super::*;

    fn record(key: &str, bytes: usize) -> ParsedLine {
        ParsedLine {
            key: key.into(),
            content: LineContent::Value(vec![0; bytes]),
            expires: None,
        }
    }

    #[test]
    fn order_is_lost_for_good_and_what_cannot_be_bulk_loaded_keeps_it() {
        let mut order = Order::new(true);
        assert!(order.takes(&[record("a", 1), record("b", 1)]));
        let deletes = ParsedLine {
            content: LineContent::Delete,
            ..record("c", 0)
        };
        assert!(!order.takes(&[deletes]) && order.rises());
        assert!(!order.takes(&[record("d", 40_000)]) && order.rises());
        let expires = ParsedLine {
            expires: Some(7),
            ..record("e", 1)
        };
        assert!(!order.takes(&[expires]) && order.rises());
        assert!(order.takes(&[record("f", 1)]));
        // Lines of one key, which all go over one connection.
        let part = |number: u32| {
            let line = format!(r#"{{"key":"g","type":"set","elements":["m"],"part":{number}}}"#);
            parse(Format::Jsonl, line.as_bytes()).unwrap()
        };
        assert!(!order.takes(&[part(1), part(2)]) && order.rises());
        assert!(!order.takes(&[part(3), record("h", 1)]) && order.rises());
        assert!(order.takes(&[record("i", 1)]));
        assert!(!order.takes(&[record("i", 1)]) && !order.rises());
        assert!(!order.takes(&[record("j", 1)]));
        let mut order = Order::new(true);
        assert!(!order.takes(&[record("g", 1), part(2)]) && !order.rises());
        assert!(!Order::new(false).takes(&[record("a", 1)]));
    }
}
