//! A trial, from its first server to its verdict.
//!
//! ```text
//! DIR/data             the data of the cluster; removed at the end where the trial passed
//! DIR/playground       what the cluster says
//! DIR/trial.json       the summary, of schema argosy.trial.v1
//! DIR/latency.svg      latency over time
//! DIR/key-N.history    a history that is not possible: an access a line
//! ```
//!
//! Whatever goes wrong once there is load, what was recorded is checked and the summary written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::{Clock as _, Instant};
use argosy_bench::rng::Rng;
use argosy_device::SystemClock;

use crate::cluster::Cluster;
use crate::doors::{Asker, Door, Native, Resp};
use crate::error::TrialError;
use crate::failures::{Failure, carry_out, plan, until_ready};
use crate::judge::{Unexplained, judge, line_of};
use crate::keys::{KEYS, Use, names_in, use_of};
use crate::load::Client;
use crate::plot::svg;
use crate::record::{History, Op, Record, Sample};
use crate::summary::{Material, Summary, summary};
use crate::time::End;

/// Regions of the cluster: two for each server to be the primary of.
const REGIONS: usize = 6;

/// How long the cluster may take to be ready, and to answer all reads, once the load is over.
const AFTERWARDS_MAX: Duration = Duration::from_secs(180);

/// How long a client waits before it asks again at the end.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a trial is.
#[derive(Clone, Debug)]
pub struct TrialSettings {
    /// The program whose cluster is tried.
    pub program: PathBuf,
    /// Where its data and what comes of the trial go.
    pub dir: PathBuf,
    /// How long there is load.
    pub span: Duration,
    /// Whether anything is done to the servers.
    pub failures: bool,
    /// What clients choose by.
    pub seed: u64,
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct TrialVerdict {
    /// How it went. It passed where nothing is wrong there.
    pub summary: Summary,
    /// The histories that are not possible.
    pub faults: Vec<Unexplained>,
}

impl TrialVerdict {
    /// Whether every history is possible, nothing acknowledged was lost, and nothing else was wrong.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.summary.wrong.is_empty()
    }
}

/// What the load left.
struct Loaded {
    samples: Vec<Sample>,
    failures: Vec<Failure>,
    began: Instant,
    ended: Instant,
}

/// Holds a trial.
///
/// # Errors
/// It could not be held, or what came of it not be written.
pub fn run(settings: &TrialSettings) -> Result<TrialVerdict, TrialError> {
    let dir = &settings.dir;
    let cluster = Cluster::start(&settings.program, dir, REGIONS)?;
    let ranges: Vec<_> = cluster
        .regions()?
        .into_iter()
        .map(|region| region.range)
        .collect();
    let names = names_in(&ranges)?;
    let record = Record::of(names.len());
    let loaded = load(settings, &cluster, &names, &record)?;
    read_all(settings, &cluster, &names, &record);
    if let Err(error) = cluster.stop() {
        record.wrong(error.to_string());
    }
    let parts = record.into_parts();
    let faults = judge(&parts.histories);
    let mut wrong = parts.wrong;
    for fault in &faults {
        let name = String::from_utf8_lossy(&names[fault.key]);
        wrong.push(format!("key {} ({name}): {}", fault.key, fault.words));
        write_history(dir, fault.key, &parts.histories[fault.key])?;
    }
    let material = Material {
        samples: &loaded.samples,
        failures: &loaded.failures,
        regions: ranges.len(),
        began: loaded.began,
        ended: loaded.ended,
    };
    let summary = summary(material, parts.odd, wrong);
    let json = serde_json::to_string(&summary).expect("plain data has a JSON form");
    write(&dir.join("trial.json"), &json)?;
    write(&dir.join("latency.svg"), &svg(&summary))?;
    let verdict = TrialVerdict { summary, faults };
    if verdict.passed() {
        let data = dir.join("data");
        std::fs::remove_dir_all(&data).map_err(TrialError::file("remove", &data))?;
    }
    Ok(verdict)
}

