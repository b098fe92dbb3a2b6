//! How parts of hashes, sorted sets and sets are written: by `HSET`, `ZADD` and `SADD`, in bounded batches.
//!
//! 1. A part is cut into [`pieces`] that a batch takes.
//! 2. The first piece of the first part removes the key, in one transaction with its elements. So nobody sees the key
//!    without any, and a line that is applied twice leaves nothing of what was there before.
//! 3. Where the key expires, each piece says when, in a transaction with its elements. So nothing is left of a key
//!    whose time has come.
//! 4. What goes together is sent together, and tried again together, from its first command on: pieces of a key that
//!    are applied once more in their order end in the same elements.

use argosy_base::composite::CompositeType;
use argosy_client::resp::Reply;
use argosy_client::{ClientError, RespClient};

use super::format::ParsedLine;
use super::parts::{CompositePart, PartElement, pieces};

/// Bytes of words that are sent together; one longer piece is sent alone.
const TOGETHER_BYTES: usize = 1 << 20;
/// How many pieces.
const TOGETHER: usize = 256;

/// What one transaction, or one command, writes.
pub(super) struct PieceWrite<'a> {
    key: &'a [u8],
    kind: CompositeType,
    elements: &'a [PartElement],
    /// Whether the key is begun anew.
    begins: bool,
    expires: Option<String>,
}

impl<'a> PieceWrite<'a> {
    /// Those of a line; none where it is of no part.
    fn of(record: &'a ParsedLine) -> Vec<Self> {
        let Some(part) = record.part() else {
            return Vec::new();
        };
        let CompositePart { kind, elements, .. } = part;
        let mut cut = pieces(&record.key, elements);
        if cut.is_empty() && part.is_first() {
            cut.push(&[]);
        }
        let piece = |(at, elements): (usize, &'a [PartElement])| Self {
            key: &record.key,
            kind: *kind,
            elements,
            begins: at == 0 && part.is_first(),
            expires: record.expires.map(|at| at.to_string()),
        };
        cut.into_iter().enumerate().map(piece).collect()
    }

    fn bytes(&self) -> usize {
        let bytes = |element: &PartElement| element.name.len() + element.value.len();
        4 * self.key.len() + self.elements.iter().map(bytes).sum::<usize>()
    }

    /// The command that adds the elements; none where there are none.
    fn adds(&self) -> Option<Vec<&[u8]>> {
        let name: &[u8] = match self.kind {
            CompositeType::Hash => b"HSET",
            CompositeType::SortedSet => b"ZADD",
            CompositeType::Set => b"SADD",
        };
        let mut words = vec![name, self.key];
        for element in self.elements {
            match self.kind {
                CompositeType::Hash => words.extend([&element.name[..], &element.value]),
                CompositeType::SortedSet => words.extend([&element.value[..], &element.name]),
                CompositeType::Set => words.push(&element.name),
            }
        }
        (!self.elements.is_empty()).then_some(words)
    }

    /// What is sent.
    fn commands(&self) -> Vec<Vec<&[u8]>> {
        let removes = self.begins.then(|| vec![&b"DEL"[..], self.key]);
        let expires = self.expires.as_ref();
        let expires = expires.map(|at| vec![&b"PEXPIREAT"[..], self.key, at.as_bytes()]);
        let commands: Vec<_> = [removes, self.adds(), expires]
            .into_iter()
            .flatten()
            .collect();
        if commands.len() < 2 {
            return commands;
        }
        let (begin, end) = (vec![vec![&b"MULTI"[..]]], vec![vec![&b"EXEC"[..]]]);
        [begin, commands, end].concat()
    }
}

