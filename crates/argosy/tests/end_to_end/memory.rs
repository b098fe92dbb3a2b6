//! The memory budget, held: a store under a mixed load in a process of its own, in a control group that the
//! kernel keeps to the budget where one can be made.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::text;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 96 * MIB;

/// A control group of the kernel's, as far as one can be made: who is not root has none.
struct Group {
    dir: PathBuf,
}

impl Group {
    /// A group whose processes may take `limit` bytes; the kernel ends one that takes more.
    fn new(limit: u64) -> Option<Self> {
        let name = format!("argosy-test-{}", std::process::id());
        let roots = [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ];
        roots.into_iter().find_map(|(root, file)| {
            let group = Self {
                dir: PathBuf::from(root).join(&name),
            };
            std::fs::create_dir(&group.dir).ok()?;
            // Where this is no control group's directory, it is empty.
            let known = group.dir.join(file).exists() && group.processes().exists();
            let set = known && std::fs::write(group.dir.join(file), limit.to_string()).is_ok();
            set.then_some(group)
        })
    }

    fn processes(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// The rows of a mixed run of `mix`: `records` are loaded, then read and overwritten.
fn run(mix: &str, records: u64, group: Option<&Group>) -> Vec<Value> {
    // The shell enters the group before it becomes the program.
    let enter = group.map(|group| format!("echo $$ > {} && ", group.processes().display()));
    let script = format!("{}exec \"$0\" \"$@\"", enter.unwrap_or_default());
    let (records, memory) = (records.to_string(), BUDGET.to_string());
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_argosy")])
        .args([
            "bench",
            "--embedded",
            "--budget",
            "-o",
            "json",
            "--mix",
            mix,
        ])
        .args(["--memory", &memory, "--device-bytes", "4GiB"])
        .args(["--workload", "load-a,run-a,run-g"])
        .args(["--records", &records, "--ops", &records])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{mix}: {}: {said}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["runs"].as_array().unwrap().clone()
}

#[test]
fn a_store_stays_within_its_budget_and_its_parts_are_what_is_resident() {
    // Beside the budget: the program, and what the bench keeps to verify answers.
    let group = Group::new(BUDGET + BUDGET / 10 + 24 * MIB);
    if group.is_none() {
        println!("no control group can be made here: what is resident is looked at alone");
    }
    for (mix, records) in [
        ("s", 1_000_000),
        ("m", 400_000),
        ("sd", 300_000),
        ("l", 90_000),
    ] {
        for row in run(mix, records, group.as_ref()) {
            let memory = &row["memory"];
            let bytes = |part: &str| memory[part].as_u64().unwrap();
            assert!(bytes("looks") > 1, "{row}");
            let store = bytes("store_peak_bytes");
            assert!(
                store <= BUDGET + BUDGET / 10,
                "{mix}: {store} bytes: {memory}"
            );
            // While it is loaded there is little yet, and what there is moves.
            if row["workload"] != "load-a" {
                let difference = memory["difference_median"].as_f64().unwrap();
                assert!(difference <= 0.1, "{mix}: {row}");
            }
        }
    }
}

#[test]
fn a_budget_that_is_too_small_is_refused_with_the_least_that_would_do() {
    let bench = |memory: &str| {
        Command::new(env!("CARGO_BIN_EXE_argosy"))
            .args(["bench", "--embedded", "--budget", "--memory", memory])
            .args(["--l0-bytes", "8MiB", "--records", "100", "--ops", "100"])
            .args(["--device-bytes", "1GiB"])
            .output()
            .unwrap()
    };
    let refused = bench("32MiB");
    let said = text(&refused.stderr);
    assert!(!refused.status.success());
    let least = said.split("set it to ").nth(1).expect(&said);
    let least = least.split(" or more").next().unwrap();
    let taken = bench(least);
    assert!(taken.status.success(), "{least}: {}", text(&taken.stderr));
}
