//! The commands of the shell: their words, and what they mean.

use argosy_base::KeyRange;
use argosy_client::{PutOnly, Span};

use crate::bytes::{Notation, Word};

/// Pairs that a scan prints unless it is told otherwise.
pub(super) const LIMIT: usize = 100;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Print what keys are bound to.
    Get(Vec<Vec<u8>>),
    /// Bind a key.
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        only: Option<PutOnly>,
    },
    /// Remove keys.
    Delete(Vec<Vec<u8>>),
    /// Print pairs in order.
    Scan(Scan),
    /// Print bytes in another form from now on.
    Format(Notation),
    /// Explain all commands, or one.
    Help(Option<String>),
    /// End.
    Quit,
}

/// What is scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) span: Span,
    /// Most pairs; `None`: all.
    pub(super) limit: Option<usize>,
    pub(super) keys_only: bool,
}

/// A command as `help` shows it, and as its name is completed.
pub(super) struct Explained {
    pub(super) name: &'static str,
    pub(super) usage: &'static str,
    pub(super) summary: &'static str,
    /// Words behind the name that are options, for completion.
    pub(super) options: &'static [&'static str],
    /// Whether keys stand behind the name.
    pub(super) keys: bool,
}

/// All commands, in the order in which they are explained.
pub(super) const COMMANDS: [Explained; 8] = [
    Explained {
        name: "get",
        usage: "get KEY...",
        summary: "prints what keys are bound to",
        options: &[],
        keys: true,
    },
    Explained {
        name: "put",
        usage: "put KEY VALUE [if-absent|if-present]",
        summary: "binds a key, perhaps on a condition",
        options: &["if-absent", "if-present"],
        keys: true,
    },
    Explained {
        name: "delete",
        usage: "delete KEY...",
        summary: "removes keys",
        options: &[],
        keys: true,
    },
    Explained {
        name: "scan",
        usage: "scan [FROM [TO]] [limit N|all] [reverse] [keys]",
        summary: "prints pairs from FROM on and without TO, in order",
        options: &["limit", "reverse", "keys"],
        keys: true,
    },
    Explained {
        name: "prefix",
        usage: "prefix PREFIX [limit N|all] [reverse] [keys]",
        summary: "prints pairs whose keys begin with PREFIX",
        options: &["limit", "reverse", "keys"],
        keys: true,
    },
    Explained {
        name: "format",
        usage: "format text|hex|base64|json",
        summary: "prints keys and values in this form from now on",
        options: &["text", "hex", "base64", "json"],
        keys: false,
    },
    Explained {
        name: "help",
        usage: "help [COMMAND]",
        summary: "explains the commands",
        options: &[
            "get", "put", "delete", "scan", "prefix", "format", "help", "quit",
        ],
        keys: false,
    },
    Explained {
        name: "quit",
        usage: "quit",
        summary: "ends the shell; so does Ctrl-D",
        options: &[],
        keys: false,
    },
];

/// How keys and values are written, for `help`.
pub(super) const FORMS: &str = "\
Keys and values: plain words, 'quoted ones with \\n \\x00 and the like', hex:6162 or 0x6162, base64:YWI=.
Quote what would be taken for an option: scan 'limit'. A ; ends a command, a # begins a comment.
A scan prints 100 pairs unless it has a limit.";

impl Command {
    /// The command that `words`, of which there is one, stand for.
    pub(super) fn parse(words: &[Word]) -> Result<Self, String> {
        let name = words[0].bare().unwrap_or_default().to_ascii_lowercase();
        let rest = &words[1..];
        let keys = || -> Result<Vec<_>, String> {
            if rest.is_empty() {
                return Err(usage(&name));
            }
            rest.iter().map(Word::value).collect()
        };
        match name.as_str() {
            "get" => Ok(Self::Get(keys()?)),
            "put" | "set" => put(rest),
            "delete" | "del" => Ok(Self::Delete(keys()?)),
            "scan" => scan(rest),
            "prefix" => prefix(rest),
            "format" => format(rest),
            "help" | "?" => match rest {
                [] => Ok(Self::Help(None)),
                [one] => Ok(Self::Help(one.bare().map(str::to_owned))),
                _ => Err(usage("help")),
            },
            "quit" | "exit" if rest.is_empty() => Ok(Self::Quit),
            "quit" | "exit" => Err(usage("quit")),
            _ => {
                let names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
                let shown = String::from_utf8_lossy(&words[0].bytes).into_owned();
                Err(format!(
                    "no command '{shown}'; there are {}",
                    names.join(", ")
                ))
            }
        }
    }
}

fn usage(name: &str) -> String {
    let name = match name {
        "set" => "put",
        "del" => "delete",
        name => name,
    };
    let command = COMMANDS.iter().find(|command| command.name == name);
    command.map_or_else(String::new, |command| format!("usage: {}", command.usage))
}

