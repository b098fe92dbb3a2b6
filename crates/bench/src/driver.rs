//! Client threads: each does its share of a workload over pipelined connections of its own, natively or
//! over the Redis protocol ([`crate::transport`]).
//!
//! A thread works in rounds. It takes up to `pipeline` operations, sends each on the connection to
//! the server that its key belongs to, and then reads the replies in order. An operation's latency
//! is from the moment its round is sent to the moment its reply has been read, so it includes the
//! wait behind its neighbours in the pipeline, as a real client would see it. A record that is read
//! and then written takes two trips: the writes of a round are sent when all its replies are in.

use std::net::SocketAddr;

use argosy_base::range::Starts;
use argosy_base::{Clock, Instant};
use hdrhistogram::Histogram;

use crate::data::{Dataset, KEY_BYTES, VALUE_BYTES_MAX};
use crate::order::{Asked, Order};
use crate::resp::RespError;
use crate::timeline::Timeline;
use crate::transport::{Got, Sent, Transport, Way};
use crate::truth::Records;
use crate::workload::{Operation, Operations};

/// Longest pipeline. So many of the largest pairs stay under two megabytes, and nobody waits for
/// anybody who waits for him.
pub const PIPELINE_MAX: usize = 1024;

/// Most scans in flight on one client: their replies are a hundred times as long as others.
const SCANS_IN_FLIGHT_MAX: usize = 32;

/// Longest latency told apart, in nanoseconds; servers answer long before.
const LATENCY_NANOS_MAX: u64 = 120_000_000_000;

/// Which server keys from `start` on belong to, up to the next route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The first key.
    pub start: Vec<u8>,
    /// Index of the server among those of the target.
    pub server: usize,
}

/// Why a client stopped.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The connection failed.
    #[error(transparent)]
    Resp(#[from] RespError),
    /// The native client could not connect.
    #[error(transparent)]
    Native(#[from] argosy_client::ClientError),
    /// A server answered what was never written, or not what was written last.
    #[error("record {record} (key {key}): {what}")]
    Wrong {
        /// The record.
        record: u64,
        /// Its key.
        key: String,
        /// What was answered, and what was expected.
        what: String,
    },
}

/// What all clients of a run share.
pub struct Job<'a> {
    /// The records, and what reads of them may return.
    pub records: Records<'a>,
    /// Through which transport clients come.
    pub transport: Transport,
    /// Where the servers listen.
    pub servers: &'a [SocketAddr],
    /// Who serves which keys, ascending from the empty key; empty where a client stays with one
    /// server and lets it forward.
    pub routes: &'a [Route],
    /// In which order keys lie; there for workloads that scan.
    pub order: Option<&'a Order>,
    /// Operations in one round.
    pub pipeline: usize,
    /// When the workload began.
    pub began: Instant,
    /// The clock.
    pub clock: &'a dyn Clock,
}

/// What one client did.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Nanoseconds of each operation.
    pub latencies: Histogram<u64>,
    /// The same by when they ended.
    pub timeline: Timeline,
    /// Bytes of keys and values of all requests.
    pub request_bytes: u64,
    /// Operations that were answered by an error.
    pub errors: u64,
    /// The first such answer.
    pub first_error: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3);
        Self {
            latencies: latencies.expect("the bounds are constants that suit each other"),
            timeline: Timeline::default(),
            request_bytes: 0,
            errors: 0,
            first_error: None,
        }
    }
}

impl Tally {
    /// Adds what another client did.
    pub fn add(&mut self, other: &Self) {
        let added = self.latencies.add(&other.latencies);
        added.expect("all histograms have the same bounds");
        self.timeline.add(&other.timeline);
        self.request_bytes += other.request_bytes;
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// Records the latency of an operation of a workload that `began`; one past all bounds counts
    /// as the longest.
    #[inline]
    pub fn operation(&mut self, began: Instant, sent_at: Instant, now: Instant) {
        let nanos = now.as_nanos().saturating_sub(sent_at.as_nanos()).max(1);
        self.latencies.saturating_record(nanos);
        self.timeline.record(now - began, nanos);
    }
}

/// An operation that was sent.
struct Pending {
    operation: Operation,
    sent: Sent,
    /// The version that is written, or the floor of a read.
    version: u32,
    /// For a scan, how many new records there were.
    mark: u64,
}

struct Client<'a> {
    job: &'a Job<'a>,
    /// The server that this client talks to where there are no routes.
    home: usize,
    /// Where routes begin.
    starts: Starts,
    way: Way,
    value: Vec<u8>,
    /// Records that were read in this round, to be written.
    read: Vec<u64>,
    tally: Tally,
}

