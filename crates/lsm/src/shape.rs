//! What stays as it was when a region was made, and is checked when it is opened: what its pointers
//! name, and how its logs are cut into segments and windows. The second word of the region's entry
//! in the catalog.
//!
//! ```text
//! bits   0..8    address mode
//!        8..16   what the copy is certain to hold (`Standing`), never "whole"; it changes
//!       16..32   bytes of a segment that are used, in blocks of 4096
//!       32..48   bytes of a log window, in blocks
//!       48..64   windows of each log
//! ```
//!
//! Where bits 16 to 64 are zero the region is of an earlier program, which did not say them: it is
//! opened with what is asked for, and says that from the next change of its entry on. What cannot be
//! understood is of a later program, and refused.

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{AddressMode, RegionId};
use argosy_device::RegionEntry;
use argosy_engine::catalog::standing;

use crate::settings::Settings;

/// Why a region cannot be opened with the settings that were given. Each variant says what to change.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The region was made with another address mode than is asked for. Ask for that one, or make
    /// the data anew.
    #[error(
        "{region} is stored here in address mode {found}, and is opened in mode {wanted}: pointers \
         inside its segments name something else; open it in mode {found}, or replace the device \
         and let it fetch its copy anew"
    )]
    OtherAddresses {
        /// The region.
        region: RegionId,
        /// What the device has.
        found: String,
        /// What was asked for.
        wanted: AddressMode,
    },
    /// The region was made with segments or windows of another size or number than is asked for. Ask for
    /// those.
    #[error(
        "{region} was made with {name} = {found}, and is opened with {given}: where its logs and windows \
         lie follows from it, so what was written would not be found; open it with {name} = {found}; \
         segment_bytes, window_bytes and window_slots stay as they were when it was made"
    )]
    OtherSize {
        /// The region.
        region: RegionId,
        /// The setting's name.
        name: &'static str,
        /// What the device says.
        found: usize,
        /// What was asked for.
        given: usize,
    },
}

/// What stays as it was when a region was made. See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What the pointers inside level segments name.
    pub addresses: AddressMode,
    /// Segments, windows and slots; `None` where an earlier program did not say.
    pub sizes: Option<Sizes>,
}

/// How logs are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of each segment that are used; whole blocks.
    pub segment_bytes: usize,
    /// Bytes of a log window; whole blocks.
    pub window_bytes: usize,
    /// Windows of each log.
    pub window_slots: usize,
}

impl Sizes {
    /// Whether logs can be cut so.
    const fn can_be(self) -> bool {
        self.window_bytes >= 2 * BLOCK_SIZE
            && self.segment_bytes.is_multiple_of(self.window_bytes)
            && self.segment_bytes >= self.window_bytes
            && self.segment_bytes <= SEGMENT_SIZE
            && self.window_slots >= 2
    }
}

impl Shape {
    /// The shape of a region that is made with `settings`, which are valid.
    #[must_use]
    pub const fn of(settings: &Settings) -> Self {
        Self {
            addresses: settings.layout.addresses,
            sizes: Some(Sizes {
                segment_bytes: settings.layout.segment_bytes,
                window_bytes: settings.layout.window_bytes,
                window_slots: settings.layout.window_slots,
            }),
        }
    }

    /// What `word` says; `None` where that is of a later program.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let part = |at: u32| usize::try_from(word >> at & 0xffff).expect("16 bits");
        standing(word)?;
        let addresses = AddressMode::from_raw(word & 0xff)?;
        let sizes = Sizes {
            segment_bytes: part(16) * BLOCK_SIZE,
            window_bytes: part(32) * BLOCK_SIZE,
            window_slots: part(48),
        };
        if word >> 16 == 0 {
            let sizes = None;
            return Some(Self { addresses, sizes });
        }
        sizes.can_be().then_some(Self {
            addresses,
            sizes: Some(sizes),
        })
    }

    /// The word that says it.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let sizes = self.sizes.map_or(0, |sizes| {
            let blocks = |bytes: usize| (bytes / BLOCK_SIZE) as u64;
            blocks(sizes.segment_bytes)
                | blocks(sizes.window_bytes) << 16
                | (sizes.window_slots as u64) << 32
        });
        self.addresses as u64 | sizes << 16
    }

    /// `settings`, with what the region says in their place.
    #[must_use]
    pub fn apply(self, settings: &Settings) -> Settings {
        let mut settings = settings
            .clone()
            .with(|of| of.layout.addresses = self.addresses);
        if let Some(sizes) = self.sizes {
            settings.layout.segment_bytes = sizes.segment_bytes;
            settings.layout.window_bytes = sizes.window_bytes;
            settings.layout.window_slots = sizes.window_slots;
        }
        settings
    }
}

