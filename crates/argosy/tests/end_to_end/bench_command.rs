//! `argosy bench` at a small scale: every field of its rows is there, and the figures fit each
//! other.

use std::process::Stdio;

use argosy::cluster::scratch::ScratchDir;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{argosy, empty_dir, lives, signal, text, until};

/// Exactly these, in this order.
const FIELDS: [&str; 40] = [
    "workload",
    "mix",
    "sizes",
    "engine",
    "placement",
    "replication",
    "compaction",
    "address_mode",
    "fabric",
    "options",
    "servers",
    "replicas",
    "regions",
    "clients",
    "records",
    "ops",
    "seconds",
    "ops_per_second",
    "cpu_us_per_op",
    "client_cpu_us_per_op",
    "compaction_cpu_us_per_op",
    "activity_cpu_us_per_op",
    "per_server",
    "latency_us",
    "timeline",
    "second_ops",
    "device_read_bytes",
    "device_write_bytes",
    "io_amplification",
    "device_log_bytes",
    "io_amplification_without_logs",
    "network_bytes",
    "network_amplification",
    "peak_rss_bytes",
    "memory",
    "space_bytes",
    "levels",
    "compactions",
    "filter_false_positive_rate",
    "filter_bytes",
];

fn bench(args: &[&str]) -> Vec<Value> {
    let ops = if args.contains(&"--ops") {
        &[][..]
    } else {
        &["--ops", "5000"]
    };
    let small = [
        "bench",
        "-o",
        "json",
        "--records",
        "20000",
        "--memory",
        "128MiB",
        "--l0-bytes",
        "256KiB",
        "--device-bytes",
        "1GiB",
    ];
    let output = argosy().args(small).args(ops).args(args).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(report["schema"], "argosy.bench.v1");
    let runs = report["runs"].as_array().expect("runs").clone();
    for run in &runs {
        let keys: Vec<_> = run
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        for field in FIELDS.iter().chain(&["errors"]) {
            assert!(keys.contains(field), "{field} is missing");
        }
        assert_eq!(keys.len(), FIELDS.len() + 1, "{keys:?}");
        assert_eq!(run["errors"], 0);
        for latency in ["p50", "p99", "p999", "p9999", "max"] {
            assert!(run["latency_us"][latency].as_f64().unwrap() > 0.0);
        }
        let ops = run["ops"].as_f64().unwrap();
        activities_add_up(run, ops);
        for server in run["per_server"].as_array().unwrap() {
            activities_add_up(server, ops);
        }
        let timeline = run["timeline"].as_array().unwrap();
        let answered: u64 = timeline.iter().map(|point| number(point, "ops")).sum();
        assert_eq!(
            answered,
            number(run, "ops"),
            "every operation has its second"
        );
        assert!(run["ops_per_second"].as_f64().unwrap() > 0.0);
        // What the load itself costs is taken off, which leaves nothing of a run this short.
        assert!(run["cpu_us_per_op"].as_f64().unwrap() >= 0.0);
    }
    runs
}

/// What CPU was used for adds up to what the kernel says was used for `ops`, within 5 % and the millisecond that each
/// thread of three servers may not have counted yet.
fn activities_add_up(of: &Value, ops: f64) {
    const UNCOUNTED_US: f64 = 50_000.0;
    let cpu = of["cpu_us_per_op"].as_f64().unwrap();
    let parts = of["activity_cpu_us_per_op"].as_object().unwrap();
    assert_eq!(parts.len(), 6);
    let sum: f64 = parts.values().map(|part| part.as_f64().unwrap()).sum();
    let spared = cpu * 0.05 + UNCOUNTED_US / ops;
    assert!((sum - cpu).abs() < spared, "{sum} of {cpu}: {of}");
}

fn number(run: &Value, field: &str) -> u64 {
    run[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} is a number"))
}

