//! What an export reads: pages of pairs, with the expiry of each.
//!
//! Pages are refused whose values of over 1 MiB have over 64 MiB together: shorter ones are asked for. Expiries
//! are asked for right behind the pairs, many at a time: a pair that is gone by then is left out, and one that is
//! written between the two may come out with the expiry that it has got. From a snapshot a pair that is gone comes out
//! all the same, without an expiry: whether it had one is not known any more. Such pairs are counted.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use argosy_base::Outcome;
use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, Kv, Page, RespClient, Span};

use super::format::Pair;
use super::snapshot::ExportSnapshot;
use super::writers::retried;
use crate::failure::CommandFailure;

/// Pairs that are asked for at once.
const PAGE: usize = 1000;
/// Expiries that are asked for at once.
const EXPIRIES: usize = 250;
/// How a server says that the long values of a page are too much for one reply.
const LONG: &str = "over 1048576 bytes";

/// Pairs, and when each of them expires.
#[derive(Default)]
pub(super) struct Read {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    expiries: Vec<Option<u64>>,
    /// Pairs of a snapshot that are gone by now: they have no expiry here.
    pub(super) gone: u64,
    /// Dropped together with the pairs: so it is known when a long value has been written.
    taken: Option<SyncSender<()>>,
}

impl Read {
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

impl Reader<'_> {
    /// Reads, and gives out what it has read, until the end, the limit, an error, or nobody takes it.
    pub(super) fn run(
        mut self,
        span: Span,
        limit: Option<u64>,
        give: &SyncSender<Result<Read, CommandFailure>>,
    ) {
        let mut left = limit.unwrap_or(u64::MAX);
        let mut rest = Some(span).filter(|span| !span.range.is_empty());
        let mut at_once = PAGE;
        while let Some(span) = rest.take().filter(|_| left > 0) {
            let wanted = usize::try_from(left).unwrap_or(PAGE).min(at_once);
            let (read, behind) = match self.page(&span, wanted) {
                Ok(Some(page)) => {
                    at_once = (at_once * 2).min(PAGE);
                    (self.with_expiries(page.pairs), page.rest)
                }
                Ok(None) if wanted > 1 => {
                    at_once = wanted / 2;
                    rest = Some(span);
                    continue;
                }
                Ok(None) => match self.first(&span) {
                    Ok((read, behind)) => (Ok(read), behind),
                    Err(failure) => (Err(failure), None),
                },
                Err(failure) => (Err(failure), None),
            };
            rest = behind;
            if let Ok(read) = &read {
                left -= (read.pairs.len() as u64).min(left);
            }
            if !given(give, read) {
                return;
            }
        }
    }

    /// The next pairs; `None` where one of them has to be read by itself.
    fn page(&mut self, span: &Span, wanted: usize) -> Result<Option<Page>, CommandFailure> {
        let (client, snapshot) = (&mut self.client, &mut self.snapshot);
        retried(self.retry_for, self.stopping, || {
            snapshot.as_mut().map_or(Ok(()), ExportSnapshot::keep)?;
            match client.page(span, wanted) {
                Err(ClientError::Invalid { what }) if what.contains(LONG) => Ok(None),
                page => page.map(Some),
            }
        })
    }

    /// The first pair, however long it is, and what is behind it.
    fn first(&mut self, span: &Span) -> Result<(Read, Option<Span>), CommandFailure> {
        let resp = &mut self.resp;
        let found = retried(self.retry_for, self.stopping, || {
            let Some(key) = resp.first_key(span)? else {
                return Ok(None);
            };
            let value = resp.get(&key)?;
            Ok(Some((key, value)))
        })?;
        let Some((key, value)) = found else {
            return Ok((Read::default(), None));
        };
        let behind = span.behind(&key);
        let pairs = value.map(|value| (key, value)).into_iter().collect();
        Ok((self.with_expiries(pairs)?, behind))
    }

    fn with_expiries(
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
            taken: None,
        })
    }
}

/// Hands `read` over. Returns whether to go on. Behind a long value nothing is read before it has been written.
fn given(
    give: &SyncSender<Result<Read, CommandFailure>>,
    mut read: Result<Read, CommandFailure>,
) -> bool {
    let mut wait: Option<Receiver<()>> = None;
    if let Ok(read) = &mut read
        && read
            .pairs
            .iter()
            .any(|(_, value)| value.len() > VALUE_BYTES_MAX)
    {
        let (tell, told) = sync_channel(1);
        read.taken = Some(tell);
        wait = Some(told);
    }
    if give.send(read).is_err() {
        return false;
    }
    if let Some(taken) = wait {
        // It is dropped, and nothing sent.
        let _ = taken.recv();
    }
    true
}

/// What is known of a key's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Gone,
    Never,
    At(u64),
}

fn expiry(reply: &Reply) -> Result<Told, ClientError> {
    match reply {
        Reply::Integer(-2) => Ok(Told::Gone),
        Reply::Integer(-1) => Ok(Told::Never),
        Reply::Integer(at) if *at >= 0 => Ok(Told::At(at.unsigned_abs())),
        reply => Err(ClientError::Protocol {
            what: format!("PEXPIRETIME was answered by {reply:?}"),
            outcome: Outcome::NotApplied,
        }),
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
