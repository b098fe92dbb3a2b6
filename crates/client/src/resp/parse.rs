//! Replies of the Redis protocol, read off bytes that come in pieces of any size.
//!
//! The caller keeps the bytes; the [`Parser`] keeps the arrays that have begun and what they have so far. Each byte is
//! looked at once, however many pieces there are: what belongs to an array is done with when it has been read, and
//! the next piece goes on behind it.

/// Deepest nesting of arrays believed. No command of ours is answered by more than two.
const DEPTH_MAX: usize = 8;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and the like.
    Simple(String),
    /// `-ERR ...`: the whole line without its sign.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A value, or nil.
    Bulk(Option<Vec<u8>>),
    /// An array, or nil.
    Array(Option<Vec<Self>>),
}

/// A parsed reply; a value at the top is where it lies in the input.
#[derive(Debug)]
pub(super) enum Parsed {
    Bulk(Option<(usize, usize)>),
    Other(Reply),
}

/// An array of which some is there.
#[derive(Debug)]
struct Open {
    items: Vec<Reply>,
    /// How many are to come: at least one.
    left: usize,
}

/// What stands at some place of a reply.
enum Item {
    Bulk(Option<(usize, usize)>),
    /// An array of so many items begins.
    Array(usize),
    Other(Reply),
}

/// Reads replies. What it holds is bounded by what has come: an announced length reserves nothing.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The arrays that have begun, the outermost first: at most [`DEPTH_MAX`].
    open: Vec<Open>,
    /// Bytes of the present item in which there is no end of its line.
    searched: usize,
    /// Where the bytes of the present value begin and end, behind the beginning of its line.
    value: Option<(usize, usize)>,
    /// Bytes that were looked at.
    #[cfg(test)]
    pub(super) looked: usize,
}

impl Parser {
    /// Goes on in `input`: how many bytes at its front are done with, and the reply, if it is whole. A value at the
    /// top lies in them. Without a reply, the bytes behind them are to be shown again, with more.
    ///
    /// # Errors
    /// What is wrong, where no more bytes make it a reply. The parser is of no more use.
    pub(super) fn parse(&mut self, input: &[u8]) -> Result<(usize, Option<Parsed>), &'static str> {
        let mut at = 0;
        loop {
            let Some((item, used)) = self.item(&input[at..])? else {
                return Ok((at, None));
            };
            let reply = match item {
                Item::Bulk(span) if self.open.is_empty() => {
                    let span = span.map(|(from, to)| (at + from, at + to));
                    return Ok((at + used, Some(Parsed::Bulk(span))));
                }
                Item::Bulk(span) => {
                    Reply::Bulk(span.map(|(from, to)| input[at + from..at + to].to_vec()))
                }
                Item::Array(0) => Reply::Array(Some(Vec::new())),
                Item::Array(left) => {
                    let items = Vec::new();
                    self.open.push(Open { items, left });
                    at += used;
                    continue;
                }
                Item::Other(reply) => reply,
            };
            at += used;
            if let Some(whole) = self.put(reply) {
                return Ok((at, Some(Parsed::Other(whole))));
            }
        }
    }

    /// Puts `reply` where it belongs; returns it, or the arrays around it that it makes whole, at the top.
    fn put(&mut self, mut reply: Reply) -> Option<Reply> {
        while let Some(mut open) = self.open.pop() {
            open.items.push(reply);
            open.left -= 1;
            if open.left > 0 {
                self.open.push(open);
                return None;
            }
            reply = Reply::Array(Some(open.items));
        }
        Some(reply)
    }

    /// The item at the start of `input` and its length in bytes, of an array that of its line; `None` where more is
    /// needed.
    fn item(&mut self, input: &[u8]) -> Result<Option<(Item, usize)>, &'static str> {
        if let Some((body, end)) = self.value {
            return self.value_at(input, body, end);
        }
        let unseen = &input[self.searched..];
        let found = unseen.windows(2).position(|pair| pair == b"\r\n");
        #[cfg(test)]
        {
            self.looked += found.map_or(unseen.len(), |at| at + 2);
        }
        let Some(end) = found.map(|at| self.searched + at) else {
            // The last byte may be the first of an end.
            self.searched = input.len().saturating_sub(1);
            return Ok(None);
        };
        self.searched = 0;
        let (line, body) = (&input[1..end.max(1)], end + 2);
        let text = || String::from_utf8_lossy(line).into_owned();
        let item = match input[0] {
            b'+' => Item::Other(Reply::Simple(text())),
            b'-' => Item::Other(Reply::Error(text())),
            b':' => Item::Other(Reply::Integer(integer(line)?)),
            b'$' => match usize::try_from(integer(line)?) {
                Ok(len) => {
                    let end = body.checked_add(len).ok_or("a length past all memory")?;
                    return self.value_at(input, body, end);
                }
                Err(_) => Item::Bulk(None),
            },
            b'*' if self.open.len() == DEPTH_MAX => return Err("arrays nested too deep"),
            b'*' => match usize::try_from(integer(line)?) {
                Ok(len) => Item::Array(len),
                Err(_) => Item::Other(Reply::Array(None)),
            },
            _ => return Err("an unknown type of reply"),
        };
        Ok(Some((item, body)))
    }

    /// The value from `body` to `end` in `input`.
    fn value_at(
        &mut self,
        input: &[u8],
        body: usize,
        end: usize,
    ) -> Result<Option<(Item, usize)>, &'static str> {
        self.value = None;
        match input.get(end..end.saturating_add(2)) {
            None => {
                self.value = Some((body, end));
                Ok(None)
            }
            Some(b"\r\n") => {
                #[cfg(test)]
                {
                    self.looked += end + 2 - body;
                }
                Ok(Some((Item::Bulk(Some((body, end))), end + 2)))
            }
            Some(_) => Err("a value longer than it says"),
        }
    }
}

/// Parses the reply at the start of `input`: it and its length in bytes, or `None` where more is needed.
///
/// # Errors
/// What is wrong, where no more bytes make it a reply.
pub fn parse_reply(input: &[u8]) -> Result<Option<(Reply, usize)>, &'static str> {
    let (used, parsed) = Parser::default().parse(input)?;
    Ok(parsed.map(|parsed| (parsed.into_reply(input), used)))
}

impl Parsed {
    /// The reply, which was parsed at the start of `input`.
    fn into_reply(self, input: &[u8]) -> Reply {
        match self {
            Self::Bulk(span) => Reply::Bulk(span.map(|(from, to)| input[from..to].to_vec())),
            Self::Other(reply) => reply,
        }
    }
}

fn integer(line: &[u8]) -> Result<i64, &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "a number that is not text")?;
    text.parse().map_err(|_| "a number that is none")
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
