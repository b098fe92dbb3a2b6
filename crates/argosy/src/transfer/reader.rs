//! What an export reads: pages of pairs, with the expiry of each.
//!
//! Pages are refused whose values of over 1 MiB have over 64 MiB together: shorter ones are asked for. Expiries
//! are asked for right behind the pairs, many at a time: a pair that is gone by then is left out, and one that is
//! written between the two may come out with the expiry that it has got. From a snapshot a pair that is gone comes out
//! all the same, without an expiry: whether it had one is not known any more. Such pairs are counted.
//!
//! A page is refused, too, that has a hash, a sorted set or a set: see [`part_reader`](super::part_reader). Where there
//! are none, nothing more is asked for than pages and expiries.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use argosy_base::Outcome;
use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, Kv, Page, RespClient, Span};

use super::format::{Pair, ParsedLine};
use super::part_reader::{Ahead, below, from};
use super::snapshot::ExportSnapshot;
use super::writers::retried;
use crate::failure::CommandFailure;

/// Pairs that are asked for at once.
const PAGE: usize = 1000;
/// Expiries that are asked for at once.
const EXPIRIES: usize = 250;
/// How a server says that the long values of a page are too much for one reply.
const LONG: &str = "over 1048576 bytes";

/// Pairs, and when each of them expires; or lines of what is no string.
#[derive(Default)]
pub(super) struct Read {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    expiries: Vec<Option<u64>>,
    /// Lines of a key.
    pub(super) records: Vec<ParsedLine>,
    /// Pairs of a snapshot that are gone by now: they have no expiry here.
    pub(super) gone: u64,
    /// Keys of a snapshot that are read as of now.
    pub(super) as_of_now: u64,
    /// Those of them that are gone by now.
    pub(super) left_out: u64,
    /// Dropped together with the pairs: so it is known when a long value has been written.
    taken: Option<SyncSender<()>>,
}

impl Read {
    /// Lines of a key.
    pub(super) fn of(records: Vec<ParsedLine>) -> Self {
        Self {
            records,
            ..Self::default()
        }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let pairs = self.pairs.iter().zip(&self.expiries);
        pairs.map(|((key, value), expires)| Pair {
            key,
            value,
            expires: *expires,
        })
    }
}

/// What reads. See the module documentation.
pub(super) struct Reader<'a> {
    /// For pages.
    pub(super) client: Box<dyn Kv>,
    /// For what goes through the Redis protocol only.
    pub(super) resp: RespClient,
    pub(super) retry_for: Duration,
    pub(super) stopping: &'a AtomicBool,
    /// What is read from, where it is one moment.
    pub(super) snapshot: Option<ExportSnapshot>,
}

/// Where reading stands.
struct Walk {
    rest: Option<Span>,
    /// Keys that are still wanted.
    left: u64,
    /// Pairs to ask for.
    at_once: usize,
    ahead: VecDeque<Ahead>,
}

/// What came of asking for a page.
enum Found {
    Page(Page),
    /// Its long values are too long together, or too long for a page at all.
    TooLong,
    /// Some key is bound to something else than a string.
    OtherTypes,
}

/// Takes what was read.
#[derive(Clone, Copy)]
pub(super) struct Out<'a>(pub(super) &'a SyncSender<Result<Read, CommandFailure>>);

