//! One configuration: load, then each workload, each drained and measured.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use argosy_base::{Clock, info};
use argosy_device::SystemClock;

use crate::data::{Dataset, Mix, PairSizes};
use crate::driver::{DriverError, Job, Route, Tally, run_client};
use crate::order::Order;
use crate::process::{ProcessError, Sample};
use crate::report::{
    Activities, Row, RowCpu, RowDevices, RowMemory, RowNetwork, RowScale, RowSpeed, RowStore,
    RowSubject, RowTimes, ServerRow, ratio, rounded,
};
use crate::resp::{Connection, Reply, RespError};
use crate::transport::Transport;
use crate::truth::{Records, Truth};
use crate::workload::{Operations, Share, Workload};

/// How often a server is asked whether it has drained.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// How long a drain may take before something must be wrong.
const DRAIN_MAX: Duration = Duration::from_secs(3600);

/// Why a benchmark ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A client met an error that is not an answer.
    #[error(transparent)]
    Client(#[from] DriverError),
    /// A server could not be asked.
    #[error(transparent)]
    Resp(#[from] RespError),
    /// A process could not be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// `INFO` lacks what the bench needs.
    #[error("server {server}: INFO says nothing of {name}")]
    Info {
        /// The server.
        server: u32,
        /// What is missing.
        name: &'static str,
    },
    /// Background work did not end.
    #[error("servers still had {pending} pieces of background work after {seconds} s")]
    Drain {
        /// What is left.
        pending: u64,
        /// How long was waited.
        seconds: u64,
    },
    /// The store in this process failed, or could not be opened.
    #[error(transparent)]
    Store(#[from] argosy_embedded::Error),
    /// A peer failed.
    #[cfg(feature = "peers")]
    #[error(transparent)]
    RocksDb(#[from] argosy_peers::rocksdb::PeerError),
    /// Likewise.
    #[cfg(feature = "peers")]
    #[error(transparent)]
    Fjall(#[from] argosy_peers::fjall::FjallError),
    /// Likewise.
    #[cfg(feature = "peers")]
    #[error(transparent)]
    BfTree(#[from] argosy_peers::bf_tree::BfTreeError),
    /// A thread could not be started.
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
}

/// A server under test.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    /// The server.
    pub id: u32,
    /// Its process.
    pub pid: u32,
    /// Where it speaks RESP.
    pub resp: SocketAddr,
}

/// The cluster under test.
#[derive(Clone, Debug)]
pub struct TestedCluster {
    /// The servers.
    pub servers: Vec<ServerHandle>,
    /// Who serves which keys; see [`Job::routes`].
    pub routes: Vec<Route>,
}

/// How a configuration is called in its rows.
#[derive(Clone, Debug)]
pub struct Labels {
    /// The engine.
    pub engine: &'static str,
    /// Where values are placed.
    pub placement: String,
    /// What a compaction takes.
    pub compaction: &'static str,
    /// How regions are replicated.
    pub replication: String,
    /// What pointers hold.
    pub address_mode: &'static str,
    /// What carries one-sided writes.
    pub fabric: &'static str,
    /// What else the system was told, in its own words.
    pub options: String,
    /// Members of each region.
    pub replicas: usize,
    /// Regions.
    pub regions: usize,
}

/// What is loaded and run.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// How its rows are called.
    pub labels: Labels,
    /// The mix of sizes.
    pub mix: Mix,
    /// The sizes.
    pub sizes: PairSizes,
    /// Records to load.
    pub records: u64,
    /// Operations of each workload that does not load.
    pub ops: u64,
    /// Client threads.
    pub clients: usize,
    /// Through which transport they come.
    pub transport: Transport,
    /// Operations in flight on each client.
    pub pipeline: usize,
    /// The seed.
    pub seed: u64,
    /// What to run on the data, in order. Loading comes first whether or not it is named; it gives
    /// a row only where it is.
    pub workloads: Vec<Workload>,
}

impl Configuration {
    /// The records.
    #[must_use]
    pub fn data(&self) -> Dataset {
        Dataset::new(self.seed, self.mix, self.sizes)
    }

    /// An empty table of versions, with a word for each record that is loaded or may be inserted.
    #[must_use]
    pub fn truth(&self) -> Truth {
        let (records, more) = self.room();
        Truth::new(records, more)
    }

    /// How many records are loaded, and how many more may be inserted.
    pub(crate) fn room(&self) -> (usize, usize) {
        let inserting = self.workloads.iter().filter(|workload| workload.inserts());
        let more = self.ops.saturating_mul(inserting.count() as u64);
        let count = |n| usize::try_from(n).expect("records are counted in memory");
        (count(self.records), count(more))
    }

    /// What is to be run, loading first; with each, whether it gives a row.
    pub fn phases(&self) -> impl Iterator<Item = Phase> {
        let named = self.workloads.iter().any(|workload| workload.is_load());
        let load = Phase {
            workload: Workload::load(),
            reported: named,
        };
        let rest = self.workloads.iter().filter(|workload| !workload.is_load());
        std::iter::once(load).chain(rest.map(|&workload| Phase {
            workload,
            reported: true,
        }))
    }

    /// How many operations `workload` has here.
    #[must_use]
    pub const fn ops_of(&self, workload: Workload) -> u64 {
        if workload.is_load() {
            self.records
        } else {
            self.ops
        }
    }

    /// The operations of the first of `clients` clients, of which those of the others are made.
    #[must_use]
    pub fn operations<'a>(
        &self,
        workload: Workload,
        clients: usize,
        truth: &'a Truth,
    ) -> Operations<'a> {
        let share = Share {
            client: 0,
            clients: clients as u64,
            records: self.records,
            operations: self.ops,
            seed: self.seed,
        };
        Operations::new(workload, share, truth)
    }
}

/// One workload to run.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// The workload.
    pub workload: Workload,
    /// Whether it gives a row.
    pub reported: bool,
}

