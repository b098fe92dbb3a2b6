//! A node with its threads, its device and its sockets: what `argosy server` runs.
//!
//! ```text
//! resp-0..   epoll: RESP sessions, and what they ask of the node, at once
//! native-0.. clients in shared memory, and what they ask of the node; spins a little, then epoll
//! worker-0.. requests of clients and other servers that need the device; sleep while there are none
//! logs       makes logs durable; parks until a device or an engine wakes it
//! fabric     links, messages of other servers, deadlines; spins a little, then parks on the bell
//! stepper-0.. engines and backups' storage, a region at a time; park until a device or an engine wakes one
//! cluster    the region map, what the server says of itself, and the master
//! admin      health, metrics and status over HTTP
//! device-..  the device's own, for writes and syncs
//! ```
//!
//! Stopping goes the other way round: no more clients, then the threads, then every region's log
//! is made durable.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Clock, Incarnation, Instant, ServerId};
use argosy_coordinator::{ClusterMap, CoordinatorError, DeviceId};
use argosy_device::{DeviceError, Store};
use argosy_fabric::{Fabric, FabricError, ShmFabric};
use argosy_memory::{
    BootId, Fallback, MemoryError, Others, WindowFiles, WindowFilesOptions, lock_windows,
    make_directory, own_directory,
};

use crate::activity::Ledger;
use crate::admin::{Admin, Hosts, StatusSource};
use crate::native;
use crate::node::{Node, NodeSettings, OpenError, World, names_within};
use crate::ownership::Refusal;
use crate::report::Reporter;
use crate::resp::{ClientPolicy, Listener, Settings as RespSettings, Threads};
use crate::service::Service;
use crate::tasks::{Tasks, Workers};
use threads::Threading;

mod store;
mod threads;

/// How long a server that stops waits for others to hand their leases back, as all do that stop at the same time.
const HAND_BACK: Duration = Duration::from_millis(100);
/// The directory of windows, in that of a server.
const WINDOWS: &str = "windows";
/// The directory of what would be in shared memory, in the data directory.
const SHARED_MEMORY: &str = "shared-memory";

/// Puts the id of a server's device into the region map that all servers read.
pub type RecordDevice = Box<dyn FnMut(DeviceId) -> Result<(), CoordinatorError> + Send>;

/// Something of the cluster that moves by steps: a [`Membership`](crate::membership::Membership), a master. Each says
/// when it wants its next.
pub type ClusterStep = Box<dyn FnMut(Instant) -> Instant + Send>;

