//! The trial of a real cluster, of some seconds and without failures: it passes, every region answers, and what it
//! writes is there. `make trial` is the real one. And one row of the table of failures; `make faults` has all.

use std::path::Path;
use std::time::Duration;

use argosy_trial::faults::{FaultKind, FaultsSettings, measure};
use argosy_trial::{TrialSettings, run};
use serde_json::Value;

use crate::support::empty_dir;

#[test]
fn a_trial_without_failures_passes() {
    let dir = empty_dir("trial");
    let settings = TrialSettings {
        program: Path::new(env!("CARGO_BIN_EXE_argosy")).to_path_buf(),
        dir: dir.clone(),
        span: Duration::from_secs(4),
        failures: false,
        seed: 7,
    };
    let verdict = run(&settings).expect("a trial can be held");
    assert!(verdict.passed(), "{:#?}", verdict.summary.wrong);
    for row in &verdict.summary.outcomes {
        assert!(row.answered > 0, "{row:?}");
        assert_eq!(row.unknown, 0, "{row:?}");
    }
    let json = std::fs::read_to_string(dir.join("trial.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "argosy.trial.v1");
    assert!(dir.join("latency.svg").exists());
    assert!(!dir.join("data").exists(), "what passed is cleared away");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_failure_is_measured() {
    let dir = empty_dir("faults");
    let settings = FaultsSettings {
        program: Path::new(env!("CARGO_BIN_EXE_argosy")).to_path_buf(),
        dir: dir.clone(),
        kinds: vec![FaultKind::PrimaryKilled],
        seed: 7,
    };
    let mut told = 0;
    let verdict = measure(&settings, |_| told += 1).expect("it can be measured");
    assert_eq!((told, verdict.rows.len()), (1, 1));
    let row = &verdict.rows[0];
    assert_eq!(verdict.exit_code(), 0, "{:#?}", row.wrong);
    assert!(row.requests.acknowledged > 0, "{row:?}");
    // Whose region it was is known, and what the logs say of it is found.
    let led = row.led.expect("its region was silent");
    let steps = [led.noticed, led.chosen, led.open];
    assert!(steps.iter().all(Option::is_some), "{led:?}");
    assert!(!dir.join("primary-killed").exists(), "it is cleared away");
    std::fs::remove_dir_all(&dir).unwrap();
}