/// What `records` write, in groups that are sent together.
pub(super) fn groups(records: &[ParsedLine]) -> Vec<Vec<PieceWrite<'_>>> {
    let mut groups = Vec::new();
    let (mut group, mut bytes) = (Vec::new(), 0);
    for piece in records.iter().flat_map(PieceWrite::of) {
        bytes += piece.bytes();
        if group.len() == TOGETHER || bytes > TOGETHER_BYTES && !group.is_empty() {
            groups.push(std::mem::take(&mut group));
            bytes = piece.bytes();
        }
        group.push(piece);
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

/// Writes a group.
///
/// # Errors
/// That of the first command that fails; what became of those behind it is unknown.
pub(super) fn write(client: &mut RespClient, group: &[PieceWrite<'_>]) -> Result<(), ClientError> {
    let commands: Vec<_> = group.iter().flat_map(PieceWrite::commands).collect();
    for reply in client.commands(&commands)? {
        let Reply::Array(Some(replies)) = reply else {
            continue;
        };
        // What a command of a transaction was answered.
        for reply in replies {
            if let Reply::Error(line) = reply {
                return Err(ClientError::of_error(&line));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::format::{Format, parse};
    use super::*;

    fn told(lines: &[&str]) -> Vec<Vec<String>> {
        let records: Vec<_> = lines
            .iter()
            .map(|line| parse(Format::Jsonl, line.as_bytes()).unwrap())
            .collect();
        let shown = |words: Vec<&[u8]>| {
            let words: Vec<_> = words.into_iter().map(String::from_utf8_lossy).collect();
            words.join(" ")
        };
        let group = |group: Vec<PieceWrite<'_>>| {
            let commands: Vec<_> = group.iter().flat_map(PieceWrite::commands).collect();
            commands.into_iter().map(shown).collect()
        };
        groups(&records).into_iter().map(group).collect()
    }

    #[test]
    fn the_first_part_removes_the_key_and_each_says_when_it_expires() {
        let sent = told(&[
            r#"{"key":"h","type":"hash","elements":[["f","v"],["g","w"]],"more":true}"#,
            r#"{"key":"h","type":"hash","elements":[["i","x"]],"part":2}"#,
            r#"{"key":"s","type":"set","elements":["m","n"],"more":true,"expires_at_ms":7}"#,
            r#"{"key":"s","type":"set","elements":["o"],"part":2,"expires_at_ms":7}"#,
            r#"{"key":"z","type":"zset","elements":[["m","1.5"]],"part":2}"#,
            r#"{"key":"e","type":"set","elements":[]}"#,
            r#"{"key":"e","type":"set","elements":[],"part":2}"#,
        ]);
        let wanted = [
            "MULTI",
            "DEL h",
            "HSET h f v g w",
            "EXEC",
            "HSET h i x",
            "MULTI",
            "DEL s",
            "SADD s m n",
            "PEXPIREAT s 7",
            "EXEC",
            "MULTI",
            "SADD s o",
            "PEXPIREAT s 7",
            "EXEC",
            "ZADD z 1.5 m",
            "DEL e",
        ];
        assert_eq!(sent, [wanted]);
    }

    #[test]
    fn a_long_line_is_written_in_batches_and_only_the_first_removes_the_key() {
        let elements: Vec<_> = (0..2500).map(|n| format!("\"{n}\"")).collect();
        let line = format!(
            r#"{{"key":"s","type":"set","elements":[{}]}}"#,
            elements.join(",")
        );
        let sent = told(&[&line]).concat();
        let begins: Vec<_> = sent.iter().map(|command| &command[..4]).collect();
        assert_eq!(begins, ["MULT", "DEL ", "SADD", "EXEC", "SADD", "SADD"]);
        let words = |at: usize| sent[at].split(' ').count() - 2;
        assert_eq!([words(2), words(4), words(5)], [1000, 1000, 500]);
    }

    #[test]
    fn what_is_sent_together_is_bounded() {
        let value = "v".repeat(400_000);
        let line = format!(r#"{{"key":"h","type":"hash","elements":[["f","{value}"]]}}"#);
        let lens: Vec<_> = told(&[line.as_str(); 5]).iter().map(Vec::len).collect();
        assert_eq!(lens, [8, 8, 4]);
        let short = r#"{"key":"h","type":"hash","elements":[["f","v"]],"part":2}"#;
        let lens: Vec<_> = told(&[short; 300]).iter().map(Vec::len).collect();
        assert_eq!(lens, [256, 44]);
    }
}
