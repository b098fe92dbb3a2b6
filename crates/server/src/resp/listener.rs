//! The front end's sockets and threads. [`Listener::start`] binds a port and starts N threads, each
//! with an epoll set of its own (see `worker`); the first accepts connections and hands them out in
//! turn. A connection stays with its thread, so a session needs no lock.
//!
//! ```text
//!            accept          hand        +----------+  call, flush   +---------+
//!  clients --------> thread 0 ---------> | thread i | -------------> | Service |
//!                                        | sessions | <------------- |         |
//!                                        +----------+  mailbox, bell +---------+
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::Clock;
use argosy_engine::Lent;

use super::front::{FrontEnd, Settings};
use super::worker::{Arrival, THREAD_BYTES, Worker};
use crate::mailbox::Mailbox;
use crate::service::Service;
use crate::tasks::Tasks;

/// How the front end's threads are run.
#[derive(Clone)]
pub struct Threads {
    /// How many there are.
    pub count: NonZeroUsize,
    /// Where what needs the device goes; `None`: the threads wait for the device themselves.
    pub tasks: Option<Arc<Tasks>>,
    /// From where the cache has the memory of clients while they do not take it, if it has.
    pub lent: Option<Arc<Lent>>,
    /// When stopping, how long requests that were received and replies that are not written may
    /// take before connections are closed over them.
    pub drain: Duration,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            count: NonZeroUsize::MIN,
            tasks: None,
            lent: None,
            drain: Duration::from_secs(2),
        }
    }
}

/// A front end that serves. Dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    front: Arc<FrontEnd>,
    mailboxes: Vec<Arc<Mailbox<Arrival>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Serves `service` to the clients that connect to `socket`, which is bound already; a port that
    /// is busy is thus found out, and another taken, before anything starts.
    ///
    /// # Errors
    /// Where the operating system has no more descriptors or threads.
    pub fn start(
        socket: TcpListener,
        settings: Settings,
        threads: Threads,
        service: &Arc<dyn Service>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let settings = Settings {
            port: address.port(),
            ..settings
        };
        let fixed = threads.count.get() * THREAD_BYTES;
        let front = FrontEnd::new(settings, clock.now()).lending(threads.lent.clone(), fixed);
        let front = Arc::new(front);
        let mailboxes = (0..threads.count.get())
            .map(|_| Mailbox::new().map(Arc::new))
            .collect::<io::Result<Vec<_>>>()?;
        let mut listener = Self {
            address,
            front,
            mailboxes,
            threads: Vec::new(),
        };
        let mut socket = Some(socket);
        for index in 0..threads.count.get() {
            let worker = Worker::new(super::worker::Parts {
                index,
                socket: socket.take(),
                front: Arc::clone(&listener.front),
                mailboxes: listener.mailboxes.clone(),
                service: Arc::clone(service),
                tasks: threads.tasks.clone(),
                clock: Arc::clone(clock),
                drain: threads.drain,
            })?;
            let thread = std::thread::Builder::new()
                .name(format!("resp-{index}"))
                .spawn(move || worker.run())?;
            listener.threads.push(thread);
        }
        Ok(listener)
    }

    /// The address that clients connect to.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// What the connections share.
    #[must_use]
    pub const fn front(&self) -> &Arc<FrontEnd> {
        &self.front
    }

    /// Accepts no more, finishes what clients have sent, closes all connections, and returns when
    /// all threads have ended: at the latest after the time to drain.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.stop();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("resp: a thread of the front end panicked");
            }
        }
    }
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
