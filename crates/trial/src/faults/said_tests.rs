//! Lines as servers write them.

use super::*;

const RAISE: &str = "2026-11-30T03:53:20.990538Z  INFO argosy::server: master step=Raise { region: RegionId(12), \
                     primary: ServerId(1), reason: Unfit(Absent) }";

#[test]
fn what_a_master_does_is_understood() {
    let raised = said(RAISE).unwrap();
    assert_eq!((raised.region, raised.what), (12, What::Raised));
    let promote = "2026-11-30T03:53:21.000001Z  INFO argosy::server: master step=Promote { region: RegionId(2), \
                   primary: ServerId(0), claim: PromotionClaim { status: Whole, cut: Epoch(1) } }";
    let promoted = said(promote).unwrap();
    assert_eq!((promoted.region, promoted.what), (2, What::Promoted(0)));
    assert_eq!(promoted.micros - raised.micros, 9463);
    let regroup = RAISE.replace("Raise", "Regroup");
    assert_eq!(said(&regroup).unwrap().what, What::Regrouped);
    assert_eq!(said(&RAISE.replace("Raise", "Rest")), None);
}

#[test]
fn what_a_server_does_is_understood() {
    let line =
        |words: &str| format!("2026-11-30T03:53:21.000000Z  INFO argosy_server::node::x: {words}");
    let open = said(&line("region open region=7 lsn=18")).unwrap();
    assert_eq!((open.region, open.what), (7, What::Opened));
    let over = said(&line("no earlier primary can answer any more region=7")).unwrap();
    assert_eq!((over.region, over.what), (7, What::LeaseOver));
    assert_eq!(said(&line("link down me=1 peer=0 why=gone")), None);
}

#[test]
fn lines_that_are_none_are_passed_over() {
    for line in [
        "",
        " ",
        "Z",
        "region open region=7",
        "2026-11-30T03:53:21Z INFO x: region open region=7 ",
        "2026-13-30T03:53:21.000000Z INFO x: region open region=7 ",
        "2026-11-30T03:53:21.000000Z INFO x: region open region= ",
        "2026-11-30T03:53:21.000000Z INFO x: master step=Raise { region: RegionId() }",
        "1-1-1T1:1:1.000000Z INFO x: region open region=7 ",
    ] {
        assert_eq!(said(line), None, "{line}");
    }
    // Wherever a line is cut, it is understood or not.
    for end in 0..RAISE.len() {
        let _ = said(&RAISE[..end]);
    }
}

#[test]
fn dates_are_counted_from_1970() {
    for (text, seconds) in [
        ("1970-01-01T00:00:00.000000Z", 0),
        ("2000-02-29T12:00:00.000000Z", 951_825_600),
        ("2000-03-01T00:00:00.000000Z", 951_868_800),
        ("2026-11-30T05:51:55.000000Z", 1_796_017_915),
        ("2100-03-01T00:00:00.000000Z", 4_107_542_400),
    ] {
        assert_eq!(micros_of(text), Some(seconds * 1_000_000), "{text}");
    }
}

#[test]
fn a_log_is_read_line_by_line_as_it_grows() {
    let dir = std::env::temp_dir().join(format!("argosy-trial-said-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("log");
    let mut log = Log::at(path.clone());
    assert!(log.news().is_empty(), "there is none");
    let (begin, rest) = RAISE.split_at(50);
    std::fs::write(&path, format!("{RAISE}\n{begin}")).unwrap();
    assert_eq!(log.news(), [said(RAISE).unwrap()]);
    assert!(log.news().is_empty());
    std::fs::write(&path, format!("{RAISE}\n{begin}{rest}\n")).unwrap();
    assert_eq!(log.news(), [said(RAISE).unwrap()]);
    std::fs::remove_dir_all(&dir).unwrap();
}
