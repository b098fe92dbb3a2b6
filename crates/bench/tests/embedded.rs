//! The embedded bench on a small engine: every read is verified, and rows say what was done.

use argosy_bench::embedded::{EmbeddedOptions, run};
use argosy_bench::run::{Labels, Notice};
use argosy_bench::{Configuration, Mix, PairSizes, Row};
use argosy_embedded::Settings;

fn rows(mix: Mix, ops: u64, clients: usize, workloads: &[&str]) -> Vec<Row> {
    let data = Data {
        mix,
        records: 20_000,
        sync: false,
    };
    rows_of(&data, ops, clients, workloads)
}

/// The pairs that a test loads, and how it writes them.
struct Data {
    mix: Mix,
    records: u64,
    /// Each write is synced.
    sync: bool,
}

fn rows_of(data: &Data, ops: u64, clients: usize, workloads: &[&str]) -> Vec<Row> {
    let &Data { mix, records, sync } = data;
    let dir = tempfile::tempdir().expect("a directory for the test");
    let embedded = EmbeddedOptions {
        dir: dir.path().to_path_buf(),
        windows: dir.path().join("windows"),
        device_bytes: 1 << 30,
        settings: Settings::default().with(|of| {
            of.memtables.bytes = 256 << 10;
            of.cache_bytes = 1 << 20;
        }),
        budget: None,
        sync,
        trim_allocator: || {},
    };
    let config = Configuration {
        labels: Labels {
            engine: "lsm",
            placement: "hybrid".to_owned(),
            replication: "none".to_owned(),
            compaction: "partial",
            address_mode: "logical",
            fabric: "none",
            options: String::new(),
            replicas: 1,
            regions: 1,
        },
        mix,
        sizes: PairSizes::default(),
        records,
        ops,
        clients,
        transport: argosy_bench::Transport::Resp,
        pipeline: 1,
        seed: 3,
        workloads: workloads
            .iter()
            .map(|name| name.parse().expect("a workload"))
            .collect(),
    };
    let mut rows = Vec::new();
    let result = run(&embedded, &config, |event| match event {
        Notice::Row(row) => rows.push(*row),
        Notice::Errors { first, .. } => panic!("{first}"),
    });
    result.expect("every read is what was written");
    rows
}

#[test]
fn what_is_loaded_is_read_and_overwritten() {
    let mix = "sd".parse().expect("a mix");
    let rows = rows(mix, 10_000, 1, &["load-a", "run-a", "run-c"]);
    assert_eq!(rows.len(), 3);
    let (load, update, read) = (&rows[0], &rows[1], &rows[2]);
    assert_eq!(
        (load.scale.ops, update.scale.ops, read.scale.ops),
        (20_000, 10_000, 10_000)
    );
    assert!(
        load.store.compactions > 3,
        "{} flushes and compactions",
        load.store.compactions
    );
    assert!(load.store.levels >= 1);
    // 20,000 pairs of 296 bytes on average: at least these bytes are in use.
    assert!(
        load.store.space_bytes > 20_000 * 290,
        "{}",
        load.store.space_bytes
    );
    assert_eq!(rows.iter().map(|row| row.errors).sum::<u64>(), 0);
}

#[test]
fn a_synced_write_has_a_block_of_the_log_for_itself() {
    let records = 300;
    let load = |sync| {
        let mix = "s".parse().expect("a mix");
        let data = Data { mix, records, sync };
        let rows = rows_of(&data, 0, 1, &["load-a"]);
        rows[0]
            .devices
            .device_log_bytes
            .expect("ours counts its log")
    };
    let (synced, buffered) = (load(true), load(false));
    assert!(synced >= records * 4096, "{synced} bytes");
    assert!(buffered < records * 4096 / 4, "{buffered} bytes");
}

#[test]
fn data_is_loaded_without_a_row_where_none_is_asked_for() {
    let rows = rows("l".parse().expect("a mix"), 10_000, 1, &["run-c"]);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].subject.workload, "run-c");
}

#[test]
fn all_of_ycsb_runs_on_one_load() {
    let workloads = [
        "run-a", "run-b", "run-d", "run-e", "run-d", "run-e", "run-f", "run-g", "run-c",
    ];
    for clients in [1, 3] {
        let rows = rows("md".parse().expect("a mix"), 2000, clients, &workloads);
        let names: Vec<_> = rows
            .iter()
            .map(|row| row.subject.workload.as_str())
            .collect();
        assert_eq!(names, workloads);
        for row in &rows {
            assert_eq!(
                (row.scale.clients, row.scale.ops, row.errors),
                (clients, 2000, 0)
            );
            let answered: u64 = row.times.timeline.iter().map(|point| point.ops).sum();
            assert_eq!(answered, row.scale.ops, "every operation has its second");
        }
    }
}
