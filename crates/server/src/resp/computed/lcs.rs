//! `LCS`: the longest text that two values have in common, where each may have other bytes between.
//!
//! The table of the lengths for all beginnings of both values is made front to back, and then walked from its end. So
//! the runs of equal bytes come last first, as Redis tells them.

use argosy_engine::change::integer;
use argosy_wire::resp::Encoder;

/// Largest table: of two values of 2,000 bytes each.
const CELLS_MAX: usize = 4 << 20;

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Length,
    Runs,
}

/// What `LCS` was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lcs {
    form: Form,
    /// Shorter runs are not told.
    shortest: usize,
    with_lengths: bool,
}

/// Bytes that are equal in both values, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    a: usize,
    b: usize,
    len: usize,
}

/// What two values have in common.
pub(super) struct Common {
    asked: Lcs,
    text: Vec<u8>,
    runs: Vec<Run>,
}

impl Lcs {
    /// What these options ask.
    pub(super) fn of<'a>(
        mut options: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, &'static str> {
        let (mut length, mut runs) = (false, false);
        let mut lcs = Self {
            form: Form::Text,
            shortest: 0,
            with_lengths: false,
        };
        while let Some(option) = options.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"len" => length = true,
                b"idx" => runs = true,
                b"withmatchlen" => lcs.with_lengths = true,
                b"minmatchlen" => {
                    let number = options.next().ok_or("ERR syntax error")?;
                    let number =
                        integer(number).ok_or("ERR value is not an integer or out of range")?;
                    lcs.shortest = usize::try_from(number).unwrap_or(0);
                }
                _ => return Err("ERR syntax error"),
            }
        }
        lcs.form = match (length, runs) {
            (true, true) => {
                return Err("ERR If you want both the length and indexes, please just use IDX.");
            }
            (true, false) => Form::Length,
            (false, true) => Form::Runs,
            (false, false) => Form::Text,
        };
        Ok(lcs)
    }

    /// Compares `a` and `b`.
    ///
    /// # Errors
    /// In words for the client, where they are too long.
    pub(super) fn compare(self, a: &[u8], b: &[u8]) -> Result<Common, String> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).saturating_mul(width);
        if cells > CELLS_MAX {
            return Err(format!(
                "ERR values of {} and {} bytes are too long to be compared: their product may be {CELLS_MAX}",
                a.len(),
                b.len()
            ));
        }
        // The lengths for the first `i` bytes of one and `j` of the other.
        let mut table = vec![0_u32; cells];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                let at = i * width + j;
                table[at] = match a[i - 1] == b[j - 1] {
                    true => table[at - width - 1] + 1,
                    false => table[at - width].max(table[at - 1]),
                };
            }
        }
        let mut common = Common {
            asked: self,
            text: Vec::new(),
            runs: Vec::new(),
        };
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            let at = i * width + j;
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                common.text.push(a[i]);
                common.equal(i, j);
            } else if table[at - width] > table[at - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        common.text.reverse();
        Ok(common)
    }
}

impl Common {
    /// Byte `a` of one and `b` of the other are equal, and lie before all that were.
    fn equal(&mut self, a: usize, b: usize) {
        match self.runs.last_mut() {
            Some(run) if run.a == a + 1 && run.b == b + 1 => {
                *run = Run {
                    a,
                    b,
                    len: run.len + 1,
                };
            }
            _ => self.runs.push(Run { a, b, len: 1 }),
        }
    }

    /// Writes it.
    pub(super) fn write(&self, out: &mut Encoder<'_>) {
        match self.asked.form {
            Form::Text => out.bulk(&self.text),
            Form::Length => out.count(self.text.len() as u64),
            Form::Runs => self.write_runs(out),
        }
    }

    fn write_runs(&self, out: &mut Encoder<'_>) {
        let told = self
            .runs
            .iter()
            .filter(|run| run.len >= self.asked.shortest);
        out.map(2);
        out.bulk(b"matches");
        out.array(told.clone().count());
        for run in told {
            out.array(2 + usize::from(self.asked.with_lengths));
            for first in [run.a, run.b] {
                out.array(2);
                out.count(first as u64);
                out.count((first + run.len - 1) as u64);
            }
            if self.asked.with_lengths {
                out.count(run.len as u64);
            }
        }
        out.bulk(b"len");
        out.count(self.text.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(options: &[&str], a: &str, b: &str) -> Common {
        let lcs = Lcs::of(options.iter().map(|option| option.as_bytes())).unwrap();
        lcs.compare(a.as_bytes(), b.as_bytes()).unwrap()
    }

    #[test]
    fn texts_are_compared() {
        let common = compared(&[], "ohmytext", "mynewtext");
        assert_eq!(common.text, b"mytext");
        let runs = [Run { a: 4, b: 5, len: 4 }, Run { a: 2, b: 0, len: 2 }];
        assert_eq!(common.runs, runs);
        assert_eq!(compared(&[], "abc", "xyz").text, b"");
        assert_eq!(compared(&[], "", "xyz").text, b"");
    }

    #[test]
    fn what_is_asked_is_understood() {
        let asked = |options: &[&str]| Lcs::of(options.iter().map(|option| option.as_bytes()));
        assert!(asked(&["LEN", "IDX"]).is_err());
        assert!(asked(&["minmatchlen"]).is_err());
        assert!(asked(&["sideways"]).is_err());
        let all = asked(&["idx", "MinMatchLen", "4", "withmatchlen"]).unwrap();
        assert_eq!(
            (all.form, all.shortest, all.with_lengths),
            (Form::Runs, 4, true)
        );
    }

    #[test]
    fn long_values_are_refused() {
        let lcs = Lcs::of(std::iter::empty()).unwrap();
        let long = vec![b'x'; 4096];
        assert!(lcs.compare(&long, &long).is_err());
        assert!(lcs.compare(&long, b"x").is_ok());
    }
}
