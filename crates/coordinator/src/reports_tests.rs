//! Tests of what servers tell the master: see [`super`].

use super::*;

fn presence() -> Presence {
    Presence {
        incarnation: Incarnation(7),
        leaving: true,
        heard: BTreeSet::from([ServerId(1)]),
        unreachable: BTreeSet::from([ServerId(2), ServerId(0)]),
    }
}

fn report() -> ServerReport {
    ServerReport {
        incarnation: Incarnation(7),
        map: EntryVersion(42),
        copies: BTreeMap::from([(
            RegionId(1),
            CopyReport {
                epoch: Epoch(5),
                status: CopyStatus::Cut,
                cut: Epoch(3),
                edit: EditSeq(17),
                lsn: Lsn(4711),
            },
        )]),
        opening: BTreeSet::from([RegionId(2)]),
        refused: BTreeMap::from([(RegionId(3), Epoch(6))]),
        failed: BTreeSet::from([RegionId(4)]),
        wishes: BTreeMap::from([(
            RegionId(5),
            Wish {
                epoch: Epoch(6),
                remove: vec![ServerId(2)],
                add: vec![ServerId(3)],
                fill: vec![ServerId(1)],
            },
        )]),
    }
}

/// The texts travel between servers of different versions: a change takes another schema.
#[test]
fn the_json_never_changes() {
    let said = r#"{"schema":"argosy.server.v1","incarnation":7,"leaving":true,"heard":[1],"unreachable":[0,2]}"#;
    assert_eq!(String::from_utf8(presence().to_json()).unwrap(), said);
    assert_eq!(Presence::parse(said.as_bytes()), Ok(presence()));
    let said = concat!(
        r#"{"schema":"argosy.report.v1","incarnation":7,"map":42,"#,
        r#""copies":[{"region":1,"epoch":5,"status":"cut","cut":3,"edit":17,"lsn":4711}],"#,
        r#""opening":[2],"refused":[{"region":3,"epoch":6}],"failed":[4],"#,
        r#""wishes":[{"region":5,"epoch":6,"remove":[2],"add":[3],"fill":[1]}]}"#,
    );
    assert_eq!(String::from_utf8(report().to_json()).unwrap(), said);
    assert_eq!(ServerReport::parse(said.as_bytes()), Ok(report()));
    // Who has nothing to say says little.
    let quiet = ServerReport::default();
    let said = r#"{"schema":"argosy.report.v1","incarnation":0,"map":0}"#;
    assert_eq!(String::from_utf8(quiet.to_json()).unwrap(), said);
    assert_eq!(ServerReport::parse(said.as_bytes()), Ok(quiet));
}

#[test]
fn keys_name_servers() {
    let id = ServerId(12);
    assert_eq!(presence_key(id), "servers/12");
    assert_eq!(report_key(id), "reports/12");
    assert_eq!(server_of("12"), Some(id));
    for other in ["", "012", "+12", "-1", "12a", "4294967296"] {
        assert_eq!(server_of(other), None, "{other:?}");
    }
}

#[test]
fn what_is_no_report_is_refused() {
    let good = String::from_utf8(report().to_json()).unwrap();
    let parse = |text: &str| ServerReport::parse(text.as_bytes()).unwrap_err();
    let found = "argosy.report.v2".to_owned();
    let known = REPORT_SCHEMA;
    let other = good.replace(known, &found);
    assert_eq!(parse(&other), ReportError::UnknownSchema { found, known });
    // A later schema is refused as that, whatever else it has.
    let later = parse(r#"{"schema": "argosy.report.v9", "shards": []}"#);
    assert!(
        matches!(later, ReportError::UnknownSchema { .. }),
        "{later}"
    );
    for (from, to) in [
        ("\"map\":42,", ""),
        ("\"cut\"", "\"odd\""),
        ("[4]", "[-4]"),
        ("}", ""),
    ] {
        let error = parse(&good.replacen(from, to, 1));
        assert!(
            matches!(error, ReportError::Malformed { .. }),
            "{from}: {error}"
        );
    }
    for (from, to, region) in [
        ("[2],\"refused\"", "[2,2],\"refused\"", 2),
        ("[4]", "[4,4]", 4),
        (
            "{\"region\":3,\"epoch\":6}",
            "{\"region\":3,\"epoch\":6},{\"region\":3,\"epoch\":7}",
            3,
        ),
    ] {
        let region = RegionId(region);
        assert_eq!(
            parse(&good.replacen(from, to, 1)),
            ReportError::Twice { region }
        );
    }
    let known = PRESENCE_SCHEMA;
    let found = REPORT_SCHEMA.to_owned();
    let error = Presence::parse(good.as_bytes()).unwrap_err();
    assert_eq!(error, ReportError::UnknownSchema { found, known });
}

/// Nothing is parsed beyond the bound, and a report of as many regions as there are at first is within it.
#[test]
fn values_are_bounded() {
    let long = |good: &[u8], max: usize| [good, &vec![b' '; max - good.len()]].concat();
    let text = long(&report().to_json(), REPORT_BYTES_MAX);
    assert_eq!(ServerReport::parse(&text), Ok(report()));
    let (len, max) = (REPORT_BYTES_MAX + 1, REPORT_BYTES_MAX);
    let refused = ServerReport::parse(&[text, vec![b' ']].concat());
    assert_eq!(refused, Err(ReportError::TooLong { len, max }));
    let text = long(&presence().to_json(), PRESENCE_BYTES_MAX);
    assert_eq!(Presence::parse(&text), Ok(presence()));
    let (len, max) = (PRESENCE_BYTES_MAX + 1, PRESENCE_BYTES_MAX);
    let refused = Presence::parse(&[text, vec![b' ']].concat());
    assert_eq!(refused, Err(ReportError::TooLong { len, max }));

    let copy = CopyReport {
        epoch: Epoch(u32::MAX),
        status: CopyStatus::Partial,
        cut: Epoch(u32::MAX),
        edit: EditSeq(u64::MAX),
        lsn: Lsn(u64::MAX),
    };
    let count = u32::try_from(crate::split::SPLIT_MAX).unwrap();
    let mut full = ServerReport::default();
    full.copies
        .extend((1..=count).map(|region| (RegionId(region), copy)));
    full.opening.extend((1..=count).map(RegionId));
    let text = full.to_json();
    assert_eq!(ServerReport::parse(&text), Ok(full));
    let all = Presence {
        heard: (0..1024).map(ServerId).collect(),
        unreachable: (0..1024).map(ServerId).collect(),
        ..Presence::default()
    };
    assert_eq!(Presence::parse(&all.to_json()), Ok(all));
}

/// Damaged text is refused, or says something: never a panic.
#[test]
fn damaged_text_does_not_panic() {
    let mut accepted = 0;
    for good in [report().to_json(), presence().to_json()] {
        for at in 0..good.len() {
            for byte in [b'0', b'"', b'}', b' ', b'-', 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                if let Ok(read) = ServerReport::parse(&bytes) {
                    accepted += 1;
                    assert_eq!(ServerReport::parse(&read.to_json()), Ok(read));
                }
                if let Ok(read) = Presence::parse(&bytes) {
                    accepted += 1;
                    assert_eq!(Presence::parse(&read.to_json()), Ok(read));
                }
            }
            assert!(ServerReport::parse(&good[..at]).is_err());
            assert!(Presence::parse(&good[..at]).is_err());
        }
    }
    assert!(accepted > 10, "{accepted}");
}
