//! The way to one server: its channels, opened when they are needed and anew when they were lost.
//!
//! Most requests share one channel of moderate size. What does not fit it goes over another that is
//! as large as one can be, and which is there only once it is needed. To the server the two are two
//! clients: so that requests keep their order, nothing is laid in one of them before the writes in
//! the other have been answered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_wire::native::Shape;

use super::channel::Channel;
use super::meet::meet;
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    usual: Option<Arc<Channel>>,
    large: Option<Arc<Channel>>,
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
        }
    }

    /// Where the server is met.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Wakes the server if it sleeps over requests.
    pub(super) fn ring(&self) {
        // Whoever has it connects, and rings when it waits.
        let Ok(state) = self.state.try_lock() else {
            return;
        };
        for channel in [&state.usual, &state.large].into_iter().flatten() {
            channel.ring();
        }
    }

    /// A channel, opened if there is none.
    pub(super) fn channel(&self, size: Size, clock: &dyn Clock) -> Result<Open, NoChannel> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (open, other) = match size {
            Size::Usual => (&state.usual, &state.large),
            Size::Large => (&state.large, &state.usual),
        };
        let other = other.as_ref().filter(|other| other.may_be_writing());
        let behind = other.map(Arc::clone);
        if let Some(channel) = open
            && !channel.is_lost()
        {
            let channel = Arc::clone(channel);
            return Ok(Open { channel, behind });
        }
        let now = clock.now();
        if let Some((at, _)) = state.again
            && now < at
        {
            let what = format!("the server at {} is gone", self.socket.display());
            return Err(NoChannel::Pause(at, lost(what)));
        }
        match meet(&self.socket, size.shape()) {
            Ok(met) => {
                let channel = Channel::new(met);
                state.again = None;
                let place = match size {
                    Size::Usual => &mut state.usual,
                    Size::Large => &mut state.large,
                };
                *place = Some(Arc::clone(&channel));
                Ok(Open { channel, behind })
            }
            Err(error @ (ClientError::Lost { .. } | ClientError::Unavailable { .. })) => {
                let pause = state.again.map_or(PAUSE_MIN, |(_, pause)| pause);
                state.again = Some((now + pause, (2 * pause).min(PAUSE_MAX)));
                Err(NoChannel::Pause(now + pause, error))
            }
            Err(error) => Err(NoChannel::Refused(error)),
        }
    }
}

fn lost(what: String) -> ClientError {
    ClientError::Lost {
        what,
        outcome: argosy_base::Outcome::NotApplied,
    }
}
