//! How an export reads keys that are no strings: hashes, sorted sets and sets.
//!
//! 1. A page that has such a key is refused. Then the keys are asked for, without values, and the type of each. So it
//!    is known what lies *ahead*: runs of strings, which are read as pages up to the next key of another type, and keys
//!    to be read alone. Where none of another type is among them any more, a smaller page is asked for, down to one
//!    key, which is read alone.
//! 2. A key that is read alone may turn out to be bound to anything. What is no string is gone through with `HSCAN`,
//!    `ZSCAN` or `SSCAN`, a page at a time, and becomes a line or several ([`parts`](super::parts)).
//! 3. Each page is one moment of the key, and an element that is there all the time is read exactly once. Where the
//!    key is bound to another type meanwhile, or its cursor is not known any more, it is begun anew. Where it is gone
//!    behind its first part, a line deletes it.
//!
//! Such keys are not read from a snapshot: which of its keys are of other types is known from it, and what they have is
//! as of now. They are counted.

use argosy_base::KeyRange;
use argosy_base::composite::CompositeType;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, Kv as _, Span};

use super::format::{LineContent, ParsedLine};
use super::parts::{CompositePart, PartElement, kind_of, pieces};
use super::reader::{Out, Read, Reader, Told, expiry, odd};
use super::writers::retried;
use crate::failure::CommandFailure;

/// Elements that are asked for at once, at most.
const PAGE: usize = 1000;
/// Bytes of elements that are asked for at once, as far as the last page tells.
const PAGE_BYTES: usize = 1 << 20;
/// Keys whose types are asked for at once.
const TYPES: usize = 250;
/// How often a key is begun anew because somebody else binds it to another type.
const TRIES: u32 = 16;
/// How a server says that a reply is too long.
const REPLY_TOO_LONG: &str = "max_reply_bytes";
/// How a server says that it does not know a cursor.
const UNKNOWN_CURSOR: &str = "is not known here";

/// What lies ahead, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Strings, up to this key.
    Strings(Vec<u8>),
    /// A key of another type.
    Alone(Vec<u8>),
}

/// What a key was found to be bound to.
enum Seen {
    /// All of it was given out, and whether to go on.
    Given(bool),
    /// A string, by now.
    String(Vec<u8>),
    /// Nothing, by now.
    Gone,
    /// Something else than a moment ago.
    Other,
}

/// How far a key is read.
struct Scan<'a> {
    key: &'a [u8],
    kind: CompositeType,
    expires: Option<u64>,
    cursor: Vec<u8>,
    /// Elements to ask for.
    count: usize,
    /// The number of the next part.
    next: u64,
}

/// A page of elements.
enum Elements {
    /// Some, and the cursor behind them.
    Page(Vec<PartElement>, Vec<u8>),
    /// They are too many for one reply.
    TooLong,
    /// The key has to be begun anew.
    Anew,
}

