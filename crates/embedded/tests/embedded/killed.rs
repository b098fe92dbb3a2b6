//! A program that is killed in the middle of its writes loses none that was acknowledged.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use argosy_embedded::Durability;

use crate::support::{Dir, small};

const DIR: &str = "ARGOSY_TEST_KILLED_DIR";

/// The program that is killed: this test, started again by the one below. By itself it does nothing.
#[test]
fn writes_until_killed() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let db = small().durability(Durability::Windows).open(dir).unwrap();
    for n in 0_u32.. {
        db.put(n.to_le_bytes(), n.to_le_bytes().repeat(20)).unwrap();
        if n.is_multiple_of(100) {
            println!("\nacknowledged {n}");
        }
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let dir = Dir::new("killed");
    for round in 1..=3_u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed::writes_until_killed", "--exact", "--nocapture"])
            .env(DIR, dir.as_ref())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let acknowledged = out
            .lines()
            .filter_map(|line| line.unwrap().strip_prefix("acknowledged ")?.parse().ok())
            .find(|n: &u32| *n >= round * 3000)
            .expect("it writes until it is killed");
        child.kill().unwrap();
        child.wait().unwrap();
        let db = small().open(&dir).unwrap();
        for n in 0..=acknowledged {
            let value = db.get(n.to_le_bytes()).unwrap();
            assert_eq!(
                value,
                Some(n.to_le_bytes().repeat(20)),
                "{n} of {acknowledged}"
            );
        }
    }
}
