//! As much of HTTP/1.1 as the admin port needs, without I/O: the head of a request is read, and one
//! response is written, after which the connection closes.
//!
//! ```text
//! request  := method SP target SP "HTTP/1." digit CRLF (field CRLF)* CRLF     bodies are not read
//! response := "HTTP/1.1" SP status SP reason CRLF (field CRLF)* CRLF body
//! ```
//!
//! A head has at most [`HEAD_BYTES_MAX`] bytes. Of its fields only `Host` is looked at, which may stand there once.

use std::fmt::Write as _;

/// Longest head of a request, in bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The whole.
    Get,
    /// All but the body.
    Head,
    /// Something that changes the server, which nothing here does.
    Other,
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// What is wanted.
    pub method: Method,
    /// Of what, without what comes behind a question mark.
    pub path: &'a str,
    /// What comes behind the question mark; empty without one.
    pub query: &'a str,
    /// Whom it is addressed to, where it says so.
    pub host: Option<&'a str>,
}

/// A response's status. The numbers are those of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Here it is.
    Ok = 200,
    /// This is no HTTP.
    BadRequest = 400,
    /// There is nothing of this name.
    NotFound = 404,
    /// It can only be read.
    MethodNotAllowed = 405,
    /// The request did not come to its end in time.
    Timeout = 408,
    /// It is addressed to somebody else.
    Misdirected = 421,
    /// The head is too long.
    HeadTooLarge = 431,
    /// Not now.
    Unavailable = 503,
    /// This is no HTTP/1.
    Version = 505,
}

impl Status {
    const fn reason(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::BadRequest => "Bad Request",
            Self::NotFound => "Not Found",
            Self::MethodNotAllowed => "Method Not Allowed",
            Self::Timeout => "Request Timeout",
            Self::Misdirected => "Misdirected Request",
            Self::HeadTooLarge => "Request Header Fields Too Large",
            Self::Unavailable => "Service Unavailable",
            Self::Version => "HTTP Version Not Supported",
        }
    }
}

/// Reads the head of a request from what has arrived. `Ok(None)`: it goes on behind.
///
/// # Errors
/// The status to refuse it with.
pub fn parse(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, Status> {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    // Old clients end lines with LF alone; both are taken.
    let ends = |end: &[u8]| window.windows(end.len()).any(|bytes| bytes == end);
    if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
        return if bytes.len() >= HEAD_BYTES_MAX {
            Err(Status::HeadTooLarge)
        } else {
            Ok(None)
        };
    }
    let mut lines = window.split(|&byte| byte == b'\n');
    let line = lines.next();
    let line = std::str::from_utf8(line.unwrap_or_default()).map_err(|_| Status::BadRequest)?;
    let mut words = line.trim_end_matches('\r').split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Status::BadRequest);
    };
    if !version.starts_with("HTTP/") || !target.starts_with('/') || method.is_empty() {
        return Err(Status::BadRequest);
    }
    if !version.starts_with("HTTP/1.") {
        return Err(Status::Version);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(RequestHead {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        },
        path,
        query,
        host: host_of(lines)?,
    }))
}

/// What the field `Host` of these lines says.
fn host_of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Option<&'a str>, Status> {
    let mut host = None;
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        if line[..colon].eq_ignore_ascii_case(b"host") {
            let value = std::str::from_utf8(&line[colon + 1..]).map_err(|_| Status::BadRequest)?;
            if host.replace(value.trim()).is_some() {
                return Err(Status::BadRequest);
            }
        }
    }
    Ok(host)
}

/// What a response carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A text for people.
    Text(&'a str),
    /// JSON.
    Json(&'a str),
    /// Metrics in the text format of Prometheus.
    Metrics(&'a str),
}

impl<'a> Body<'a> {
    const fn parts(self) -> (&'static str, &'a str) {
        match self {
            Self::Text(text) => ("text/plain; charset=utf-8", text),
            Self::Json(text) => ("application/json", text),
            Self::Metrics(text) => ("text/plain; version=0.0.4; charset=utf-8", text),
        }
    }
}

/// A whole response; the body is left out if only the head was wanted.
#[must_use]
pub fn response(status: Status, body: Body<'_>, head_only: bool) -> Vec<u8> {
    let (kind, body) = body.parts();
    let mut text = String::new();
    let allow = match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    write!(
        text,
        "HTTP/1.1 {} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\n{allow}Connection: close\r\n\r\n",
        status as u16,
        status.reason(),
        body.len(),
    )
    .expect("a string takes what is written");
    if !head_only {
        text.push_str(body);
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_at_their_end_and_not_before() {
        let head = b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(parse(&head[..cut]), Ok(None), "cut at {cut}");
        }
        let read = parse(head).unwrap().unwrap();
        assert_eq!((read.method, read.path), (Method::Get, "/readyz"));
        assert_eq!((read.query, read.host), ("verbose", Some("x")));
        let old = parse(b"HEAD / HTTP/1.0\n\n").unwrap().unwrap();
        assert_eq!((old.method, old.path, old.host), (Method::Head, "/", None));
        let other = parse(b"POST / HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert_eq!(other.method, Method::Other);
    }

    #[test]
    fn what_is_no_http_is_refused() {
        for (bytes, status) in [
            (&b"\r\n\r\n"[..], Status::BadRequest),
            (b"GET /\r\n\r\n", Status::BadRequest),
            (b"GET  / HTTP/1.1\r\n\r\n", Status::BadRequest),
            (b"GET x HTTP/1.1\r\n\r\n", Status::BadRequest),
            (b"\xff / HTTP/1.1\r\n\r\n", Status::BadRequest),
            (b"*1\r\n$4\r\nPING\r\n\r\n", Status::BadRequest),
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
                Status::BadRequest,
            ),
            (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", Status::BadRequest),
            (b"GET / HTTP/2\r\n\r\n", Status::Version),
        ] {
            assert_eq!(parse(bytes), Err(status), "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(&[b'a'; HEAD_BYTES_MAX]), Err(Status::HeadTooLarge));
        assert_eq!(parse(&[b'a'; HEAD_BYTES_MAX - 1]), Ok(None));
    }

    #[test]
    fn random_bytes_never_panic() {
        const BYTES: &[u8] = b"GET /HEAD\r\n\r\n HTTP/1.\xff?:\n\0";
        let mut state = 0x5eed_u64;
        let mut heads = 0;
        for _ in 0..20_000 {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                usize::try_from(state >> 40).unwrap()
            };
            let bytes: Vec<u8> = (0..next() % 60)
                .map(|_| BYTES[next() % BYTES.len()])
                .collect();
            heads += usize::from(parse(&bytes) != Ok(None));
        }
        assert!(heads > 100, "some end: {heads}");
    }

    #[test]
    fn a_head_has_the_length_of_the_body_it_leaves_out() {
        let whole = String::from_utf8(response(Status::Ok, Body::Text("ok\n"), false)).unwrap();
        let head = String::from_utf8(response(Status::Ok, Body::Text("ok\n"), true)).unwrap();
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(whole.contains("\r\nContent-Length: 3\r\n"));
        assert_eq!(whole, head + "ok\n");
        let refused =
            String::from_utf8(response(Status::MethodNotAllowed, Body::Text(""), false)).unwrap();
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"));
    }
}