impl Reader<'_> {
    /// What lies ahead in the first `wanted` keys, up to the last of another type; nothing where there is none.
    pub(super) fn ahead(
        &mut self,
        span: &Span,
        wanted: usize,
    ) -> Result<Vec<Ahead>, CommandFailure> {
        let resp = &mut self.resp;
        let keys = retried(self.retry_for, self.stopping, || resp.keys(span, wanted))?;
        let mut ahead = Vec::new();
        let mut strings = false;
        for some in keys.chunks(TYPES) {
            let commands: Vec<_> = some.iter().map(|key| vec![&b"TYPE"[..], key]).collect();
            let resp = &mut self.resp;
            let types = retried(self.retry_for, self.stopping, || resp.commands(&commands))?;
            for (key, found) in some.iter().zip(types) {
                if is_string_or_gone(&found) {
                    strings = true;
                    continue;
                }
                if std::mem::take(&mut strings) {
                    ahead.push(Ahead::Strings(key.clone()));
                }
                ahead.push(Ahead::Alone(key.clone()));
            }
        }
        Ok(ahead)
    }

    /// Gives out what `key` is bound to, whatever that is. Returns whether to go on.
    pub(super) fn alone(&mut self, key: Vec<u8>, out: Out<'_>) -> Result<bool, CommandFailure> {
        let resp = &mut self.resp;
        let value = retried(self.retry_for, self.stopping, || match resp.get(&key) {
            Err(ClientError::WrongType { .. }) => Ok(None),
            value => value.map(Some),
        })?;
        if let Some(value) = value {
            let pairs = value.map(|value| (key, value)).into_iter().collect();
            let read = self.with_expiries(pairs)?;
            return Ok(out.given(read));
        }
        let mut begun = false;
        for _ in 0..TRIES {
            let read = match self.seen(&key, out, &mut begun)? {
                Seen::Given(on) => return Ok(on),
                Seen::Other => continue,
                Seen::String(value) => {
                    let mut read = self.with_expiries(vec![(key, value)])?;
                    read.as_of_now = u64::from(self.snapshot.is_some());
                    read
                }
                Seen::Gone => self.gone(key, begun),
            };
            return Ok(out.given(read));
        }
        let shown = key.escape_ascii();
        Err(CommandFailure::Unreachable(format!(
            "'{shown}' is bound to another type again and again while it is read: try again later"
        )))
    }

    /// What is told of a key that is gone.
    fn gone(&self, key: Vec<u8>, begun: bool) -> Read {
        let delete = ParsedLine {
            key,
            content: LineContent::Delete,
            expires: None,
        };
        let mut read = Read::of(begun.then_some(delete).into_iter().collect());
        read.left_out = u64::from(self.snapshot.is_some());
        read
    }

    /// Looks what `key` is bound to now, and gives it out if that is no string.
    fn seen(&mut self, key: &[u8], out: Out<'_>, begun: &mut bool) -> Result<Seen, CommandFailure> {
        let commands = [vec![&b"TYPE"[..], key], vec![&b"PEXPIRETIME"[..], key]];
        let resp = &mut self.resp;
        let told = retried(self.retry_for, self.stopping, || {
            let replies = resp.commands(&commands)?;
            match replies.as_slice() {
                [Reply::Simple(kind), at] => Ok((kind.clone(), expiry(at)?)),
                replies => Err(odd("TYPE", replies)),
            }
        })?;
        let (kind, expires) = match told {
            (kind, Told::Gone) if kind != "string" => return Ok(Seen::Gone),
            (kind, Told::Gone | Told::Never) => (kind, None),
            (kind, Told::At(at)) => (kind, Some(at)),
        };
        match kind.as_str() {
            "string" => return self.string(key),
            // It was bound between the two.
            "none" => return Ok(Seen::Other),
            _ => {}
        }
        let kind = kind_of(&kind).map_err(CommandFailure::Failed)?;
        let scan = Scan {
            key,
            kind,
            expires,
            cursor: b"0".to_vec(),
            count: PAGE,
            next: 1,
        };
        self.scan(scan, out, begun)
    }

    /// The string that `key` is bound to now, whatever a snapshot has.
    fn string(&mut self, key: &[u8]) -> Result<Seen, CommandFailure> {
        let resp = &mut self.resp;
        retried(self.retry_for, self.stopping, || {
            let reply = resp.command(&[b"GET", key])?;
            Ok(match reply {
                Reply::Bulk(Some(value)) => Seen::String(value),
                Reply::Bulk(None) => Seen::Gone,
                Reply::Error(line) => match ClientError::of_error(&line) {
                    ClientError::WrongType { .. } => Seen::Other,
                    error => return Err(error),
                },
                reply => return Err(odd("GET", &[reply])),
            })
        })
    }

    /// Goes through a key to its end.
    fn scan(
        &mut self,
        mut scan: Scan<'_>,
        out: Out<'_>,
        begun: &mut bool,
    ) -> Result<Seen, CommandFailure> {
        loop {
            let (elements, cursor) = match self.elements(&scan)? {
                Elements::Anew => return Ok(Seen::Other),
                Elements::TooLong => {
                    scan.count /= 2;
                    continue;
                }
                Elements::Page(elements, cursor) => (elements, cursor),
            };
            let ends = cursor == b"0";
            if ends && elements.is_empty() && scan.next == 1 {
                return Ok(Seen::Gone);
            }
            scan.adapt(&elements);
            let mut read = Read::of(scan.lines(&elements, ends));
            read.as_of_now = u64::from(ends && self.snapshot.is_some());
            *begun = true;
            let on = out.given(read);
            if !on || ends {
                return Ok(Seen::Given(on));
            }
            scan.cursor = cursor;
        }
    }

    /// The next page of elements.
    fn elements(&mut self, scan: &Scan<'_>) -> Result<Elements, CommandFailure> {
        let count = scan.count.to_string();
        let words: [&[u8]; 5] = [
            scan.command(),
            scan.key,
            &scan.cursor,
            b"COUNT",
            count.as_bytes(),
        ];
        let (resp, snapshot) = (&mut self.resp, &mut self.snapshot);
        retried(self.retry_for, self.stopping, || {
            if let Some(snapshot) = snapshot.as_mut() {
                snapshot.keep()?;
            }
            let line = match resp.command(&words)? {
                Reply::Error(line) => line,
                reply => return scan.page_of(reply),
            };
            match ClientError::of_error(&line) {
                ClientError::WrongType { .. } => Ok(Elements::Anew),
                ClientError::Invalid { what } if what.contains(UNKNOWN_CURSOR) => {
                    Ok(Elements::Anew)
                }
                ClientError::Invalid { what }
                    if what.contains(REPLY_TOO_LONG) && scan.count > 1 =>
                {
                    Ok(Elements::TooLong)
                }
                error => Err(error),
            }
        })
    }
}

