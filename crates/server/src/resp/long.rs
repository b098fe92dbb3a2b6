//! Values of over 1 MiB: taken in and given out part by part, so that a connection holds about one part of them
//! at a time. See [`argosy_engine::long`].
//!
//! *In.* Where the parser comes to a `SET`'s long value, the session puts its reply into the queue, and makes a
//! write of each part when that is there, one at a time; it reads no more than the next part meanwhile. Behind
//! the value come the options, and with them the write of the head is made. Where a part cannot be written the
//! rest of the value is read past, and the reply is the error.
//!
//! *Out.* An answer that is a head begins a reply that asks for part after part, once it is the first of the
//! queue, and while what is to be written is short. Where the first part is not there, the value has been
//! overwritten, and the key is looked up again. Once a part has been written there is no way back: if another
//! one is not there, the connection ends. Of long values among others see `many_long`.

use argosy_engine::long::{Head, LongWriter, is_head, may_be_head};
use argosy_engine::{Condition, WriteOptions};
use argosy_wire::api::{Plan, Scratch};

use super::command;
use super::front::{Context, FrontEnd};
use super::reply::{After, Gather, Pending};
use super::session::{CallToken, Core, Session};
use super::strings::set_options;
use super::transactions::refusal_of_long;
use crate::long::{Came, Reading};
use crate::meter::MeteredOutcome;
use crate::service::Response;

/// What becomes of a long value's bytes.
#[derive(Debug)]
pub(super) struct Intake {
    /// `None`: they are read past.
    writer: Option<LongWriter>,
    token: CallToken,
    /// It is `SETNX`.
    setnx: bool,
}

