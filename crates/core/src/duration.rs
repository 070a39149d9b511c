//! Durations as people write them: `90s`, `10m`, `1h30m`, `2d`, or a number of seconds.
//!
//! Client and server use the same rules, so neither accepts what the other refuses.

use jiff::SignedDuration;

/// A thousand years: more than needed, and small enough that no sum with a current time overflows.
const LONGEST: i64 = 1000 * 365 * 86_400;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("`{}` is not a time span: write `90s`, `10m`, `1h30m`, `7d` or a number of seconds", .0.escape_debug())]
    Unreadable(String),
    #[error("`{}` is longer than a thousand years", .0.escape_debug())]
    TooLong(String),
}

/// Parses a duration. Units go from the largest to the smallest, each at most once.
pub fn parse(text: &str) -> Result<SignedDuration, DurationError> {
    let unreadable = || DurationError::Unreadable(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let mut total: i64 = 0;
    for (digits, unit) in parts(text).ok_or_else(unreadable)? {
        // Digits fail to parse only if there are too many.
        let count: i64 = digits.parse().map_err(|_| too_long())?;
        let part = count.checked_mul(unit).ok_or_else(too_long)?;
        total = total.checked_add(part).ok_or_else(too_long)?;
    }
    if total > LONGEST {
        return Err(too_long());
    }
    Ok(SignedDuration::from_secs(total))
}

/// The shortest form that parses back to the same value.
pub fn print(duration: SignedDuration) -> String {
    let mut rest = duration.as_secs();
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        if rest >= seconds {
            text.push_str(&format!("{}{unit}", rest / seconds));
            rest %= seconds;
        }
    }
    text
}

/// The numbers of a duration with their units in seconds.
fn parts(text: &str) -> Option<Vec<(&str, i64)>> {
    if is_number(text) {
        return Some(vec![(text, 1)]);
    }
    let mut parts: Vec<(&str, i64)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit = match rest.as_bytes().get(digits)? {
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        if digits == 0 || parts.last().is_some_and(|(_, last)| unit >= *last) {
            return None;
        }
        parts.push((&rest[..digits], unit));
        rest = &rest[digits + 1..];
    }
    (!parts.is_empty()).then_some(parts)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_printed_in_the_shortest_form() {
        for (text, seconds, printed) in [
            ("90s", 90, "1m30s"),
            ("10m", 600, "10m"),
            ("1h30m", 5400, "1h30m"),
            ("45", 45, "45s"),
            ("2d", 172_800, "2d"),
            ("0", 0, "0s"),
            ("365000d", LONGEST, "365000d"),
        ] {
            let duration = parse(text).unwrap();
            assert_eq!(
                (duration.as_secs(), print(duration).as_str()),
                (seconds, printed),
                "{text}"
            );
            assert_eq!(parse(printed), Ok(duration));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "m", "1x", "1m1h", "1m1m", "-5", "1.5h", "10 m", "5m3", "１s"] {
            assert_eq!(parse(bad), Err(DurationError::Unreadable(bad.to_owned())));
        }
    }

    #[test]
    fn a_duration_beyond_a_thousand_years_is_refused() {
        for long in [
            "31536000001",
            "365000d1s",
            "99999999999999d",
            "99999999999999999999d",
            "9223372036854775807d",
        ] {
            assert_eq!(parse(long), Err(DurationError::TooLong(long.to_owned())));
        }
    }
}