impl Scan<'_> {
    const fn command(&self) -> &'static [u8] {
        match self.kind {
            CompositeType::Hash => b"HSCAN",
            CompositeType::SortedSet => b"ZSCAN",
            CompositeType::Set => b"SSCAN",
        }
    }

    /// Asks for as much as `elements` say will be about right.
    fn adapt(&mut self, elements: &[PartElement]) {
        let bytes = |element: &PartElement| element.name.len() + element.value.len();
        let bytes: usize = elements.iter().map(bytes).sum();
        if let Some(right) = (elements.len() * PAGE_BYTES).checked_div(bytes) {
            self.count = right.clamp(1, PAGE);
        }
    }

    /// The page that a reply is.
    fn page_of(&self, reply: Reply) -> Result<Elements, ClientError> {
        let (cursor, items) = match reply {
            Reply::Array(Some(parts)) => match <[Reply; 2]>::try_from(parts) {
                Ok([Reply::Bulk(Some(cursor)), Reply::Array(Some(items))]) => (cursor, items),
                _ => return Err(odd("a scan of a key", &[])),
            },
            reply => return Err(odd("a scan of a key", &[reply])),
        };
        let mut items = items.into_iter().map(|item| match item {
            Reply::Bulk(Some(bytes)) => Ok(bytes),
            item => Err(odd("a scan of a key", &[item])),
        });
        let mut elements = Vec::new();
        while let Some(name) = items.next().transpose()? {
            let value = match self.kind {
                CompositeType::Set => Vec::new(),
                CompositeType::Hash | CompositeType::SortedSet => items
                    .next()
                    .transpose()?
                    .ok_or_else(|| odd("a scan of a key", &[]))?,
            };
            elements.push(PartElement { name, value });
        }
        Ok(Elements::Page(elements, cursor))
    }

    /// The lines of a page. `ends`: nothing follows.
    fn lines(&mut self, elements: &[PartElement], ends: bool) -> Vec<ParsedLine> {
        let mut cut = pieces(self.key, elements);
        if cut.is_empty() {
            cut.push(&[]);
        }
        let last = cut.len() - 1;
        let line = |(at, piece): (usize, &[PartElement])| {
            let number = self.next;
            self.next += 1;
            ParsedLine {
                key: self.key.to_vec(),
                content: LineContent::Part(CompositePart {
                    kind: self.kind,
                    elements: piece.to_vec(),
                    number,
                    more: !ends || at < last,
                }),
                expires: self.expires,
            }
        };
        cut.into_iter().enumerate().map(line).collect()
    }
}

fn is_string_or_gone(found: &Reply) -> bool {
    matches!(found, Reply::Simple(kind) if kind == "string" || kind == "none")
}

/// The keys of `span` that lie below `to`.
pub(super) fn below(span: &Span, to: &[u8]) -> Span {
    Span::of(KeyRange::new(span.range.from.clone(), Some(to.to_vec())))
}

/// The keys of `span` from `from` on.
pub(super) fn from(mut span: Span, from: Vec<u8>) -> Option<Span> {
    span.range.from = from;
    (!span.range.is_empty()).then_some(span)
}

#[cfg(test)]
#[path = "part_reader_tests.rs"]
mod tests;
