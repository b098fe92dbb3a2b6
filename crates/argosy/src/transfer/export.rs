//! `argosy export`: keys and values of a cluster as lines of text, in key order.
//!
//! One thread reads pages ahead, another writes lines. An export that was interrupted can go on: its
//! file ends in a whole line, perhaps behind a piece of one, and since lines are in key order, the
//! last whole one says where to go on. A hash, a sorted set or a set that it leaves in the middle is begun anew.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use argosy_base::KeyRange;
use argosy_base::range::successor;
use argosy_client::{Kv, RespClient, Span};
use clap::Args;
use serde::Serialize;

use super::format::{self, Encoding, Format, ParsedLine};
use super::lines::LINE_BYTES_MAX;
use super::progress::{Done, Parts, Progress, ProgressArgs, mebibytes};
use super::reader::{Read as Pairs, Reader};
use super::snapshot::ExportSnapshot;
use crate::bytes;
use crate::cli::OutputFormat;
use crate::connect::Endpoints;
use crate::failure::CommandFailure;
use crate::units;

/// Pages that are read ahead, at most.
const PAGES_AHEAD: usize = 4;
/// Bytes that are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Write keys and values as lines of text
///
/// Writes JSON lines ({"key":"a","value":"b"}) or TSV in key order, as `argosy import` reads them. Each
/// page of some thousand pairs is one moment of its region; with --snapshot everything of a region is.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy export fruit.jsonl\n  \
    argosy export --prefix user/ --format tsv - | head\n  \
    argosy export --resume fruit.jsonl\n  \
    argosy export --snapshot fruit.jsonl\n\n\
    Formats, limits and how to go on: docs/import-export.md")]
pub(crate) struct Export {
    #[command(flatten)]
    endpoints: Endpoints,
    /// What to write; - is stdout
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// How lines look [default: by the file's name, else jsonl]
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// How JSON shows keys and values
    #[arg(long, value_enum, default_value_t)]
    encoding: Encoding,
    #[command(flatten)]
    keys: KeyArgs,
    /// Most pairs
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    limit: Option<u64>,
    /// Go on behind the last whole line of FILE
    #[arg(long, conflicts_with_all = ["overwrite", "snapshot"])]
    resume: bool,
    /// Read everything from one snapshot: of each region one moment, opened before the first page
    #[arg(long)]
    snapshot: bool,
    /// Replace FILE
    #[arg(long)]
    overwrite: bool,
    /// How long a page is tried again while the cluster cannot give it
    #[arg(long, value_name = "SPAN", default_value = "30s")]
    retry_for: units::TimeSpan,
    #[command(flatten)]
    progress: ProgressArgs,
    /// How the summary is printed; on stderr where stdout has the data
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Which keys.
#[derive(Args, Debug)]
struct KeyArgs {
    /// The first key (text, hex:…, 0x… or base64:…)
    #[arg(long, value_name = "KEY", value_parser = bytes::parse, conflicts_with = "prefix")]
    from: Option<std::vec::Vec<u8>>,
    /// The first key that is left out
    #[arg(long, value_name = "KEY", value_parser = bytes::parse, conflicts_with = "prefix")]
    to: Option<std::vec::Vec<u8>>,
    /// Only keys that begin so
    #[arg(long, value_name = "PREFIX", value_parser = bytes::parse)]
    prefix: Option<std::vec::Vec<u8>>,
}

impl KeyArgs {
    /// Whether all are meant.
    const fn are_all(&self) -> bool {
        self.prefix.is_none() && self.from.is_none() && self.to.is_none()
    }

    fn range(&self) -> KeyRange {
        if let Some(prefix) = &self.prefix {
            return Span::prefix(prefix).range;
        }
        KeyRange::new(self.from.clone().unwrap_or_default(), self.to.clone())
    }
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    pairs: u64,
    /// Of them, those that are no strings, and what these have together.
    composites: u64,
    elements: u64,
    /// Of them, those that are not as the snapshot has them.
    as_of_now: u64,
    bytes: u64,
    seconds: f64,
}

/// What reads.
struct ExportClients {
    /// Pages.
    client: Box<dyn Kv>,
    /// The rest.
    resp: RespClient,
    /// What both read from, where that is one moment.
    snapshot: Option<ExportSnapshot>,
}

/// The last key of a file that is gone on in.
#[derive(Debug, PartialEq, Eq)]
enum LastKey {
    /// The file has all of it.
    Whole(Vec<u8>),
    /// More parts of it are to follow.
    Begun(Vec<u8>),
}

impl LastKey {
    fn key(&self) -> &[u8] {
        match self {
            Self::Whole(key) | Self::Begun(key) => key,
        }
    }

