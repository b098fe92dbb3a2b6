//! What a copy of a region is certain to hold.

/// What a copy of a region is certain to hold. DO NOT CHANGE THE VALUES: they are stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Standing {
    /// What it held when it was opened. The last acknowledged writes may be missing.
    #[default]
    Ordinary = 0,
    /// Everything that was acknowledged. It held everything once, and its memory has survived since. Never stored.
    Whole = 1,
    /// Nothing for certain: it was begun anew in place of a damaged copy, and has not been whole since. The damaged
    /// copy is set aside, and may hold more.
    BegunAnew = 2,
    /// Nothing for certain: its history may differ from that of the other members. It was put back in place of another
    /// copy, and they may have gone on without it.
    PutBack = 3,
    /// A beginning of its region's history: it was no member's, is being filled with what it lacks, and has not been
    /// whole since. The group went on without it, so what edits and marks declare durable need not be here.
    Filling = 4,
}

impl Standing {
    /// All of them, in the order of their values.
    pub const ALL: [Self; 5] = [
        Self::Ordinary,
        Self::Whole,
        Self::BegunAnew,
        Self::PutBack,
        Self::Filling,
    ];

    /// The one stored or sent as `raw`, or `None` where none has that value.
    #[must_use]
    pub fn from_raw(raw: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|standing| *standing as u8 == raw)
    }
}
