//! Requests that are kept to be carried out later: their arguments, back to back.

use alloc::vec::Vec;

use super::{Args, Span};

/// A list of requests. Takes no memory of its own for each but a few bytes an argument.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    /// Where arguments lie in `bytes`.
    spans: Vec<Span>,
    /// Where the arguments of each request end in `spans`.
    ends: Vec<u32>,
}

impl Kept {
    /// Appends the request that has these arguments.
    ///
    /// # Panics
    /// When all of them have over 4 GiB: who keeps requests bounds them.
    pub fn push(&mut self, args: Args<'_>) {
        const BOUNDED: &str = "requests that are kept are bounded";
        for arg in args.from(0) {
            let start = u32::try_from(self.bytes.len()).expect(BOUNDED);
            self.bytes.extend_from_slice(arg);
            let end = u32::try_from(self.bytes.len()).expect(BOUNDED);
            self.spans.push(Span { start, end });
        }
        self.ends
            .push(u32::try_from(self.spans.len()).expect(BOUNDED));
    }

    /// How many requests there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arguments of each request.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Args<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let spans = &self.spans[start..end as usize];
            start = end as usize;
            Args {
                bytes: &self.bytes,
                spans,
            }
        })
    }

    /// The arguments of the request in this place, if there is one.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<Args<'_>> {
        let end = *self.ends.get(place)? as usize;
        let start = match place {
            0 => 0,
            _ => self.ends[place - 1] as usize,
        };
        Some(Args {
            bytes: &self.bytes,
            spans: &self.spans[start..end],
        })
    }

    /// Bytes that a request with these arguments takes.
    #[must_use]
    pub fn bytes_of(args: Args<'_>) -> usize {
        let bytes: usize = args.from(0).map(<[u8]>::len).sum();
        bytes + args.len() * size_of::<Span>() + size_of::<u32>()
    }

    /// Bytes that all of them take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>() + self.ends.len() * size_of::<u32>()
    }

    /// Bytes of memory that are held.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.ends.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::{Parser, Step};
    use super::Kept;

    #[test]
    fn requests_are_kept_as_they_came() {
        let mut kept = Kept::default();
        let requests = [
            &b"PING\r\n"[..],
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n",
        ];
        for bytes in requests {
            let mut parser = Parser::new();
            assert!(matches!(parser.parse(bytes), Ok(Step::Request { .. })));
            let before = kept.bytes();
            kept.push(parser.args(bytes));
            assert_eq!(kept.bytes() - before, Kept::bytes_of(parser.args(bytes)));
        }
        let all: Vec<Vec<&[u8]>> = kept.iter().map(|args| args.from(0).collect()).collect();
        let expected: [&[&[u8]]; 2] = [&[b"PING"], &[b"SET", b"k", b""]];
        assert_eq!(all, expected);
        let second = kept.get(1).map(|args| args.from(1).collect::<Vec<_>>());
        assert_eq!(second, Some(all[1][1..].to_vec()));
        assert!(kept.get(2).is_none() && kept.len() == 2);
        assert!(kept.memory_bytes() >= kept.bytes());
    }
}
