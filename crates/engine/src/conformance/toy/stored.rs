//! What a copy of the toy consists of. Nobody looks for damage in it, or repairs it.

use argosy_base::{Identity, Kind, SegmentNumber};

use super::disk::Table;
use super::edit::ToyEdit;
use crate::Stored;
use crate::stored::StoredPart;

/// See the module documentation.
pub(super) struct ToyStored {
    edit: ToyEdit,
    table: Table,
}

impl ToyStored {
    /// What `edit` names, which lies in the segments of `table`.
    pub(super) fn new(edit: &ToyEdit, table: &Table) -> Self {
        Self {
            edit: edit.clone(),
            table: table.clone(),
        }
    }
}

impl Stored for ToyStored {
    fn holds(&self, number: SegmentNumber) -> bool {
        self.table.contains_key(&number)
    }

    fn parts(&self) -> Vec<StoredPart> {
        let image = self.edit.image.iter().map(|part| StoredPart {
            number: part.number,
            place: self.table[&part.number].place(),
            len: part.len,
            log: None,
        });
        image.collect()
    }

    fn digest(&self) -> u64 {
        let parts = self.edit.image.iter();
        let checksums: Vec<u8> = parts.flat_map(|part| part.checksum.to_le_bytes()).collect();
        let of_image = Identity::of_server(Kind::Manifest, 2).checksum(&checksums);
        u64::from(of_image) << 32 ^ self.edit.last.0
    }
}
