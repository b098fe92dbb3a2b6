//! What the tests of peers share.

/// A value, kept.
pub(crate) fn owned(found: Option<&[u8]>) -> Option<Vec<u8>> {
    found.map(<[u8]>::to_vec)
}
