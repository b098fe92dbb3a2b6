//! SHA-1, by which clients name scripts. It keeps no secrets here: a text is known or it is not.
//!
//! The text is padded to blocks of 64 bytes, with a one bit behind it and its length in bits at the end. Each block
//! is mixed into five words in 80 rounds (FIPS 180-4). Numbers are big-endian.

/// A digest.
pub(super) type Digest = [u8; 20];

const BLOCK: usize = 64;
const LENGTH_BYTES: usize = 8;

/// The digest of `text`.
pub(super) fn sha1(text: &[u8]) -> Digest {
    let mut words: [u32; 5] = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    blocks.iter().for_each(|block| mix(&mut words, block));
    let mut end = [0; 2 * BLOCK];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let len = match rest.len() + 1 + LENGTH_BYTES <= BLOCK {
        true => BLOCK,
        false => 2 * BLOCK,
    };
    let bits = (text.len() as u64).wrapping_mul(8);
    put(&mut end[len - LENGTH_BYTES..len], bits, LENGTH_BYTES);
    let (blocks, _) = end[..len].as_chunks::<BLOCK>();
    blocks.iter().for_each(|block| mix(&mut words, block));
    let mut digest = [0; 20];
    for (place, word) in digest.chunks_mut(4).zip(words) {
        put(place, word.into(), 4);
    }
    digest
}

/// Puts the lowest `bytes` bytes of a number, the highest first.
fn put(place: &mut [u8], number: u64, bytes: usize) {
    for (at, byte) in place.iter_mut().enumerate().take(bytes) {
        let shifted = number >> (8 * (bytes - 1 - at));
        *byte = u8::try_from(shifted & 0xff).expect("it is masked");
    }
}

fn mix(words: &mut [u32; 5], block: &[u8; BLOCK]) {
    let mut schedule = [0u32; 80];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks(4)) {
        *word = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..80 {
        let mixed = schedule[at - 3] ^ schedule[at - 8] ^ schedule[at - 14] ^ schedule[at - 16];
        schedule[at] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *words;
    for (at, word) in schedule.iter().enumerate() {
        let (f, k) = match at {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(f)
            .wrapping_add(e)
            .wrapping_add(k)
            .wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, mixed) in words.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(mixed);
    }
}

/// The digest as clients write it, if that is one.
pub(super) fn parse(text: &[u8]) -> Option<Digest> {
    let (pairs, rest) = text.as_chunks::<2>();
    let mut digest = [0; 20];
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(value(*high)? << 4 | value(*low)?).ok()?;
    }
    Some(digest)
}

/// The same, written.
pub(super) fn text_of(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        for (text, digest) in [
            (String::new(), "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc".to_owned(), "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".to_owned(),
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            (
                "a".repeat(1_000_000),
                "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
            ),
        ] {
            let made = sha1(text.as_bytes());
            assert_eq!(text_of(&made), digest);
            assert_eq!(parse(digest.to_uppercase().as_bytes()), Some(made));
        }
        for none in [&b""[..], b"da39", &[b'g'; 40], &[b'a'; 41]] {
            assert_eq!(parse(none), None);
        }
    }

    #[test]
    fn every_length_around_a_block_is_padded() {
        let all: std::collections::BTreeSet<Digest> =
            (0..200).map(|len| sha1(&vec![b'x'; len])).collect();
        assert_eq!(all.len(), 200);
    }
}
