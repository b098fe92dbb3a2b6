//! What every client can do. Keys and values are bytes, of any value; keys are ordered as bytes.

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange};

use crate::error::ClientError;

/// One operation of a batch: a key, and the value to bind it to; `None` deletes.
pub type Write<'a> = (&'a [u8], Option<&'a [u8]>);

/// When a put is to be done at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOnly {
    /// Where the key is not bound.
    IfAbsent,
    /// Where the key is bound.
    IfPresent,
}

/// What is left to read of a scan: a range, and from which end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The keys.
    pub range: KeyRange,
    /// From the highest key down.
    pub reverse: bool,
}

impl Span {
    /// Every key, in order.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// The keys of `range`, in order.
    #[must_use]
    pub const fn of(range: KeyRange) -> Self {
        Self {
            range,
            reverse: false,
        }
    }

    /// The keys that begin with `prefix`, in order.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let last = prefix.iter().rposition(|&byte| byte != 0xff);
        let to = last.map(|last| {
            let mut to = prefix[..=last].to_vec();
            to[last] += 1;
            to
        });
        Self::of(KeyRange::new(prefix, to))
    }

    /// The same keys from the highest down.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.reverse = !self.reverse;
        self
    }

    pub(crate) const fn direction(&self) -> Direction {
        if self.reverse {
            Direction::Down
        } else {
            Direction::Up
        }
    }

    /// What is left behind the pair of `key`; `None` where nothing can be.
    #[must_use]
    pub fn behind(&self, key: &[u8]) -> Option<Self> {
        let mut rest = self.clone();
        let next = match self.direction() {
            Direction::Up => successor(key),
            Direction::Down => key.to_vec(),
        };
        rest.range.go_on_at(self.direction(), next);
        (!rest.range.is_empty()).then_some(rest)
    }
}

/// Keys and what they are bound to.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Some pairs of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The pairs, in the order that was asked for.
    pub pairs: Pairs,
    /// What has not been read yet; `None` at the end.
    pub rest: Option<Span>,
}

/// A client of a cluster, whatever protocol it speaks. Every method waits for the answer.
pub trait Kv: Send {
    /// What `key` is bound to.
    ///
    /// # Errors
    /// See [`ClientError`]; so for all methods.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError>;

    /// What each of `keys` is bound to. Each is read by itself.
    fn multi_get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError>;

    /// Binds `key` to `value`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError>;

    /// Binds `key` to `value` on a condition. Returns whether it held.
    fn put_only(&mut self, only: PutOnly, key: &[u8], value: &[u8]) -> Result<bool, ClientError>;

    /// Removes `key`. Returns whether it was bound.
    fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError>;

    /// Does all of `writes`, of which there may be any number; of two of one key the later counts.
    /// In as few requests as the limits allow: not atomic as a whole. Where one fails, later ones
    /// are not tried, and unless nothing was applied the outcome is unknown.
    fn write_many(&mut self, writes: &[Write<'_>]) -> Result<(), ClientError>;

    /// The next pairs of `span`, at most `pairs_max`, which is not zero. A page may hold fewer, or
    /// none, before the end: go on with what is left until nothing is. Each page is one moment of
    /// each region that it reaches into.
    fn page(&mut self, span: &Span, pairs_max: usize) -> Result<Page, ClientError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_in_front_of_what_comes_next() {
        let to = |prefix: &[u8]| Span::prefix(prefix).range.to;
        assert_eq!(to(b"a"), Some(b"b".to_vec()));
        assert_eq!(to(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(to(b"\xff"), None);
        assert_eq!(to(b""), None);
    }

    #[test]
    fn what_is_behind_a_key_excludes_it() {
        let span = Span::of(KeyRange::new("a", Some(b"c".to_vec())));
        let rest = span.behind(b"b").unwrap();
        assert_eq!(rest.range, KeyRange::new("b\0", Some(b"c".to_vec())));
        let down = span.reversed();
        let rest = down.behind(b"b").unwrap();
        assert_eq!(rest.range, KeyRange::new("a", Some(b"b".to_vec())));
        assert!(rest.reverse);
        assert_eq!(down.behind(b"a"), None);
    }
}