/// Does `operations` as client number `client`.
pub fn run_client(
    job: &Job<'_>,
    client: usize,
    mut operations: Operations<'_>,
) -> Result<Tally, DriverError> {
    assert!((1..=PIPELINE_MAX).contains(&job.pipeline));
    let mut client = Client {
        job,
        home: client % job.servers.len(),
        starts: Starts::new(job.routes.iter().map(|route| &*route.start)),
        way: Way::new(job.transport, job.servers)?,
        value: vec![0; VALUE_BYTES_MAX],
        read: Vec::new(),
        tally: Tally::default(),
    };
    let pipeline = match job.order {
        Some(_) => job.pipeline.min(SCANS_IN_FLIGHT_MAX),
        None => job.pipeline,
    };
    let mut round = Vec::with_capacity(pipeline);
    loop {
        for operation in operations.by_ref().take(pipeline) {
            round.push(client.push(operation)?);
        }
        if round.is_empty() {
            return Ok(client.tally);
        }
        let sent_at = job.clock.now();
        client.exchange(&mut round, sent_at)?;
        for record in std::mem::take(&mut client.read) {
            round.push(client.push(Operation::Update(record))?);
        }
        client.exchange(&mut round, sent_at)?;
    }
}

impl Client<'_> {
    /// Sends what was pushed, and receives all replies.
    fn exchange(&mut self, round: &mut Vec<Pending>, sent_at: Instant) -> Result<(), DriverError> {
        self.way.flush()?;
        for pending in round.drain(..) {
            self.receive(pending, sent_at)?;
        }
        Ok(())
    }

    /// Sends `operation` to its server, or keeps it for the next flush.
    fn push(&mut self, operation: Operation) -> Result<Pending, DriverError> {
        let record = operation.record();
        let key = self.job.records.data.key(record);
        let server = self.server_of(&key);
        let job = self.job;
        let Records { data, truth } = job.records;
        let mut bytes = KEY_BYTES + data.value_bytes(record);
        let (mut mark, mut version) = (0, 0);
        // What is known to be written, and what may be, is noted before the request can be seen.
        let sent = match operation {
            Operation::Read(_) | Operation::Modify(_) => {
                version = truth.begin_read(record);
                self.way.get(server, &key)?
            }
            Operation::Scan { pairs, .. } => {
                mark = job.order.map_or(0, Order::mark);
                // Counted when they are there.
                bytes = 0;
                self.way.scan(server, &key, pairs)?
            }
            Operation::Insert(_) | Operation::Update(_) => {
                version = truth.begin_write(record);
                let value = data.value(record, version, &mut self.value);
                self.way.put(server, &key, value)?
            }
        };
        self.tally.request_bytes += u64::try_from(bytes).expect("a pair is small");
        Ok(Pending {
            operation,
            sent,
            version,
            mark,
        })
    }

    fn server_of(&self, key: &[u8]) -> usize {
        let routes = self.job.routes;
        let place = self.starts.index_of(key, |place| &*routes[place].start);
        routes.get(place).map_or(self.home, |route| route.server)
    }

    /// Takes the answer to `pending` and checks it.
    fn receive(&mut self, pending: Pending, sent_at: Instant) -> Result<(), DriverError> {
        let Self {
            job, tally, way, ..
        } = self;
        let Records { data, truth } = job.records;
        let Pending {
            operation,
            sent,
            version,
            mark,
        } = pending;
        let record = operation.record();
        match (operation, way.receive(sent)?) {
            (_, Got::Error(line)) => {
                // A write that was refused may have been applied all the same: it never ends.
                tally.errors += 1;
                tally.first_error.get_or_insert(line);
            }
            (Operation::Read(_), Got::Value(value)) => {
                check_read(job.records, record, version, value)?;
            }
            (Operation::Modify(_), Got::Value(value)) => {
                check_read(job.records, record, version, value)?;
                // It is over when its write is.
                self.read.push(record);
                return Ok(());
            }
            (Operation::Insert(_) | Operation::Update(_), Got::Written) => {
                truth.end_write(record, version);
                if let (Some(order), Operation::Insert(_)) = (job.order, operation) {
                    order.add(data.place(record));
                }
            }
            (Operation::Scan { pairs, .. }, Got::Pairs(found)) => {
                let asked = Asked {
                    record,
                    pairs,
                    mark,
                };
                let order = job.order.expect("there where a workload scans");
                let found = found.iter();
                let found = found.map(|(key, value)| (key.as_slice(), value.as_slice()));
                tally.request_bytes += order.check(job.records, asked, found)?;
            }
            (operation, got) => {
                let what = match got {
                    Got::Odd(what) => what,
                    got => format!("{got:?}"),
                };
                let what = format!("{operation:?} was answered by {what}");
                return Err(wrong(data, record, what));
            }
        }
        tally.operation(job.began, sent_at, job.clock.now());
        Ok(())
    }
}

/// Whether a read of `record` that began at `floor` may have returned `value`.
pub(crate) fn check_read(
    records: Records<'_>,
    record: u64,
    floor: u32,
    value: Option<&[u8]>,
) -> Result<(), DriverError> {
    let Records { data, truth } = records;
    let version = match value {
        None => Some(0),
        Some(value) => data.version_of(record, value),
    };
    match version {
        Some(version) if truth.allows(record, floor, version) => Ok(()),
        Some(version) => {
            let what = format!("version {version} was read where {floor} was acknowledged before");
            Err(wrong(data, record, what))
        }
        None => {
            let value = value.unwrap_or_default();
            let what = format!("{} bytes that nobody wrote were read", value.len());
            Err(wrong(data, record, what))
        }
    }
}

pub(crate) fn wrong(data: &Dataset, record: u64, what: String) -> DriverError {
    let key = String::from_utf8_lossy(&data.key(record)).into_owned();
    DriverError::Wrong { record, key, what }
}
