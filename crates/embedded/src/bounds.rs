//! Which keys a call is about, in whatever form a program has them.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use argosy_base::KeyRange;
use argosy_base::range::successor;

/// A range of keys: `from..to` and its like over anything that is bytes, `..` for all keys, a pair of
/// [`Bound`]s, or a [`KeyRange`].
///
/// ```
/// # fn main() -> Result<(), argosy_embedded::Error> {
/// # let path = tempfile::tempdir().unwrap();
/// # let db = argosy_embedded::Db::open(&path)?;
/// # ["a", "b", "c"].iter().try_for_each(|key| db.put(key, ""))?;
/// assert_eq!(db.range(..).count(), 3);
/// assert_eq!(db.range("b"..).count(), 2);
/// assert_eq!(db.range([b'a']..=[b'b']).count(), 2);
/// # Ok(())
/// # }
/// ```
pub trait KeyBounds {
    /// The keys.
    fn keys(self) -> KeyRange;
}

impl KeyBounds for RangeFull {
    fn keys(self) -> KeyRange {
        KeyRange::all()
    }
}

impl KeyBounds for KeyRange {
    fn keys(self) -> KeyRange {
        self
    }
}

impl KeyBounds for &KeyRange {
    fn keys(self) -> KeyRange {
        self.clone()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn keys(self) -> KeyRange {
        let from = match self.0 {
            Bound::Included(from) => from.as_ref().to_vec(),
            Bound::Excluded(from) => successor(from.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let to = match self.1 {
            Bound::Included(to) => Some(successor(to.as_ref())),
            Bound::Excluded(to) => Some(to.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        KeyRange::new(from, to)
    }
}

impl<K: AsRef<[u8]>> KeyBounds for Range<K> {
    fn keys(self) -> KeyRange {
        (Bound::Included(self.start), Bound::Excluded(self.end)).keys()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeInclusive<K> {
    fn keys(self) -> KeyRange {
        let (start, end) = self.into_inner();
        (Bound::Included(start), Bound::Included(end)).keys()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeFrom<K> {
    fn keys(self) -> KeyRange {
        (Bound::Included(self.start), Bound::Unbounded).keys()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeTo<K> {
    fn keys(self) -> KeyRange {
        (Bound::Unbounded, Bound::Excluded(self.end)).keys()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeToInclusive<K> {
    fn keys(self) -> KeyRange {
        (Bound::Unbounded, Bound::Included(self.end)).keys()
    }
}
