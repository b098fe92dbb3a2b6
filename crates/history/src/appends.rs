//! Whether transactions were carried out as if one behind the other, in an order that fits their times.
//!
//! Each reads keys and appends its own number to keys, as an item of a list. A list tells in which order its
//! transactions came, and a read tells behind which of them it came. So:
//!
//! 1. Every read of a key is a beginning of its list at the end.
//! 2. What was applied is in the lists of all its keys, once; what was not, in none; what may have been, in all or
//!    none.
//! 3. *Before* is: next in a list; written and read; read and next written; and ended before it began. Nothing is
//!    before itself, by any number of these.

use std::collections::{BTreeMap, BTreeSet};

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was applied, and had ended at this time.
    Applied(u64),
    /// It was not.
    NotApplied,
    /// Nobody knows.
    Unknown,
}

/// What a transaction did with a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListAccess {
    /// Which key.
    pub key: usize,
    /// The list that it read, before it appended; `None`: it read none, or nobody was told.
    pub read: Option<Vec<u32>>,
    /// Whether it appends its number.
    pub appends: bool,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its number.
    pub number: u32,
    /// When it began.
    pub began: u64,
    /// What became of it.
    pub fate: Fate,
    /// At most one for each key.
    pub steps: Vec<ListAccess>,
}

impl Transaction {
    /// Nobody was told what it has read.
    pub fn forget_reads(&mut self) {
        self.steps.iter_mut().for_each(|step| step.read = None);
    }

    fn ended(&self) -> Option<u64> {
        match self.fate {
            Fate::Applied(ended) => Some(ended),
            Fate::NotApplied | Fate::Unknown => None,
        }
    }

    fn appended(&self) -> impl Iterator<Item = usize> {
        let steps = self.steps.iter().filter(|step| step.appends);
        steps.map(|step| step.key)
    }
}

/// Checks the transactions of keys whose lists are `lists` at the end.
///
/// # Errors
/// What is wrong, in words.
pub fn check(transactions: &[Transaction], lists: &[Vec<u32>]) -> Result<(), String> {
    let applied = applied(transactions, lists)?;
    let places: BTreeMap<u32, usize> = (0..)
        .zip(&applied)
        .map(|(place, of)| (of.number, place))
        .collect();
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); applied.len()];
    let mut put = |first: u32, second: u32| {
        if first != second {
            before[places[&first]].insert(places[&second]);
        }
    };
    for list in lists {
        list.windows(2).for_each(|two| put(two[0], two[1]));
    }
    for of in &applied {
        for step in &of.steps {
            let Some(read) = &step.read else { continue };
            let list = &lists[step.key];
            if !list.starts_with(read) {
                return Err(format!(
                    "transaction {} has read {read:?} of key {}, which is {list:?} at the end",
                    of.number, step.key
                ));
            }
            if let Some(last) = read.last() {
                put(*last, of.number);
            }
            if let Some(next) = list.get(read.len()) {
                put(of.number, *next);
            }
        }
    }
    for first in &applied {
        let Some(ended) = first.ended() else { continue };
        for second in applied.iter().filter(|second| second.began > ended) {
            put(first.number, second.number);
        }
    }
    match left_of(&before) {
        left if left.is_empty() => Ok(()),
        left => {
            let numbers: Vec<u32> = left.iter().map(|place| applied[*place].number).collect();
            Err(format!(
                "transactions are before themselves: among {numbers:?}"
            ))
        }
    }
}

/// Those that were applied, once it is clear that each was as a whole.
fn applied<'a>(
    transactions: &'a [Transaction],
    lists: &[Vec<u32>],
) -> Result<Vec<&'a Transaction>, String> {
    let mut counts: BTreeMap<(u32, usize), usize> = BTreeMap::new();
    for (key, list) in lists.iter().enumerate() {
        for number in list {
            *counts.entry((*number, key)).or_default() += 1;
        }
    }
    let mut applied = Vec::new();
    for of in transactions {
        let found: Vec<usize> = of
            .appended()
            .map(|key| counts.remove(&(of.number, key)).unwrap_or_default())
            .collect();
        let all = found.iter().all(|count| *count == 1);
        let none = found.iter().all(|count| *count == 0);
        let fits = match of.fate {
            Fate::Applied(_) => all,
            Fate::NotApplied => none,
            Fate::Unknown => all || none,
        };
        if !fits {
            return Err(format!(
                "transaction {} is {:?}, and is found {found:?} times in the lists of its keys",
                of.number, of.fate
            ));
        }
        let writes = !found.is_empty();
        if matches!(of.fate, Fate::Applied(_)) || of.fate == Fate::Unknown && writes && all {
            applied.push(of);
        }
    }
    match counts.first_key_value() {
        Some(((number, key), _)) => Err(format!("nobody has appended {number} to key {key}")),
        None => Ok(applied),
    }
}

