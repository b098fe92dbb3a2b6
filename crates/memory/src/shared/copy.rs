//! Copies between private memory and memory that other threads and processes write meanwhile.
//!
//! In Rust, a plain copy of bytes that somebody else writes at the same time is undefined, whatever is checked in the
//! copy afterwards. Relaxed atomic words would be defined, and are two to four times as slow from 256 bytes on. So the
//! system's `memcpy`, which is no Rust, is called through a pointer of which the compiler does not know where it
//! leads: it takes the call for one of any code, and concludes nothing from it. What such a copy takes of a byte is
//! what somebody has written there; of several bytes it may be half of one write and half of another.
//!
//! Miri runs no such code, and ThreadSanitizer reports it (`make races`): both are given relaxed atomic words. All that
//! is not a copy is then checked as it is.

#[cfg(not(any(miri, atomic_words)))]
#[expect(
    clippy::pointers_in_nomem_asm_block,
    reason = "nothing is read or written through them there"
)]
mod system {
    use std::arch::asm;
    use std::ffi::c_void;

    type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
    type Fill = unsafe extern "C" fn(*mut c_void, i32, usize) -> *mut c_void;

    unsafe extern "C" {
        fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
        fn memset(to: *mut c_void, byte: i32, len: usize) -> *mut c_void;
    }

    /// `memcpy`, as far as it concerns anybody but the compiler.
    #[inline]
    fn some_copy() -> Copy {
        let mut copy: Copy = memcpy;
        // SAFETY: no instruction: the pointer stays what it is.
        unsafe {
            asm!("/* {0} */", inout(reg) copy, options(pure, nomem, nostack, preserves_flags))
        }
        copy
    }

    /// `memset`, likewise.
    #[inline]
    fn some_fill() -> Fill {
        let mut fill: Fill = memset;
        // SAFETY: no instruction: the pointer stays what it is.
        unsafe {
            asm!("/* {0} */", inout(reg) fill, options(pure, nomem, nostack, preserves_flags))
        }
        fill
    }

    /// See [`super::read`].
    #[inline]
    pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) {
        // SAFETY: `from` has `out.len()` bytes, as the caller says, and nothing else refers to `out`.
        unsafe { some_copy()(out.as_mut_ptr().cast(), from.cast(), out.len()) };
    }

    /// See [`super::write`].
    #[inline]
    pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) {
        // SAFETY: `to` has room for `bytes.len()` bytes, as the caller says.
        unsafe { some_copy()(to.cast(), bytes.as_ptr().cast(), bytes.len()) };
    }

    /// See [`super::zero`].
    #[inline]
    pub(super) unsafe fn zero(to: *mut u8, len: usize) {
        // SAFETY: `to` has room for `len` bytes, as the caller says.
        unsafe { some_fill()(to.cast(), 0, len) };
    }
}

#[cfg(any(miri, atomic_words))]
mod system {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    /// The bytes in front of the first word at `at`, at most `len`.
    fn ahead(at: *const u8, len: usize) -> usize {
        (at.addr().next_multiple_of(8) - at.addr()).min(len)
    }

    unsafe fn byte<'a>(at: *mut u8) -> &'a AtomicU8 {
        // SAFETY: the caller says that the byte is there.
        unsafe { AtomicU8::from_ptr(at) }
    }

    unsafe fn word<'a>(at: *mut u8) -> &'a AtomicU64 {
        // SAFETY: the caller says that the word is there, and aligned.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) {
        let (from, mut at) = (from.cast_mut(), 0);
        let ahead = ahead(from, out.len());
        while at < out.len() {
            let whole = at >= ahead && at + 8 <= out.len();
            if whole {
                // SAFETY: inside, and aligned since `at` is `ahead` and multiples of 8.
                let value = unsafe { word(from.wrapping_add(at)) }.load(Ordering::Relaxed);
                out[at..at + 8].copy_from_slice(&value.to_ne_bytes());
                at += 8;
            } else {
                // SAFETY: inside.
                out[at] = unsafe { byte(from.wrapping_add(at)) }.load(Ordering::Relaxed);
                at += 1;
            }
        }
    }

    pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) {
        let (ahead, mut at) = (ahead(to, bytes.len()), 0);
        while at < bytes.len() {
            let whole = at >= ahead && at + 8 <= bytes.len();
            if whole {
                let value = bytes[at..at + 8].try_into().expect("8 bytes");
                // SAFETY: as in `read`.
                let word = unsafe { word(to.wrapping_add(at)) };
                word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
                at += 8;
            } else {
                // SAFETY: inside.
                unsafe { byte(to.wrapping_add(at)) }.store(bytes[at], Ordering::Relaxed);
                at += 1;
            }
        }
    }

    pub(super) unsafe fn zero(to: *mut u8, len: usize) {
        // SAFETY: as the caller says.
        unsafe { write(to, &vec![0; len]) }
    }
}

/// Copies the bytes at `from` to `out`.
///
/// # Safety
/// `from` has `out.len()` bytes, to which no reference exists.
#[inline]
pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) {
    // SAFETY: as the caller says.
    unsafe { system::read(from, out) }
}

/// Copies `bytes` to `to`.
///
/// # Safety
/// `to` has room for them; no reference exists to what is there.
#[inline]
pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) {
    // SAFETY: as the caller says.
    unsafe { system::write(to, bytes) }
}

/// Makes `len` bytes at `to` zero.
///
/// # Safety
/// As for [`write()`].
#[inline]
pub(super) unsafe fn zero(to: *mut u8, len: usize) {
    // SAFETY: as the caller says.
    unsafe { system::zero(to, len) }
}
