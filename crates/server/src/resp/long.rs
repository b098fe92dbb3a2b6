//! Values of over 1 MiB: taken in and given out part by part, so that a connection holds about one part of them
//! at a time. How they are read and written is in [`long`](crate::long); here is when, and what is told of it. What
//! the session does with them is in `session_long.rs`.
//!
//! *In.* Where the parser comes to a `SET`'s long value, the session puts its reply into the queue, and makes a
//! write of each part when that is there, one at a time; it reads no more than the next part meanwhile. Behind
//! the value come the options, and with them the write of the head is made. Where a part cannot be written the
//! rest of the value is read past, and the reply is the error.
//!
//! *Grown.* `APPEND` and `SETRANGE` are made part by part where they have to, for the first reply of the queue only,
//! one at a time. Requests behind it that concern its key wait (`holds`).
//!
//! *Out.* An answer that is a head begins a reply that asks for part after part, once it is the first of the
//! queue, and while what is to be written is short. Where the first part is not there, the value has been
//! overwritten, and the key is looked up again. Once a part has been written there is no way back: if another
//! one is not there, the connection ends. Of long values among others see `many_long`.

use argosy_engine::long::{Head, is_head, may_be_head};

use super::composite::WRONG_TYPE;
use super::errors::error_text;
use super::reply::{After, Gather, Pending, UNFIT};
use crate::long::{Came, Grew, Reading, len_of};
use crate::meter::MeteredOutcome;
use crate::service::Response;

/// A reply that is a long value.
#[derive(Debug)]
pub(super) struct LongGather {
    pub(super) reading: Reading,
    /// Its beginning has been written.
    pub(super) begun: bool,
    /// What is to be written next.
    pub(super) staged: Vec<u8>,
    /// A part is missing that comes behind one that was written.
    torn: bool,
}

impl LongGather {
    pub(super) const fn new(reading: Reading) -> Self {
        Self {
            reading,
            begun: false,
            staged: Vec::new(),
            torn: false,
        }
    }

    /// Writes what has come. `false`: the rest cannot be had.
    pub(super) fn stream(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.staged.is_empty() {
            if !std::mem::replace(&mut self.begun, true) {
                out.extend_from_slice(format!("${}\r\n", self.reading.len()).as_bytes());
            }
            out.append(&mut self.staged);
        }
        !self.torn
    }

    /// The rest cannot be had. `false`: nothing has been written yet.
    pub(super) const fn tear(&mut self) -> bool {
        self.torn |= self.begun;
        self.begun
    }

