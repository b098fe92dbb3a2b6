//! `EXEC` over several regions, where the setting `resp.cross-region-exec` is `in-order`: the commands one behind the
//! other, each as it would be alone. Others may write in between, and see what was written so far; where one fails,
//! those before it were applied and those behind it are tried.
//!
//! What is watched is looked at before the first of them, and not again.

use argosy_wire::api::{Plan, Scratch};

use super::exec::{Begun, Commands, Refused, Replies};
use super::front::Context;
use super::overlay::LONG;
use super::reply::{After, Gather, Pending, UNFIT};
use super::transactions::{Watched, Watching};
use crate::long::before_head;
use crate::meter::MeteredOutcome;
use crate::service::Response;

/// What is said of what would be a transaction of its own.
const NO_PROCEDURES: &str =
    "ERR this command has no place in a transaction over several regions (not applied)";

/// The command that is being carried out.
#[derive(Debug, Default)]
enum Present {
    /// None is.
    #[default]
    Nothing,
    /// It has a call under way, or to make.
    Asks(Box<Pending>),
    /// It has been answered, and is to be written.
    Answered(Box<Pending>),
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct InOrder {
    /// What is watched, until it has been looked at.
    watching: Option<Watching>,
    /// The place of the next command.
    next: usize,
    present: Present,
}

/// What comes next.
pub(super) enum Next {
    Call(Plan),
    /// What was watched has changed: nothing is carried out.
    Broken,
    /// The reply is whole.
    Done,
}

impl InOrder {
    /// Before the first command; `watched` is watched.
    pub(super) fn new(watched: &[Watched]) -> Self {
        Self {
            watching: (!watched.is_empty()).then(|| Watching::again(watched)),
            next: 0,
            present: Present::Nothing,
        }
    }

    /// Carries on with `commands`; what they are answered goes to `replies`.
    pub(super) fn next(
        &mut self,
        commands: Commands<'_>,
        replies: &mut Replies,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Next {
        if let Some(watching) = &self.watching {
            if !watching.is_done() {
                return Next::Call(watching.plan(context, scratch));
            }
            if watching.differs_from(commands.watched) {
                return Next::Broken;
            }
            self.watching = None;
        }
        loop {
            self.present = match std::mem::take(&mut self.present) {
                Present::Asks(mut pending) => match pending.next_page(context, scratch) {
                    Some(plan) => {
                        self.present = Present::Asks(pending);
                        return Next::Call(plan);
                    }
                    None => Present::Answered(pending),
                },
                Present::Answered(pending) => {
                    replies.answer(commands.number_of(self.next - 1), *pending, context.front);
                    Present::Nothing
                }
                Present::Nothing if self.next == commands.requests.len() => return Next::Done,
                Present::Nothing => {
                    let place = self.next;
                    self.next += 1;
                    match commands.begin(place, context, scratch) {
                        Begun::Replied(bytes, outcome) => {
                            replies.add(commands.number_of(place), &bytes, outcome);
                            Present::Nothing
                        }
                        Begun::Call(plan, gather) => {
                            let pending = Pending::new(gather, commands.protocol, false);
                            self.present = Present::Asks(Box::new(pending));
                            return Next::Call(plan);
                        }
                        Begun::Procedure(_) => {
                            replies.refuse(commands.number_of(place), NO_PROCEDURES);
                            Present::Nothing
                        }
                    }
                }
            };
        }
    }

    /// Takes the answer to the last call.
    ///
    /// # Errors
    /// What was watched cannot be looked at: nothing was carried out.
    pub(super) fn take(&mut self, response: Response) -> Result<After, Refused> {
        if let Some(watching) = &mut self.watching {
            if let Response::Failed(error) = response {
                return Err(Refused::of(&before_head(error)));
            }
            let taken = watching.take(response);
            taken.ok_or_else(|| Refused::invalid(UNFIT.to_owned()))?;
            return Ok(After::NextPage);
        }
        if let Present::Asks(mut pending) = std::mem::take(&mut self.present) {
            let goes_on = pending.take(response) == After::NextPage;
            let may = matches!(
                pending.gather,
                Gather::Keys(_) | Gather::LengthOf(_) | Gather::TypeOf(_) | Gather::Grow(_)
            );
            if goes_on && !may {
                pending.fail(format!("ERR {LONG}"), MeteredOutcome::Invalid);
            }
            self.present = match goes_on && may {
                true => Present::Asks(pending),
                false => Present::Answered(pending),
            };
        }
        Ok(After::NextPage)
    }
}