impl Reader<'_> {
    /// Reads, and gives out what it has read, until the end, the limit, an error, or nobody takes it.
    pub(super) fn run(
        mut self,
        span: Span,
        limit: Option<u64>,
        give: &SyncSender<Result<Read, CommandFailure>>,
    ) {
        let mut walk = Walk {
            rest: Some(span).filter(|span| !span.range.is_empty()),
            left: limit.unwrap_or(u64::MAX),
            at_once: PAGE,
            ahead: VecDeque::new(),
        };
        loop {
            match self.step(&mut walk, Out(give)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => {
                    // Nobody may take it any more.
                    let _ = give.send(Err(failure));
                    return;
                }
            }
        }
    }

    /// Reads a page, or a key. Returns whether to go on.
    fn step(&mut self, walk: &mut Walk, out: Out<'_>) -> Result<bool, CommandFailure> {
        let Some(span) = walk.rest.take().filter(|_| walk.left > 0) else {
            return Ok(false);
        };
        let to = match walk.ahead.pop_front() {
            Some(Ahead::Alone(key)) => return self.step_alone(walk, &span, key, out),
            Some(Ahead::Strings(to)) => Some(to),
            None => None,
        };
        let now = to
            .as_ref()
            .map_or_else(|| span.clone(), |to| below(&span, to));
        let wanted = usize::try_from(walk.left).unwrap_or(PAGE).min(walk.at_once);
        match self.page(&now, wanted)? {
            Found::Page(page) => {
                walk.at_once = (walk.at_once * 2).min(PAGE);
                walk.rest = match (page.rest, to) {
                    (rest, None) => rest,
                    (None, Some(to)) => from(span, to),
                    (Some(rest), Some(to)) => {
                        walk.ahead.push_front(Ahead::Strings(to));
                        from(span, rest.range.from)
                    }
                };
                let read = self.with_expiries(page.pairs)?;
                walk.left -= (read.pairs.len() as u64).min(walk.left);
                return Ok(out.given(read));
            }
            Found::OtherTypes if wanted > 1 => {
                // Strings were expected, and there is something else by now: all that lies ahead is looked at anew.
                walk.ahead = self.ahead(&span, wanted)?.into();
                if walk.ahead.is_empty() || to.is_some() {
                    walk.at_once = wanted / 2;
                }
            }
            Found::TooLong if wanted > 1 => {
                if let Some(to) = to {
                    walk.ahead.push_front(Ahead::Strings(to));
                }
                walk.at_once = wanted / 2;
            }
            Found::OtherTypes | Found::TooLong => {
                if let Some(to) = to {
                    walk.ahead.push_front(Ahead::Strings(to));
                }
                let resp = &mut self.resp;
                let first = retried(self.retry_for, self.stopping, || resp.first_key(&span))?;
                return match first {
                    Some(key) => self.step_alone(walk, &span, key, out),
                    None => Ok(true),
                };
            }
        }
        walk.rest = Some(span);
        Ok(true)
    }

    /// Reads a key, whatever it is bound to.
    fn step_alone(
        &mut self,
        walk: &mut Walk,
        span: &Span,
        key: Vec<u8>,
        out: Out<'_>,
    ) -> Result<bool, CommandFailure> {
        walk.rest = span.behind(&key);
        walk.left -= 1;
        self.alone(key, out)
    }

    /// The next pairs.
    fn page(&mut self, span: &Span, wanted: usize) -> Result<Found, CommandFailure> {
        let (client, snapshot) = (&mut self.client, &mut self.snapshot);
        retried(self.retry_for, self.stopping, || {
            snapshot.as_mut().map_or(Ok(()), ExportSnapshot::keep)?;
            match client.page(span, wanted) {
                Err(ClientError::Invalid { what }) if what.contains(LONG) => Ok(Found::TooLong),
                Err(ClientError::WrongType { .. }) => Ok(Found::OtherTypes),
                page => page.map(Found::Page),
            }
        })
    }

    /// `pairs`, and when each of them expires.
    pub(super) fn with_expiries(
        &mut self,
        mut pairs: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Read, CommandFailure> {
        let mut told = Vec::with_capacity(pairs.len());
        for some in pairs.chunks(EXPIRIES) {
            let keys = some.iter().map(|(key, _)| key.as_slice());
            let commands: Vec<_> = keys.map(|key| vec![&b"PEXPIRETIME"[..], key]).collect();
            let resp = &mut self.resp;
            let replies = retried(self.retry_for, self.stopping, || {
                let replies = resp.commands(&commands)?;
                replies.iter().map(expiry).collect::<Result<Vec<_>, _>>()
            })?;
            told.extend(replies);
        }
        let mut gone = told.iter().filter(|told| **told == Told::Gone).count() as u64;
        if self.snapshot.is_none() {
            let mut is_there = told.iter().map(|told| *told != Told::Gone);
            pairs.retain(|_| is_there.next().unwrap_or(false));
            told.retain(|told| *told != Told::Gone);
            gone = 0;
        }
        let expiries = told.into_iter().map(|told| match told {
            Told::Gone | Told::Never => None,
            Told::At(at) => Some(at),
        });
        Ok(Read {
            expiries: expiries.collect(),
            pairs,
            gone,
            ..Read::default()
        })
    }
}