    /// The first key to read.
    fn next(self) -> Vec<u8> {
        match self {
            Self::Whole(key) => successor(&key),
            Self::Begun(key) => key,
        }
    }
}

/// What was written, beside lines and bytes.
#[derive(Default)]
struct Counts {
    /// Pairs of a snapshot that are gone.
    gone: u64,
    /// Keys of a snapshot that were read as of now.
    as_of_now: u64,
    /// Those of them that are gone.
    left_out: u64,
    /// Hashes, sorted sets and sets.
    composites: u64,
    /// Their fields and members.
    elements: u64,
}

impl Counts {
    fn take(&mut self, page: &Pairs) {
        self.gone += page.gone;
        self.as_of_now += page.as_of_now;
        self.left_out += page.left_out;
        for part in page.records.iter().filter_map(ParsedLine::part) {
            self.composites += u64::from(!part.more);
            self.elements += part.elements.len() as u64;
        }
    }

    /// What is said behind the number of pairs.
    fn of_other_types(&self) -> String {
        match (self.composites, self.elements) {
            (0, _) => String::new(),
            (composites, elements) => {
                format!(
                    ", {composites} of them hashes, sorted sets and sets with {elements} elements"
                )
            }
        }
    }

    /// What the snapshot does not have, in words.
    fn tell(&self) {
        let Self {
            gone,
            as_of_now,
            left_out,
            ..
        } = self;
        if *gone > 0 {
            eprintln!(
                "{gone} of the pairs are not there any more: they are written as the snapshot has them, and without an \
                 expiry, since nobody knows it now"
            );
        }
        if *as_of_now > 0 {
            eprintln!(
                "{as_of_now} of the keys are hashes, sorted sets or sets in the snapshot: they are written as they \
                 were when they were read, and not as the snapshot has them"
            );
        }
        if *left_out > 0 {
            eprintln!(
                "{left_out} such keys were gone when they were to be read: they are left out"
            );
        }
    }
}

/// Where lines go.
enum Target {
    Stdout(io::Stdout),
    File(File, PathBuf),
}

impl Export {
    /// Runs until all is written.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        if self.format() == Format::Tsv && self.encoding != Encoding::Auto {
            return Err(CommandFailure::Usage(
                "--encoding is for JSON lines: TSV escapes what is no text".to_owned(),
            ));
        }
        let clients = self.clients()?;
        let (target, behind) = self.target()?;
        let mut range = self.keys.range();
        if let Some(last) = behind {
            if !range.contains(last.key()) {
                return Err(CommandFailure::Failed(format!(
                    "{}: its last key is not one of those to be exported: the file is of another \
                     export, or of another format",
                    self.file.display()
                )));
            }
            range.from = last.next();
        }
        let whole = self.keys.are_all();
        let all = if whole { self.endpoints.count() } else { None };
        let all = all.filter(|_| !self.resume).or(self.limit);
        let mut progress = Progress::begin("export", self.progress);
        let stopping = AtomicBool::new(false);
        let retry_for = self.retry_for.0;
        let (give, pages) = sync_channel(PAGES_AHEAD);
        let limit = self.limit;
        let result = std::thread::scope(|scope| {
            let (span, stopping) = (Span::of(range), &stopping);
            let reader = Reader {
                client: clients.client,
                resp: clients.resp,
                retry_for,
                stopping,
                snapshot: clients.snapshot,
            };
            let thread = std::thread::Builder::new().name("export".to_owned());
            thread
                .spawn_scoped(scope, move || reader.run(span, limit, &give))
                .map_err(|error| {
                    CommandFailure::Failed(format!("cannot start a thread: {error}"))
                })?;
            let result = self.write(target, pages, &mut progress, all);
            stopping.store(true, std::sync::atomic::Ordering::Relaxed);
            result
        });
        progress.clear();
        let (done, counts) = result?;
        self.summarise(&done, &counts, progress.took());
        Ok(())
    }

    /// What reads pages, what reads the rest, and what both read from, where that is asked for.
    fn clients(&self) -> Result<ExportClients, CommandFailure> {
        if !self.snapshot {
            return Ok(ExportClients {
                client: self.endpoints.connect()?,
                resp: self.endpoints.resp()?,
                snapshot: None,
            });
        }
        let snapshot = ExportSnapshot::open(self.endpoints.resp()?)?;
        let reads = || -> Result<RespClient, CommandFailure> {
            let mut client = self.endpoints.resp()?;
            client.read_from(Some(snapshot.name().to_owned()));
            Ok(client)
        };
        Ok(ExportClients {
            client: Box::new(reads()?),
            resp: reads()?,
            snapshot: Some(snapshot),
        })
    }

    /// As asked for, or as the file's name has it.
    fn format(&self) -> Format {
        let named = || Format::of_name(&self.file.to_string_lossy());
        self.format.unwrap_or_else(named)
    }

    /// Where lines go, and the last key that is there already.
    fn target(&self) -> Result<(Target, Option<LastKey>), CommandFailure> {
        let path = &self.file;
        if path == Path::new("-") {
            if self.resume {
                let what = "--resume goes on in a file; stdout cannot be read";
                return Err(CommandFailure::Usage(what.to_owned()));
            }
            return Ok((Target::Stdout(io::stdout()), None));
        }
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true);
        if !self.resume && !self.overwrite {
            open.create_new(true);
        }
        let mut file = match open.open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(CommandFailure::Failed(format!(
                    "{} exists: --resume goes on in it, --overwrite replaces it",
                    path.display()
                )));
            }
            file => file.map_err(|error| CommandFailure::io("write", path, &error))?,
        };
        let behind = if self.resume {
            last_key(&mut file, self.format(), path)?
        } else {
            let emptied = file.set_len(0);
            emptied.map_err(|error| CommandFailure::io("empty", path, &error))?;
            None
        };
        Ok((Target::File(file, path.clone()), behind))
    }

    fn write(
        &self,
        target: Target,
        pages: Receiver<Result<Pairs, CommandFailure>>,
        progress: &mut Progress,
        all: Option<u64>,
    ) -> Result<(Done, Counts), CommandFailure> {
        let format = self.format();
        let failed = |error: &io::Error| CommandFailure::io("write", &self.file, error);
        let mut out: BufWriter<Box<dyn Write>> = BufWriter::with_capacity(
            WRITE_BYTES,
            match &target {
                Target::Stdout(stdout) => Box::new(stdout.lock()),
                Target::File(file, path) => Box::new(
                    file.try_clone()
                        .map_err(|e| CommandFailure::io("write", path, &e))?,
                ),
            },
        );
        let mut done = Done::default();
        let mut counts = Counts::default();
        let mut line = Vec::new();
        for page in pages {
            let page = page?;
            counts.take(&page);
            for pair in page.pairs() {
                line.clear();
                format::write_line(format, self.encoding, pair, &mut line);
                out.write_all(&line).map_err(|error| failed(&error))?;
                done.pairs += 1;
                done.bytes += line.len() as u64;
            }
            for record in &page.records {
                if format == Format::Tsv {
                    return Err(no_tsv(record));
                }
                line.clear();
                format::write_record(self.encoding, record, &mut line);
                out.write_all(&line).map_err(|error| failed(&error))?;
                done.pairs += u64::from(record.part().is_some_and(|part| !part.more));
                done.bytes += line.len() as u64;
            }
            done.parts = all.map(|all| Parts {
                before: 0,
                done: done.pairs,
                all,
            });
            progress.tell(&done);
            line.shrink_to(WRITE_BYTES);
        }
        out.flush().map_err(|error| failed(&error))?;
        drop(out);
        if let Target::File(file, _) = &target {
            file.sync_all().map_err(|error| failed(&error))?;
        }
        if !self.progress.quiet {
            counts.tell();
        }
        Ok((done, counts))
    }

    fn summarise(&self, done: &Done, counts: &Counts, took: Duration) {
        if self.output == OutputFormat::Json {
            let summary = Summary {
                schema: "argosy.export.v1",
                pairs: done.pairs,
                composites: counts.composites,
                elements: counts.elements,
                as_of_now: counts.as_of_now,
                bytes: done.bytes,
                seconds: took.as_secs_f64(),
            };
            let json = serde_json::to_string(&summary).expect("plain data becomes JSON");
            match self.file == Path::new("-") {
                true => eprintln!("{json}"),
                false => println!("{json}"),
            }
        } else if !self.progress.quiet {
            eprintln!(
                "exported {} pairs{}; {} in {}.{} s",
                done.pairs,
                counts.of_other_types(),
                mebibytes(done.bytes),
                took.as_secs(),
                took.subsec_millis() / 100
            );
        }
    }
}

