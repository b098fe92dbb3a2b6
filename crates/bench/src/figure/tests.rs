//! Figures name only what there is, and an outcome says what was measured.

use super::outcome::{FigureOutcome, Takes};
use super::papers::{BUILD, FIGURES, REWRITE, SEND};
use super::{Figure, RECORDS_AT_SCALE_1, Scale, bars};
use crate::driver::Tally;
use crate::report::{
    Activities, Latency, Row, RowCpu, RowDevices, RowMemory, RowNetwork, RowScale, RowSpeed,
    RowStore, RowSubject, RowTimes, ServerRow,
};
use crate::workload::Workload;

#[test]
fn figures_name_what_there_is() {
    let mut names = Vec::new();
    for figure in &FIGURES {
        assert!(!names.contains(&figure.name), "{}", figure.name);
        names.push(figure.name);
        assert!(figure.sizes().pair_bytes()[0] > 0);
        assert!((1..=figure.cluster.servers).contains(&figure.cluster.replicas));
        let labels: Vec<_> = figure.systems.iter().map(|system| system.label).collect();
        assert!(labels.contains(&BUILD) && labels.contains(&SEND));
        for point in figure.points {
            assert!(Scale::of(100).cache_bytes(figure, point) > 0);
        }
        for workload in figure.workloads {
            workload.parse::<Workload>().unwrap();
        }
        for claim in figure.claims {
            assert!(labels.contains(&claim.better), "{}", claim.better);
            assert!(claim.than.is_none_or(|than| labels.contains(&than)));
            assert!(claim.range.0 <= claim.range.1);
            for workload in claim.workloads {
                assert!(figure.workloads.contains(workload));
            }
            let factor = |factor| figure.points.iter().any(|p| p.growth_factor == factor);
            assert!(claim.growth_factor.is_none_or(factor));
        }
    }
    assert_eq!(Figure::names(), names);
    assert!(Figure::named("tebis-11").is_none());
}

#[test]
fn scales_keep_the_papers_proportions() {
    let one = Scale::of(100);
    assert_eq!(
        (one.records, one.ops),
        (RECORDS_AT_SCALE_1, RECORDS_AT_SCALE_1 / 2)
    );
    // 128 MiB for 100 million records.
    assert_eq!(one.l0_bytes, (128 << 20) / 200);
    assert_eq!(Scale::of(20_000).l0_bytes, 128 << 20);
    let least = Scale::of(0);
    assert_eq!((least.records, least.l0_bytes), (1000, 256 << 10));
    // Tebis' table 2: 100 million small pairs are 3.3 GB, over three servers, and a quarter of that.
    let figure = Figure::named("tebis-9").unwrap();
    let cache = Scale::of(20_000).cache_bytes(figure, &figure.points[0]);
    assert_eq!(cache, 3_300_000_000 / 3 / 4);
}

/// A row of which only these figures matter.
fn subject() -> RowSubject {
    RowSubject {
        workload: "load-a".to_owned(),
        mix: "s".to_owned(),
        sizes: "tebis".to_owned(),
        engine: "lsm".to_owned(),
        placement: "hybrid".to_owned(),
        compaction: "partial".to_owned(),
        replication: "send-index".to_owned(),
        address_mode: "logical".to_owned(),
        fabric: "shm".to_owned(),
        options: String::new(),
    }
}

/// A row with these figures.
pub(crate) fn row(ops_per_second: f64, cpu: f64, io: f64, backup_reads: u64) -> Row {
    let server = |id, device_read_bytes| ServerRow {
        id,
        cpu_us_per_op: cpu / 2.0,
        compaction_cpu_us_per_op: 0.0,
        activity_cpu_us_per_op: Activities::default(),
        device_read_bytes,
        device_write_bytes: 500,
        network_bytes: 0,
        peak_rss_bytes: 0,
        compactions: 0,
    };
    Row {
        subject: subject(),
        scale: RowScale {
            servers: 2,
            replicas: 2,
            regions: 2,
            clients: 1,
            records: 1,
            ops: 1,
        },
        speed: RowSpeed {
            seconds: 1.0,
            ops_per_second,
        },
        cpu: RowCpu {
            cpu_us_per_op: cpu,
            client_cpu_us_per_op: 0.0,
            compaction_cpu_us_per_op: 0.0,
            activity_cpu_us_per_op: Activities::default(),
        },
        per_server: vec![server(0, 0), server(1, backup_reads)],
        times: RowTimes {
            latency_us: Latency::of(&Tally::default().latencies),
            timeline: Vec::new(),
            second_ops: Default::default(),
        },
        devices: RowDevices {
            device_read_bytes: backup_reads,
            device_write_bytes: 1000,
            io_amplification: io,
            device_log_bytes: None,
            io_amplification_without_logs: None,
        },
        network: RowNetwork {
            network_bytes: 0,
            network_amplification: 0.0,
        },
        resident: RowMemory {
            peak_rss_bytes: 0,
            memory: None,
        },
        store: RowStore {
            space_bytes: 0,
            levels: 1,
            compactions: 1,
            filter_false_positive_rate: None,
            filter_bytes: None,
        },
        errors: 0,
    }
}

