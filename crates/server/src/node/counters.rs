//! What a node counts from the moment it is opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a node has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Bytes fetched or received in catching up.
    pub catch_up_bytes: u64,
    /// Fetches of other members that were refused: what they asked for is damaged here, or cannot be read.
    pub fetches_refused: u64,
    /// Damaged segments that were written again with what another member had.
    pub repaired_segments: u64,
    /// Damaged copies that were set aside and begun anew.
    pub refilled_copies: u64,
    /// Finished segments shipped to a backup.
    pub shipments: u64,
    /// Checkpoints offered to a backup that had to catch up.
    pub offers: u64,
    /// Parts of edits and checkpoints that were sent behind the first: what is longer than a message.
    pub parts: u64,
    /// Histories adopted from another member.
    pub adoptions: u64,
    /// How often a backup's windows were let rest.
    pub rests: u64,
    /// Regions that were opened here, and what that cost.
    pub promotions: PromotionCounts,
    /// Links that went down.
    pub links_lost: u64,
    /// Level segments whose pointers were rewritten.
    pub rewritten: RewrittenCounts,
}

/// Level segments whose pointers were rewritten, since they lie elsewhere here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewrittenCounts {
    /// How many.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The pointers that were rewritten.
    pub pointers: u64,
}

/// One of the numbers of [`NodeCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    CatchUpBytes,
    FetchesRefused,
    RepairedSegments,
    RefilledCopies,
    Shipments,
    Offers,
    Parts,
    Adoptions,
    Rests,
    Promotions,
    CutPromotions,
    CutRecords,
    LinksLost,
    RewrittenSegments,
    RewrittenBytes,
    RewrittenPointers,
}

/// Regions that were opened on a server, since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromotionCounts {
    /// All of them.
    pub all: u64,
    /// Those from a copy that was cut: it may lack what was acknowledged last.
    pub of_cut_copies: u64,
    /// Whole records behind the end of the history, and so LSNs, that were given up.
    pub cut_records: u64,
}

/// How many there are of [`Counted`].
const COUNTED: usize = Counted::RewrittenPointers as usize + 1;

/// What a node counts. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; COUNTED]);

impl Counters {
    /// One more of `what`.
    pub(crate) fn count(&self, what: Counted) {
        self.add(what, 1);
    }

    /// So many `more` of `what`.
    pub(crate) fn add(&self, what: Counted, more: u64) {
        self.0[what as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// All of them.
    pub(crate) fn counts(&self) -> NodeCounts {
        let of = |what: Counted| self.0[what as usize].load(Ordering::Relaxed);
        NodeCounts {
            catch_up_bytes: of(Counted::CatchUpBytes),
            fetches_refused: of(Counted::FetchesRefused),
            repaired_segments: of(Counted::RepairedSegments),
            refilled_copies: of(Counted::RefilledCopies),
            shipments: of(Counted::Shipments),
            offers: of(Counted::Offers),
            parts: of(Counted::Parts),
            adoptions: of(Counted::Adoptions),
            rests: of(Counted::Rests),
            promotions: PromotionCounts {
                all: of(Counted::Promotions),
                of_cut_copies: of(Counted::CutPromotions),
                cut_records: of(Counted::CutRecords),
            },
            links_lost: of(Counted::LinksLost),
            rewritten: RewrittenCounts {
                segments: of(Counted::RewrittenSegments),
                bytes: of(Counted::RewrittenBytes),
                pointers: of(Counted::RewrittenPointers),
            },
        }
    }
}
