//! Scores: how they are shown.

/// `score` as Redis shows it: whole numbers in full, others with as many digits as tell them apart.
pub(super) fn text_of(score: f64) -> String {
    /// Whole numbers up to here have all their digits.
    const WHOLE_MAX: f64 = 1e17;
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if score.fract() == 0.0 && score.abs() < WHOLE_MAX {
        // Both zeros are one.
        return format!("{}", score + 0.0);
    }
    let scientific = format!("{score:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -5..17 => format!("{score}"),
        0.. => format!("{digits}e+{exponent}"),
        _ => format!("{digits}e{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_shown_as_by_redis() {
        for (score, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (3.0, "3"),
            (-3.25, "-3.25"),
            (0.1, "0.1"),
            (1e16, "10000000000000000"),
            (1e300, "1e+300"),
            (1.5e-7, "1.5e-7"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text_of(score), text);
        }
    }
}