fn takes(system: &'static str, rows: &[Row]) -> Takes {
    Takes {
        system,
        growth_factor: 8,
        rows: rows.iter().map(|row| vec![row.clone()]).collect(),
    }
}

#[test]
fn what_is_measured_stands_beside_what_is_claimed() {
    let figure = Figure::named("tebis-10").unwrap();
    let build = [
        row(90.0, 9.0, 9.0, 0),
        row(100.0, 8.0, 6.0, 2000),
        row(900.0, 1.0, 1.0, 0),
    ];
    let send = [row(150.0, 4.0, 2.0, 0)];
    let there = [takes(BUILD, &build), takes(SEND, &send)];
    let outcome = FigureOutcome::new(figure, Scale::of(100), &there, vec![REWRITE]);
    assert_eq!((outcome.runs.len(), outcome.repetitions), (2, 3));
    assert_eq!(
        outcome.runs[0].row.speed.ops_per_second, 100.0,
        "the median of three"
    );
    let ratio = &outcome.ratios[0];
    assert_eq!(
        (
            ratio.system,
            ratio.throughput,
            ratio.cpu,
            ratio.io,
            ratio.network
        ),
        (SEND, Some(1.5), Some(2.0), Some(3.0), None)
    );
    // Each claim about send-index is made of the papers' address mode as well.
    assert_eq!(outcome.claims.len(), 6);
    let of = |index: usize| (outcome.claims[index].better, outcome.claims[index].measured);
    assert_eq!(of(0), (SEND, Some((2.0, 2.0))));
    assert_eq!(of(1), (REWRITE, None));
    // Of 3000 bytes at an amplification of 6 the primary had 500; of 1000 at 2, too.
    assert_eq!(of(2), (SEND, Some((1.0, 1.0))));
    assert_eq!(of(4), (SEND, Some((0.0, 0.0))), "a value, not a ratio");
    let text = outcome.table();
    for line in [
        "send-index rewrite  not available",
        "   1.80 - 4.00           2.00  CPU of the backup: send-index over build-index (section 5.2)",
        "CPU of the backup: send-index rewrite over build-index (section 5.2)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains(" primary ") && text.contains("  backup "));
}

#[test]
fn each_system_has_a_bar_in_each_panel() {
    let figure = Figure::named("tebis-9").unwrap();
    let there = [
        takes(BUILD, &[row(90_000.0, 9.0, 9.0, 0)]),
        takes(SEND, &[row(150_000.0, 4.0, 2.0, 0)]),
    ];
    let picture = bars::svg(&FigureOutcome::new(
        figure,
        Scale::of(100),
        &there,
        Vec::new(),
    ));
    // The background, two of the legend, and two bars in each of four panels.
    assert_eq!(picture.matches("<rect ").count(), 1 + 2 + 2 * 4);
    assert_eq!(picture.matches("load-a: ").count(), 4);
    // 90 and 150 of at most 150 kops/s.
    assert!(picture.contains("height=\"90.0\"") && picture.contains("height=\"150.0\""));
    let nothing = bars::svg(&FigureOutcome::new(figure, Scale::of(100), &[], Vec::new()));
    assert!(nothing.ends_with("</svg>\n") && !nothing.contains("NaN"));
}

#[test]
fn a_system_that_is_not_there_leaves_its_claims_open() {
    let figure = Figure::named("tebis-9").unwrap();
    let there = [takes(SEND, &[row(150.0, 4.0, 2.0, 0)])];
    let outcome = FigureOutcome::new(figure, Scale::of(100), &there, vec![BUILD]);
    assert!(outcome.ratios.is_empty());
    assert!(outcome.claims.iter().all(|claim| claim.measured.is_none()));
    assert!(outcome.table().contains("build-index  not available"));
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(
        (&json["schema"], &json["figure"]),
        (&"argosy.figure.v1".into(), &"tebis-9".into())
    );
}