/// What a server is started with.
pub struct ServerOptions {
    /// Its name in the map.
    pub id: ServerId,
    /// Which servers and regions there are.
    pub map: ClusterMap,
    /// The device.
    pub device: DeviceOptions,
    /// A random number that no server was started with before.
    pub random: u128,
    /// The directory, on tmpfs, under which all servers of this host keep their shared memory.
    pub shared_memory: PathBuf,
    /// The node's.
    pub node: NodeSettings,
    /// Where clients, and those who watch, come in.
    pub sockets: Sockets,
    /// What Redis clients may do.
    pub policy: ClientPolicy,
    /// How many threads do what.
    pub threads: ThreadOptions,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Which device a server uses, and how it is made where there is none.
pub struct DeviceOptions {
    /// A file or a raw block device.
    pub path: PathBuf,
    /// It is one that the region map does not name: one is made where there is none. Otherwise only the device that
    /// the map names is opened ([`ownership`](crate::ownership)).
    pub is_new: bool,
    /// Puts the id of one that is new into the region map.
    pub record: RecordDevice,
    /// Bytes of a file that is made.
    pub bytes: u64,
    /// A random number that names one that is made.
    pub id: u128,
    /// Segments that are kept for manifests and for compactions that free space.
    pub reserve_segments: u32,
}

/// Sockets of a server, bound already.
pub struct Sockets {
    /// Where Redis clients connect.
    pub resp: TcpListener,
    /// Where health is asked for.
    pub admin: TcpListener,
    /// Whom such requests may be addressed to.
    pub admin_hosts: Hosts,
}

/// The threads of a server. See the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOptions {
    /// Those that serve Redis clients.
    pub resp: NonZeroUsize,
    /// Those that serve native clients; 0 for none.
    pub native: usize,
    /// How long these look for requests before they sleep.
    pub native_spin: Duration,
    /// Most native clients.
    pub native_clients: usize,
    /// Those that carry out what needs the device of what clients and other servers ask. With 0 those do that read
    /// the requests.
    pub workers: usize,
    /// Most requests that wait for one of these.
    pub tasks_max: usize,
    /// Those that step regions in the background.
    pub steppers: NonZeroUsize,
    /// How long the fabric thread looks for work before it parks.
    pub spin: Duration,
    /// Has the program's allocator look for what other threads have freed of the one that calls, and give it
    /// back: called once a second by each thread that serves.
    pub trim_allocator: fn(),
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shared memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The device is not the one that the region map names.
    #[error("{path}: {refusal}", path = path.display())]
    NotItsDevice {
        /// Where the device is looked for.
        path: PathBuf,
        /// What is wrong with it.
        refusal: Refusal,
    },
    /// The region map could not be changed.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The way to the other servers.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Neither on the tmpfs nor, where they may lie there, in the data directory.
    #[error(
        "there is no room for log windows and message rings: {source}; make the tmpfs of \
         fabric.shm-dir ({}) larger (mount -o remount,size=...), name a larger one, or have fewer \
         regions on this server; the windows of regions without copies may lie in \
         server.data-dir, too",
        directory.display()
    )]
    NoRoom {
        /// The directory on the tmpfs.
        directory: PathBuf,
        /// What was refused.
        source: MemoryError,
    },
    /// Servers of a cluster cannot do without.
    #[error(
        "shared memory cannot be used: {source}; servers reach each other through it, so \
         fabric.shm-dir ({}) has to be a directory on a tmpfs that this server can write",
        directory.display()
    )]
    NoSharedMemory {
        /// Where it was looked for.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused threads, sockets or a look at the machine.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A server that runs. Dropping it without [`stop`](Self::stop) is as a kill: nothing that was
/// acknowledged is lost.
pub struct RunningServer {
    node: Arc<Node>,
    listener: Option<Listener>,
    native: Option<native::NativeListener>,
    workers: Option<Workers>,
    admin: Option<Admin>,
    threads: Threading,
    /// Says, until the process ends, that a server uses the windows.
    _windows_lock: File,
}

impl RunningServer {
    /// Opens device and regions, and serves.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(mut options: ServerOptions) -> Result<Self, StartError> {
        let ledger = Arc::new(ledger(&options));
        let store = store::open_store(&mut options, &ledger)?;
        let incarnation = store.incarnation();
        let shared_memory = shared_memory(&options)?;
        let threading = options.threads;
        let (windows, windows_lock) = open_windows(&options, &shared_memory, &store)?;
        let fabric = ShmFabric::open(&shared_memory, options.id, incarnation, first_grant(&store))?;
        let fabric: Arc<dyn Fabric> = Arc::new(fabric);
        let mut threads = Threading::new(options.id, &fabric);
        let world = World {
            clock: Arc::clone(&options.clock),
            ledger,
            store,
            windows: Arc::new(windows),
            fabric: Arc::clone(&fabric),
            wakers: threads.wakers(),
            resident: crate::report::process::unshared_bytes,
            trim_allocator: threading.trim_allocator,
        };
        let memory_limit = options.node.memory.limit();
        let native = native_settings(&options, incarnation);
        let node = Node::open(options.id, options.node, world, options.map)
            .map_err(|error| no_room(error, shared_memory.clone()))?;
        threads.start_fabric(&node, &options.clock, threading.spin)?;
        threads.start_steppers(&node, &options.clock, threading.steppers)?;
        let workers = start_workers(&node, threading.workers, threading.tasks_max)?;
        let settings = RespSettings {
            server: options.id,
            incarnation,
            random: options.random,
            policy: options.policy,
            ..RespSettings::within(memory_limit, threading.resp.get())
        };
        let Sockets {
            resp,
            admin,
            admin_hosts,
        } = options.sockets;
        let listener = start_resp(&node, settings, resp, threading.resp, &options.clock)?;
        let place = native::Place {
            root: &shared_memory,
        };
        let native = start_native(&node, native, threading.native, &place, &options.clock)?;
        let reporter = Reporter::new(Arc::clone(&node), Arc::clone(listener.front()));
        let told: Arc<dyn StatusSource> = Arc::new(reporter);
        let admin = Admin::start(admin, admin_hosts, told, options.clock).map_err(|source| {
            StartError::System {
                what: "serve health requests",
                source,
            }
        })?;
        Ok(Self {
            node,
            listener: Some(listener),
            native,
            workers,
            admin: Some(admin),
            threads,
            _windows_lock: windows_lock,
        })
    }

    /// Moves `steps` from now on, on a thread of their own.
    ///
    /// # Errors
    /// [`StartError::System`].
    pub fn start_cluster(
        &mut self,
        clock: &Arc<dyn Clock>,
        steps: Vec<ClusterStep>,
    ) -> Result<(), StartError> {
        self.threads.start_cluster(clock, steps)
    }

    /// The node within.
    #[must_use]
    pub const fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Hands the leases back, and waits a little for what others hold of this server: then its next start need not
    /// wait.
    fn end_leases(&self) {
        let clock = &self.node.clock();
        let until = clock.now() + HAND_BACK;
        while !self.node.end_leases() && clock.now() < until {
            std::thread::park_timeout(HAND_BACK / 20);
        }
    }

    /// Finishes what clients have sent, stops, and makes everything durable. False where a log
    /// could not be flushed: then its windows must be kept.
    pub fn stop(mut self) -> bool {
        drop(self.listener.take());
        drop(self.native.take());
        drop(self.workers.take());
        drop(self.admin.take());
        self.end_leases();
        self.threads.stop();
        self.node.close()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.threads.stop();
    }
}

