//! Buffers that the sessions of one thread take in turn. A session has one for input and one for
//! output only while it has bytes in them, so an idle connection holds none, and the few that are in
//! use stay in the processor's cache.

/// Most buffers that are kept for use. More than are in use at a time in most rounds.
const BUFFERS_MAX: usize = 512;
/// Longest buffer that is kept, in bytes. Together they take at most 32 MiB a thread.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Empty buffers with memory behind them.
#[derive(Debug, Default)]
pub struct Pool {
    buffers: Vec<Vec<u8>>,
}

impl Pool {
    /// Gives `buffer` memory, if it has none and there is some.
    #[inline]
    pub(super) fn lend(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0
            && let Some(pooled) = self.buffers.pop()
        {
            *buffer = pooled;
        }
    }

    /// Takes the memory of `buffer`, which is empty.
    #[inline]
    pub(super) fn take_back(&mut self, buffer: &mut Vec<u8>) {
        assert!(buffer.is_empty(), "no bytes are thrown away");
        if buffer.capacity() > 0 {
            let buffer = std::mem::take(buffer);
            if buffer.capacity() <= BUFFER_BYTES_MAX && self.buffers.len() < BUFFERS_MAX {
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
        for _ in 0..BUFFERS_MAX + 1 {
            pool.take_back(&mut Vec::with_capacity(1));
        }
        assert_eq!(pool.buffers.len(), BUFFERS_MAX);
    }
}
