//! What a running playground does to its servers when a command asks: first it decides, then it does.
//!
//! 1. Each server that is named is looked at, and [`decide`] says by a table what is to be done to it. Where one of
//!    them refuses, nothing is done to any.
//! 2. Signals are sent to all, and what they bring about is waited for: the end of a process, or its halt. That
//!    takes milliseconds, unless a device keeps the kernel; then the wait ends after [`WAIT_MAX`].
//! 3. Processes are started. Until they are ready takes longer, and nobody waits for that here.
//!
//! The playground does it all and not the command, since a process id means something only to the parent: it has not
//! waited for its child yet, so the id cannot have gone to another process.

use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_device::SystemClock;
use rustix::process::Signal;

use super::protocol::{Answer, Refusal, RefusalKind, Request, ServerLine, Verb};
use crate::cluster::Cluster;
use crate::cluster::member::{Member, ServerState};

/// How long signals may take to have their effect.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// From one look to the next.
const POLL: Duration = Duration::from_millis(5);

/// What is to be done to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Nothing: it is looked at.
    Look,
    /// End it at once.
    Kill,
    /// Halt it.
    Stop,
    /// Let it go on.
    Continue,
    /// Start it.
    Start,
    /// End it at once, and start it.
    Replace,
}

/// Why nothing can be done to a server in the state that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrongState {
    Ended,
    StoppedAlready,
    NotStopped,
    ByHand,
}

/// What `verb` does to a server in `state`.
pub(crate) fn decide(verb: Verb, state: ServerState) -> Result<Deed, WrongState> {
    use ServerState::{ByHand, Ended, Running, Stopped};
    match (verb, state) {
        (Verb::Status, _) => Ok(Deed::Look),
        (_, ByHand) => Err(WrongState::ByHand),
        (Verb::Restart, Ended) => Ok(Deed::Start),
        (Verb::Restart, Running | Stopped) => Ok(Deed::Replace),
        (Verb::Kill | Verb::Stop | Verb::Cont, Ended) => Err(WrongState::Ended),
        (Verb::Kill, Running | Stopped) => Ok(Deed::Kill),
        (Verb::Stop, Running) => Ok(Deed::Stop),
        (Verb::Stop, Stopped) => Err(WrongState::StoppedAlready),
        (Verb::Cont, Stopped) => Ok(Deed::Continue),
        (Verb::Cont, Running) => Err(WrongState::NotStopped),
    }
}

/// Does what `request` asks of `cluster`, and tells of it on stderr.
pub(crate) fn answer(cluster: &mut Cluster, request: &Request) -> Answer {
    let count = cluster.members.len();
    let ids = match request.servers.is_empty() {
        true => (0..count).collect(),
        false => request.servers.clone(),
    };
    if let Some(id) = ids.iter().find(|id| **id >= count) {
        let words = format!(
            "there is no server {id}: there are servers 0 to {}",
            count - 1
        );
        return Err(Refusal::new(RefusalKind::NotFound, words));
    }
    let mut deeds = Vec::with_capacity(ids.len());
    for &id in &ids {
        let state = cluster.members[id].state();
        let deed = decide(request.verb, state);
        deeds.push(deed.map_err(|why| refusal(cluster, id, why))?);
    }
    let todo = || ids.iter().copied().zip(deeds.iter().copied());
    for (id, deed) in todo() {
        send(&mut cluster.members[id], deed);
    }
    let until = SystemClock.now() + WAIT_MAX;
    for (id, deed) in todo() {
        await_effect(&mut cluster.members[id], deed, until)?;
        tell(cluster, id, deed);
    }
    for (id, deed) in todo() {
        if matches!(deed, Deed::Start | Deed::Replace) {
            start(&mut cluster.members[id])?;
        }
    }
    Ok(ids
        .iter()
        .map(|id| line_of(&mut cluster.members[*id]))
        .collect())
}