/// Whether the region that the catalog names in `entry` can be opened with `settings`.
///
/// # Errors
/// Where it was made otherwise.
pub fn check(entry: &RegionEntry, settings: &Settings) -> Result<(), ShapeError> {
    let region = entry.region;
    let found = Shape::from_word(entry.words[1]);
    let addresses = found.map(|shape| shape.addresses);
    if addresses != Some(settings.layout.addresses) {
        let unknown = || format!("{:#x} of a later version", entry.words[1]);
        return Err(ShapeError::OtherAddresses {
            region,
            found: addresses.map_or_else(unknown, |mode| mode.name().to_owned()),
            wanted: settings.layout.addresses,
        });
    }
    found
        .and_then(|shape| shape.sizes)
        .map_or(Ok(()), |sizes| check_sizes(region, sizes, settings))
}

fn check_sizes(region: RegionId, sizes: Sizes, settings: &Settings) -> Result<(), ShapeError> {
    let pairs = [
        (
            "segment_bytes",
            sizes.segment_bytes,
            settings.layout.segment_bytes,
        ),
        (
            "window_bytes",
            sizes.window_bytes,
            settings.layout.window_bytes,
        ),
        (
            "window_slots",
            sizes.window_slots,
            settings.layout.window_slots,
        ),
    ];
    match pairs.into_iter().find(|(_, found, given)| found != given) {
        Some((name, found, given)) => Err(ShapeError::OtherSize {
            region,
            name,
            found,
            given,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use argosy_engine::catalog::with_standing;

    use super::*;

    #[test]
    fn what_a_region_was_made_with_comes_back() {
        for settings in [Settings::default(), Settings::small()] {
            for addresses in AddressMode::ALL {
                let settings = settings.clone().with(|of| of.layout.addresses = addresses);
                let shape = Shape::of(&settings);
                assert_eq!(Shape::from_word(shape.to_word()), Some(shape));
            }
        }
        let word = Shape::of(&Settings::default()).to_word();
        assert_eq!(word, 4 << 48 | 128 << 32 | 512 << 16, "as it is documented");
        let earlier = Shape::from_word(AddressMode::Rewrite as u64).unwrap();
        assert_eq!(
            (earlier.addresses, earlier.sizes),
            (AddressMode::Rewrite, None)
        );
        assert_eq!(earlier.to_word(), 1);
    }

    #[test]
    fn what_no_program_wrote_is_refused() {
        let word = Shape::of(&Settings::default()).to_word();
        for other in [
            2,
            0xff,
            1 << 8,
            word | 1 << 8,
            word | 5 << 8,
            word & !(0xffff << 16),
            1 << 63,
        ] {
            assert_eq!(Shape::from_word(other), None, "{other:#x}");
        }
        // Whatever the bits are, nothing panics, and what is taken is said again.
        for bit in 0..64 {
            let flipped = word ^ 1 << bit;
            if let Some(shape) = Shape::from_word(flipped) {
                let standing = standing(flipped).unwrap();
                assert_eq!(with_standing(shape.to_word(), standing), flipped);
            }
        }
    }

    #[test]
    fn each_size_is_checked() {
        let made = Settings::default();
        let entry = |word| RegionEntry {
            region: RegionId(1),
            manifest: Vec::new(),
            words: [1, word],
        };
        let stored = entry(Shape::of(&made).to_word());
        assert!(check(&stored, &made).is_ok());
        for (name, sizes) in [
            ("segment_bytes", (1 << 20, 512 << 10, 4)),
            ("window_bytes", (2 << 20, 1 << 20, 4)),
            ("window_slots", (2 << 20, 512 << 10, 8)),
        ] {
            let (segment_bytes, window_bytes, window_slots) = sizes;
            let settings = made.clone().with(|of| {
                of.layout.segment_bytes = segment_bytes;
                of.layout.window_bytes = window_bytes;
                of.layout.window_slots = window_slots;
            });
            let error = check(&stored, &settings).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(
                crate::storage::StorageError::from(error).remedy(),
                argosy_base::Remedy::Correct
            );
            assert!(check(&entry(0), &settings).is_ok(), "an earlier program's");
            assert_eq!(Shape::of(&made).apply(&settings), made);
        }
    }
}
