//! Whether a 64-bit float represents a written number exactly.

/// With this many digits every float differs from every other; further digits can only be the float's own.
const TELLING_DIGITS: usize = 17;
/// No float has more digits than this when written completely.
const ALL_DIGITS: usize = 800;

/// Whether the nearest float of this JSON number, written with as many digits, is the same number.
pub(crate) fn is_kept_by_float(text: &str) -> bool {
    let Some(float) = text.parse::<f64>().ok().filter(|float| float.is_finite()) else {
        return false;
    };
    let Some(written) = Decimal::parse(text) else {
        return false;
    };
    let digits = match written.digits.len() {
        few @ ..=TELLING_DIGITS => few.max(1),
        _ => ALL_DIGITS,
    };
    Decimal::parse(&format!("{:.*e}", digits - 1, float)) == Some(written)
}

/// A number as its digits, without leading and trailing zeros, and the exponent of the first digit.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: String,
    power: i64,
    is_negative: bool,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i64 = exponent.parse().ok()?;
        let (unsigned, is_negative) = match number.strip_prefix('-') {
            Some(unsigned) => (unsigned, true),
            None => (number, false),
        };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0').to_owned();
        let leading = (all.len() - significant.len()) as i64;
        let power = match digits.is_empty() {
            true => 0,
            false => exponent.checked_add(whole.len() as i64 - leading)?,
        };
        Some(Self {
            digits,
            power,
            is_negative,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_or_not() {
        for kept in [
            "0.1",
            "-1.50",
            "0.0",
            "-0.0",
            "0e5",
            "1e308",
            "1.7976931348623157e308",
            "5e-324",
            "0.10000000000000001",
            "0.10000000000000002",
            "100000000000000000000000.0",
            "9.31322574615478515625E-10",
            "0.00012000000000000000000000000000",
            "1E+2",
        ] {
            assert!(is_kept_by_float(kept), "{kept}");
        }
        for changed in [
            "1e400",
            "-1e400",
            "1e-400",
            "0.1000000000000000055511151231257827",
            "9007199254740993.0",
            "0.12345678901234567890",
            "1e99999999999999999999",
        ] {
            assert!(!is_kept_by_float(changed), "{changed}");
        }
    }
}
