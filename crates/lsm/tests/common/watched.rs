//! A device that leaves copies of itself before each of its writes and syncs ends: what a kill and what a
//! loss of power at that moment would leave, with what the log windows hold then.

use std::sync::{Arc, Mutex};

use argosy_base::DeviceSegment;
use argosy_device::{Counters, Crash, Device, DeviceError, Io, MemoryDevice, Ticket, Waker};
use argosy_engine::conformance::Choices;
use argosy_lsm::db::promote::window_name;
use argosy_lsm::{Lsm, Settings};
use argosy_memory::{AnonymousWindows, WindowStore};

use super::{Machine, REGION};

/// The bytes of windows, by their names.
pub(crate) type Memory = Vec<(u64, Vec<u8>)>;

/// What a crash leaves.
pub(crate) struct Left {
    pub(crate) crash: Crash,
    /// Before the end of this request it was.
    pub(crate) request: u64,
    device: MemoryDevice,
    windows: Memory,
}

impl Left {
    /// The machine that comes back.
    pub(crate) fn machine(self, settings: &Settings) -> Machine {
        let windows = AnonymousWindows::new();
        for (name, bytes) in &self.windows {
            let same = windows.create(*name, bytes.len()).unwrap();
            same.write(0, bytes);
        }
        Machine {
            device: Arc::new(self.device),
            windows: windows.restart(),
            settings: settings.clone(),
            store: None,
            choices: Choices::new(self.request),
            now: 0,
        }
    }
}

/// What the windows of `engine` hold now is told by this, for as long as they exist.
pub(crate) fn windows_of(engine: &Lsm, slots: usize) -> Box<dyn Fn() -> Memory + Send> {
    let logs = engine.windows();
    Box::new(move || {
        let slots = logs
            .iter()
            .flat_map(|log| (0..slots).map(move |slot| (log, slot)));
        let bytes = slots.map(|(log, slot)| {
            let memory = log.memory(slot);
            let name = window_name(REGION, log.log(), slot);
            (name, memory.read_vec(0, memory.len()))
        });
        bytes.collect()
    })
}

struct State {
    windows: Box<dyn Fn() -> Memory + Send>,
    requests: u64,
    left: Vec<Left>,
}

/// See the module documentation.
pub(crate) struct Watched {
    inner: Arc<MemoryDevice>,
    state: Mutex<State>,
}

impl Watched {
    /// Of `device`, after so many `requests`, while windows hold what `windows` tells.
    pub(crate) fn new(
        device: &Arc<MemoryDevice>,
        requests: u64,
        windows: Box<dyn Fn() -> Memory + Send>,
    ) -> Self {
        let state = State {
            windows,
            requests,
            left: Vec::new(),
        };
        Self {
            inner: Arc::clone(device),
            state: Mutex::new(state),
        }
    }

    /// From now on windows hold what `windows` tells.
    pub(crate) fn look_at(&self, windows: Box<dyn Fn() -> Memory + Send>) {
        self.state.lock().unwrap().windows = windows;
    }

    /// Requests that have ended.
    pub(crate) fn requests(&self) -> u64 {
        self.state.lock().unwrap().requests
    }

    /// What crashes have left since this was asked last.
    pub(crate) fn take(&self) -> Vec<Left> {
        std::mem::take(&mut self.state.lock().unwrap().left)
    }

    /// Ends a request, if one waits.
    pub(crate) fn run_one(&self) -> bool {
        if self.inner.in_flight() == 0 {
            return false;
        }
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        let request = state.requests;
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let windows = match crash {
                Crash::Kill => (state.windows)(),
                Crash::PowerLoss => Memory::new(),
            };
            state.left.push(Left {
                crash,
                request,
                device: self.inner.crash_clone(crash, request),
                windows,
            });
        }
        drop(state);
        self.inner.run_one()
    }
}

impl Device for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buffer)
    }

    fn submit(&self, io: Io) -> Ticket {
        self.inner.submit(io)
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        while ticket.poll().is_none() && self.run_one() {}
        self.inner.wait(ticket)
    }

    fn discard(&self, segment: DeviceSegment) {
        self.inner.discard(segment);
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn failure(&self) -> Option<DeviceError> {
        self.inner.failure()
    }
}

/// A copy of the machine of `engine` as `crash` would leave it now.
pub(crate) fn fork(machine: &Machine, engine: &Lsm, crash: Crash, seed: u64) -> Machine {
    let windows = match crash {
        Crash::Kill => windows_of(engine, machine.settings.layout.window_slots)(),
        Crash::PowerLoss => Memory::new(),
    };
    let left = Left {
        crash,
        request: seed,
        device: machine.device.crash_clone(crash, seed),
        windows,
    };
    left.machine(&machine.settings)
}
