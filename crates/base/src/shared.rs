//! Memory that another process writes meanwhile, as protocols in it see it.

/// Memory that several processes have mapped. Ranges are inside it, or the implementation panics.
pub trait Shared {
    /// The aligned word at `at`, in one load (acquire).
    fn load(&self, at: usize) -> u64;

    /// Stores the aligned word at `at` whole, and after everything written before (release).
    fn store(&self, at: usize, word: u64);

    /// Copies the bytes at `at` to `out`. They may change meanwhile.
    fn read(&self, at: usize, out: &mut [u8]);

    /// Copies `bytes` to `at`.
    fn write(&self, at: usize, bytes: &[u8]);

    /// Zeroes `len` bytes at `at`, before anything that this thread does later: a reader that comes after this
    /// thread's death and sees a later write sees the zeros, too.
    fn zero(&self, at: usize, len: usize);
}