fn put(words: &[Word]) -> Result<Command, String> {
    let (key, value, only) = match words {
        [key, value] => (key, value, None),
        [key, value, option] => {
            let only = match option.bare() {
                Some("if-absent") => PutOnly::IfAbsent,
                Some("if-present") => PutOnly::IfPresent,
                _ => return Err(usage("put")),
            };
            (key, value, Some(only))
        }
        _ => return Err(usage("put")),
    };
    Ok(Command::Put {
        key: key.value()?,
        value: value.value()?,
        only,
    })
}

fn scan(words: &[Word]) -> Result<Command, String> {
    let (bounds, options) = split(words);
    let (from, to) = match bounds {
        [] => (Vec::new(), None),
        [from] => (from.value()?, None),
        [from, to] => (from.value()?, Some(to.value()?)),
        _ => return Err(usage("scan")),
    };
    scan_of(Span::of(KeyRange::new(from, to)), options, "scan")
}

fn prefix(words: &[Word]) -> Result<Command, String> {
    let ([prefix], options) = split(words) else {
        return Err(usage("prefix"));
    };
    scan_of(Span::prefix(&prefix.value()?), options, "prefix")
}

/// What stands in front of the first option, and the options.
fn split(words: &[Word]) -> (&[Word], &[Word]) {
    let is_option = |word: &Word| matches!(word.bare(), Some("limit" | "reverse" | "keys"));
    let at = words.iter().position(is_option).unwrap_or(words.len());
    words.split_at(at)
}

fn scan_of(span: Span, options: &[Word], name: &str) -> Result<Command, String> {
    let mut scan = Scan {
        span,
        limit: Some(LIMIT),
        keys_only: false,
    };
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match word.bare() {
            Some("reverse") => scan.span.reverse = true,
            Some("keys") => scan.keys_only = true,
            Some("limit") => {
                scan.limit = match words.next().and_then(Word::bare) {
                    Some("all") => None,
                    Some(digits) => Some(
                        digits
                            .parse()
                            .map_err(|_| format!("'{digits}' is no number of pairs"))?,
                    ),
                    None => return Err(usage(name)),
                };
            }
            _ => return Err(usage(name)),
        }
    }
    Ok(Command::Scan(scan))
}

fn format(words: &[Word]) -> Result<Command, String> {
    let [form] = words else {
        return Err(usage("format"));
    };
    let form = match form.bare() {
        Some("text") => Notation::Text,
        Some("hex") => Notation::Hex,
        Some("base64") => Notation::Base64,
        Some("json") => Notation::Json,
        _ => return Err(usage("format")),
    };
    Ok(Command::Format(form))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::words;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(&words(line).unwrap().0)
    }

    fn scan(line: &str) -> Scan {
        match parse(line) {
            Ok(Command::Scan(scan)) => scan,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_understood() {
        let get = Command::Get(vec![b"a".to_vec(), b"\x00".to_vec()]);
        assert_eq!(parse("GET a 0x00"), Ok(get));
        let put = |only| Command::Put {
            key: b"k".to_vec(),
            value: b"v w".to_vec(),
            only,
        };
        assert_eq!(parse("put k 'v w'"), Ok(put(None)));
        assert_eq!(
            parse("set k 'v w' if-absent"),
            Ok(put(Some(PutOnly::IfAbsent)))
        );
        assert_eq!(parse("del x"), Ok(Command::Delete(vec![b"x".to_vec()])));
        assert_eq!(parse("format hex"), Ok(Command::Format(Notation::Hex)));
        assert_eq!(parse("help scan"), Ok(Command::Help(Some("scan".into()))));
        assert_eq!(parse("exit"), Ok(Command::Quit));
    }

    #[test]
    fn scans_have_bounds_and_options() {
        let all = scan("scan");
        assert_eq!((all.span, all.limit), (Span::all(), Some(LIMIT)));
        let some = scan("scan a q limit 10 reverse keys");
        assert_eq!(some.span.range, KeyRange::new("a", Some(b"q".to_vec())));
        assert!(some.span.reverse && some.keys_only);
        assert_eq!(some.limit, Some(10));
        let odd = scan("scan 'limit' 'reverse' limit all");
        assert_eq!(odd.span.range.from, b"limit");
        assert_eq!((odd.limit, odd.span.reverse), (None, false));
        let prefix = scan("prefix hex:61ff reverse");
        assert_eq!(prefix.span, Span::prefix(b"a\xff").reversed());
    }

    #[test]
    fn what_is_no_command_says_what_there_is() {
        for (line, said) in [
            ("fly", "there are get, put"),
            ("'get' a", "there are get"),
            ("get", "usage: get KEY"),
            ("put k", "usage: put"),
            ("put k v sometimes", "usage: put"),
            ("scan a b c", "usage: scan"),
            ("scan limit", "usage: scan"),
            ("scan limit many", "'many' is no number"),
            ("prefix", "usage: prefix"),
            ("format xml", "usage: format"),
            ("get 0x1", "not hexadecimal"),
            ("quit now", "usage: quit"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
        for command in COMMANDS {
            assert!(command.usage.starts_with(command.name));
        }
    }
}