/// TSV has no line for `record`.
fn no_tsv(record: &ParsedLine) -> CommandFailure {
    let kind = record.part().map_or("gone", |part| part.kind.name());
    let key = record.key.escape_ascii();
    CommandFailure::Failed(format!(
        "'{key}' is a {kind}, for which TSV has no lines: export JSON lines (--format jsonl), or leave such keys out \
         (--prefix, --from, --to)"
    ))
}

/// The key of the last whole line of `file`; what stands behind it is cut off. `None` where there is
/// no whole line.
fn last_key(
    file: &mut File,
    format: Format,
    path: &Path,
) -> Result<Option<LastKey>, CommandFailure> {
    let failed = |error: io::Error| CommandFailure::io("read", path, &error);
    let end = end_of_lines(file, u64::MAX).map_err(failed)?;
    file.set_len(end).map_err(failed)?;
    file.seek(SeekFrom::Start(end)).map_err(failed)?;
    if end == 0 {
        return Ok(None);
    }
    let start = end_of_lines(file, end - 1).map_err(failed)?;
    let len = end - 1 - start;
    if len > LINE_BYTES_MAX as u64 {
        let what = format!("{}: its last line is no line of an export", path.display());
        return Err(CommandFailure::Failed(what));
    }
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    Read::take(&mut *file, len)
        .read_to_end(&mut line)
        .map_err(failed)?;
    file.seek(SeekFrom::Start(end)).map_err(failed)?;
    let record = format::parse(format, &line).map_err(|what| {
        let shown = path.display();
        CommandFailure::Failed(format!(
            "{shown}: its last line is none of this format: {what}"
        ))
    })?;
    Ok(Some(match record.ends_its_key() {
        true => LastKey::Whole(record.key),
        false => LastKey::Begun(record.key),
    }))
}