/// What is left when all are taken away, again and again, that nothing left is before: what is before itself, and what
/// comes behind that.
fn left_of(before: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut preceding = vec![0_usize; before.len()];
    for behind in before.iter().flatten() {
        preceding[*behind] += 1;
    }
    let mut free: Vec<usize> = (0..before.len())
        .filter(|place| preceding[*place] == 0)
        .collect();
    while let Some(place) = free.pop() {
        for behind in &before[place] {
            preceding[*behind] -= 1;
            if preceding[*behind] == 0 {
                free.push(*behind);
            }
        }
    }
    (0..before.len())
        .filter(|place| preceding[*place] > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// A transaction from `began` to `ended` that has read this of keys, and appends to others.
    fn of(
        number: u32,
        times: Range<u64>,
        reads: &[(usize, &[u32])],
        appends: &[usize],
    ) -> Transaction {
        let mut steps: BTreeMap<usize, ListAccess> = BTreeMap::new();
        for (key, read) in reads {
            steps.entry(*key).or_default().read = Some(read.to_vec());
        }
        for key in appends {
            steps.entry(*key).or_default().appends = true;
        }
        let steps = steps
            .into_iter()
            .map(|(key, step)| ListAccess { key, ..step });
        Transaction {
            number,
            began: times.start,
            fate: Fate::Applied(times.end),
            steps: steps.collect(),
        }
    }

    #[test]
    fn what_was_carried_out_one_behind_the_other_is_fine() {
        let all = [
            of(1, 0..9, &[(0, &[]), (1, &[])], &[0, 1]),
            of(2, 1..8, &[(0, &[1])], &[0]),
            of(3, 2..7, &[(0, &[1, 2]), (1, &[1])], &[]),
        ];
        assert_eq!(check(&all, &[vec![1, 2], vec![1]]), Ok(()));
    }

    #[test]
    fn a_lost_update_is_found() {
        let all = [
            of(1, 0..9, &[(0, &[])], &[0]),
            of(2, 1..8, &[(0, &[])], &[0]),
        ];
        assert!(check(&all, &[vec![1, 2]]).is_err(), "2 has not seen 1");
        assert!(check(&all, &[vec![2]]).is_err(), "1 is gone");
    }

    #[test]
    fn write_skew_and_torn_reads_are_found() {
        let skew = [
            of(1, 0..9, &[(0, &[]), (1, &[])], &[0]),
            of(2, 1..8, &[(0, &[]), (1, &[])], &[1]),
        ];
        assert!(check(&skew, &[vec![1], vec![2]]).is_err());
        let torn = [
            of(1, 0..9, &[], &[0, 1]),
            of(2, 1..8, &[(0, &[1]), (1, &[])], &[]),
        ];
        assert!(check(&torn, &[vec![1], vec![1]]).is_err());
    }

    #[test]
    fn times_count() {
        let all = [of(1, 0..2, &[], &[0]), of(2, 3..4, &[(0, &[])], &[])];
        assert!(check(&all, &[vec![1]]).is_err(), "2 began when 1 had ended");
        let meanwhile = [all[0].clone(), of(2, 1..4, &[(0, &[])], &[])];
        assert_eq!(check(&meanwhile, &[vec![1]]), Ok(()));
    }

    #[test]
    fn a_transaction_is_whole_or_not_there() {
        let mut one = of(1, 0..2, &[], &[0, 1]);
        assert!(check(std::slice::from_ref(&one), &[vec![1], vec![]]).is_err());
        assert!(check(std::slice::from_ref(&one), &[vec![1, 1], vec![1]]).is_err());
        assert!(check(&[], &[vec![1]]).is_err(), "nobody's");
        one.fate = Fate::NotApplied;
        assert!(check(std::slice::from_ref(&one), &[vec![1], vec![1]]).is_err());
        assert_eq!(check(std::slice::from_ref(&one), &[vec![], vec![]]), Ok(()));
        one.fate = Fate::Unknown;
        assert_eq!(check(std::slice::from_ref(&one), &[vec![], vec![]]), Ok(()));
        assert_eq!(
            check(std::slice::from_ref(&one), &[vec![1], vec![1]]),
            Ok(())
        );
        assert!(check(std::slice::from_ref(&one), &[vec![], vec![1]]).is_err());
    }
}
