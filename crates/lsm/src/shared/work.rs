//! How much was done, for tests: entries that were copied or gone through and nodes that were searched, and bytes of
//! nodes that were made.
//!
//! Counted by thread, in tests alone: otherwise nothing of this is there.

/// What was done.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) steps: usize,
    pub(crate) bytes: usize,
}

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<Work> = const { std::cell::Cell::new(Work { steps: 0, bytes: 0 }) };
}

#[cfg(test)]
pub(crate) fn add(steps: usize) {
    DONE.with(|done| {
        let before = done.get();
        done.set(Work {
            steps: before.steps + steps,
            ..before
        });
    });
}

#[cfg(not(test))]
#[inline]
pub(crate) const fn add(_steps: usize) {}

#[cfg(test)]
pub(super) fn allocated(bytes: usize) {
    DONE.with(|done| {
        let before = done.get();
        done.set(Work {
            bytes: before.bytes + bytes,
            ..before
        });
    });
}

#[cfg(not(test))]
#[inline]
pub(super) const fn allocated(_bytes: usize) {}

/// Has what `check` does not count: it is done by debug builds only.
#[cfg(test)]
pub(crate) fn apart<T>(check: impl FnOnce() -> T) -> T {
    let before = DONE.with(std::cell::Cell::get);
    let made = check();
    DONE.with(|done| done.set(before));
    made
}

#[cfg(not(test))]
pub(crate) fn apart<T>(check: impl FnOnce() -> T) -> T {
    check()
}

/// What this thread does in `of`.
#[cfg(test)]
pub(crate) fn of<T>(what: impl FnOnce() -> T) -> (T, Work) {
    let before = DONE.with(std::cell::Cell::get);
    let made = what();
    let after = DONE.with(std::cell::Cell::get);
    let work = Work {
        steps: after.steps - before.steps,
        bytes: after.bytes - before.bytes,
    };
    (made, work)
}
