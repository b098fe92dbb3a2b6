//! `argosy ctl node`: the servers, and what they say of themselves.

use argosy_base::ServerId;
use argosy_coordinator::Region;
use argosy_master::Cluster;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::reading::Reading;
use super::{Common, Printed, list, table};
use crate::failure::CommandFailure;

#[derive(Subcommand, Debug)]
pub(crate) enum Node {
    /// List the servers
    #[command(after_help = "Examples:\n  argosy ctl node list\n  \
        argosy ctl node list --data-dir ./data -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster, 8 data damaged")]
    List(Common),
    /// Show one server
    #[command(after_help = "Examples:\n  argosy ctl node show 0\n  \
        argosy ctl node show 0 -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster or server, 8 data damaged")]
    Show(ShowArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The server's number
    #[arg(value_name = "N")]
    server: u32,
    #[command(flatten)]
    common: Common,
}

/// What `node list -o json` prints.
#[derive(Debug, Serialize)]
struct Listed {
    schema: &'static str,
    nodes: Vec<NodeShown>,
}

/// A server.
#[derive(Debug, Serialize)]
struct NodeShown {
    id: u32,
    state: &'static str,
    incarnation: Option<u64>,
    resp: String,
    admin: String,
    device: Option<String>,
    /// Whom it says that it does not reach.
    unreachable: Vec<u32>,
    primary_of: Vec<u32>,
    backup_of: Vec<u32>,
    filled_with: Vec<u32>,
    failed: Vec<u32>,
}

/// What `node show -o json` prints.
#[derive(Debug, Serialize)]
struct One {
    schema: &'static str,
    node: NodeShown,
}

impl Node {
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        match self {
            Self::List(common) => {
                let cluster = Reading::open(&common)?.cluster()?;
                let servers = cluster.map.servers().iter();
                let nodes = servers
                    .map(|server| NodeShown::of(&cluster, server.id))
                    .collect();
                let schema = "argosy.ctl-nodes.v1";
                Listed { schema, nodes }.print(common.output)
            }
            Self::Show(ShowArgs { server, common }) => {
                let cluster = Reading::open(&common)?.cluster()?;
                let id = ServerId(server);
                if cluster.map.server(id).is_none() {
                    let words = format!("there is no server {server}");
                    return Err(CommandFailure::NotFound(words));
                }
                let node = NodeShown::of(&cluster, id);
                let schema = "argosy.ctl-node.v1";
                One { schema, node }.print(common.output)
            }
        }
    }
}

impl NodeShown {
    fn of(cluster: &Cluster, id: ServerId) -> Self {
        let server = cluster.map.server(id);
        let live = cluster.servers.get(&id);
        let which = |is: &dyn Fn(&&Region) -> bool| {
            let regions = cluster.map.regions().iter().filter(is);
            regions.map(|region| region.id.0).collect()
        };
        let address = |of: fn(&argosy_coordinator::Server) -> &String| {
            server.map(of).cloned().unwrap_or_default()
        };
        let unreachable = live.into_iter().flat_map(|live| &live.presence.unreachable);
        Self {
            id: id.0,
            state: match live.map(|live| live.presence.leaving) {
                None => "away",
                Some(false) => "there",
                Some(true) => "leaving",
            },
            incarnation: live.map(|live| live.presence.incarnation.0),
            resp: address(|server| &server.resp),
            admin: address(|server| &server.admin),
            device: cluster.map.device(id).map(|device| device.to_string()),
            unreachable: unreachable.map(|id| id.0).collect(),
            primary_of: which(&|region| region.primary == id),
            backup_of: which(&|region| region.backups().any(|backup| backup == id)),
            filled_with: which(&|region| region.filling.contains(&id)),
            failed: which(&|region| cluster.has_failed(id, region.id)),
        }
    }
}

impl Printed for Listed {
    fn lines(&self) -> Vec<String> {
        let row = |node: &NodeShown| {
            vec![
                node.id.to_string(),
                node.state.to_owned(),
                node.primary_of.len().to_string(),
                node.backup_of.len().to_string(),
                node.filled_with.len().to_string(),
                list(&node.unreachable),
                node.resp.clone(),
                node.admin.clone(),
            ]
        };
        let rows: Vec<_> = self.nodes.iter().map(row).collect();
        let head = [
            "server",
            "state",
            "leads",
            "backs",
            "filled",
            "misses",
            "redis protocol",
            "admin",
        ];
        table(&head, &rows)
    }
}

impl Printed for One {
    fn lines(&self) -> Vec<String> {
        let node = &self.node;
        vec![
            format!("server       {}", node.id),
            format!("state        {}", node.state),
            format!("start        {}", list(node.incarnation)),
            format!(
                "addresses    redis protocol {}, admin {}",
                node.resp, node.admin
            ),
            format!("device       {}", list(&node.device)),
            format!("misses       {}", list(&node.unreachable)),
            format!("leads        {}", list(&node.primary_of)),
            format!("backs        {}", list(&node.backup_of)),
            format!("filled with  {}", list(&node.filled_with)),
            format!("failed here  {}", list(&node.failed)),
        ]
    }
}
