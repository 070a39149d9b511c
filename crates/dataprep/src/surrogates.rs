//! Characters that JSON writes as two escapes: a lone half is not a character, so the text is refused.

/// Checks the escapes of a JSON text; whether the rest is JSON is checked elsewhere.
pub(crate) fn check(json: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while let Some(found) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        at += match half_at(json, at) {
            None => 2,
            Some(0xd800..0xdc00) if matches!(half_at(json, at + 6), Some(0xdc00..0xe000)) => 12,
            Some(0xd800..0xe000) => return Err(problem(json, at)),
            Some(_) => 6,
        };
        if at >= json.len() {
            break;
        }
    }
    Ok(())
}

fn problem(json: &[u8], at: usize) -> String {
    let escape = String::from_utf8_lossy(&json[at..at + 6]);
    format!(
        "has `{escape}` at column {}: half of a surrogate pair, without the other half",
        at + 1
    )
}

/// The code of the escape `\uXXXX` at this position, if there is one.
fn half_at(json: &[u8], at: usize) -> Option<u32> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |number, digit| {
        Some(number * 16 + char::from(*digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_make_a_character_and_one_makes_none() {
        for whole in [
            r#""\ud83d\ude00""#,
            r#""\\ud800""#,
            r#""\u00e9""#,
            r#""a\n""#,
            r#""\uD83D\uDE00\uD83D\uDE00""#,
            r"\",
            r"\u12",
        ] {
            assert_eq!(check(whole.as_bytes()), Ok(()), "{whole}");
        }
        for half in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\ud800\udc00""#,
            r#""\ud800x\udc00""#,
            r#""\\\ud800""#,
        ] {
            assert!(check(half.as_bytes()).is_err(), "{half}");
        }
        let words = check(br#"{"a":"\ud800"}"#).unwrap_err();
        assert!(words.starts_with(r"has `\ud800` at column 7:"), "{words}");
    }
}