/// Has all clients ask while failures are carried out.
fn load(
    settings: &TrialSettings,
    cluster: &Cluster,
    names: &[Vec<u8>],
    record: &Record,
) -> Result<Loaded, TrialError> {
    let end = End::default();
    let began = SystemClock.now();
    std::thread::scope(|scope| {
        let end = &end;
        let mut threads = Vec::new();
        let mut started = Ok(());
        for client in clients(settings, cluster, names, record) {
            let name = format!("client-{}", threads.len());
            let thread = std::thread::Builder::new().name(name);
            match thread.spawn_scoped(scope, move || client.run(end)) {
                Ok(thread) => threads.push(thread),
                Err(error) => started = Err(TrialError::Thread(error)),
            }
        }
        let mut failures = Vec::new();
        if settings.failures && started.is_ok() {
            let plan = plan(settings.span, cluster.servers.len());
            if let Err(error) = carry_out(&plan, cluster, end, &mut failures) {
                record.wrong(error.to_string());
            }
        } else if started.is_ok() {
            end.wait_until(began + settings.span);
        }
        let ended = SystemClock.now();
        end.come();
        let mut samples = Vec::new();
        for thread in threads {
            samples.extend(thread.join().expect("a client does not panic"));
        }
        started?;
        Ok(Loaded {
            samples,
            failures,
            began,
            ended,
        })
    })
}

/// One client of each region for each server over the Redis protocol, and a native one.
fn clients<'a>(
    settings: &TrialSettings,
    cluster: &Cluster,
    names: &'a [Vec<u8>],
    record: &'a Record,
) -> Vec<Client<'a>> {
    let addrs: Vec<_> = cluster.servers.iter().map(|server| server.resp).collect();
    let mut clients = Vec::new();
    let mut add = |region, door, asker: Box<dyn Asker>| {
        let stream = u64::try_from(clients.len()).expect("few clients");
        clients.push(Client {
            door,
            asker,
            region,
            names,
            record,
            rng: Rng::new(settings.seed, stream),
            seen: vec![None; names.len()],
        });
    };
    for region in 0..names.len() / KEYS {
        for (server, addr) in (0..).zip(&addrs) {
            add(region, Door::Resp(server), Box::new(Resp::at(*addr)));
        }
        let first = region % addrs.len();
        add(
            region,
            Door::Native,
            Box::new(Native::at(addrs.clone(), first)),
        );
    }
    clients
}

/// Asks each server for each key, until it answers. What does not come in time is wrong.
fn read_all(settings: &TrialSettings, cluster: &Cluster, names: &[Vec<u8>], record: &Record) {
    let end = End::default();
    let latest = SystemClock.now() + AFTERWARDS_MAX;
    if until_ready(cluster, latest, &end).is_none() {
        record.wrong("not all servers were ready again in the end".to_owned());
    }
    for (number, server) in (0..).zip(&cluster.servers) {
        let mut client = Client {
            door: Door::Resp(number),
            asker: Box::new(Resp::at(server.resp)),
            region: 0,
            names,
            record,
            rng: Rng::new(settings.seed, 0),
            seen: vec![None; names.len()],
        };
        for key in 0..names.len() {
            let op = match use_of(key) {
                Use::Register => Op::Get,
                Use::Counter => Op::Increment,
            };
            while !client.ask_for(key, op).came.is_answer() {
                let again = SystemClock.now() + AGAIN_AFTER;
                if again > latest {
                    record.wrong(format!(
                        "server {number} did not answer for all keys in the end"
                    ));
                    return;
                }
                end.wait_until(again);
            }
        }
    }
}

/// Writes a history that is not possible.
fn write_history(dir: &Path, key: usize, history: &History) -> Result<(), TrialError> {
    let mut text = String::new();
    match history {
        History::Register(accesses) => {
            let mut accesses: Vec<_> = accesses.iter().collect();
            accesses.sort_by_key(|access| access.began);
            for access in accesses {
                let _ = writeln!(text, "{}", line_of(access));
            }
        }
        History::Counter(increments) => {
            for increment in increments {
                let _ = writeln!(text, "{increment:?}");
            }
        }
    }
    write(&dir.join(format!("key-{key}.history")), &text)
}

fn write(path: &Path, text: &str) -> Result<(), TrialError> {
    std::fs::write(path, text).map_err(TrialError::file("write", path))
}