/// What a benchmark has to say while it runs.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A workload is over and measured.
    Row(Box<Row>),
    /// Operations of a workload were answered by errors.
    Errors {
        /// The workload.
        workload: Workload,
        /// How many.
        count: u64,
        /// The first of them.
        first: String,
    },
}

/// Loads `config`'s records into `target` and runs its workloads. Hands each row to `tell` as soon
/// as it is measured.
pub fn run(
    target: &TestedCluster,
    config: &Configuration,
    mut tell: impl FnMut(Notice),
) -> Result<(), BenchError> {
    let (data, truth, clock) = (config.data(), config.truth(), SystemClock);
    let addrs: Vec<_> = target.servers.iter().map(|server| server.resp).collect();
    let mut probes = Probe::open_all(target)?;
    for phase in config.phases() {
        // What takes time by the number of records is done before the clock is read.
        let operations = config.operations(phase.workload, config.clients, &truth);
        truth.present();
        let order = phase.workload.scans().then(|| Order::new(&data, &truth));
        let before = Snapshot::take(&mut probes)?;
        let (began, client_cpu) = (clock.now(), clock.process_cpu());
        let job = Job {
            records: Records {
                data: &data,
                truth: &truth,
            },
            transport: config.transport,
            servers: &addrs,
            routes: &target.routes,
            order: order.as_ref(),
            pipeline: config.pipeline,
            began,
            clock: &clock,
        };
        let tally = drive(&job, config.clients, &operations)?;
        let client_cpu = clock.process_cpu() - client_cpu;
        drain(&mut probes, &clock)?;
        let measured = Measured {
            workload: phase.workload,
            elapsed: clock.now() - began,
            client_cpu,
            tally,
            before,
            after: Snapshot::take(&mut probes)?,
        };
        if let Some(first) = &measured.tally.first_error {
            tell(Notice::Errors {
                workload: phase.workload,
                count: measured.tally.errors,
                first: first.clone(),
            });
        }
        if phase.reported {
            tell(Notice::Row(Box::new(measured.row(target, config))));
        }
    }
    Ok(())
}

