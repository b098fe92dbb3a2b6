//! The trial of a real cluster, of some seconds and without failures: it passes, every region answers, and what it
//! writes is there. `make trial` is the real one.

use std::path::Path;
use std::time::Duration;

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
