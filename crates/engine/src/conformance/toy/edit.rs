//! An edit states everything that a copy consists of: an image of the map, and where the log behind it begins. A
//! checkpoint also carries the log's bytes. So a copy fetches nothing beside it, and may miss an edit.
//!
//! ```text
//! edit    := sealed (under the identity of a manifest), numbers as varints:
//!            seq  epoch  first  checkpoint  logs  image: string  log[logs]
//! log     := ordinal: varint  bytes: string
//! ```

use std::collections::BTreeMap;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::{EditSeq, Epoch, Identity, Kind};

use super::log::{seal, unseal};

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToyEdit {
    /// Its place in the order of the group's edits.
    pub seq: EditSeq,
    /// The epoch that made it, and writes the log behind it.
    pub epoch: Epoch,
    /// The ordinal of the first segment of the log.
    pub first: u64,
    /// A copy begins with it: the end of its log is looked for anew.
    pub checkpoint: bool,
    /// The image of the map.
    pub image: Vec<u8>,
    /// Of a checkpoint, or where a copy is, the first bytes of each segment of the log that has any, by ordinal.
    pub logs: BTreeMap<u64, Vec<u8>>,
}

impl ToyEdit {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (epoch, checkpoint) = (self.epoch.0.into(), self.checkpoint.into());
        let logs = self.logs.len() as u64;
        let head = [self.seq.0, epoch, self.first, checkpoint, logs];
        let mut body = Vec::new();
        head.into_iter()
            .for_each(|number| put_varint(&mut body, number));
        put_string(&mut body, &self.image);
        for (ordinal, bytes) in &self.logs {
            put_varint(&mut body, *ordinal);
            put_string(&mut body, bytes);
        }
        seal(identity(), &body)
    }

    /// Reads an edit. What is behind it is not looked at.
    ///
    /// # Errors
    /// The bytes are no edit.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Reader::new("toy edit", bytes).malformed();
        let body = unseal(identity(), bytes).ok_or(malformed)?;
        let from = &mut Reader::new("toy edit", body);
        let (seq, epoch) = (from.varint()?, from.varint()?);
        let first = from.length(usize::MAX / 2)? as u64;
        let (checkpoint, logs) = (from.varint()? != 0, from.varint()?);
        let image = from.string(usize::MAX)?.to_vec();
        let mut log = || Ok((from.varint()?, from.string(usize::MAX)?.to_vec()));
        let logs = (0..logs).map(|_| log()).collect::<Result<_, Malformed>>()?;
        Ok(Self {
            seq: EditSeq(seq),
            epoch: Epoch(u32::try_from(epoch).map_err(|_| malformed)?),
            first,
            checkpoint,
            image,
            logs,
        })
    }
}

const fn identity() -> Identity {
    Identity::of_server(Kind::Manifest, 0)
}