/// Runs all clients of one workload to their end.
fn drive(job: &Job<'_>, count: usize, operations: &Operations<'_>) -> Result<Tally, BenchError> {
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for client in 0..count {
            let operations = operations.of(client as u64);
            let thread = std::thread::Builder::new()
                .name(format!("client-{client}"))
                .spawn_scoped(scope, move || run_client(job, client, operations))
                .map_err(BenchError::Thread)?;
            clients.push(thread);
        }
        let mut tally = Tally::default();
        for client in clients {
            let result = client
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tally.add(&result?);
        }
        Ok(tally)
    })
}

/// Waits until no server has background work left.
fn drain(probes: &mut [Probe], clock: &dyn Clock) -> Result<(), BenchError> {
    let began = clock.now();
    loop {
        let mut pending = 0;
        for probe in &mut *probes {
            pending += probe.info()?.number(info::BACKGROUND_PENDING)?;
        }
        let waited = clock.now() - began;
        if pending == 0 {
            return Ok(());
        }
        if waited > DRAIN_MAX {
            let seconds = waited.as_secs();
            return Err(BenchError::Drain { pending, seconds });
        }
        std::thread::park_timeout(DRAIN_POLL);
    }
}

/// A connection for questions about a server.
struct Probe {
    server: ServerHandle,
    connection: Connection,
}

impl Probe {
    fn open_all(target: &TestedCluster) -> Result<Vec<Self>, BenchError> {
        let open = |server: &ServerHandle| {
            Ok(Self {
                server: server.clone(),
                connection: Connection::open(server.resp)?,
            })
        };
        target.servers.iter().map(open).collect()
    }

    fn info(&mut self) -> Result<Info, BenchError> {
        let reply = self.connection.call(&[b"INFO", info::SECTION.as_bytes()])?;
        let text = match reply {
            Reply::Bulk(Some(text)) => text,
            _ => Vec::new(),
        };
        Ok(Info {
            server: self.server.id,
            values: parse_info(&String::from_utf8_lossy(&text)),
        })
    }
}

