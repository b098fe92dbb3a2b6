//! Planted mistakes: switches that the simulator sets to prove that its checkers find what they are for.
//!
//! A crate declares its own with [`mutants!`](crate::mutants!). Each is a field, which can be set, and a
//! method of the same name, which the code asks. The fields are there only where the crate's feature
//! `mutants` is on; without it every method is a constant `false`, and the compiler leaves the mistake
//! out. Only the simulator, and tests, turn the feature on.

/// Declares a struct of planted mistakes, all off.
///
/// ```text
/// argosy_base::mutants! {
///     /// Of the engine.
///     pub struct Mutants {
///         /// An edit is appended without waiting for its data.
///         commit_before_durable,
///     }
/// }
/// ```
///
/// The crate that uses it declares a feature `mutants`.
#[macro_export]
macro_rules! mutants {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* $mistake:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "mutants", expect(clippy::struct_excessive_bools, reason = "switches"))]
        pub struct $name {
            $(
                $(#[$doc])*
                #[cfg(feature = "mutants")]
                pub $mistake: bool,
            )*
        }

        impl $name {
            /// The names of all mistakes.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($mistake)),*];

            /// Plants the mistake of this name. False where there is none, and in a program without mistakes.
            pub fn plant(&mut self, name: &str) -> bool {
                match name {
                    $(
                        #[cfg(feature = "mutants")]
                        stringify!($mistake) => {
                            self.$mistake = true;
                            true
                        }
                    )*
                    _ => false,
                }
            }

            $(
                $(#[$doc])*
                #[must_use]
                #[inline]
                pub const fn $mistake(&self) -> bool {
                    #[cfg(feature = "mutants")]
                    let planted = self.$mistake;
                    #[cfg(not(feature = "mutants"))]
                    let planted = false;
                    planted
                }
            )*
        }
    };
}