/// Where CPU and device bytes are written down, with a place for each region of the server.
fn ledger(options: &ServerOptions) -> Ledger {
    let regions = options.map.regions().iter();
    let mine = regions.filter(|region| region.members.contains(&options.id));
    Ledger::new(Arc::clone(&options.clock), mine.map(|region| region.id))
}

/// Starts `count` workers, if any, for a queue of at most `tasks_max` tasks, to which `node` hands what needs the
/// device.
fn start_workers(
    node: &Arc<Node>,
    count: usize,
    tasks_max: usize,
) -> Result<Option<Workers>, StartError> {
    if count == 0 {
        return Ok(None);
    }
    let tasks = Arc::new(Tasks::new(tasks_max));
    let service: Arc<dyn Service> = Arc::clone(node) as Arc<dyn Service>;
    let workers = Workers::start(&tasks, count, &service).map_err(|source| StartError::System {
        what: "start workers",
        source,
    })?;
    node.set_tasks(tasks);
    Ok(Some(workers))
}

/// Serves the Redis clients that come to a socket, on so many threads.
fn start_resp(
    node: &Arc<Node>,
    settings: RespSettings,
    socket: TcpListener,
    count: NonZeroUsize,
    clock: &Arc<dyn Clock>,
) -> Result<Listener, StartError> {
    let threads = Threads {
        count,
        tasks: node.tasks().cloned(),
        lent: Some(Arc::clone(node.lent_by_clients())),
        ..Threads::default()
    };
    let service: Arc<dyn Service> = Arc::clone(node) as Arc<dyn Service>;
    Listener::start(socket, settings, threads, &service, clock).map_err(|source| {
        StartError::System {
            what: "serve Redis clients",
            source,
        }
    })
}

/// What native clients are served by.
fn native_settings(options: &ServerOptions, incarnation: Incarnation) -> native::Settings {
    native::Settings {
        server: options.id,
        incarnation,
        spin: options.threads.native_spin,
        clients_max: options.threads.native_clients,
        memory_bytes_max: options.node.memory.native,
        // Far from those that are drawn for the Redis protocol.
        random: options.random ^ (1 << 127),
        ..native::Settings::default()
    }
}

/// Serves native clients on so many threads, if any.
fn start_native(
    node: &Arc<Node>,
    settings: native::Settings,
    threads: usize,
    place: &native::Place<'_>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<native::NativeListener>, StartError> {
    if threads == 0 {
        return Ok(None);
    }
    let routes = native::Routes::new(settings.server, &node.map(), |id| place.socket(id));
    let socket = place.socket(settings.server);
    let front = native::Front::new(settings, routes, &socket);
    let front = Arc::new(front.lending(Arc::clone(node.lent_by_native())));
    let service: Arc<dyn Service> = Arc::clone(node) as Arc<dyn Service>;
    let listener = native::NativeListener::start(&native::Start {
        socket: &socket,
        front: &front,
        threads,
        service: &service,
        tasks: node.tasks(),
        clock,
    });
    let listener = listener.map_err(|source| StartError::System {
        what: "serve native clients",
        source,
    })?;
    node.set_native(front);
    Ok(Some(listener))
}

