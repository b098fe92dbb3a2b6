//! `argosy import`: lines of text into a cluster.
//!
//! Lines are read in chunks. A chunk is divided by key over the connections ([`writers`](super)); up
//! to eight are under way (`CHUNKS_MAX`). The *place* up to which the import is known to be applied is the
//! end of the last chunk before which none is under way: this is what the checkpoint says, so an
//! import that goes on from it does some lines twice, and leaves none out.
//!
//! While keys rise a chunk stays whole, and is to be bulk-loaded ([`sorted`](super)). Once they do not, what is
//! under way ends before more is given out, so that of two lines of one key the later one counts.
//!
//! A line that is no pair ends the import: what stands in front of it is applied, and nothing behind
//! it. With `--keep-going` it goes to the file of rejects instead.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::checkpoint::{Applied, Checkpoint};
use super::format::{self, Format, ParsedLine};
use super::lines::{LINE_BYTES_MAX, Lines, Next, Place};
use super::progress::{Done, Parts, Progress, ProgressArgs, mebibytes};
use super::sorted::Order;
use super::writers::{Finished, Writers};
use crate::cli::OutputFormat;
use crate::connect::Endpoints;
use crate::failure::CommandFailure;
use crate::units::TimeSpan;

/// Chunks under way, at most.
const CHUNKS_MAX: usize = 8;
/// Lines of a chunk, at most.
const CHUNK_LINES: usize = 2000;
/// Bytes of lines from which on a chunk is full.
const CHUNK_BYTES: u64 = 512 << 10;
/// Bytes of lines under way from which on no more are read: of long values, one is under way at a time.
const UNDER_WAY_BYTES: u64 = 16 << 20;
/// Bad lines that are told one by one.
const TOLD_MAX: u64 = 20;

/// Load keys and values from lines of text
///
/// Reads JSON lines ({"key":"a","value":"b"}) or TSV, as `argosy export` writes them. Nothing counts
/// as imported before every member of its region has it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy import fruit.jsonl\n  \
    argosy import --format tsv --resume fruit.checkpoint fruit.tsv\n  \
    zcat dump.jsonl.gz | argosy import -\n\n\
    Formats, limits and how to go on: docs/import-export.md")]
pub(crate) struct Import {
    #[command(flatten)]
    endpoints: Endpoints,
    /// What to read; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// How lines look [default: by the file's name, else jsonl]
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// Keep here how far it is, and go on where this says
    #[arg(long, value_name = "CHECKPOINT")]
    resume: Option<PathBuf>,
    /// Pass over lines that are no pairs
    #[arg(long, requires = "rejects")]
    keep_going: bool,
    /// Where such lines go
    #[arg(long, value_name = "FILE", requires = "keep_going")]
    rejects: Option<PathBuf>,
    /// Connections that write at the same time
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
    /// Write every pair, sorted or not, as any client would
    #[arg(long)]
    no_ingest: bool,
    /// How long a batch is tried again while the cluster cannot take it
    #[arg(long, value_name = "SPAN", default_value = "30s")]
    retry_for: TimeSpan,
    #[command(flatten)]
    progress: ProgressArgs,
    /// How the summary is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    pairs: u64,
    /// Of them, those that went straight into the levels.
    ingested: u64,
    bytes: u64,
    lines: u64,
    rejected: u64,
    resumed_behind_line: u64,
    seconds: f64,
}

/// A chunk under way.
struct Chunk {
    number: u64,
    /// Batches that have not ended.
    left: usize,
    place: Place,
    pairs: u64,
    rejected: u64,
}

/// An import under way.
struct Course {
    lines: Lines,
    format: Format,
    writers: Writers,
    order: Order,
    chunks: VecDeque<Chunk>,
    next_chunk: u64,
    applied: Applied,
    /// Where it began.
    began: Place,
    checkpoint: Checkpoint,
    rejects: Option<Rejects>,
    progress: Progress,
    quiet: bool,
}

/// Where lines go that are no pairs.
struct Rejects {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
    told: u64,
}

/// Lines that were read together.
#[derive(Default)]
struct Read {
    records: Vec<ParsedLine>,
    rejected: u64,
    end: bool,
    /// The line that ends the import.
    bad: Option<CommandFailure>,
}

