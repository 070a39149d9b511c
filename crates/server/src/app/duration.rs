//! Durations as people write them: `90s`, `10m`, `1h30m`, `2d`, or a number of seconds.

use jiff::SignedDuration;

/// Reads a duration. Units may follow each other from the largest to the smallest, each once.
pub fn parse(text: &str) -> Option<SignedDuration> {
    if let Some(seconds) = number(text) {
        return Some(SignedDuration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total: i64 = 0;
    let mut smallest = i64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let count = number(&rest[..digits])?;
        let unit = match rest.as_bytes().get(digits)? {
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        if unit >= smallest {
            return None;
        }
        smallest = unit;
        total = total.checked_add(count.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    (smallest != i64::MAX).then(|| SignedDuration::from_secs(total))
}

/// The shortest form that reads back the same.
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

fn number(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A thousand years is more than anybody means, and sums of it cannot overflow a time.
    plain
        .then(|| text.parse().ok())
        .flatten()
        .filter(|number| *number <= 31_536_000_000)
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
        ] {
            let duration = parse(text).unwrap();
            assert_eq!(
                (duration.as_secs(), print(duration).as_str()),
                (seconds, printed),
                "{text}"
            );
            assert_eq!(parse(printed), Some(duration));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "m",
            "1x",
            "1m1h",
            "1m1m",
            "-5",
            "1.5h",
            "10 m",
            "99999999999999999999d",
            "5m3",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