impl Out<'_> {
    /// Hands `read` over. Returns whether to go on. Behind a long value nothing is read before it has been written.
    pub(super) fn given(self, mut read: Read) -> bool {
        let mut wait: Option<Receiver<()>> = None;
        let mut values = read.pairs.iter().map(|(_, value)| value.len());
        if values.any(|len| len > VALUE_BYTES_MAX) {
            let (tell, told) = sync_channel(1);
            read.taken = Some(tell);
            wait = Some(told);
        }
        if self.0.send(Ok(read)).is_err() {
            return false;
        }
        if let Some(taken) = wait {
            // It is dropped, and nothing sent.
            let _ = taken.recv();
        }
        true
    }
}

/// What is known of a key's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Gone,
    Never,
    At(u64),
}

/// What `PEXPIRETIME` was answered.
pub(super) fn expiry(reply: &Reply) -> Result<Told, ClientError> {
    match reply {
        Reply::Integer(-2) => Ok(Told::Gone),
        Reply::Integer(-1) => Ok(Told::Never),
        Reply::Integer(at) if *at >= 0 => Ok(Told::At(at.unsigned_abs())),
        reply => Err(odd("PEXPIRETIME", std::slice::from_ref(reply))),
    }
}

/// An answer that makes no sense.
pub(super) fn odd(command: &str, replies: &[Reply]) -> ClientError {
    ClientError::Protocol {
        what: format!("{command} was answered by {replies:?}"),
        outcome: Outcome::NotApplied,
    }
}

#[cfg(test)]
mod tests {
    use argosy_server::resp::Listener;

    use super::super::snapshot::tests::{client, serve};
    use super::*;

    /// What an export reads, from a snapshot that `between` happens to.
    fn exported(
        listener: &Listener,
        between: impl FnOnce(&mut RespClient, &str),
    ) -> Result<(Vec<String>, u64), CommandFailure> {
        let snapshot = ExportSnapshot::open(client(listener))?;
        between(&mut client(listener), snapshot.name());
        let reads = || {
            let mut reads = client(listener);
            reads.read_from(Some(snapshot.name().to_owned()));
            reads
        };
        let stopping = AtomicBool::new(false);
        let reader = Reader {
            client: Box::new(reads()),
            resp: reads(),
            retry_for: Duration::ZERO,
            stopping: &stopping,
            snapshot: Some(snapshot),
        };
        let (give, pages) = sync_channel(16);
        reader.run(Span::all(), None, &give);
        drop(give);
        let (mut told, mut gone) = (Vec::new(), 0);
        for page in pages {
            let page = page?;
            gone += page.gone;
            told.extend(page.pairs().map(|pair| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                format!(
                    "{}={} {:?}",
                    text(pair.key),
                    text(pair.value),
                    pair.expires.is_some()
                )
            }));
        }
        Ok((told, gone))
    }

    #[test]
    fn an_export_of_a_snapshot_is_of_one_moment() {
        let (fake, listener) = serve();
        let mut resp = client(&listener);
        for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
            resp.put(key, value).unwrap();
        }
        resp.command(&[b"EXPIRE", b"c", b"1000"]).unwrap();
        let (told, gone) = exported(&listener, |resp, _| {
            resp.put(b"a", b"other").unwrap();
            resp.delete(b"b").unwrap();
            resp.put(b"d", b"4").unwrap();
        })
        .unwrap();
        assert_eq!(told, ["a=1 false", "b=2 false", "c=3 true"]);
        assert_eq!((gone, fake.snapshots()), (1, 0));
    }

    #[test]
    fn nothing_of_another_moment_is_put_behind_a_snapshot_that_ended() {
        let (_, listener) = serve();
        client(&listener).put(b"a", b"1").unwrap();
        let ended = exported(&listener, |resp, name| {
            assert!(resp.close_snapshot(name).unwrap());
        });
        let told = ended.unwrap_err().to_string();
        assert!(told.contains("is not open"), "{told}");
    }
}
