//! Serves the Redis protocol from memory, without a store behind it: to try clients against the
//! front end, and to measure what it costs by itself.
//!
//! ```text
//! cargo run --release -p argosy-server --example resp_fake -- [PORT [THREADS [late]]]
//! ```
//!
//! With `late` every answer comes from another thread, a little later and out of order.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::Clock;
use argosy_device::SystemClock;
use argosy_server::resp::fake::Fake;
use argosy_server::resp::{Listener, Settings, Threads};
use argosy_server::service::Service;

/// Releases kept answers, the younger of two first, until the process ends.
#[expect(
    clippy::disallowed_methods,
    reason = "a tool to try things with, not a server"
)]
fn answer_late(fake: &Fake) {
    loop {
        while fake.release(1) || fake.release(0) {}
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u16| -> u16 {
        args.get(index)
            .and_then(|arg| arg.parse().ok())
            .unwrap_or(default)
    };
    let fake = Arc::new(Fake::new());
    if args.get(2).is_some_and(|arg| arg == "late") {
        fake.set_late(true);
        let fake = Arc::clone(&fake);
        std::thread::Builder::new().spawn(move || answer_late(&fake))?;
    }
    let threads = Threads {
        count: NonZeroUsize::new(number(1, 1).into()).unwrap_or(NonZeroUsize::MIN),
        ..Threads::default()
    };
    let socket = TcpListener::bind(("127.0.0.1", number(0, 7379)))?;
    let service: Arc<dyn Service> = fake;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let listener = Listener::start(socket, Settings::default(), threads, &service, &clock)?;
    writeln!(
        io::stdout(),
        "redis-cli -p {}",
        listener.local_address().port()
    )?;
    // Ends with its standard input.
    io::copy(&mut io::stdin(), &mut io::sink())?;
    listener.stop();
    Ok(())
}
