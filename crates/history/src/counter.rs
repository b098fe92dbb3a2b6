//! Whether a number was incremented once by each request that says so.
//!
//! Every request adds 1 and is told the sum. So, of one number:
//!
//! 1. No two requests are told the same.
//! 2. A request that begins when another one has ended is told more.
//! 3. A request is told no more than there were requests that had begun when it ended.
//! 4. What nobody was told was added by requests of unknown outcome: there are as many at least.

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Increment {
    /// The operation.
    pub op: u32,
    /// When it began.
    pub began: u64,
    /// When it ended and what it was told, if it was carried out; `None` where that is unknown.
    pub told: Option<(u64, i64)>,
}

/// Checks the requests of one number, in any order. Those that were not carried out are left out.
///
/// # Errors
/// What is wrong, in words.
pub fn check(requests: &[Increment]) -> Result<(), String> {
    let mut told: Vec<(u64, u64, i64, u32)> = requests
        .iter()
        .filter_map(|one| one.told.map(|(ended, sum)| (one.began, ended, sum, one.op)))
        .collect();
    told.sort_by_key(|(_, _, sum, _)| *sum);
    if let Some(two) = told.windows(2).find(|two| two[0].2 == two[1].2) {
        let (first, second, sum) = (two[0].3, two[1].3, two[0].2);
        return Err(format!("ops {first} and {second} were both told {sum}"));
    }
    // The earliest end of all that were told more.
    let mut earliest = (u64::MAX, 0);
    for (began, ended, sum, op) in told.iter().rev() {
        if earliest.0 < *began {
            let other = earliest.1;
            return Err(format!(
                "op {op} was told {sum}, though op {other}, which had ended before it began, was told more"
            ));
        }
        earliest = earliest.min((*ended, *op));
    }
    for (_, ended, sum, op) in &told {
        let begun = requests.iter().filter(|one| one.began < *ended).count();
        if usize::try_from(*sum).map_or(true, |sum| sum == 0 || sum > begun) {
            return Err(format!(
                "op {op} was told {sum} when {begun} requests had begun"
            ));
        }
    }
    let highest = told.last().map_or(0, |(_, _, sum, _)| *sum);
    let untold = usize::try_from(highest).unwrap_or(0) - told.len();
    let unknown = requests.len() - told.len();
    if untold > unknown {
        return Err(format!(
            "{untold} increments up to {highest} were told to nobody, but {unknown} outcomes are unknown"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(op: u32, began: u64, ended: u64, sum: i64) -> Increment {
        let told = Some((ended, sum));
        Increment { op, began, told }
    }

    fn unknown(op: u32, began: u64) -> Increment {
        let told = None;
        Increment { op, began, told }
    }

    #[test]
    fn what_one_number_can_tell_is_accepted() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[told(1, 1, 2, 1), told(2, 3, 4, 2)]), Ok(()));
        assert_eq!(check(&[told(1, 1, 9, 2), told(2, 3, 4, 1)]), Ok(()));
        assert_eq!(check(&[unknown(1, 1), told(2, 3, 4, 2)]), Ok(()));
        assert_eq!(check(&[unknown(1, 1), told(2, 3, 4, 1)]), Ok(()));
    }

    #[test]
    fn what_it_cannot_tell_is_not() {
        let wrong = |requests: &[Increment]| check(requests).unwrap_err();
        assert!(
            wrong(&[told(1, 1, 2, 1), told(2, 3, 4, 1)]).contains("both"),
            "lost"
        );
        assert!(wrong(&[told(1, 1, 2, 2), told(2, 3, 4, 1)]).contains("told more"));
        assert!(wrong(&[told(1, 1, 2, 2), unknown(2, 3)]).contains("had begun"));
        let gap = [told(1, 1, 9, 1), told(2, 2, 9, 3), told(3, 3, 9, 4)];
        assert!(wrong(&gap).contains("had begun"));
        let late = [
            told(1, 1, 9, 1),
            told(2, 2, 9, 3),
            unknown(3, 10),
            told(4, 4, 9, 2),
        ];
        assert_eq!(check(&late), Ok(()));
        let nobody = [
            told(1, 1, 9, 3),
            told(2, 2, 9, 4),
            told(3, 3, 9, 5),
            unknown(4, 4),
            unknown(5, 5),
        ];
        assert_eq!(check(&nobody), Ok(()), "two were added by the others");
        let fewer = [
            told(1, 1, 9, 3),
            told(2, 2, 9, 4),
            told(3, 3, 9, 5),
            unknown(4, 4),
            told(5, 5, 9, 6),
        ];
        assert!(wrong(&fewer).contains("begun") || wrong(&fewer).contains("nobody"));
    }
}
