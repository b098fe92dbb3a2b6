//! Writes replies: each method appends one value to a buffer, in RESP2 or RESP3.
//!
//! ```text
//!                RESP2                    RESP3
//! simple         "+" text CRLF            same
//! error          "-" text CRLF            same
//! integer        ":" decimal CRLF         same
//! bulk           "$" len CRLF bytes CRLF  same
//! null           "$-1" CRLF               "_" CRLF
//! null array     "*-1" CRLF               "_" CRLF
//! array          "*" count CRLF           same; `count` values follow
//! map            "*" 2*count CRLF         "%" count CRLF; `count` keys with values follow
//! set            "*" count CRLF           "~" count CRLF
//! boolean        ":1" | ":0"  CRLF        "#t" | "#f" CRLF
//! double         as bulk                  "," text CRLF
//! verbatim       as bulk                  "=" len+4 CRLF "txt:" bytes CRLF
//! ```
//!
//! Simple strings and errors never contain CR or LF: such bytes are written as blanks, so no text
//! can end a reply early.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Which version of the protocol a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every connection starts with.
    #[default]
    Resp2,
    /// Since `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// The number that `HELLO` takes and gives.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies to `out`.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Encoder<'a> {
    /// Appends to `out` in `protocol`.
    #[inline]
    pub const fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The version that is written.
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A short text such as `OK`.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: a prefix in capitals, a blank, and what is wrong.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// A whole number.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.out.push(b':');
        if value < 0 {
            self.out.push(b'-');
        }
        put_decimal(self.out, value.unsigned_abs());
        self.crlf();
    }

    /// A count, as a whole number. Counts above `i64::MAX` do not occur and are written as that.
    #[inline]
    pub fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.crlf();
    }

    /// A byte string, or null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// No value, where there could be a byte string.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// No value, where there could be an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// An array, of which the caller appends `count` values next.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// A map, of which the caller appends `pairs` keys, each with its value, next.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', pairs * 2),
            Protocol::Resp3 => self.header(b'%', pairs),
        }
    }

    /// A set, of which the caller appends `count` values next.
    pub fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'~', count),
        }
    }

    /// Yes or no.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(value.into()),
            Protocol::Resp3 => {
                self.out
                    .extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" })
            }
        }
    }

    /// A number that need not be whole.
    pub fn double(&mut self, value: f64) {
        let mut text = String::new();
        if value.is_nan() {
            text.push_str("nan");
        } else if value.is_infinite() {
            text.push_str(if value > 0.0 { "inf" } else { "-inf" });
        } else {
            write!(text, "{value}").expect("a string takes what is written");
        }
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', &text),
        }
    }

    /// A text of several lines for people, such as that of `INFO`.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                const KIND: &[u8] = b"txt:";
                self.header(b'=', KIND.len() + text.len());
                self.out.extend_from_slice(KIND);
                self.out.extend_from_slice(text.as_bytes());
                self.crlf();
            }
        }
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend_from_slice(text.as_bytes());
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.crlf();
    }

    #[inline]
    fn header(&mut self, kind: u8, count: usize) {
        self.out.push(kind);
        put_decimal(self.out, count as u64);
        self.crlf();
    }

    #[inline]
    fn crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends `value` in decimal.
#[inline]
pub fn put_decimal(out: &mut Vec<u8>, mut value: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0u8; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
