//! The bytes of the redo log: see [`super`].

use super::*;

fn full() -> JobLog {
    let region = |epoch, stage| JobRegion {
        epoch: Epoch(epoch),
        stage,
    };
    let job = RedoJob {
        id: JobId(3),
        kind: JobKind::Fill,
        state: JobState::Acting,
        server: ServerId(2),
        actor: Some(SessionId(9)),
        attempts: 2,
        regions: BTreeMap::from([
            (RegionId(1), region(5, RegionStage::Done)),
            (RegionId(300), region(300, RegionStage::Open)),
        ]),
        remark: "ü".to_owned(),
    };
    let order = RedoJob {
        id: JobId(7),
        kind: JobKind::Recover,
        state: JobState::Failed,
        actor: None,
        regions: BTreeMap::new(),
        remark: String::new(),
        ..job.clone()
    };
    JobLog::of(8, BTreeMap::from([(job.id, job), (order.id, order)])).unwrap()
}

#[test]
fn the_bytes_are_those_of_the_header() {
    let bytes = full().encode();
    let body = [
        &8_u64.to_le_bytes()[..],
        &[2],
        &3_u64.to_le_bytes(),
        &[3, 2],
        &2_u32.to_le_bytes(),
        &9_u64.to_le_bytes(),
        &2_u32.to_le_bytes(),
        &[2],
        &[1, 5, 2],
        &[0xab, 2, 0xac, 2, 1],
        &[2, 0xc3, 0xbc],
        &7_u64.to_le_bytes(),
        &[4, 4],
        &2_u32.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &2_u32.to_le_bytes(),
        &[0, 0],
    ];
    let body = body.concat();
    assert_eq!(&bytes[..12], b"argosyjb\x01\0\0\0");
    assert_eq!(bytes[12..16], IDENTITY.checksum(&body).to_le_bytes());
    assert_eq!(bytes[16..], body);
}

#[test]
fn what_is_encoded_is_decoded() {
    for log in [JobLog::default(), full()] {
        assert_eq!(JobLog::decode(&log.encode()), Ok(log));
    }
    assert_eq!(JobLog::decode(&[]), Ok(JobLog::default()));
}

#[test]
fn another_version_is_refused_with_its_number() {
    let mut bytes = full().encode();
    bytes[8] = 2;
    let error = JobLog::decode(&bytes).unwrap_err();
    assert_eq!(error, JobLogError::UnknownVersion { found: 2 });
    let words = "the redo log has format 2; this program knows 1";
    assert_eq!(error.to_string(), words);
}

/// Each bit that is turned, and each byte that is missing or there is too much, is noticed.
#[test]
fn what_was_not_written_is_refused() {
    let bytes = full().encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(JobLog::decode(&bad).is_err(), "bit {bit} of byte {at}");
        }
        if at > 0 {
            assert!(JobLog::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
    let long = [&bytes[..], &[0]].concat();
    assert!(JobLog::decode(&long).is_err());
}

/// With a right checksum, too, what breaks a rule is refused, and no byte makes the decoder panic.
#[test]
fn bodies_that_break_a_rule_are_refused() {
    let sealed = |body: &[u8]| {
        let checksum = IDENTITY.checksum(body).to_le_bytes();
        [b"argosyjb\x01\0\0\0", &checksum[..], body].concat()
    };
    let body = full().encode()[16..].to_vec();
    assert_eq!(JobLog::decode(&sealed(&body)), Ok(full()));
    for at in 0..body.len() {
        for value in 0..=u8::MAX {
            let mut other = body.clone();
            other[at] = value;
            if let Ok(log) = JobLog::decode(&sealed(&other)) {
                assert_eq!(log.encode(), sealed(&other), "equal logs are equal bytes");
            }
        }
        assert!(JobLog::decode(&sealed(&body[..at])).is_err());
    }
    // The next number is taken; the jobs do not rise.
    for (at, value) in [(0, 7), (9, 7), (9, 0)] {
        let mut bad = body.clone();
        bad[at] = value;
        assert!(JobLog::decode(&sealed(&bad)).is_err(), "byte {at}");
    }
}