/// What the session does with what it has received of a long value.
pub(super) enum Took {
    /// A part, or the head, is to be written.
    Call(CallToken, Plan),
    /// There is not enough of it.
    Needs,
    /// A part is being written.
    Waits,
    /// It was read past.
    Went,
}

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

    /// Writes what has come.
    pub(super) fn stream(&mut self, out: &mut Vec<u8>) {
        if self.staged.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(format!("${}\r\n", self.reading.len()).as_bytes());
        }
        out.append(&mut self.staged);
    }

    /// The rest cannot be had. `false`: nothing has been written yet.
    pub(super) const fn tear(&mut self) -> bool {
        self.torn |= self.begun;
        self.begun
    }

    /// Writes the end.
    pub(super) fn end(mut self, out: &mut Vec<u8>) {
        if self.torn {
            return;
        }
        self.stream(out);
        if !self.begun {
            out.extend_from_slice(b"$0\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Pending {
    /// Takes an answer that is, or may be, the head of a value in parts; `None`: it is not.
    #[inline]
    pub(super) fn take_head(&mut self, response: &Response) -> Option<After> {
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
            (Gather::LengthOf(_), Response::Values(_)) => {}
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
            (Gather::LengthOf(_), Response::Values(values)) => {
                let value = values.iter().flatten().next();
                let len = value.map_or(0, |value| match Head::parse(value) {
                    Some(head) => head.len,
                    None => value.len() as u64,
                });
                self.answer = Some(Response::Count(len));
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

    /// Whether it is written while it is gathered.
    pub(super) const fn is_long(&self) -> bool {
        matches!(self.gather, Gather::Long(_) | Gather::Many(_))
    }
}

impl Core {
    /// Writes what the first reply has of a long value. It is whole so far, or the connection ends.
    pub(super) fn stream(&mut self) {
        match self.pending.front_mut().map(|first| &mut first.gather) {
            Some(Gather::Long(long)) => {
                long.stream(&mut self.output);
                self.broken |= long.torn;
            }
            Some(Gather::Many(many)) => self.broken |= !many.stream(&mut self.output),
            _ => {}
        }
        // What has been written is not held any more.
        if let Some(first) = self.pending.front_mut()
            && let Gather::Many(many) = &first.gather
        {
            self.held -= first.held;
            first.held = many.held();
            self.held += first.held;
        }
    }

    /// Whether the first reply wants the next part of a long value, read or written, and there is room for it.
    pub(super) fn wants_part(&self) -> bool {
        let Some(first) = self.pending.front() else {
            return false;
        };
        let has_room = first.grows() || first.is_long() && self.has_room_for_part();
        has_room && self.next_pages.contains(&self.base_sequence())
    }

    /// Whether little is to be written.
    pub(super) fn has_room_for_part(&self) -> bool {
        self.output_bytes() < self.limits().output_bytes_max / 2
    }
}

impl Session {
    /// Takes the value in that begins behind the first `bytes` bytes, if it is one that is taken in parts.
    pub(super) fn begin_long(&mut self, bytes: usize, len: u32, context: &Context<'_>) -> bool {
        let args = self.input.args_before(bytes);
        let (name, key) = (args.at(0), args.at(1));
        let setnx = name.eq_ignore_ascii_case(b"setnx");
        if self.intake.is_some() || !setnx && !name.eq_ignore_ascii_case(b"set") {
            return false;
        }
        let version = context.front.versions.draw();
        let writer = LongWriter::new(key, len.into(), version);
        self.core.begin_command();
        self.core.command = command::number_of(if setnx { b"setnx" } else { b"set" });
        let token = self.core.push_call(Gather::Taking);
        let too_long = |error| format!("ERR {error} (not applied)");
        let refused = refusal_of_long(self.core.in_refused_multi);
        if let Some(text) = refused.or_else(|| writer.as_ref().err().map(too_long)) {
            self.core
                .pending_of(token)
                .fail(text, MeteredOutcome::Invalid);
        }
        self.intake = Some(Intake {
            writer: writer.ok(),
            token,
            setnx,
        });
        self.input.take_long(bytes);
        true
    }

    /// Goes on with the value that is being taken in.
    pub(super) fn go_on_long(&mut self, scratch: &mut Scratch) -> Took {
        let Some((left, here)) = self.input.long() else {
            // The head is not made before the last part is written.
            let intake = self.intake.as_ref();
            let waits = intake.is_some_and(|it| self.core.part_under_way == Some(it.token));
            return if waits { Took::Waits } else { Took::Went };
        };
        let Some(intake) = &mut self.intake else {
            return Took::Went;
        };
        let changing = !self.core.holds.is_empty();
        let pending = self.core.pending_of(intake.token);
        let waits = pending.outstanding > 1;
        if pending.has_failed() {
            intake.writer = None;
        }
        let Some(writer) = &mut intake.writer else {
            let here = here.len();
            self.input.took_long(here);
            return match left - here {
                0 => Took::Went,
                _ => Took::Needs,
            };
        };
        let bytes = writer.next_bytes().unwrap_or_default();
        if here.len() < bytes {
            return Took::Needs;
        }
        if waits || changing {
            self.core.holds.waits = !waits;
            return Took::Waits;
        }
        writer.part(&here[..bytes], &mut scratch.batch);
        pending.outstanding += 1;
        self.core.part_under_way = Some(intake.token);
        let token = intake.token;
        self.input.took_long(bytes);
        Took::Call(token, Plan::Write(WriteOptions::default()))
    }

    /// The value has been taken in, and so have the arguments behind it.
    pub(super) fn end_long(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<(CallToken, Plan)> {
        let intake = self.intake.take()?;
        let batch = &mut scratch.batch;
        batch.clear();
        let args = self.input.args().from(0);
        let options = match set_options(args, batch) {
            Ok(_) if intake.setnx && self.input.args().len() > 0 => {
                Err("ERR wrong number of arguments for 'setnx' command".to_owned())
            }
            options => options,
        };
        let pending = self.core.pending_of(intake.token);
        match (options, intake.writer) {
            (Ok(options), Some(writer)) if !pending.has_failed() => {
                let condition = match intake.setnx {
                    true => Condition::Absent,
                    false => options.condition,
                };
                pending.gather = match (intake.setnx, options.get) {
                    (true, _) => Gather::StoredCount,
                    (_, true) => Gather::Previous,
                    _ => Gather::Stored,
                };
                writer.head(options.expiry, batch);
                let options = WriteOptions {
                    condition,
                    return_previous: options.get,
                };
                return Some((intake.token, Plan::Write(options)));
            }
            (Err(text), _) => pending.fail(text, MeteredOutcome::Invalid),
            _ => {}
        }
        self.core.let_go(context.front, intake.token);
        None
    }

    /// The value, or what comes behind it, cannot be taken in: the reply is the error `text`. `false`: none is being
    /// taken in.
    pub(super) fn break_off_long(&mut self, front: &FrontEnd, text: &str) -> bool {
        let Some(intake) = self.intake.take() else {
            return false;
        };
        let pending = self.core.pending_of(intake.token);
        pending.fail(text.to_owned(), MeteredOutcome::Invalid);
        self.core.let_go(front, intake.token);
        true
    }
}
