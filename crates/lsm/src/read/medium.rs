//! Reads values of medium segments through the cache: by themselves, or by pages where a reader goes through them in
//! order.

use std::ops::Range;

use argosy_base::Pointer;
use argosy_device::Buffer;

use super::nodes::missed;
use crate::cache::{CacheKey, Lookup, NodeCache};
use crate::level::ReadAt;
use crate::level::medium::{PAGE_BYTES, pages, record_len, value_in};
use crate::names::{LevelError, SegmentName};

/// A value in a medium segment.
#[derive(Clone, Copy, Debug)]
pub struct MediumRef<'k> {
    /// The segment.
    pub name: SegmentName,
    /// Bytes of the segment that are in use.
    pub segment_len: u32,
    /// Where in it the value's record begins.
    pub at: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// The key that it belongs to.
    pub key: &'k [u8],
}

impl MediumRef<'_> {
    /// The pages in which the record lies; `None` where it would end behind the segment.
    fn pages(&self) -> Option<Range<u32>> {
        pages(self.at, self.value_len, self.segment_len)
    }

    /// The key in the cache of the value.
    const fn value_key(&self) -> CacheKey {
        CacheKey::Value {
            region: self.name.region,
            at: Pointer::new(self.name.number, self.at),
        }
    }

    /// The record's place in what was read from byte `from` of the segment on.
    const fn record(&self, from: u32) -> Range<usize> {
        let skip = (self.at - from) as usize;
        skip..skip + record_len(self.value_len as usize)
    }

    /// The value, out of `source`, which is read where `cache` has neither the value nor its page; then it is kept
    /// there.
    ///
    /// # Errors
    /// [`LevelError::Corrupt`] where the value is not there; those of `source`.
    pub fn read(
        &self,
        source: &(impl ReadAt + ?Sized),
        cache: Option<&NodeCache>,
    ) -> Result<Vec<u8>, LevelError> {
        match cache.and_then(|cache| self.cached(cache)) {
            Some(value) => Ok(value),
            None => self.fetch(source, cache),
        }
    }

    /// The value, out of `source`, where `cache` was seen to have neither it nor its page; it is kept there.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub(crate) fn fetch(
        &self,
        source: &(impl ReadAt + ?Sized),
        cache: Option<&NodeCache>,
    ) -> Result<Vec<u8>, LevelError> {
        let beyond = "a pointer leads behind the end of a medium segment";
        let pages = self.pages();
        let pages = pages.ok_or_else(|| self.name.corrupt(self.at, beyond))?;
        missed(Lookup::Value, source, cache)?;
        let mut bytes = Buffer::for_reading(pages.len());
        source.read_at(pages.start, &mut bytes)?;
        let record = &bytes[self.record(pages.start)];
        let value = value_in(self.name, self.at, self.key, record)?;
        if let Some(cache) = cache {
            self.keep(value, &bytes, cache);
        }
        Ok(value.to_vec())
    }

    /// The value, if it or its page is in `cache`.
    pub(crate) fn cached(&self, cache: &NodeCache) -> Option<Vec<u8>> {
        let pages = self.pages()?;
        if let Some(value) = cache.value(self.value_key()) {
            return Some(value.to_vec());
        }
        let page = cache.value(page_key(self.name, &pages)?)?;
        let record = page.get(self.record(pages.start))?;
        let value = value_in(self.name, self.at, self.key, record);
        value.ok().map(<[u8]>::to_vec)
    }

    /// Keeps `value`, for which `bytes`, its pages, were read. The page itself is kept where `cache` has room to spare,
    /// and where it was read a moment ago, too: then a reader goes through its values in order. Otherwise its other
    /// values belong to unrelated keys, and would only take its room.
    pub(crate) fn keep(&self, value: &[u8], bytes: &[u8], cache: &NodeCache) {
        let page = self.pages().and_then(|pages| page_key(self.name, &pages));
        match page {
            Some(key) if cache.has_room(bytes.len()) || cache.is_read_again(key) => {
                cache.keep_page(key, bytes.into());
            }
            _ => cache.keep_value(self.value_key(), value.into()),
        }
    }
}

/// The key of a page in the cache; `None` for more than one.
pub(crate) fn page_key(name: SegmentName, pages: &Range<u32>) -> Option<CacheKey> {
    (pages.end - pages.start <= PAGE_BYTES).then(|| CacheKey::page(name, pages.start))
}
