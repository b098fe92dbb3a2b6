//! Tests of the superblock: see [`super`].

use super::*;
use crate::rng::Rng;

fn superblock() -> Superblock {
    Superblock {
        generation: 3,
        incarnation: Incarnation(2),
        device_id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        cluster_id: 8,
        server: ServerId(1),
        segments: 64,
        compat: 1 << 63,
        created_by: "argosy 0.1.0".to_owned(),
    }
}

/// Changes the encoded superblock and makes its checksum right again.
fn changed(change: impl Fn(&mut [u8])) -> Result<Superblock, Rejected> {
    let mut bytes = superblock().encode(0);
    change(&mut bytes);
    let sum = checksum(0, &bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    Superblock::decode(0, &bytes)
}

#[test]
fn a_superblock_returns() {
    for copy in 0..2 {
        let bytes = superblock().encode(copy);
        assert_eq!(Superblock::decode(copy, &bytes), Ok(superblock()));
        assert_eq!(
            bytes[SUPERBLOCK_BYTES..],
            [0; BLOCK_SIZE - SUPERBLOCK_BYTES]
        );
        let misplaced = Superblock::decode(1 - copy, &bytes);
        assert!(
            matches!(misplaced, Err(Rejected::Damaged(_))),
            "it belongs elsewhere"
        );
    }
    let name = "n".repeat(CREATED_BY_BYTES_MAX);
    let long = Superblock {
        created_by: name.clone(),
        ..superblock()
    };
    assert_eq!(
        Superblock::decode(0, &long.encode(0)).unwrap().created_by,
        name
    );
}

/// The bytes are stored: a change would make every existing device unreadable.
#[test]
fn the_layout_never_changes() {
    let bytes = superblock().encode(0);
    assert_eq!(&bytes[..12], b"ARGOSYSB\x01\0\0\0");
    assert_eq!(bytes[16], 3);
    assert_eq!(bytes[24], 2);
    assert_eq!((bytes[32], bytes[47]), (0x77, 0x01));
    assert_eq!((bytes[48], bytes[64], bytes[68]), (8, 1, 64));
    assert_eq!(bytes[72..80], [0, 0, 0x20, 0, 0, 0x10, 0, 0]);
    assert_eq!(&bytes[104..117], b"argosy 0.1.0\0");
}

#[test]
fn every_flipped_bit_is_found() {
    let good = superblock().encode(0);
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut bytes = good.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(0, &bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn an_empty_or_cut_block_is_no_superblock() {
    assert_eq!(
        Superblock::decode(0, &[0; BLOCK_SIZE]),
        Err(Rejected::Absent)
    );
    let good = superblock().encode(0);
    for len in 0..SUPERBLOCK_BYTES {
        assert!(Superblock::decode(0, &good[..len]).is_err());
    }
}

#[test]
fn what_a_later_version_wrote_is_refused_by_name() {
    for (at, word) in [
        (8, "format 2.0"),
        (88, "features"),
        (96, "features"),
        (74, "segments of"),
    ] {
        let refused = changed(|bytes| bytes[at] += 1);
        match refused {
            Err(Rejected::Unknown(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(
        changed(|bytes| bytes[10] = 9).is_ok(),
        "a later minor version is understood"
    );
    assert!(
        changed(|bytes| bytes[80] = 1).is_ok(),
        "compatible features are ignored"
    );
    assert!(
        changed(|bytes| bytes[68] = 1).is_err(),
        "one segment is too few"
    );
}

#[test]
fn random_bytes_are_refused() {
    let mut rng = Rng::new(1);
    for round in 0..20_000 {
        let len = rng.below(SUPERBLOCK_BYTES + 10);
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.next().to_le_bytes()[0]).collect();
        if round % 2 == 0 && len >= 16 {
            bytes[..8].copy_from_slice(MAGIC);
        }
        assert!(Superblock::decode(0, &bytes).is_err());
    }
}

#[test]
fn random_fields_under_a_right_checksum_do_not_panic() {
    let mut rng = Rng::new(2);
    for _ in 0..20_000 {
        let at = 8 + rng.below(SUPERBLOCK_BYTES - 8);
        let byte = rng.next().to_le_bytes()[0];
        let _ = changed(|bytes| bytes[at] = byte);
    }
}
