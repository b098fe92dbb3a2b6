//! The embedded coordinator under processes that are stopped or killed before any of their operations
//! on files: `threads` tries one and two of them at a time, as threads that wait at a chosen
//! operation; `processes` does it to real processes, with signals. While they stand there others have to get
//! their work done, and at the end the history has to be linear: [`history`]. The planted mistakes
//! are found by the same tests.

mod history;
mod processes;
mod threads;