/// The names and values of `INFO`'s text; titles and empty lines are left out.
#[must_use]
pub fn parse_info(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.trim_end().split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What a server said of itself.
struct Info {
    server: u32,
    values: BTreeMap<String, String>,
}

impl Info {
    fn number(&self, name: &'static str) -> Result<u64, BenchError> {
        let value = self.values.get(name).and_then(|value| value.parse().ok());
        let server = self.server;
        value.ok_or(BenchError::Info { server, name })
    }

    fn activities(&self) -> Result<[u64; 6], BenchError> {
        let mut micros = [0; 6];
        for (micros, name) in micros.iter_mut().zip(info::ACTIVITIES_CPU_US) {
            *micros = self.number(name)?;
        }
        Ok(micros)
    }
}

/// All counters of one server at one moment.
#[derive(Clone, Copy)]
struct Counts {
    sample: Sample,
    /// In the order of [`info::ACTIVITIES_CPU_US`].
    activities_us: [u64; 6],
    network_bytes: u64,
    compactions: u64,
    levels: u64,
    space_bytes: u64,
}

/// All counters of all servers.
struct Snapshot(Vec<Counts>);

impl Snapshot {
    fn take(probes: &mut [Probe]) -> Result<Self, BenchError> {
        let look = |probe: &mut Probe| {
            let info = probe.info()?;
            Ok(Counts {
                sample: Sample::of(probe.server.pid)?,
                activities_us: info.activities()?,
                network_bytes: info.number(info::NETWORK_BYTES)?,
                compactions: info.number(info::COMPACTIONS)?,
                levels: info.number(info::LEVELS)?,
                space_bytes: info.number(info::SPACE_BYTES)?,
            })
        };
        probes
            .iter_mut()
            .map(look)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// One workload, over.
struct Measured {
    workload: Workload,
    elapsed: Duration,
    client_cpu: Duration,
    tally: Tally,
    before: Snapshot,
    after: Snapshot,
}

impl Measured {
    fn row(&self, target: &TestedCluster, config: &Configuration) -> Row {
        let ops = config.ops_of(self.workload);
        let pairs = self.before.0.iter().zip(&self.after.0);
        let per_server: Vec<_> = target
            .servers
            .iter()
            .zip(pairs)
            .map(|(server, (before, after))| server_row(server.id, ops, before, after))
            .collect();
        let sum = |of: fn(&ServerRow) -> u64| per_server.iter().map(of).sum::<u64>();
        let cpu = |of: fn(&ServerRow) -> f64| rounded(per_server.iter().map(of).sum(), 3);
        let (read, written) = (
            sum(|row| row.device_read_bytes),
            sum(|row| row.device_write_bytes),
        );
        let network = sum(|row| row.network_bytes);
        let peak_rss_bytes = sum(|row| row.peak_rss_bytes);
        let compactions = sum(|row| row.compactions);
        let after = &self.after.0;
        let labels = &config.labels;
        let seconds = self.elapsed.as_secs_f64();
        let client_us = u64::try_from(self.client_cpu.as_micros()).unwrap_or(u64::MAX);
        Row {
            subject: RowSubject::of(self.workload, config),
            scale: RowScale {
                servers: target.servers.len(),
                replicas: labels.replicas,
                regions: labels.regions,
                clients: config.clients,
                records: config.records,
                ops,
            },
            speed: RowSpeed {
                seconds: rounded(seconds, 3),
                ops_per_second: rounded(ratio(ops, 1) / seconds, 1),
            },
            cpu: RowCpu {
                cpu_us_per_op: cpu(|row| row.cpu_us_per_op),
                client_cpu_us_per_op: rounded(ratio(client_us, ops), 3),
                compaction_cpu_us_per_op: cpu(|row| row.compaction_cpu_us_per_op),
                activity_cpu_us_per_op: Activities {
                    request: cpu(|row| row.activity_cpu_us_per_op.request),
                    log_replication: cpu(|row| row.activity_cpu_us_per_op.log_replication),
                    compaction: cpu(|row| row.activity_cpu_us_per_op.compaction),
                    index_shipping: cpu(|row| row.activity_cpu_us_per_op.index_shipping),
                    rewriting: cpu(|row| row.activity_cpu_us_per_op.rewriting),
                    other: cpu(|row| row.activity_cpu_us_per_op.other),
                },
            },
            per_server,
            times: RowTimes::of(&self.tally),
            devices: RowDevices::of(read, written, None, self.tally.request_bytes),
            network: RowNetwork {
                network_bytes: network,
                network_amplification: rounded(ratio(network, self.tally.request_bytes), 3),
            },
            resident: RowMemory {
                peak_rss_bytes,
                memory: None,
            },
            store: RowStore {
                space_bytes: after.iter().map(|counts| counts.space_bytes).sum(),
                levels: after.iter().map(|counts| counts.levels).max().unwrap_or(0),
                compactions,
                filter_false_positive_rate: None,
                filter_bytes: None,
            },
            errors: self.tally.errors,
        }
    }
}

fn server_row(id: u32, ops: u64, before: &Counts, after: &Counts) -> ServerRow {
    let used = after.sample.since(before.sample);
    let mut activities = after.activities_us;
    for (used, before) in activities.iter_mut().zip(before.activities_us) {
        *used = used.saturating_sub(before);
    }
    let activities = Activities::of(activities, ops);
    ServerRow {
        id,
        cpu_us_per_op: rounded(ratio(used.cpu_us, ops), 3),
        compaction_cpu_us_per_op: activities.compaction,
        activity_cpu_us_per_op: activities,
        device_read_bytes: used.read_bytes,
        device_write_bytes: used.write_bytes,
        network_bytes: after.network_bytes.saturating_sub(before.network_bytes),
        peak_rss_bytes: used.peak_rss_bytes,
        compactions: after.compactions.saturating_sub(before.compactions),
    }
}
