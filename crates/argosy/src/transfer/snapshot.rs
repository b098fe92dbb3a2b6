//! The snapshot that an export reads from: opened before the first page, renewed while pages are read, and closed at
//! the end.
//!
//! In each region it is one moment ([`KV.SNAPSHOT`](argosy_client::RespClient::open_snapshot)). Where it ends early,
//! since a primary has changed or its memory was needed, reads fail, and the export with them: nothing of another
//! moment is ever put behind what was read. Expiries are not part of it: they are asked for as they are now.

use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_client::{ClientError, RespClient};
use argosy_device::SystemClock;

use crate::failure::CommandFailure;

/// How long it lasts without being renewed.
const LEASE: Duration = Duration::from_secs(600);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(60);

/// See the module documentation.
pub(super) struct ExportSnapshot {
    client: RespClient,
    name: String,
    renew_at: Instant,
}

impl ExportSnapshot {
    /// Opens one through `client`.
    pub(super) fn open(mut client: RespClient) -> Result<Self, CommandFailure> {
        let name = client.open_snapshot(LEASE)?;
        Ok(Self {
            client,
            name,
            renew_at: SystemClock.now() + RENEW_EVERY,
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Renews it, if it is time to.
    pub(super) fn keep(&mut self) -> Result<(), ClientError> {
        let now = SystemClock.now();
        if now < self.renew_at {
            return Ok(());
        }
        self.renew_at = now + RENEW_EVERY;
        match self.client.renew_snapshot(&self.name, LEASE)? {
            true => Ok(()),
            false => Err(ClientError::Invalid {
                what: format!(
                    "snapshot {} has ended before everything was read: a primary has changed, or its memory was \
                     needed. What was written is of it, and is not all; begin again",
                    self.name
                ),
            }),
        }
    }
}

impl Drop for ExportSnapshot {
    fn drop(&mut self) {
        // It ends by itself where nobody can be told.
        let _ = self.client.close_snapshot(&self.name);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use argosy_client::Kv as _;
    use argosy_server::resp::fake::Fake;
    use argosy_server::resp::{Listener, Settings, Threads};
    use argosy_server::service::Service;

    use super::*;

    /// A server of pairs in memory, and what serves it.
    pub(in crate::transfer) fn serve() -> (Arc<Fake>, Listener) {
        let fake = Arc::new(Fake::new());
        let service = Arc::clone(&fake) as Arc<dyn Service>;
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (settings, threads) = (Settings::default(), Threads::default());
        let listener = Listener::start(socket, settings, threads, &service, &clock).unwrap();
        (fake, listener)
    }

    pub(in crate::transfer) fn client(listener: &Listener) -> RespClient {
        RespClient::connect(listener.local_address()).unwrap()
    }

    #[test]
    fn it_is_renewed_when_it_is_time_and_closed_at_the_end() {
        let (fake, listener) = serve();
        let mut snapshot = ExportSnapshot::open(client(&listener)).unwrap();
        assert_eq!(fake.snapshots(), 1);
        // Nobody is asked before it is time.
        snapshot.keep().unwrap();
        snapshot.renew_at = SystemClock.now();
        snapshot.keep().unwrap();
        let name = snapshot.name().to_owned();
        assert!(client(&listener).close_snapshot(&name).unwrap());
        snapshot.keep().unwrap();
        snapshot.renew_at = SystemClock.now();
        let lost = snapshot.keep().unwrap_err().to_string();
        assert!(
            lost.contains("has ended before everything was read"),
            "{lost}"
        );

        let other = ExportSnapshot::open(client(&listener)).unwrap();
        let mut reads = client(&listener);
        reads.put(b"k", b"later").unwrap();
        reads.read_from(Some(other.name().to_owned()));
        assert_eq!(reads.get(b"k").unwrap(), None);
        drop(other);
        assert_eq!(fake.snapshots(), 0);
        assert!(reads.get(b"k").is_err());
    }
}
