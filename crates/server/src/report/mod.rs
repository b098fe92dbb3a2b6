//! What a server tells on its admin port: the status as one JSON document, and metrics made from the
//! same document, so that the two agree.
//!
//! Reading order: [`status`] (the document; `node/report.rs` gathers its numbers), `gather` (names that both use),
//! `metrics` and `region_metrics` with `families` (the text for Prometheus), `process` (what the system says).

mod snapshots;
pub mod status;

mod device_metrics;
mod families;
pub(crate) mod gather;
mod level_metrics;
pub(crate) mod metrics;
pub(crate) mod process;
mod region_metrics;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::admin::StatusSource;
use crate::meter::Meter;
use crate::native;
use crate::node::Node;
use crate::resp::FrontEnd;
use crate::service::{Readiness, Service};
use status::{NativeStatus, RequestStatus, Status, TransportStatus};

/// The name of the Redis protocol among the transports.
const RESP: &str = "resp";
/// The name of the native protocol.
const NATIVE: &str = "native";

/// Tells of a node and its front ends.
pub struct Reporter {
    node: Arc<Node>,
    resp: Arc<FrontEnd>,
    started: Duration,
}

impl Reporter {
    /// Tells of `node`, which clients reach through `resp`.
    #[must_use]
    pub fn new(node: Arc<Node>, resp: Arc<FrontEnd>) -> Self {
        Self {
            node,
            resp,
            started: process::wall(),
        }
    }

    /// Everything, at present.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.node.reports().status(process::process(self.started));
        status.traffic.transports = vec![self.resp_status()];
        if let Some(front) = self.node.native() {
            status.traffic.transports.push(native_transport(front));
            status.traffic.native = Some(native_status(front));
        }
        // Relaxed: a number for people.
        let clients = self.resp.held_bytes() as u64;
        for part in &mut status.resources.memory.components {
            if part.component == gather::CLIENTS {
                part.bytes = clients;
            }
        }
        status.resources.memory.bytes += clients;
        status
    }

    fn resp_status(&self) -> TransportStatus {
        let front = &self.resp;
        // Relaxed: counters for people, each by itself.
        TransportStatus {
            transport: RESP,
            connections: front.clients().len() as u64,
            connections_total: front.connections.load(Ordering::Relaxed),
            refused_total: front.refused.load(Ordering::Relaxed),
            evicted_total: front.evicted.load(Ordering::Relaxed),
            requests_total: requests_of(&front.meter),
        }
    }
}

fn native_transport(front: &native::Front) -> TransportStatus {
    TransportStatus {
        transport: NATIVE,
        connections: front.clients() as u64,
        connections_total: front.taken_in(),
        refused_total: front.refused(),
        evicted_total: front.evicted(),
        requests_total: requests_of(&front.meter),
    }
}

fn native_status(front: &native::Front) -> NativeStatus {
    let tasks = front.tasks();
    NativeStatus {
        workers: tasks.workers,
        memory_bytes: front.memory_bytes() as u64,
        garbled_total: front.garbled() as u64,
        tasks_queued: tasks.queued as u64,
        tasks_total: tasks.done,
        queue_full_total: tasks.queue_full,
    }
}

fn requests_of(meter: &Meter) -> Vec<RequestStatus> {
    let counts = meter.counts();
    let requests = counts.map(|(command, outcome, count)| RequestStatus {
        command,
        result: outcome.name(),
        count,
    });
    requests.collect()
}

impl StatusSource for Reporter {
    fn ready(&self) -> Readiness {
        Service::ready(&*self.node)
    }

    fn metrics(&self) -> String {
        let mut transports = vec![(RESP, &self.resp.meter)];
        transports.extend(self.node.native().map(|front| (NATIVE, &front.meter)));
        metrics::page(&Self::status(self), &transports)
    }

    fn region_metrics(&self) -> String {
        region_metrics::page(&Self::status(self))
    }

    fn status(&self) -> String {
        let json = serde_json::to_string_pretty(&Self::status(self));
        json.expect("plain data becomes JSON") + "\n"
    }
}
