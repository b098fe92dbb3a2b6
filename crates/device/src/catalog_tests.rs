//! Tests of the catalog: see [`super`].

use super::*;
use crate::rng::Rng;

fn catalog(rng: &mut Rng, regions: usize) -> Catalog {
    let entry = |rng: &mut Rng, id: usize| RegionEntry {
        region: RegionId(u32::try_from(id * 3).unwrap()),
        manifest: (0..rng.below(5))
            .map(|_| DeviceSegment(u32::try_from(1 + rng.below(100)).unwrap()))
            .collect(),
        words: [rng.next(), rng.next()],
    };
    let regions = (0..regions)
        .map(|id| entry(rng, id))
        .map(|e| (e.region, e))
        .collect();
    Catalog {
        generation: rng.next() >> 1,
        regions,
    }
}

/// Makes the checksum right again.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(len) = Catalog::length(&bytes).filter(|len| *len <= bytes.len()) {
        let sum = checksum(0, &bytes[..len]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

#[test]
fn a_catalog_returns() {
    let mut rng = Rng::new(1);
    for regions in [0, 1, 2, 30, 1000] {
        let catalog = catalog(&mut rng, regions);
        for slot in 0..2 {
            let mut bytes = catalog.encode(slot);
            assert_eq!(bytes.len(), encoded_len(catalog.regions.values()));
            assert_eq!(
                Catalog::decode(1 - slot, &bytes),
                Err(Rejected::Damaged("the checksum of a catalog is wrong"))
            );
            // Whatever follows in the slot does not matter.
            bytes.extend([0xa5; 100]);
            assert_eq!(Catalog::decode(slot, &bytes).as_ref(), Ok(&catalog));
        }
    }
}

/// The bytes are stored: a change would make every existing device unreadable.
#[test]
fn the_layout_never_changes() {
    let entry = RegionEntry {
        region: RegionId(7),
        manifest: vec![DeviceSegment(9), DeviceSegment(10)],
        words: [11, 12],
    };
    let catalog = Catalog {
        generation: 5,
        regions: [(entry.region, entry)].into(),
    };
    let bytes = catalog.encode(0);
    assert_eq!(&bytes[..12], b"ARGOSYCT\x01\0\0\0");
    assert_eq!((bytes[16], bytes[24], bytes[28]), (5, 64, 1));
    assert_eq!((bytes[32], bytes[36], bytes[44], bytes[52]), (7, 11, 12, 2));
    assert_eq!((bytes[56], bytes[60], bytes.len()), (9, 10, 64));
    assert_eq!(SLOTS_AT, [131_072, 1_114_112]);
}

#[test]
fn damage_anywhere_is_found() {
    let good = catalog(&mut Rng::new(1), 3).encode(0);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Catalog::decode(0, &bytes).is_err(), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(Catalog::decode(0, &good[..len]).is_err(), "cut at {len}");
    }
    assert_eq!(Catalog::decode(0, &[0; 4096]), Err(Rejected::Absent));
}

#[test]
fn a_later_version_is_refused_by_name() {
    let mut bytes = catalog(&mut Rng::new(1), 3).encode(0);
    bytes[8] = 2;
    match Catalog::decode(0, &sealed(bytes)) {
        Err(Rejected::Unknown(why)) => assert!(why.contains("version 2"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn regions_out_of_order_are_refused() {
    let mut bytes = catalog(&mut Rng::new(1), 0).encode(0);
    bytes[28] = 2;
    bytes[24] = 32 + 48;
    for id in [5u8, 5] {
        let mut region = [0; 24];
        region[0] = id;
        bytes.extend(region);
    }
    assert_eq!(
        Catalog::decode(0, &sealed(bytes)),
        Err(Rejected::Damaged("a catalog is out of order"))
    );
}

/// Neither random bytes nor lying lengths and counts under a right checksum make the decoder
/// panic; what it accepts, it can write.
#[test]
fn random_bytes_do_not_panic() {
    let mut rng = Rng::new(3);
    let mut accepted = 0;
    for round in 0..30_000 {
        let mut bytes = catalog(&mut rng, 3).encode(0);
        if round % 3 == 0 {
            for byte in &mut bytes[8..] {
                *byte = rng.next().to_le_bytes()[0];
            }
            let length = 20 + rng.below(bytes.len());
            bytes[24..28].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            bytes[8..12].copy_from_slice(&[1, 0, 0, 0]);
        } else {
            let at = 8 + rng.below(bytes.len() - 8);
            bytes[at] = rng.next().to_le_bytes()[0];
        }
        if let Ok(catalog) = Catalog::decode(0, &sealed(bytes)) {
            accepted += 1;
            assert_eq!(Catalog::decode(0, &catalog.encode(0)), Ok(catalog));
        }
    }
    assert!(
        accepted > 1000,
        "the test reaches behind the checksum: {accepted}"
    );
}
