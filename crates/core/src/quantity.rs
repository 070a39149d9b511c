//! Amounts of cpu and memory: as people write them (`2`, `500m`, `10Gi`, `1G`) and as messages show them (`23.5 GiB`).
//!
//! Binary suffixes are powers of 1024, decimal ones powers of 1000, as in Kubernetes. `Display` prints what `FromStr`
//! parses; messages use [`Bytes::readable`], [`readable_bytes`], [`readable_cores`] and [`counted`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(String);

/// Processor time in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cpu(u64);

/// Maximum cores of one worker; a larger number is a mistake, and sums cannot overflow.
const MAX_CORES: u64 = 1_000_000;

impl Cpu {
    pub const fn millis(millis: u64) -> Cpu {
        Cpu(millis)
    }

    pub const fn cores(cores: u64) -> Cpu {
        Cpu(cores * 1000)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole cores, rounded up, at least one: the size of a thread pool.
    pub fn threads(self) -> u64 {
        self.0.div_ceil(1000).max(1)
    }
}

impl FromStr for Cpu {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Cpu, QuantityError> {
        let wrong = || QuantityError(format!("`{text}` is not a number of cores: write `2` or `500m`"));
        let millis = match text.strip_suffix('m') {
            Some(digits) => parse_digits(digits).ok_or_else(wrong)?,
            None => parse_decimal_millis(text).ok_or_else(wrong)?,
        };
        if millis == 0 {
            return Err(QuantityError("a worker needs more than 0 cores".into()));
        }
        if millis > MAX_CORES * 1000 {
            return Err(QuantityError(format!("`{text}` is more than {MAX_CORES} cores")));
        }
        Ok(Cpu(millis))
    }
}

fn parse_digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// `2` → 2000, `0.5` → 500; more than three decimal places are refused rather than rounded.
fn parse_decimal_millis(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty() || part.len() > 3 {
        return None;
    }
    let places = 10u64.pow(3 - part.len() as u32);
    parse_digits(whole)?
        .checked_mul(1000)?
        .checked_add(parse_digits(part)? * places)
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            _ => write!(f, "{}m", self.0),
        }
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

impl Bytes {
    pub const fn new(bytes: u64) -> Bytes {
        Bytes(bytes)
    }

