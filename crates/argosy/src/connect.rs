//! How tools reach a cluster: by the address of any server of it.

use std::net::{SocketAddr, ToSocketAddrs};

use argosy_base::Remedy;
use argosy_client::{Client, ClientError, Kv, RespClient};
use clap::{Args, ValueEnum};

use crate::failure::CommandFailure;

/// Which cluster, on a command line.
#[derive(Args, Clone, Debug)]
pub(crate) struct Endpoints {
    /// Servers of the cluster, any of them; the first that answers is used
    #[arg(
        short,
        long = "endpoints",
        value_name = "HOST:PORT,...",
        env = "ARGOSY_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7379"
    )]
    endpoints: Vec<String>,
    /// How servers are spoken to
    #[arg(long, value_enum, default_value_t)]
    client: Protocol,
}

/// A protocol that servers speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// The Redis protocol, through any server.
    #[default]
    Resp,
    /// Memory that is shared with the servers, which have to run on this host.
    Native,
}

impl Endpoints {
    /// A client of the cluster.
    ///
    /// # Errors
    /// Where none of the servers answers.
    pub(crate) fn connect(&self) -> Result<Box<dyn Kv>, CommandFailure> {
        match self.client {
            Protocol::Resp => Ok(Box::new(self.resp()?)),
            Protocol::Native => {
                let mut refused = None;
                for endpoint in &self.endpoints {
                    match Client::connect(endpoint) {
                        Ok(client) => return Ok(Box::new(client)),
                        Err(error) => refused = Some(error),
                    }
                }
                let none = || CommandFailure::Usage("--endpoints names no server".to_owned());
                Err(refused.map_or_else(none, CommandFailure::from))
            }
        }
    }

    /// About how many keys there are, where a server tells.
    pub(crate) fn count(&self) -> Option<u64> {
        let mut client = self.resp().ok()?;
        match client.command(&[b"DBSIZE"]) {
            Ok(argosy_client::resp::Reply::Integer(count)) => u64::try_from(count).ok(),
            _ => None,
        }
    }

    /// A client of the Redis protocol.
    ///
    /// # Errors
    /// Where none of the servers answers.
    pub(crate) fn resp(&self) -> Result<RespClient, CommandFailure> {
        let mut refusals = Vec::new();
        for endpoint in &self.endpoints {
            match addresses(endpoint) {
                Ok(addresses) => {
                    for address in addresses {
                        match RespClient::connect(address) {
                            Ok(client) => return Ok(client),
                            Err(error) => refusals.push(error.to_string()),
                        }
                    }
                }
                Err(why) => refusals.push(why),
            }
        }
        Err(CommandFailure::Unreachable(format!(
            "no server answers: {}; name one with --endpoints or ARGOSY_ENDPOINTS, or start one \
             with argosy playground",
            refusals.join("; ")
        )))
    }
}

fn addresses(endpoint: &str) -> Result<Vec<SocketAddr>, String> {
    let found = endpoint.to_socket_addrs();
    let found = found.map_err(|error| format!("'{endpoint}' is no HOST:PORT: {error}"))?;
    Ok(found.collect())
}

impl From<ClientError> for CommandFailure {
    fn from(error: ClientError) -> Self {
        if let ClientError::WrongType { .. } = &error {
            return Self::Failed(format!(
                "{error}: hashes, sorted sets and sets are for redis-cli and other clients of Redis"
            ));
        }
        match error.remedy() {
            Remedy::Retry => Self::Unreachable(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