/// Where the last line ends that ends in the first `before` bytes: behind a line feed, or at 0.
fn end_of_lines(file: &mut File, before: u64) -> io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let mut end = file.metadata()?.len().min(before);
    let mut bytes = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(STEP);
        bytes.clear();
        file.seek(SeekFrom::Start(start))?;
        Read::take(&mut *file, end - start).read_to_end(&mut bytes)?;
        if let Some(at) = bytes.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_on_behind_its_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export");
        let whole = "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n";
        let long = format!("{{\"key\":\"c\",\"value\":\"{}\"}}\n", "v".repeat(200_000));
        let tails = ["", "{\"key\":\"z", "{"];
        let part = "{\"key\":\"d\",\"type\":\"set\",\"elements\":[\"m\"]";
        let whole_key = |key: &str| LastKey::Whole(key.into());
        for (text, key, tail) in tails.into_iter().flat_map(|tail| {
            let begun = format!("{whole}{part},\"more\":true}}\n");
            let ends = format!("{begun}{part},\"part\":2}}\n");
            [
                (whole.to_owned(), whole_key("b"), tail),
                (whole.to_owned() + &long, whole_key("c"), tail),
                (begun, LastKey::Begun(b"d".to_vec()), tail),
                (ends, whole_key("d"), tail),
            ]
        }) {
            std::fs::write(&path, text.clone() + tail).unwrap();
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let last = last_key(&mut file, Format::Jsonl, &path).unwrap();
            assert_eq!(last, Some(key));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(file.stream_position().unwrap(), text.len() as u64);
        }
        std::fs::write(&path, "{\"key\":\"a").unwrap();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        assert_eq!(last_key(&mut file, Format::Jsonl, &path).unwrap(), None);
        assert_eq!(file.metadata().unwrap().len(), 0);
        std::fs::write(&path, "no line of ours\n").unwrap();
        assert!(last_key(&mut file, Format::Jsonl, &path).is_err());
    }
}
