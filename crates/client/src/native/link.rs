//! The way to one server: its channels, opened when they are needed and anew when they were lost.
//!
//! Most requests share one channel of moderate size. What does not fit it goes over another that is
//! as large as one can be, and which is there only once it is needed. To the server the two are two
//! clients: so that requests keep their order, nothing is laid in one of them before the writes in
//! the other have been answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_wire::native::Shape;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::channel::Channel;
use super::meet::{Met, meet};
use crate::error::ClientError;

/// Pause after a server could not be reached; it doubles each time, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Which channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// The one that most requests share.
    Usual,
    /// The one for what does not fit that.
    Large,
}

impl Size {
    fn shape(self) -> Shape {
        let (requests, replies) = match self {
            Self::Usual => (256 << 10, 512 << 10),
            Self::Large => (Shape::BYTES_MAX, Shape::BYTES_MAX),
        };
        Shape::new(requests, replies).expect("constants within the bounds")
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Link {
    socket: PathBuf,
    /// Never held while something is waited for.
    state: Mutex<State>,
    /// Whoever waits for a connection that another thread is opening sleeps on it.
    met: Condvar,
}

#[derive(Debug, Default)]
struct State {
    usual: Option<Arc<Channel>>,
    large: Option<Arc<Channel>>,
    /// A thread is meeting the server.
    meeting: bool,
    /// When the server is tried again, and the pause that follows if it is in vain.
    again: Option<(Instant, Duration)>,
}

/// A channel, and what has to be waited for before something is laid in it.
pub(super) struct Open {
    pub(super) channel: Arc<Channel>,
    /// The other channel to the same server, if there may be writes in it without an answer.
    pub(super) behind: Option<Arc<Channel>>,
}

/// Why there is no channel.
pub(super) enum NoChannel {
    /// Wait until then.
    Pause(Instant, ClientError),
    /// Trying again is of no use.
    Refused(ClientError),
}

impl Link {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            state: Mutex::default(),
            met: Condvar::new(),
        }
    }

    /// Where the server is met.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether `channel` is one of those to this server.
    pub(super) fn has(&self, channel: &Arc<Channel>) -> bool {
        let state = self.lock();
        let mut channels = [&state.usual, &state.large].into_iter().flatten();
        channels.any(|of| Arc::ptr_eq(of, channel))
    }

    /// Wakes the server if it sleeps over requests.
    pub(super) fn ring(&self) {
        let state = self.lock();
        for channel in [&state.usual, &state.large].into_iter().flatten() {
            channel.ring();
        }
    }

    /// A channel, opened if there is none, within `deadline`.
    pub(super) fn channel(
        &self,
        size: Size,
        clock: &dyn Clock,
        deadline: Instant,
    ) -> Result<Open, NoChannel> {
        let mut state = self.lock();
        loop {
            if let Some(open) = state.open(size) {
                return Ok(open);
            }
            let now = clock.now();
            if let Some((at, _)) = state.again
                && now < at
            {
                let what = format!("the server at {} is gone", self.socket.display());
                return Err(NoChannel::Pause(at, lost(what)));
            }
            let left = deadline.since(now);
            if left.is_zero() {
                let what = format!(
                    "the server at {} was not met in time",
                    self.socket.display()
                );
                return Err(NoChannel::Pause(deadline, lost(what)));
            }
            if !state.meeting {
                state.meeting = true;
                drop(state);
                let met = meet(&self.socket, size.shape(), left);
                return self.take(met, size, clock);
            }
            self.met.wait_for(&mut state, left);
        }
    }

    /// Takes what came of meeting the server.
    fn take(
        &self,
        met: Result<Met, ClientError>,
        size: Size,
        clock: &dyn Clock,
    ) -> Result<Open, NoChannel> {
        let mut state = self.lock();
        state.meeting = false;
        self.met.notify_all();
        match met {
            Ok(met) => {
                let channel = Some(Channel::new(met));
                state.again = None;
                match size {
                    Size::Usual => state.usual = channel,
                    Size::Large => state.large = channel,
                }
                Ok(state.open(size).expect("a new channel is not lost"))
            }
            Err(error @ (ClientError::Lost { .. } | ClientError::Unavailable { .. })) => {
                let pause = state.again.map_or(PAUSE_MIN, |(_, pause)| pause);
                let until = clock.now() + pause;
                state.again = Some((until, (2 * pause).min(PAUSE_MAX)));
                Err(NoChannel::Pause(until, error))
            }
            Err(error) => Err(NoChannel::Refused(error)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// The channel of this size, if it is open.
    fn open(&self, size: Size) -> Option<Open> {
        let (open, other) = match size {
            Size::Usual => (&self.usual, &self.large),
            Size::Large => (&self.large, &self.usual),
        };
        let channel = open.as_ref().filter(|channel| !channel.is_lost())?;
        let behind = other.as_ref().filter(|other| other.may_be_writing());
        Some(Open {
            channel: Arc::clone(channel),
            behind: behind.map(Arc::clone),
        })
    }
}

fn lost(what: String) -> ClientError {
    ClientError::Lost {
        what,
        outcome: argosy_base::Outcome::NotApplied,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::Ordering;
    use std::thread;

    use argosy_wire::native::ASLEEP_AT;

    use super::super::channel::tests::{PUT, channel, rings};
    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant::from_nanos(1)
        }

        fn thread_cpu(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// What is laid in one channel is rung for while another is being opened.
    #[test]
    fn ringing_does_not_wait_for_a_connection_that_another_thread_opens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let link = Link::new(path.clone());
        let (usual, theirs, mut there) = channel();
        link.lock().usual = Some(Arc::clone(&usual));
        theirs.sign(ASLEEP_AT).store(1, Ordering::SeqCst);
        usual.lay(&PUT).unwrap();

        let deadline = Instant::from_nanos(1) + Duration::from_secs(60);
        thread::scope(|scope| {
            let opening = scope.spawn(|| link.channel(Size::Large, &Still, deadline).is_err());
            // It has connected, and waits for a welcome that does not come.
            let met = listener.accept().unwrap();
            link.ring();
            assert!(link.lock().meeting, "the other thread has not come back");
            assert_eq!(rings(&mut there), 1);
            drop(met);
            assert!(opening.join().unwrap(), "it was not welcome");
        });
        assert!(!link.lock().meeting);
    }
}
