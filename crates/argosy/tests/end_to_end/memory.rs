//! The memory budget, held: a store under a mixed load in a process of its own, in a control group that the
//! kernel keeps to the budget where one can be made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use argosy_bench::resp::Reply;

use crate::support::{Playground, connect, info, text};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 96 * MIB;

/// A control group of the kernel's, as far as one can be made: who is not root has none.
struct Group {
    dir: PathBuf,
}

impl Group {
    /// A group whose processes may take `limit` bytes; the kernel ends one that takes more.
    fn new(limit: u64, name: &str) -> Option<Self> {
        let name = format!("argosy-test-{name}-{}", std::process::id());
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

    /// Has everything that process `pid` takes from now on count here.
    fn enter(&self, pid: u32) {
        std::fs::write(self.processes(), pid.to_string()).unwrap();
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
    let group = Group::new(BUDGET + BUDGET / 10 + 24 * MIB, "store");
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
            // While it is loaded there is little yet, and what there is moves. What is overwritten at once
            // leaves gaps between the cache's entries, which the allocator keeps for the next.
            let most = match row["workload"].as_str() {
                Some("run-a") => 0.1,
                Some("run-g") => 0.2,
                _ => continue,
            };
            let difference = memory["difference_median"].as_f64().unwrap();
            assert!(difference <= most, "{mix}: {row}");
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

/// A line of `/proc/PID/status` in bytes, or as the number that it is.
fn status(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let mut words = line
        .expect(field)
        .trim_start_matches(':')
        .split_whitespace();
    let number: u64 = words.next().unwrap().parse().unwrap();
    if words.next() == Some("kB") {
        number * 1024
    } else {
        number
    }
}

/// Writes pairs of some lengths, as far as they are taken, and reads others, from `first` on, a few hundred at a time.
fn write(client: &mut argosy_bench::resp::Connection, first: usize, count: usize) {
    const PIPELINE: usize = 250;
    for from in (first..first + count).step_by(PIPELINE) {
        for number in from..from + PIPELINE {
            let value = vec![b'.'; [10, 120, 1100][number % 3]];
            let key = format!("{:05}-key", number * 7919 % 60_000);
            client.push(&[b"SET", key.as_bytes(), &value]);
            let key = format!("{:05}-key", number * 104_729 % 60_000);
            client.push(&[b"GET", key.as_bytes()]);
        }
        client.flush().unwrap();
        for _ in 0..PIPELINE {
            // Beside many other tests a write may wait longer than it may.
            let written = client.reply().unwrap();
            let is_refused = matches!(&written, Reply::Error(why) if why.starts_with("TRYAGAIN"));
            assert!(
                is_refused || written == Reply::Simple("OK".to_owned()),
                "{written:?}"
            );
            assert!(matches!(client.reply().unwrap(), Reply::Bulk(_)));
        }
    }
}

/// What a server says it takes, and what is resident of it.
#[derive(Debug)]
struct Look {
    accounted: u64,
    resident: u64,
    /// What `INFO memory` says.
    #[expect(dead_code, reason = "told where a test fails")]
    said: BTreeMap<String, String>,
}

impl Look {
    const fn apart(&self) -> u64 {
        self.accounted.abs_diff(self.resident)
    }
}

fn look(pid: u32, resp: SocketAddr) -> Look {
    let said = info(resp, "memory");
    let bytes = |name: &str| said[name].parse::<u64>().unwrap();
    let parts = [
        "program",
        "memtables",
        "windows",
        "links",
        "native",
        "answers",
        "buffers",
        "cache",
    ];
    let parts: u64 = parts
        .iter()
        .map(|part| bytes(&format!("memory_{part}")))
        .sum();
    Look {
        accounted: parts + bytes("mem_clients_normal") + status(pid, "RssFile"),
        resident: status(pid, "VmRSS"),
        said,
    }
}

/// A server under a load of overwrites and reads: what `INFO memory` names adds up to what is resident, and
/// that is within the limit. The kernel keeps it to that, too, where it can be asked to.
#[test]
fn a_server_stays_within_its_limit_and_says_where_its_memory_is() {
    let playground = Playground::start(&["--servers", "1", "--regions", "1"]);
    let (pid, resp) = (playground.servers[0].pid, playground.servers[0].resp);
    let limit: u64 = info(resp, "memory")["memory_limit"].parse().unwrap();
    let group = Group::new(limit + limit / 10 + 24 * MIB, "server");
    group.iter().for_each(|group| group.enter(pid));
    let mut client = connect(resp);
    for round in 0..6 {
        write(&mut client, round * 30_000, 30_000);
        let mut look = look(pid, resp);
        // What a thread has freed of another's the allocator gives back when that one goes on.
        for again in 1..=5 {
            if look.apart() > limit / 10 {
                write(&mut client, round * 30_000, 1000 * again);
                look = self::look(pid, resp);
            }
        }
        // A tenth of the limit, since what a process takes by itself is much of what is resident here.
        assert!(look.apart() <= limit / 10, "{look:?}");
        let peak = status(pid, "VmHWM") - status(pid, "RssFile");
        assert!(peak <= limit + limit / 10, "{peak}");
    }
    // It is too small for huge pages.
    assert_eq!(status(pid, "THP_enabled"), 0);
    drop(playground);
    // Where the kernel can be told at all, whoever has much memory has them.
    let large = Playground::start(&["--servers", "1", "--memory", "1GiB"]);
    let own = status(std::process::id(), "THP_enabled");
    assert_eq!(status(large.servers[0].pid, "THP_enabled"), own);
}
