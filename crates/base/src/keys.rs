//! A list of keys in one piece of memory, and what a read of them returns.

use alloc::vec::Vec;

/// What a read of several keys returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Values, in the order of the keys. The first value is returned whatever its length; the last is the one that
    /// reaches so many bytes in all.
    Values(usize),
    /// Whether each key is bound. Values are not read; an empty value stands for each.
    Presence,
}

/// A list of keys. Takes no memory of its own for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<u32>,
}

impl KeyList {
    /// Most keys of one request: a service answers at most for so many of them.
    pub const KEYS_MAX: usize = 1024;
    /// Bytes of keys from which on it answers for no more.
    pub const BYTES_MAX: usize = 256 << 10;

    /// These keys.
    #[must_use]
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        let mut list = Self::default();
        keys.into_iter().for_each(|key| list.push(key));
        list
    }

    /// Appends a key.
    ///
    /// # Panics
    /// When the keys have over 4 GiB: a request is bounded long before.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.expect("requests are bounded"));
    }

    /// Removes all keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// How many keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory that the keys take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<u32>()
    }

    /// The key at `index`.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn at(&self, index: usize) -> &[u8] {
        let from = match index {
            0 => 0,
            _ => self.ends[index - 1] as usize,
        };
        &self.bytes[from..self.ends[index] as usize]
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.at(index))
    }

    /// How many keys from `from` on go in one request, of which there is at least one.
    #[must_use]
    pub fn page(&self, from: usize) -> usize {
        let mut bytes = 0;
        let left = (from..self.len()).take(Self::KEYS_MAX);
        let fits = left.take_while(|index| {
            let before = bytes;
            bytes += self.at(*index).len();
            before < Self::BYTES_MAX
        });
        fits.count()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn keys_come_back_in_pages_that_are_bounded() {
        let mut list = KeyList::of([&b"a"[..], b"", b"ccc"]);
        let keys: Vec<&[u8]> = list.iter().collect();
        assert_eq!(keys, [&b"a"[..], b"", b"ccc"]);
        assert_eq!((list.page(0), list.page(2), list.page(3)), (3, 1, 0));
        list.clear();
        for _ in 0..2 * KeyList::KEYS_MAX {
            list.push(&[b'k'; 200]);
        }
        assert_eq!(list.page(7), KeyList::KEYS_MAX);
        list.clear();
        for _ in 0..10 {
            list.push(&vec![b'k'; KeyList::BYTES_MAX / 2]);
        }
        assert_eq!(list.page(1), 2);
    }
}
