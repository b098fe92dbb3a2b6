//! A long value that a session takes in or gives out, part by part; see [`long`](crate::resp::long).

use argosy_engine::{Condition, WriteOptions};
use argosy_wire::api::{Plan, Scratch};

use super::{CallToken, Core, Session};
use crate::long::Writing;
use crate::meter::MeteredOutcome;
use crate::resp::command;
use crate::resp::front::{Context, FrontEnd};
use crate::resp::reply::Gather;
use crate::resp::strings::set_options;
use crate::resp::transactions::refusal_of_long;

/// A long value that is being taken in. It is written by the reply's [`Gather::Taking`], and where that has failed,
/// the rest is read past.
#[derive(Debug)]
pub(super) struct Intake {
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

impl Core {
    /// Writes what the first reply has of a long value. It is whole so far, or the connection ends.
    pub(super) fn stream(&mut self) {
        match self
            .replies
            .pending
            .front_mut()
            .map(|first| &mut first.gather)
        {
            Some(Gather::Long(long)) => self.broken |= !long.stream(&mut self.output.bytes),
            Some(Gather::Many(many)) => self.broken |= !many.stream(&mut self.output.bytes),
            _ => {}
        }
        // What has been written is not held any more.
        if let Some(first) = self.replies.pending.front_mut()
            && let Gather::Many(many) = &first.gather
        {
            self.replies.held -= first.held;
            first.held = many.held();
            self.replies.held += first.held;
        }
    }

    /// Whether the first reply wants the next part of a long value, read or written, and there is room for it.
    pub(super) fn wants_part(&self) -> bool {
        let Some(first) = self.replies.pending.front() else {
            return false;
        };
        let has_room = first.goes_alone() || first.is_long() && self.has_room_for_part();
        has_room && self.replies.next_pages.contains(&self.base_sequence())
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
        let writing = Writing::begin(key, len.into(), &context.front.versions);
        self.core.begin_command();
        self.core.present.number = command::number_of(if setnx { b"setnx" } else { b"set" });
        let refused = refusal_of_long(&mut self.core.client.transaction);
        let (gather, error) = match writing {
            Ok(writing) => (Gather::Taking(Box::new(writing)), None),
            Err(error) => (Gather::Value, Some(format!("ERR {error} (not applied)"))),
        };
        let token = self.core.push_call(gather);
        if let Some(text) = refused.or(error) {
            let pending = self.core.pending_of(token);
            pending.fail(text, MeteredOutcome::Invalid);
        }
        self.intake = Some(Intake { token, setnx });
        self.input.take_long(bytes);
        true
    }

    /// Goes on with the value that is being taken in.
    pub(super) fn go_on_long(&mut self, scratch: &mut Scratch) -> Took {
        let Some((left, here)) = self.input.long() else {
            // The head is not made before the last part is written.
            return match self.writes_part() {
                true => Took::Waits,
                false => Took::Went,
            };
        };
        let Some(token) = self.intake.as_ref().map(|intake| intake.token) else {
            return Took::Went;
        };
        let changing = !self.core.holds.is_empty();
        let pending = self.core.pending_of(token);
        let Gather::Taking(writing) = &mut pending.gather else {
            let here = here.len();
            self.input.took_long(here);
            return match left - here {
                0 => Took::Went,
                _ => Took::Needs,
            };
        };
        let bytes = writing.next_bytes().unwrap_or_default();
        if here.len() < bytes {
            return Took::Needs;
        }
        let waits = writing.waits();
        if waits || changing {
            self.core.holds.waits = !waits;
            return Took::Waits;
        }
        let plan = writing.part(&here[..bytes], &mut scratch.batch);
        pending.outstanding += 1;
        self.input.took_long(bytes);
        Took::Call(token, plan)
    }

    /// Whether a part of the value that is being taken in is being written.
    pub(super) fn writes_part(&self) -> bool {
        let Some(intake) = &self.intake else {
            return false;
        };
        let index = self.core.index_of(intake.token.sequence());
        let gather = &self.core.replies.pending[index].gather;
        matches!(gather, Gather::Taking(writing) if writing.waits())
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
        match (options, &pending.gather) {
            (Ok(options), Gather::Taking(writing)) => {
                let write = WriteOptions {
                    condition: match intake.setnx {
                        true => Condition::Absent,
                        false => options.condition,
                    },
                    return_previous: options.get,
                };
                let plan = writing.head(options.expiry, write, batch);
                pending.gather = match (intake.setnx, options.get) {
                    (true, _) => Gather::StoredCount,
                    (_, true) => Gather::Previous,
                    _ => Gather::Stored,
                };
                return Some((intake.token, plan));
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
