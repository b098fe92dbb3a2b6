//! How numbers and byte strings become bytes and are read back: little-endian fixed widths, and
//! LEB128 variable-length integers (7 bits a byte, lowest first, at most 10 bytes).
//!
//! A [`Reader`] never panics and never reads past its end, whatever it is given.

use alloc::vec::Vec;

/// Bytes that were to be decoded do not hold what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: malformed at byte {at} of {len}")]
pub struct Malformed {
    /// What was being read.
    pub what: &'static str,
    /// Where the reader stood, in bytes from its start.
    pub at: usize,
    /// How many bytes the reader was given.
    pub len: usize,
}

/// Reads numbers and strings from the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; errors name `what`.
    #[must_use]
    pub const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    /// How many bytes have been read.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// What has not been read yet.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// An error at the present position, for a caller that finds a value out of its bounds.
    #[must_use]
    pub const fn malformed(&self) -> Malformed {
        Malformed {
            what: self.what,
            at: self.at,
            len: self.bytes.len(),
        }
    }

    /// The next `len` bytes as they are.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        match self.rest().get(..len) {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => Err(self.malformed()),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// The next 2 bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next 4 bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next 8 bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next variable-length integer. Longer than needed, or over 64 bits, is malformed.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return Err(self.malformed());
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                let canonical = byte != 0 || shift == 0;
                return if canonical {
                    Ok(value)
                } else {
                    Err(self.malformed())
                };
            }
        }
        Err(self.malformed())
    }

    /// The next variable-length integer, as a length of at most `max`.
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize, Malformed> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(self.malformed()),
        }
    }

    /// A byte string: its length as a variable-length integer, at most `max`, then its bytes.
    #[inline]
    pub fn string(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let length = self.length(max)?;
        self.take(length)
    }

    /// Fails unless everything has been read.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.rest().is_empty() {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }
}

/// Appends `value` as a variable-length integer.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Bytes that [`put_varint`] appends for `value`.
#[inline]
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `bytes` as a byte string: length, then bytes.
#[inline]
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn varints_return_at_every_width() {
        for value in (0..64)
            .flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1])
            .chain([u64::MAX])
        {
            let mut bytes = vec![];
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_len(value), "{value}");
            let mut reader = Reader::new("test", &bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn what_is_cut_long_or_padded_is_malformed() {
        for bytes in [
            &[0x80u8][..],
            &[0x80, 0],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Reader::new("test", bytes).varint().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_lying_length_is_malformed() {
        assert!(Reader::new("test", &[200, 1, 7]).string(1000).is_err());
        assert!(Reader::new("test", &[3, 7, 7, 7]).string(2).is_err());
        assert_eq!(Reader::new("test", &[1, 7]).string(2), Ok(&[7u8][..]));
    }
}