    pub const fn mib(mib: u64) -> Bytes {
        Bytes(mib << 20)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// See [`readable_bytes`].
    pub fn readable(self) -> String {
        readable_bytes(u128::from(self.0))
    }
}

/// `23.5 GiB`, `300 MiB`, `1 byte`: rounded down to one decimal.
pub fn readable_bytes(bytes: u128) -> String {
    const UNITS: [(&str, u32); 6] = [
        ("EiB", 60),
        ("PiB", 50),
        ("TiB", 40),
        ("GiB", 30),
        ("MiB", 20),
        ("KiB", 10),
    ];
    let Some((unit, bits)) = UNITS.iter().find(|(_, bits)| bytes >> bits > 0) else {
        return counted(bytes, "byte");
    };
    // Whole part and remainder separately: ten times a very large number would overflow.
    let (whole, rest) = (bytes >> bits, bytes & ((1 << bits) - 1));
    match (rest * 10) >> bits {
        0 => format!("{whole} {unit}"),
        tenth => format!("{whole}.{tenth} {unit}"),
    }
}

/// `2 cores`, `1 core`, `0.5 cores`, from thousandths of a core.
pub fn readable_cores(millis: u128) -> String {
    match millis {
        1000 => "1 core".to_owned(),
        _ => format!("{} cores", bare_cores(millis)),
    }
}

/// The number of [`readable_cores`] alone.
pub fn bare_cores(millis: u128) -> String {
    let (whole, rest) = (millis / 1000, millis % 1000);
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

/// `1 job`, `2 jobs`.
pub fn counted(count: u128, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Bytes, QuantityError> {
        let (digits, factor) = SUFFIXES
            .iter()
            .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
            .unwrap_or((text, 1));
        let number = parse_digits(digits).ok_or_else(|| {
            QuantityError(format!(
                "`{text}` is not an amount of memory: write a whole number and one of Ki Mi Gi Ti Pi Ei (or K M G T P E), for example `10Gi`"
            ))
        })?;
        let bytes = number
            .checked_mul(factor)
            .ok_or_else(|| QuantityError(format!("`{text}` is too much memory")))?;
        if bytes == 0 {
            return Err(QuantityError("a worker needs more than 0 bytes of memory".into()));
        }
        Ok(Bytes(bytes))
    }
}

impl fmt::Display for Bytes {
    /// The shortest exact form, so that parsing it again gives the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(_, factor): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*factor);
        let binary = SUFFIXES[..6].iter().rev().find(exact);
        let decimal = SUFFIXES[6..].iter().rev().find(exact);
        let shortest = [binary, decimal]
            .into_iter()
            .flatten()
            .max_by_key(|(_, factor)| *factor);
        match shortest {
            Some((suffix, factor)) => write!(f, "{}{suffix}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suffix_of_the_documents_is_read() {
        let bytes = |text: &str| text.parse::<Bytes>().unwrap().as_u64();
        assert_eq!(bytes("1Gi"), 1 << 30);
        assert_eq!(bytes("10Gi"), 10 << 30);
        assert_eq!(bytes("2Ki"), 2048);
        assert_eq!(bytes("1G"), 1_000_000_000);
        assert_eq!(bytes("5E"), 5_000_000_000_000_000_000);
        assert_eq!(bytes("123"), 123);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for bad in ["1X", "", "Gi", "-1Gi", "1.5Gi", "1 Gi", "99999Ei", "0", "０1"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
        assert!(
            "1X".parse::<Bytes>()
                .unwrap_err()
                .to_string()
                .contains("for example `10Gi`")
        );
        for bad in [
            "",
            "m",
            "-1",
            "0",
            "0m",
            "1.2345",
            "2x",
            "1e3",
            "99999999999",
            ".5",
        ] {
            assert!(bad.parse::<Cpu>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cpu_reads_whole_parts_and_thousandths() {
        let millis = |text: &str| text.parse::<Cpu>().unwrap().as_millis();
        assert_eq!(
            (millis("2"), millis("500m"), millis("0.5"), millis("1.25")),
            (2000, 500, 500, 1250)
        );
        assert_eq!(Cpu::millis(20).threads(), 1);
        assert_eq!(Cpu::millis(2500).threads(), 3);
    }

    #[test]
    fn messages_show_amounts_that_people_can_read() {
        let shown = [
            Bytes::new(24_684_100 << 10).readable(),
            Bytes::mib(1024).readable(),
            Bytes::mib(300).readable(),
            Bytes::new(1536).readable(),
            Bytes::new(1).readable(),
            Bytes::new(1023).readable(),
            Bytes::new(u64::MAX).readable(),
            readable_bytes(u128::MAX),
            readable_cores(1000),
            readable_cores(2500),
            readable_cores(20),
            counted(0, "job"),
            counted(1, "job"),
        ];
        let expected = [
            "23.5 GiB",
            "1 GiB",
            "300 MiB",
            "1.5 KiB",
            "1 byte",
            "1023 bytes",
            "15.9 EiB",
            "295147905179352825855.9 EiB",
            "1 core",
            "2.5 cores",
            "0.02 cores",
            "0 jobs",
            "1 job",
        ];
        assert_eq!(shown, expected);
    }

    proptest::proptest! {
        #[test]
        fn printed_amounts_read_back_the_same(bytes in 1u64.., millis in 1u64..1_000_000_000) {
            proptest::prop_assert_eq!(Bytes::new(bytes).to_string().parse::<Bytes>().unwrap(), Bytes::new(bytes));
            proptest::prop_assert_eq!(Cpu::millis(millis).to_string().parse::<Cpu>().unwrap(), Cpu::millis(millis));
        }
    }
}