fn refusal(cluster: &Cluster, id: usize, why: WrongState) -> Refusal {
    let next = |verb: Verb| cluster.command(verb.name(), id);
    let words = match why {
        WrongState::Ended => format!("has ended already; start it again: {}", next(Verb::Restart)),
        WrongState::StoppedAlready => {
            format!("is stopped already; let it go on: {}", next(Verb::Cont))
        }
        WrongState::NotStopped => format!("is not stopped; to stop it: {}", next(Verb::Stop)),
        WrongState::ByHand => {
            let process = cluster.members[id].process(ServerState::ByHand);
            let process =
                process.map_or_else(String::new, |process| format!(" (process {process})"));
            format!(
                "was started by hand{process}, not by the playground; end that process, and the playground can \
                 start it again: {}",
                next(Verb::Restart)
            )
        }
    };
    Refusal::new(RefusalKind::NotFound, format!("server {id} {words}"))
}

fn send(member: &mut Member, deed: Deed) {
    match deed {
        Deed::Look | Deed::Start => {}
        Deed::Kill | Deed::Replace => member.child.signal(Signal::KILL),
        Deed::Stop => member.child.signal(Signal::STOP),
        Deed::Continue => member.child.signal(Signal::CONT),
    }
}

/// Waits until the signal of `deed` has had its effect.
fn await_effect(member: &mut Member, deed: Deed, until: Instant) -> Result<(), Refusal> {
    loop {
        let state = member.state();
        let done = match deed {
            Deed::Look | Deed::Start => true,
            Deed::Kill | Deed::Replace => member.child.exited().is_some(),
            // One that ends meanwhile is told of as any that ends.
            Deed::Stop => state != ServerState::Running,
            Deed::Continue => state != ServerState::Stopped,
        };
        if done {
            return Ok(());
        }
        if SystemClock.now() > until {
            let words = format!(
                "server {} (process {}) has got the signal, and is {} still after {} s; look again: argosy \
                 playground status",
                member.id,
                member.child.pid(),
                state.name(),
                WAIT_MAX.as_secs()
            );
            return Err(Refusal::new(RefusalKind::Failed, words));
        }
        std::thread::park_timeout(POLL);
    }
}

/// Says at the playground what a command has done.
fn tell(cluster: &mut Cluster, id: usize, deed: Deed) {
    let process = cluster.members[id].child.pid();
    let next = |verb: Verb| cluster.command(verb.name(), id);
    let what = match deed {
        Deed::Look | Deed::Start => return,
        Deed::Kill => format!("was killed; start it again: {}", next(Verb::Restart)),
        Deed::Replace => "was killed, and is started again".to_owned(),
        Deed::Stop => format!("is stopped; let it go on: {}", next(Verb::Cont)),
        Deed::Continue => "goes on".to_owned(),
    };
    if matches!(deed, Deed::Kill | Deed::Replace) {
        cluster.members[id].ended = true;
    }
    eprintln!("server {id} (process {process}) {what}");
}

fn start(member: &mut Member) -> Result<(), Refusal> {
    let id = member.id;
    member.restart().map_err(|error| {
        let words = format!("server {id} cannot be started: {error}");
        Refusal::new(RefusalKind::Failed, words)
    })?;
    eprintln!("server {id} is started as process {}", member.child.pid());
    Ok(())
}

fn line_of(member: &mut Member) -> ServerLine {
    let state = member.state();
    ServerLine {
        id: member.id,
        state,
        process: member.process(state),
        resp: member.ports.resp,
        admin: member.ports.admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, a row for each verb, in the order of [`ServerState::ALL`].
    #[test]
    fn each_state_of_a_server_decides_what_a_verb_does() {
        use Deed::{Continue, Kill, Look, Replace, Start, Stop};
        use WrongState::{ByHand, Ended, NotStopped, StoppedAlready};
        let table = [
            (Verb::Status, [Ok(Look), Ok(Look), Ok(Look), Ok(Look)]),
            (Verb::Kill, [Ok(Kill), Ok(Kill), Err(Ended), Err(ByHand)]),
            (
                Verb::Stop,
                [Ok(Stop), Err(StoppedAlready), Err(Ended), Err(ByHand)],
            ),
            (
                Verb::Cont,
                [Err(NotStopped), Ok(Continue), Err(Ended), Err(ByHand)],
            ),
            (
                Verb::Restart,
                [Ok(Replace), Ok(Replace), Ok(Start), Err(ByHand)],
            ),
        ];
        assert_eq!(table.map(|(verb, _)| verb), Verb::ALL);
        for (verb, row) in table {
            assert_eq!(ServerState::ALL.map(|state| decide(verb, state)), row);
        }
    }
}