impl Import {
    /// Runs until the input ends.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        let named = Format::of_name(&self.file.to_string_lossy());
        let format = self.format.unwrap_or(named);
        let (checkpoint, applied) = Checkpoint::open(self.resume.clone(), format)?;
        if applied.done {
            eprintln!("import: the checkpoint says that all of it is imported already");
            return Ok(());
        }
        let clients = (0..self.connections).map(|_| self.endpoints.connect());
        let clients = clients.collect::<Result<_, _>>()?;
        let retry_for: Duration = self.retry_for.0;
        let mut course = Course {
            lines: Lines::open(&self.file, applied.place)?,
            format,
            writers: Writers::start(clients, &self.endpoints, CHUNKS_MAX, retry_for)?,
            order: Order::new(!self.no_ingest),
            chunks: VecDeque::new(),
            next_chunk: 0,
            began: applied.place,
            applied,
            checkpoint,
            rejects: self.rejects.as_ref().map(Rejects::open).transpose()?,
            progress: Progress::begin("import", self.progress),
            quiet: self.progress.quiet,
        };
        let result = course.run();
        course.progress.clear();
        let kept = course.keep();
        if let Err(failure) = result {
            return Err(self.explained(failure, &course));
        }
        kept?;
        self.summarise(&course)
    }

    fn summarise(&self, course: &Course) -> Result<(), CommandFailure> {
        let (applied, began) = (&course.applied, course.began);
        let took = course.progress.took();
        let bytes = applied.place.offset - began.offset;
        if self.output == OutputFormat::Json {
            let summary = Summary {
                schema: "argosy.import.v1",
                pairs: applied.pairs,
                ingested: course.writers.bulk_loaded().pairs(),
                bytes,
                lines: applied.place.lines,
                rejected: applied.rejected,
                resumed_behind_line: began.lines,
                seconds: took.as_secs_f64(),
            };
            let json = serde_json::to_string(&summary).expect("plain data becomes JSON");
            println!("{json}");
        } else if !self.progress.quiet {
            eprintln!(
                "imported {} pairs from {} lines; {} in {}.{} s",
                applied.pairs,
                applied.place.lines,
                mebibytes(bytes),
                took.as_secs(),
                took.subsec_millis() / 100
            );
            let bulk_loaded = course.writers.bulk_loaded().pairs();
            if bulk_loaded > 0 {
                eprintln!("{bulk_loaded} of them were sorted, and went straight into the levels");
            }
        }
        match (applied.rejected, &self.rejects) {
            (rejected @ 1.., Some(path)) => Err(CommandFailure::Failed(format!(
                "{rejected} lines were no pairs; they are in {}",
                path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// `failure`, with what became of the lines and how to go on.
    fn explained(&self, failure: CommandFailure, course: &Course) -> CommandFailure {
        let place = course.applied.place;
        let how = match &self.resume {
            Some(path) => format!(
                "to go on, repeat the command: {} has the place",
                path.display()
            ),
            None => {
                "lines may be imported again without harm; with --resume FILE an import goes on \
                     where it ended"
                    .to_owned()
            }
        };
        let with = |text: String| {
            let (lines, read) = (place.lines, course.lines.place().lines);
            let behind = match read > lines && !course.chunks.is_empty() {
                true => format!("; of lines {} to {read} some may be", lines + 1),
                false => String::new(),
            };
            let applied = match lines {
                0 => "no line is known to be applied".to_owned(),
                _ => format!("lines 1 to {lines} are applied"),
            };
            format!("{text}\n{applied}{behind}; {how}")
        };
        match failure {
            CommandFailure::Failed(text) => CommandFailure::Failed(with(text)),
            CommandFailure::Unreachable(text) => CommandFailure::Unreachable(with(text)),
            other => other,
        }
    }
}

impl Course {
    fn run(&mut self) -> Result<(), CommandFailure> {
        let read = loop {
            let read = self.read()?;
            let (end, bad) = (read.end, read.bad);
            self.give(read.records, read.rejected)?;
            self.tell_refusal();
            while let Some(finished) = self.writers.poll() {
                self.take(finished)?;
            }
            while self.chunks.len() >= CHUNKS_MAX || self.bytes_under_way() >= UNDER_WAY_BYTES {
                self.take(self.writers.wait())?;
            }
            self.keep_now_and_then()?;
            if end || bad.is_some() {
                break bad;
            }
        };
        while !self.chunks.is_empty() {
            self.take(self.writers.wait())?;
        }
        self.tell_refusal();
        match read {
            Some(failure) => Err(failure),
            None => {
                self.applied.done = true;
                Ok(())
            }
        }
    }

    /// Bytes of the lines that are not known to be applied.
    fn bytes_under_way(&self) -> u64 {
        self.lines.place().offset - self.applied.place.offset
    }

    /// Reads a chunk.
    fn read(&mut self) -> Result<Read, CommandFailure> {
        let began = self.lines.place().offset;
        let mut read = Read::default();
        while read.records.len() < CHUNK_LINES && self.lines.place().offset - began < CHUNK_BYTES {
            let before = self.lines.place();
            let next = self.lines.next().map_err(|error| {
                let line = before.lines + 1;
                CommandFailure::Failed(format!("line {line}: cannot be read: {error}"))
            })?;
            let (line, parsed) = match next {
                Next::End => {
                    read.end = true;
                    break;
                }
                Next::Line(line) => (line, format::parse(self.format, line)),
                Next::TooLong => {
                    let what = format!("it has over {LINE_BYTES_MAX} bytes");
                    (&b"(left out: too long)"[..], Err(what))
                }
            };
            match (parsed, &mut self.rejects) {
                (Ok(record), _) => read.records.push(record),
                (Err(what), Some(rejects)) => {
                    rejects.take(before.lines + 1, line, &what)?;
                    read.rejected += 1;
                }
                (Err(what), None) => {
                    let line = before.lines + 1;
                    self.lines.give_back(before);
                    read.bad = Some(CommandFailure::Failed(format!("line {line}: {what}")));
                    break;
                }
            }
        }
        Ok(read)
    }

    /// Hands a chunk out that ends where reading stands.
    fn give(&mut self, records: Vec<ParsedLine>, rejected: u64) -> Result<(), CommandFailure> {
        let rose = self.order.rises();
        let sorted = self.order.takes(&records);
        if rose && !self.order.rises() {
            // Of two lines of one key the later one counts.
            while !self.chunks.is_empty() {
                self.take(self.writers.wait())?;
            }
        }
        let number = self.next_chunk;
        self.next_chunk += 1;
        let pairs = records
            .iter()
            .filter(|record| record.ends_its_key())
            .count() as u64;
        let left = match sorted {
            true => {
                self.writers.give_sorted(number, records);
                1
            }
            false => self.writers.give(number, records),
        };
        self.chunks.push_back(Chunk {
            number,
            left,
            place: self.lines.place(),
            pairs,
            rejected,
        });
        self.advance();
        Ok(())
    }

    /// Says why a chunk of sorted lines is written as any other, once.
    fn tell_refusal(&mut self) {
        if let Some(why) = self.writers.bulk_loaded().take_refusal()
            && !self.quiet
        {
            self.progress.clear();
            eprintln!(
                "import: lines that are sorted are written all the same, where this is so: {why}"
            );
        }
    }

    /// A batch has ended.
    fn take(&mut self, finished: Finished) -> Result<(), CommandFailure> {
        if let Err(failure) = finished.result {
            self.drain(finished.chunk);
            return Err(failure);
        }
        self.count(finished.chunk);
        Ok(())
    }

    fn count(&mut self, number: u64) {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.number == number);
        chunk
            .expect("a chunk stays until its batches have ended")
            .left -= 1;
        self.advance();
    }

    /// One batch has failed: waits for the others, so that it is known what became of them. A chunk
    /// that is not whole keeps those behind it from counting.
    fn drain(&mut self, failed: u64) {
        self.writers.stop();
        let batches: usize = self.chunks.iter().map(|chunk| chunk.left).sum();
        let mut failed = vec![failed];
        for _ in 1..batches {
            let finished = self.writers.wait();
            match finished.result {
                Ok(()) if !failed.contains(&finished.chunk) => self.count(finished.chunk),
                Ok(()) => {}
                Err(_) => failed.push(finished.chunk),
            }
        }
    }

    /// Counts the chunks that are applied, up to the first that is not.
    fn advance(&mut self) {
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.left == 0) {
            self.applied.place = chunk.place;
            self.applied.pairs += chunk.pairs;
            self.applied.rejected += chunk.rejected;
        }
    }

    fn keep_now_and_then(&mut self) -> Result<(), CommandFailure> {
        let place = self.applied.place;
        let done = Done {
            pairs: self.applied.pairs,
            bytes: place.offset - self.began.offset,
            parts: self.lines.bytes.map(|all| Parts {
                before: self.began.offset,
                done: place.offset,
                all,
            }),
        };
        self.progress.tell(&done);
        if let Some(rejects) = &mut self.rejects {
            rejects.flush()?;
        }
        self.checkpoint.keep_now_and_then(&self.applied)
    }

    /// Keeps how far it is.
    fn keep(&mut self) -> Result<(), CommandFailure> {
        if let Some(rejects) = &mut self.rejects {
            rejects.flush()?;
        }
        self.checkpoint.keep(&self.applied)
    }
}

impl Rejects {
    fn open(path: &PathBuf) -> Result<Self, CommandFailure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| CommandFailure::io("write", path, &error))?;
        Ok(Self {
            path: path.clone(),
            file: BufWriter::new(file),
            told: 0,
        })
    }

    fn take(&mut self, number: u64, line: &[u8], what: &str) -> Result<(), CommandFailure> {
        self.told += 1;
        if self.told <= TOLD_MAX {
            eprintln!("line {number}: {what}");
        }
        let write = |file: &mut BufWriter<std::fs::File>| {
            file.write_all(line)?;
            file.write_all(b"\n")
        };
        write(&mut self.file).map_err(|error| CommandFailure::io("write", &self.path, &error))
    }

    fn flush(&mut self) -> Result<(), CommandFailure> {
        let flushed = self.file.flush();
        flushed.map_err(|error| CommandFailure::io("write", &self.path, &error))
    }
}
