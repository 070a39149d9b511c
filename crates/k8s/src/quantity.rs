//! Reads and writes Kubernetes quantities: `100m`, `0.5`, `64Mi`, `1e9`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use paddlecloud_core::quantity::Bytes;

/// An amount in its shortest form. Kubelets repeat it in messages that users read.
pub fn of_bytes(bytes: Bytes) -> Quantity {
    let text = bytes.to_string();
    // The API server spells powers of 1000 differently.
    Quantity(match text.ends_with('i') {
        true => text,
        false => bytes.as_u64().to_string(),
    })
}

/// Thousandths, rounded up; an invalid quantity counts as zero.
pub fn millis(quantity: &Quantity) -> u64 {
    value(&quantity.0).map_or(0, |value| (value * 1000.0).ceil() as u64)
}

/// Whole units, rounded up; an invalid quantity counts as zero.
pub fn units(quantity: &Quantity) -> u64 {
    value(&quantity.0).map_or(0, |value| value.ceil() as u64)
}

fn value(text: &str) -> Option<f64> {
    // `E` is both a suffix and an exponent, so try a plain number first.
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number.max(0.0));
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))?;
    let (number, suffix) = text.split_at(split);
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()?.max(0.0) * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_users_write_them() {
        for (text, expected) in [("300Mi", "300Mi"), ("2048Ki", "2Mi"), ("5K", "5000"), ("7", "7")] {
            let written = of_bytes(text.parse().unwrap());
            assert_eq!(written.0, expected, "{text}");
        }
    }

    #[test]
    fn every_spelling_of_the_api_server_is_understood() {
        for (text, expected) in [
            ("100m", 100),
            ("0.5", 500),
            ("2", 2000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1u", 1),
            ("nonsense", 0),
        ] {
            assert_eq!(millis(&Quantity(text.into())), expected, "{text}");
        }
        for (text, expected) in [
            ("64Mi", 64 << 20),
            ("1.5Gi", 3 << 29),
            ("128974848", 128_974_848),
            ("129e6", 129_000_000),
            ("129M", 129_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("", 0),
        ] {
            assert_eq!(units(&Quantity(text.into())), expected, "{text}");
        }
    }
}
