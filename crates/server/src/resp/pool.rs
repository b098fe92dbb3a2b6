//! Buffers that the sessions of one thread take in turn. A session has one for input and one for
//! output only while it has bytes in them, so an idle connection holds none, and the few that are in
//! use stay in the processor's cache.

/// Most bytes of memory that are kept for use: more than is in use at a time in most rounds.
pub(super) const POOL_BYTES_MAX: usize = 4 << 20;
/// Longest buffer that is kept, in bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Empty buffers with memory behind them.
#[derive(Debug, Default)]
pub struct Pool {
    buffers: Vec<Vec<u8>>,
    /// Bytes of all of them.
    bytes: usize,
}

impl Pool {
    /// Gives `buffer` memory, if it has none and there is some.
    #[inline]
    pub(super) fn lend(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0
            && let Some(pooled) = self.buffers.pop()
        {
            self.bytes -= pooled.capacity();
            *buffer = pooled;
        }
    }

    /// Takes the memory of `buffer`, which is empty.
    #[inline]
    pub(super) fn take_back(&mut self, buffer: &mut Vec<u8>) {
        assert!(buffer.is_empty(), "no bytes are thrown away");
        if buffer.capacity() > 0 {
            let buffer = std::mem::take(buffer);
            let bytes = buffer.capacity();
            if bytes <= BUFFER_BYTES_MAX && self.bytes + bytes <= POOL_BYTES_MAX {
                self.bytes += bytes;
                self.buffers.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_within_bounds() {
        let mut pool = Pool::default();
        let mut buffer = Vec::with_capacity(100);
        pool.take_back(&mut buffer);
        assert_eq!(buffer.capacity(), 0);
        pool.lend(&mut buffer);
        assert!(buffer.capacity() >= 100);
        pool.lend(&mut buffer);
        assert!(buffer.capacity() >= 100, "it keeps what it has");

        pool.take_back(&mut Vec::with_capacity(BUFFER_BYTES_MAX + 1));
        assert!(pool.buffers.is_empty(), "too long to be kept");
        for _ in 0..POOL_BYTES_MAX / BUFFER_BYTES_MAX + 1 {
            pool.take_back(&mut Vec::with_capacity(BUFFER_BYTES_MAX));
        }
        assert_eq!(pool.bytes, POOL_BYTES_MAX);
        assert_eq!(pool.buffers.len(), POOL_BYTES_MAX / BUFFER_BYTES_MAX);
    }
}
