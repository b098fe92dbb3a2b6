//! The threads of the native front end, and where its clients meet it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use argosy_base::{Clock, ServerId};

use super::client::Arrival;
use super::front::Front;
use super::meet::listen;
use super::thread::{Parts, Thread};
use crate::mailbox::Mailbox;
use crate::service::Service;
use crate::tasks::Tasks;

/// Where the clients of a host meet its servers.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The directory under which all servers of the host keep their shared memory.
    pub root: &'a Path,
}

impl Place<'_> {
    /// The socket of `server`.
    #[must_use]
    pub fn socket(&self, server: ServerId) -> PathBuf {
        self.root
            .join(format!("server-{}", server.0))
            .join("native")
    }
}

/// A native front end that serves. Dropping it stops it.
pub struct NativeListener {
    socket: PathBuf,
    mailboxes: Vec<Arc<Mailbox<Arrival>>>,
    threads: Vec<JoinHandle<()>>,
}

/// What a front end is started with.
pub struct Start<'a> {
    /// Where clients meet it.
    pub socket: &'a Path,
    /// What its threads share.
    pub front: &'a Arc<Front>,
    /// How many they are; at least one.
    pub threads: usize,
    /// What they serve.
    pub service: &'a Arc<dyn Service>,
    /// Where what needs the device goes; `None`: the threads wait for the device themselves.
    pub tasks: Option<&'a Arc<Tasks>>,
    /// Time.
    pub clock: &'a Arc<dyn Clock>,
}

impl fmt::Debug for NativeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeListener({})", self.socket.display())
    }
}

impl NativeListener {
    /// Serves.
    ///
    /// # Errors
    /// Where the socket cannot be made, or the system has no more descriptors or threads.
    pub fn start(start: &Start<'_>) -> io::Result<Self> {
        let mut accepting = Some(listen(start.socket)?);
        let mailboxes = (0..start.threads.max(1))
            .map(|_| Mailbox::new().map(Arc::new))
            .collect::<io::Result<Vec<_>>>()?;
        let mut listener = Self {
            socket: start.socket.to_path_buf(),
            mailboxes,
            threads: Vec::new(),
        };
        if let Some(tasks) = start.tasks {
            start.front.set_tasks(Arc::clone(tasks));
        }
        for index in 0..listener.mailboxes.len() {
            let thread = Thread::new(Parts {
                index,
                listener: accepting.take(),
                front: Arc::clone(start.front),
                mailboxes: listener.mailboxes.clone(),
                service: Arc::clone(start.service),
                tasks: start.tasks.map(Arc::clone),
                clock: Arc::clone(start.clock),
            })?;
            let handle = std::thread::Builder::new()
                .name(format!("native-{index}"))
                .spawn(move || thread.run())?;
            listener.threads.push(handle);
        }
        Ok(listener)
    }

    /// Takes nobody in any more, answers what was taken, and lets all clients go.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for NativeListener {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.stop();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("native: a thread of the front end panicked");
            }
        }
        // Gone already where the directory is.
        let _ = std::fs::remove_file(&self.socket);
    }
}