/// From which number on grants are counted: far from where another start of the server began, also one with another
/// device, whose number is a random one.
fn first_grant(store: &Store) -> u64 {
    let superblock = store.superblock();
    let device = u64::try_from(superblock.device_id & u128::from(u64::MAX)).expect("64 bits");
    device.wrapping_add(superblock.incarnation.get() << 40)
}

/// The directory of shared memory. A server without others needs none, and uses its data directory
/// where there is none.
fn shared_memory(options: &ServerOptions) -> Result<PathBuf, StartError> {
    let directory = &options.shared_memory;
    let server = directory.join(format!("server-{}", options.id.0));
    match owned(directory).and_then(|()| own_directory(&server)) {
        Ok(()) => Ok(directory.clone()),
        Err(source) if options.map.servers().len() > 1 => Err(StartError::NoSharedMemory {
            directory: directory.clone(),
            source,
        }),
        Err(error) => {
            tracing::warn!("there is no shared memory ({error}): the data directory is used");
            Ok(data_directory(options).join(SHARED_MEMORY))
        }
    }
}

/// Makes the directory of all servers' shared memory, or makes sure that nobody else can exchange what lies in the one
/// that is there.
fn owned(directory: &Path) -> io::Result<()> {
    make_directory(directory)?;
    let user = rustix::process::geteuid().as_raw();
    // It may be a link, and then it counts whose link that is, too.
    let owners = [
        std::fs::symlink_metadata(directory)?,
        std::fs::metadata(directory)?,
    ];
    match owners
        .iter()
        .map(MetadataExt::uid)
        .find(|owner| ![0, user].contains(owner))
    {
        None => Ok(()),
        Some(owner) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to user {owner}, and this is user {user}: name another directory"),
        )),
    }
}

/// `error`, with what to do where it says that there is no room for memory that outlives a process.
fn no_room(error: OpenError, directory: PathBuf) -> StartError {
    match error {
        OpenError::Memory(source) if source.is_full() => StartError::NoRoom { directory, source },
        OpenError::Memory(error) => error.into(),
        OpenError::Device(error) => error.into(),
    }
}

/// Where the device lies.
fn data_directory(options: &ServerOptions) -> &Path {
    options.device.path.parent().unwrap_or(Path::new("."))
}

/// Where windows of `server` may lie, whatever the start that made them found: in `shared_memory`, if that is known,
/// and in the `data` directory.
#[must_use]
pub fn windows_directories(
    server: ServerId,
    shared_memory: Option<&Path>,
    data: &Path,
) -> Vec<PathBuf> {
    let own = data.join(SHARED_MEMORY);
    let shared = shared_memory.into_iter().chain([own.as_path()]);
    let mut windows: Vec<_> = shared.map(|shared| windows_in(shared, server)).collect();
    windows.push(data.join(WINDOWS));
    windows
}

/// Where the windows of `server` lie in `shared_memory`.
fn windows_in(shared_memory: &Path, server: ServerId) -> PathBuf {
    shared_memory
        .join(format!("server-{}", server.0))
        .join(WINDOWS)
}

fn open_windows(
    options: &ServerOptions,
    shared_memory: &Path,
    store: &Store,
) -> Result<(WindowFiles, File), StartError> {
    let directory = windows_in(shared_memory, options.id);
    let lock = lock_windows(&directory)?;
    let windows = WindowFiles::open(WindowFilesOptions {
        directory,
        fallback: Some(Fallback {
            directory: data_directory(options).join(WINDOWS),
            names: names_within(options.id, &options.map),
        }),
        boot: boot_id()?,
        incarnation: store.incarnation(),
        device: store.superblock().device_id,
        others: Others::SetAside,
    })?;
    for finding in windows.findings() {
        tracing::info!("windows: {finding}");
    }
    for aside in windows.set_aside() {
        tracing::warn!("windows: {aside}");
    }
    Ok((windows, lock))
}

/// The machine's present boot.
///
/// # Errors
/// When the system does not tell.
pub fn boot_id() -> Result<BootId, StartError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(|source| StartError::System {
        what: "read the machine's boot id",
        source,
    })?;
    Ok(BootId::parse(&text).unwrap_or_default())
}
