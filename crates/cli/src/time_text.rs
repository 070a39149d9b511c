//! Times and durations as people read and write them.

use std::time::Duration;

use jiff::Timestamp;
use paddlecloud_core::duration::{self, DurationError};

/// RFC 3339 in UTC, whole seconds, as in the submit guide's tables.
pub fn rfc3339(time: Timestamp) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string()
}

/// In UTC, as short as possible: `11:59:50Z` today, `12-31 11:59Z` this year, else `2025-12-31`.
pub fn short_time(time: Timestamp, now: Timestamp) -> String {
    let (text, today) = (rfc3339(time), rfc3339(now));
    let same = |length: usize| text.get(..length) == today.get(..length);
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or(&text).to_owned();
    if same("2026-01-01".len()) {
        part(11, 20)
    } else if same("2026".len()) {
        format!("{} {}Z", part(5, 10), part(11, 16))
    } else {
        part(0, 10)
    }
}

/// With milliseconds, for log lines.
pub fn rfc3339_millis(unix_nanos: u64) -> String {
    match Timestamp::from_nanosecond(i128::from(unix_nanos)) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "-".to_owned(),
    }
}

/// `15s`, `3m`, `2h10m`, `4d`: the two largest parts at most.
pub fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) if minutes < 10 && !seconds.is_multiple_of(60) => {
            format!("{minutes}m{}s", seconds % 60)
        }
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, 0) => format!("{hours}h"),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, 0, _) => format!("{days}d"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

/// From `earlier` to `later`; zero if the clock went back.
pub fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

/// Parses `90s`, `10m`, `1h30m`, `7d`, or a number of seconds, by the same rules as the server.
pub fn parse_span(text: &str) -> Result<Duration, DurationError> {
    let span = duration::parse(text)?;
    Ok(span.unsigned_abs())
}

/// A duration before `now`, or a time in RFC 3339.
pub fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let span = parse_span(text).map_err(|_| {
        format!("`{text}` is neither a time span (`10m`) nor a time (`2026-01-31T09:00:00Z`)")
    })?;
    now.checked_sub(span)
        .map_err(|_| format!("`{text}` is too long ago"))
}

/// `512 bytes`, `3.4 MB`: for people, in powers of 1000.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" });
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        let seconds = |text: &str| parse_span(text).map(|span| span.as_secs());
        assert_eq!(seconds("90"), Ok(90));
        assert_eq!(seconds("1h30m"), Ok(5400));
        assert_eq!(seconds("7d"), Ok(604_800));
        for bad in [
            "",
            "m",
            "1x",
            "1h30",
            "-5s",
            "1.5h",
            "99999999999999999999d",
            "１s",
        ] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn since_takes_spans_and_times() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        assert_eq!(rfc3339(parse_since("2h", now).unwrap()), "2026-01-01T10:00:00Z");
        assert_eq!(
            rfc3339(parse_since("2026-01-01T01:00:00+01:00", now).unwrap()),
            "2026-01-01T00:00:00Z"
        );
        assert!(parse_since("yesterday", now).is_err());
    }

    #[test]
    fn times_are_as_short_as_the_day_permits() {
        let now: Timestamp = "2026-06-02T12:00:00Z".parse().unwrap();
        let shown = |time: &str| short_time(time.parse().unwrap(), now);
        assert_eq!(shown("2026-06-02T01:02:03.5Z"), "01:02:03Z");
        assert_eq!(shown("2026-06-01T23:59:59Z"), "06-01 23:59Z");
        assert_eq!(shown("2025-06-02T12:00:00Z"), "2025-06-02");
    }

    #[test]
    fn ages_and_sizes_stay_short() {
        let shown = |seconds| age(Duration::from_secs(seconds));
        assert_eq!(
            [
                shown(0),
                shown(15),
                shown(61),
                shown(600),
                shown(3600),
                shown(7800),
                shown(90_000),
                shown(864_000)
            ],
            ["0s", "15s", "1m1s", "10m", "1h", "2h10m", "1d1h", "10d"]
        );
        assert_eq!(
            [size(1), size(999), size(1000), size(999_999), size(34_400_000)],
            ["1 byte", "999 bytes", "1.0 kB", "1.0 MB", "34.4 MB"]
        );
    }
}
