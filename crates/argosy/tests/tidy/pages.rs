//! What the pages under `docs` say, as far as it can be checked without running anything: messages that
//! troubleshooting explains are in the sources, and sentences are short.

use super::{demand, sources};

/// The page that explains messages.
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

/// Its section about what has no message.
const NO_MESSAGE: &str = "\n## No message";

/// First words of an answer, which are put in front of what went wrong.
const FIRST_WORDS: [&str; 4] = ["ERR ", "TRYAGAIN ", "UNCERTAIN ", "MISCONF "];

/// Pieces of a message that are shorter are no evidence.
const PIECE_MIN: usize = 4;

/// Most words of a sentence, on the average of a page.
const WORDS_MAX: usize = 20;

/// What stands in backticks in `text`.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The messages of the page: what stands in backticks in the first column of its tables.
fn messages(page: &str) -> Vec<&str> {
    let page = page.split(NO_MESSAGE).next().unwrap_or(page);
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.flat_map(code).collect()
}

/// The literals of a source as they are printed: those that go on in the next line are one.
fn joined(text: &str) -> String {
    let mut lines = text.lines();
    let mut joined = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        match joined.strip_suffix('\\') {
            Some(start) => {
                joined.truncate(start.len());
                joined.push_str(line.trim_start());
            }
            None => {
                joined.push('\n');
                joined.push_str(line);
            }
        }
    }
    joined.replace("\\\"", "\"")
}

#[test]
fn messages_that_troubleshooting_explains_exist() {
    let all = sources();
    let code = all
        .iter()
        .filter(|source| source.is_rust() && !source.is_test());
    let code: Vec<String> = code.map(|source| joined(&source.text)).collect();
    let page = all.iter().find(|source| source.path == TROUBLESHOOTING);
    let page = page.expect("there is such a page");
    let messages = messages(&page.text);
    assert!(
        messages.len() > 100,
        "{} messages were found",
        messages.len()
    );
    let mut offences = Vec::new();
    for message in messages {
        let words = FIRST_WORDS
            .iter()
            .find_map(|word| message.strip_prefix(word));
        let pieces = words.unwrap_or(message).split('…').map(str::trim);
        for piece in pieces.filter(|piece| piece.len() >= PIECE_MIN) {
            if !code.iter().any(|text| text.contains(piece)) {
                offences.push(format!("{message}: no source says {piece:?}"));
            }
        }
    }
    demand("troubleshooting explains what nothing says", &offences);
}

/// The paragraphs and items of a page: without code, tables and headings, a code span one word.
fn paragraphs(page: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in page.lines() {
        let text = line.trim_start();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        let item = text.strip_prefix("- ").or_else(|| {
            let (number, item) = text.split_once(". ")?;
            number.parse::<usize>().ok().map(|_| item)
        });
        let is_prose = !(is_code || text.is_empty() || is_aside(text));
        if !is_prose || item.is_some() {
            found.push(String::new());
        }
        if is_prose && let Some(last) = found.last_mut() {
            last.push_str(item.unwrap_or(text));
            last.push(' ');
        }
    }
    found.retain(|paragraph| !paragraph.is_empty());
    let plain = |paragraph: String| {
        let parts = paragraph.split('`').enumerate();
        let parts = parts.map(|(at, part)| if at % 2 == 0 { part } else { "code" });
        parts.collect::<String>()
    };
    found.into_iter().map(plain).collect()
}

/// Whether a line is a table's, a heading, or the end of code.
fn is_aside(line: &str) -> bool {
    line.starts_with(['|', '#', '<']) || line.starts_with("```")
}

/// How many words each sentence of a paragraph has.
fn sentences(paragraph: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut words = 0;
    for word in paragraph.split_whitespace() {
        words += usize::from(word.contains(char::is_alphanumeric));
        // A link ends in its address, emphasis in a star.
        let end = word.trim_end_matches([')', '*', '"']);
        if end.ends_with(['.', '?', '!']) && words > 0 {
            found.push(std::mem::take(&mut words));
        }
    }
    found.extend((words > 0).then_some(words));
    found
}

#[test]
fn sentences_of_the_pages_are_short() {
    let mut offences = Vec::new();
    for source in sources() {
        let name = source.path.strip_prefix("docs/").unwrap_or(&source.path);
        if !name.ends_with(".md") || name.contains('/') {
            continue;
        }
        let paragraphs = paragraphs(&source.text);
        let lengths: Vec<usize> = paragraphs.iter().flat_map(|text| sentences(text)).collect();
        let words: usize = lengths.iter().sum();
        if words > WORDS_MAX * lengths.len() {
            let tenths = 10 * words / lengths.len().max(1);
            offences.push(format!("{}: {}.{}", source.path, tenths / 10, tenths % 10));
        }
    }
    demand(
        "a sentence has at most 20 words on the average of its page",
        &offences,
    );
}

#[test]
fn sentences_are_counted() {
    let page = [
        "# A head",
        "",
        "One two `three four`. Five?",
        "",
        "- six (seven).",
        "  Eight",
        "",
        "```sh",
        "nine ten",
        "```",
        "| a | b |",
    ];
    let page = page.join("\n");
    let lengths: Vec<usize> = paragraphs(&page)
        .iter()
        .flat_map(|text| sentences(text))
        .collect();
    assert_eq!(lengths, [3, 1, 2, 1]);
}

#[test]
fn messages_are_read_out_of_the_first_column() {
    let page = "| message | means |\n|---|---|\n| `ERR a … b` or `c` | `d` |\n\n## No message\n\n| `e` | f |\n";
    assert_eq!(messages(page), ["ERR a … b", "c"]);
    assert_eq!(joined("\"a \\\n    b\""), "\"a b\"");
}
