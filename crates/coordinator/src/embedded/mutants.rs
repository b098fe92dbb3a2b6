//! Planted mistakes of the embedded coordinator, to prove that its tests find what they are for.

argosy_base::mutants! {
    /// Of the embedded coordinator.
    pub struct Mutants {
        /// A transaction takes its number by a rename, which replaces one that has it.
        rename_to_take,
        /// A generation is removed file by file under its own name.
        remove_in_place,
        /// What a request does is not evaluated again when somebody else's transaction came first.
        evaluate_once,
        /// Trash is removed in any order: transactions before temporary names.
        remove_in_any_order,
        /// The next generation is built outside of the one that it follows.
        build_outside,
        /// Generation 1 is made without a second look whether others have made it.
        begin_unchecked,
        /// No mistake, but what the system does: a directory is found long before a link or a rename
        /// in it is made.
        resolve_early,
        /// A session is ended although its heartbeat has been seen to change.
        ignore_heartbeats,
    }
}
