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
        /// That a number was taken is believed although the generation was retired meanwhile.
        trust_retired,
        /// A session is ended although its heartbeat has been seen to change.
        ignore_heartbeats,
    }
}