#[test]
fn replication_shows_in_the_figures_it_should() {
    let args = [
        "--workload",
        "load-a,run-a,run-c",
        "--mix",
        "sd",
        "--replication",
        "none,send-index",
        "--regions",
        "1",
        "--clients",
        "2",
    ];
    let runs = bench(&args);
    let names: Vec<_> = runs
        .iter()
        .map(|run| {
            (
                run["replication"].as_str().unwrap(),
                run["workload"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = ["none", "send-index"]
        .map(|mode| ["load-a", "run-a", "run-c"].map(|workload| (mode, workload)));
    assert_eq!(names, expected.concat());
    let (alone, shipped) = (&runs[0], &runs[3]);
    assert_eq!(
        (number(alone, "replicas"), number(shipped, "replicas")),
        (1, 3)
    );
    assert!(number(shipped, "network_bytes") > number(alone, "network_bytes"));
    assert!(number(shipped, "compactions") > 0 && number(shipped, "levels") > 0);
    assert!(number(shipped, "device_write_bytes") > number(alone, "device_write_bytes"));
    // One region: its primary is server 0, and nobody else spends anything on compaction.
    let per_server = shipped["per_server"].as_array().unwrap();
    let compaction = |server: usize| {
        per_server[server]["compaction_cpu_us_per_op"]
            .as_f64()
            .unwrap()
    };
    assert!(compaction(0) > 0.0);
    assert_eq!(
        (compaction(1), compaction(2)),
        (0.0, 0.0),
        "backups compact nothing"
    );
}

#[test]
fn the_engine_alone_is_measured_in_process() {
    let runs = bench(&[
        "--embedded",
        "--workload",
        "load-a,run-a,run-c",
        "--mix",
        "s,l",
    ]);
    assert_eq!(runs.len(), 6);
    for run in &runs {
        assert_eq!(
            (number(run, "servers"), number(run, "network_bytes")),
            (0, 0)
        );
    }
    assert!(number(&runs[0], "compactions") > 0);
}

/// The only tests that need other stores begin here: `make test-peers`, `make test-peer-crates`.
#[cfg(feature = "peers")]
#[test]
fn rocksdb_runs_beside_ours() {
    let runs = bench(&[
        "--embedded",
        "--peer",
        "rocksdb",
        "--workload",
        "load-a,run-a,run-c,run-e",
        "--mix",
        "s,sd",
    ]);
    let names: Vec<_> = runs
        .iter()
        .map(|run| (text_field(run, "engine"), text_field(run, "mix")))
        .collect();
    let expected = [
        ("lsm", "s"),
        ("rocksdb", "s"),
        ("lsm", "sd"),
        ("rocksdb", "sd"),
    ];
    assert_eq!(names, expected.map(|name| [name; 4]).concat());
    for (ours, theirs) in [(0, 4), (8, 12)] {
        for workload in 0..4 {
            let (ours, theirs) = (&runs[ours + workload], &runs[theirs + workload]);
            for field in ["workload", "ops", "records", "clients", "fabric"] {
                assert_eq!(ours[field], theirs[field], "{field}");
            }
            for run in [ours, theirs] {
                let log = number(run, "device_log_bytes");
                // Pages, of which the last may have been written by the workload before.
                assert!(log <= number(run, "device_write_bytes") + 4096, "{run}");
                let with = run["io_amplification"].as_f64().unwrap();
                let without = run["io_amplification_without_logs"].as_f64().unwrap();
                assert!(without <= with, "{run}");
                assert!(number(run, "levels") > 0 && number(run, "space_bytes") > 0);
            }
            assert!(text_field(theirs, "options").contains("use_direct_reads=1"));
            assert!(text_field(ours, "options").contains("cache_bytes="));
        }
        // A load writes its log, and all that it loads in small memtables to tables as well.
        let (ours, theirs) = (&runs[ours], &runs[theirs]);
        for load in [ours, theirs] {
            assert!(number(load, "device_log_bytes") > 0 && number(load, "compactions") > 0);
        }
    }
}

/// Rows of ours and of `peer` on the same workloads, as far as they have to agree.
#[cfg(feature = "peers")]
fn beside_ours(peer: &str) -> Vec<Value> {
    let workloads = ["--workload", "load-a,run-a,run-c,run-e", "--mix", "sd"];
    let args = [&["--embedded", "--peer", peer][..], &workloads].concat();
    let mut runs = bench(&args);
    let theirs = runs.split_off(4);
    assert_eq!(theirs.len(), 4);
    for (ours, theirs) in runs.iter().zip(&theirs) {
        assert_eq!(
            (text_field(ours, "engine"), text_field(theirs, "engine")),
            ("lsm", peer)
        );
        for field in ["workload", "ops", "records", "clients", "fabric"] {
            assert_eq!(ours[field], theirs[field], "{field}");
        }
        assert!(number(theirs, "space_bytes") > 0);
    }
    theirs
}

#[cfg(feature = "peers")]
#[test]
fn fjall_runs_beside_ours() {
    let runs = beside_ours("fjall");
    assert!(number(&runs[0], "device_log_bytes") > 0);
    for run in &runs {
        assert!(text_field(run, "options").contains("max_memtable_size=262144"));
    }
}

#[cfg(feature = "peers")]
#[test]
fn bf_tree_runs_beside_ours() {
    let runs = beside_ours("bf-tree");
    for run in &runs {
        // The greatest power of two in 128 MiB.
        assert!(text_field(run, "options").contains("cb_size_byte=134217728"));
        assert!(run["device_log_bytes"].is_null(), "it does not tell");
    }
    assert!(number(&runs[0], "device_write_bytes") > 0);
}

fn text_field<'a>(run: &'a Value, field: &str) -> &'a str {
    run[field].as_str().expect("a text")
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_peer_that_is_not_built_in_is_said_to_be_missing() {
    let args = ["bench", "--embedded", "--peer", "rocksdb"];
    let output = argosy().args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("make bench-peers"), "{said}");
    // A peer has no servers to start.
    let output = argosy()
        .args(["bench", "--peer", "rocksdb"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--embedded"));
}

#[test]
fn all_of_ycsb_runs_and_is_drawn() {
    let plot = std::env::temp_dir().join(format!("argosy-plot-{}.svg", std::process::id()));
    let args = [
        "--workload",
        "load-a,run-a,run-b,run-c,run-d,run-e,run-f,run-g",
        "--small-percent",
        "40",
        "--sizes",
        "talos",
        "--growth-factor",
        "4",
        "--ops",
        "3000",
        "--plot",
        plot.to_str().unwrap(),
    ];
    for embedded in [false, true] {
        let more = if embedded { &["--embedded"][..] } else { &[] };
        let runs = bench(&[&args[..], more].concat());
        assert_eq!(runs.len(), 8);
        for run in &runs {
            assert_eq!(
                (&run["mix"], &run["sizes"]),
                (&"s40".into(), &"talos".into())
            );
        }
        let picture = std::fs::read_to_string(&plot).unwrap();
        assert_eq!(picture.matches("p99 latency (").count(), 8);
        assert_eq!(picture.matches("throughput (").count(), 8);
    }
    std::fs::remove_file(plot).unwrap();
}

/// Every scan is verified by the bench: it returns all keys that there surely are, in order, with the
/// values that were written last. What is wrong ends the run; what failed is counted.
#[test]
fn scans_of_small_records_go_well_over_either_client() {
    for client in ["native", "resp"] {
        let runs = bench(&[
            "--workload",
            "load-a,run-e",
            "--mix",
            "s",
            "--client",
            client,
            "--replication",
            "send-index",
            "--regions",
            "4",
        ]);
        let [load, scans] = &runs[..] else {
            panic!("{client}: {} runs", runs.len());
        };
        assert_eq!((number(load, "errors"), number(load, "ops")), (0, 20_000));
        assert_eq!((number(scans, "errors"), number(scans, "ops")), (0, 5000));
        assert_eq!(text_field(scans, "workload"), "run-e");
    }
}

#[test]
fn a_papers_figure_is_rerun_beside_its_claims() {
    let args = ["bench", "--figure", "tebis-10", "--scale", "0.02"];
    let more = ["--repeat", "1", "-o", "json"];
    let output = argosy().args(args).args(more).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(outcome["schema"], "argosy.figure.v1");
    assert_eq!(outcome["figure"], "tebis-10");
    assert_eq!(
        (number(&outcome, "records"), number(&outcome, "repetitions")),
        (10_000, 1)
    );
    let runs = outcome["runs"].as_array().unwrap();
    let sending: Vec<_> = runs
        .iter()
        .filter(|run| run["system"] == "send-index")
        .map(|run| &run["row"])
        .collect();
    assert_eq!(sending.len(), 2, "load-a and run-a");
    for row in sending {
        let servers = row["per_server"].as_array().unwrap();
        assert_eq!(servers.len(), 2);
        assert!(text_field(row, "options").contains("layout=split"));
        // Server 1 is backup of everything: it merges nothing.
        assert_eq!(number(&servers[1], "compactions"), 0);
    }
    let claims = outcome["claims"].as_array().unwrap();
    let of_send = claims.iter().find(|claim| {
        claim["measure"] == "read amplification, backup" && claim["better"] == "send-index"
    });
    let measured = &of_send.expect("the claim")["measured"];
    assert!(measured.is_array(), "{measured}");
}

#[test]
fn figures_and_scales_that_are_not_there_are_named() {
    for (args, said) in [
        (&["--figure", "tebis-99"][..], "talos-6"),
        (
            &["--figure", "tebis-9", "--scale", "0"],
            "a scale is a number",
        ),
        (&["--figure", "tebis-9", "--servers", "2"], "--servers"),
        (
            &["--figure", "tebis-8", "--mix", "s"],
            "tebis-8 has none of the mixes",
        ),
        (&["--scale", "2"], "--figure"),
    ] {
        let output = argosy().arg("bench").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let root = empty_dir("bench");
    let mut bench = argosy()
        .args(["bench", "--records", "50000000", "--data-root"])
        .arg(&root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut servers = Vec::new();
    until("servers run", || {
        servers = std::fs::read_dir(&root)
            .unwrap()
            .flatten()
            .flat_map(|scratch| (0..3).map(move |id| scratch.path().join(format!("server-{id}"))))
            .filter_map(|dir| argosy::cluster::lock::holder(&dir))
            .collect();
        servers.len() == 3
    });
    signal(bench.id(), Signal::INT);
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    for server in servers {
        let pid = u32::try_from(server.as_raw_nonzero().get()).unwrap();
        until("a server ends", || !lives(pid));
    }
    // Where the signal came before the servers were ready, the next start removes what is left.
    drop(ScratchDir::new(&root).unwrap());
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::remove_dir(&root).unwrap();
}