    /// Writes the end.
    pub(super) fn end(mut self, out: &mut Vec<u8>) {
        if !self.stream(out) {
            return;
        }
        if !self.begun {
            out.extend_from_slice(b"$0\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Pending {
    /// Takes an answer that is, or may be, the head of a value in parts, or one of a composite; `None`: it is not.
    #[inline]
    pub(super) fn take_head(&mut self, response: &Response) -> Option<After> {
        if self.is_of_wrong_type(response) {
            self.fail(WRONG_TYPE.to_owned(), MeteredOutcome::Invalid);
            return Some(After::Nothing);
        }
        match (&mut self.gather, response) {
            (Gather::Value | Gather::Part(..), Response::Value(Some(value))) if is_head(value) => {}
            (Gather::ValueAt(_), Response::Values(values))
            | (
                Gather::Previous,
                Response::Written {
                    previous: values, ..
                },
            ) if matches!(values.first(), Some(Some(value)) if is_head(value)) => {}
            (Gather::Length(_), Response::Expiry { len: Some(len), .. })
                if usize::try_from(*len).is_ok_and(may_be_head) => {}
            (Gather::Type(_), Response::Expiry { len: Some(len), .. })
                if usize::try_from(*len).is_ok_and(may_be_head) => {}
            (Gather::LengthOf(_) | Gather::TypeOf(_), Response::Values(_)) => {}
            _ => return None,
        }
        Some(self.with_head(response))
    }

    fn with_head(&mut self, response: &Response) -> After {
        let (value, at, fixed) = match (&mut self.gather, response) {
            (Gather::Value, Response::Value(value)) => (value.as_deref(), None, false),
            (Gather::ValueAt(at), Response::Values(values)) => {
                (values.first().and_then(Option::as_deref), Some(*at), false)
            }
            (Gather::Previous, Response::Written { previous, .. }) => {
                (previous.first().and_then(Option::as_deref), None, true)
            }
            (Gather::Length(key), _) => {
                self.gather = Gather::LengthOf(std::mem::take(key));
                return After::NextPage;
            }
            (Gather::Type(key), _) => {
                self.gather = Gather::TypeOf(std::mem::take(key));
                return After::NextPage;
            }
            (Gather::TypeOf(_), Response::Values(values)) => {
                self.answer = Some(Response::Value(values.first().cloned().flatten()));
                return After::Nothing;
            }
            (Gather::LengthOf(_), Response::Values(values)) => {
                let value = values.first().and_then(Option::as_deref);
                self.answer = Some(Response::Count(value.map_or(0, len_of)));
                return After::Nothing;
            }
            (Gather::Part(from, to), Response::Value(value)) => {
                let (from, to) = (*from, *to);
                let head = value.as_deref().and_then(Head::parse);
                return self.with_stretch(head, from, to);
            }
            _ => return After::Nothing,
        };
        let head = value.and_then(Head::parse);
        let Some(head) = head.filter(|_| !self.muted) else {
            self.answer = Some(Response::Value(None));
            self.gather = Gather::Value;
            return After::Nothing;
        };
        self.gather = Gather::Long(Box::new(LongGather::new(Reading::new(head, at, fixed))));
        After::NextPage
    }

    /// Begins with what lies from place `from` to place `to` of a long value.
    fn with_stretch(&mut self, head: Option<Head>, from: i64, to: i64) -> After {
        let head = head.filter(|_| !self.muted);
        match head.and_then(|head| Reading::of_stretch(head, from, to)) {
            Some(reading) => {
                self.gather = Gather::Long(Box::new(LongGather::new(reading)));
                After::NextPage
            }
            None => {
                self.answer = Some(Response::Value(Some(Vec::new())));
                self.gather = Gather::Value;
                After::Nothing
            }
        }
    }

    /// Takes the next part.
    pub(super) fn take_part(&mut self, told: Vec<Option<Vec<u8>>>) -> After {
        let Gather::Long(long) = &mut self.gather else {
            return After::Nothing;
        };
        match long
            .reading
            .take(told.into_iter().next().flatten(), long.begun)
        {
            Came::Part(part) => {
                long.staged = part;
                match long.reading.is_done() {
                    true => After::Nothing,
                    false => After::NextPage,
                }
            }
            Came::Nothing => After::NextPage,
            Came::Instead(value) => {
                let places = long.reading.places();
                self.gather = places.map_or(Gather::Value, |(from, to)| Gather::Part(from, to));
                self.answer = Some(Response::Value(value));
                After::Nothing
            }
            Came::Torn(_) if long.tear() => After::Nothing,
            Came::Torn(torn) => {
                self.fail(format!("TRYAGAIN {torn}"), MeteredOutcome::Invalid);
                After::Nothing
            }
        }
    }

    /// Takes the answer to a call of a change that may be made part by part.
    pub(super) fn take_grown(&mut self, response: Response) -> After {
        let Gather::Grow(growing) = &mut self.gather else {
            return After::Nothing;
        };
        match growing.take(response) {
            Grew::Call => {
                self.held = growing.held();
                return After::NextPage;
            }
            Grew::Done(response) => {
                self.gather = Gather::Changed;
                self.held = 0;
                self.answer = Some(response);
            }
            Grew::Failed(error) => self.fail(error_text(&error, true), (&error).into()),
            Grew::Torn(torn) => {
                let text = format!("TRYAGAIN {torn} (not applied)");
                self.fail(text, MeteredOutcome::Invalid);
            }
            Grew::Unfit => self.fail(UNFIT.to_owned(), MeteredOutcome::Invalid),
        }
        After::Nothing
    }

    /// Whether it is written while it is gathered.
    pub(super) const fn is_long(&self) -> bool {
        matches!(self.gather, Gather::Long(_) | Gather::Many(_))
    }
}
