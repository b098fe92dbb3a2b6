//! Commands on hashes, sorted sets and sets: composites, which lie under a head and elements
//! ([`argosy_engine::composite`]).
//!
//! Each is carried out as a transaction of one command ([`exec`](super::exec)): the head is read, then the elements
//! that the command names or goes through, and what it leaves is written, with the head, where none of that has
//! changed. So it is atomic, sees the commands before it in a `MULTI`, and is tried again where others write the same.
//!
//! - `Opened` is a composite while a command is at it: it says which elements are needed, counts, and writes the head.
//! - `Told` is what a command is answered, in either version of the protocol.
//! - `hashes`, `sorted_sets` with `sorted`, `sets`: what the commands are. `scan`: those that go through elements, or
//!   take any. `score`: how scores are read and shown.

pub(super) mod hashes;
mod opened;
mod scan;
mod score;
pub(super) mod sets;
mod sorted;
pub(super) mod sorted_sets;
mod told;

use argosy_engine::batch::check_key;
use argosy_engine::long::check_users;
use argosy_wire::resp::Encoder;

use super::command::{Step, Turn};
use super::exec::Procedure;
use super::front::FrontEnd;
use super::overlay::{Halt, Overlay};
use crate::meter::MeteredOutcome;
pub(super) use opened::{WRONG_TYPE, copy, encoding};

/// What a command does with a composite.
#[derive(Debug)]
enum Does {
    Hash(hashes::HashCommand),
    Sorted(sorted::SortedSetCommand),
    Set(sets::SetCommand),
}

/// A command on a composite. See the module documentation.
#[derive(Debug)]
pub(super) struct Composed {
    key: Vec<u8>,
    does: Does,
}

/// The argument at this place.
fn arg(turn: &Turn<'_>, place: usize) -> Vec<u8> {
    turn.args.at(place).to_vec()
}

/// The arguments behind the key.
fn names(turn: &Turn<'_>) -> Vec<Vec<u8>> {
    turn.args.from(2).map(<[u8]>::to_vec).collect()
}

/// The command of `turn`, which does this with the key that is its first argument.
fn begin(turn: &mut Turn<'_>, does: Result<Does, String>) -> Step {
    let key = turn.args.at(1);
    let valid = check_key(key).and_then(|()| check_users(key));
    match (does, valid) {
        (Err(text), _) => turn.core.error(&text),
        (_, Err(error)) => turn.core.error(&format!("ERR {error} (not applied)")),
        (Ok(does), Ok(())) => {
            let key = key.to_vec();
            Step::Procedure(Procedure::Composed(Box::new(Composed { key, does })))
        }
    }
}

impl Composed {
    /// Its key.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.key.as_slice())
    }

    /// Whether it asks for no values of elements that it reads in order.
    pub(super) fn asks_for_names(&self) -> bool {
        matches!(&self.does, Does::Hash(does) if does.asks_for_names())
    }

    /// Whether elements that are read in one answer, and the version that the head named before, are all that it tells
    /// of: not how many elements there were.
    pub(super) fn is_of_one_moment(&self) -> bool {
        match &self.does {
            Does::Hash(does) => does.is_of_one_moment(),
            Does::Sorted(does) => does.is_of_one_moment(),
            Does::Set(does) => does.is_of_one_moment(),
        }
    }

    /// Carries it out, and writes what it is answered.
    ///
    /// # Errors
    /// What is left is more than a batch takes; elements were not read.
    pub(super) fn run(
        &self,
        overlay: &mut Overlay<'_>,
        out: &mut Encoder<'_>,
        front: &FrontEnd,
    ) -> Result<MeteredOutcome, Halt> {
        let told = match &self.does {
            Does::Hash(does) => does.run(&self.key, overlay, front),
            Does::Sorted(does) => does.run(&self.key, overlay, front),
            Does::Set(does) => does.run(&self.key, overlay, front),
        };
        match told {
            Ok(told) => {
                told.write(out);
                Ok(MeteredOutcome::Ok)
            }
            Err(Halt::Refused(text)) => {
                out.error(&text);
                Ok(MeteredOutcome::Invalid)
            }
            Err(halt) => Err(halt),
        }
    }
}
