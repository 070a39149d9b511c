//! Paths and queries, percent-encoded so that any text is one component of a URL.

use std::fmt::Write;

/// Builds `path?key=value&…`.
pub struct Target {
    text: String,
    has_query: bool,
}

impl Target {
    /// A path below the interface's prefix.
    pub fn new(path: &str) -> Target {
        Target {
            text: format!("{}{path}", crate::PREFIX),
            has_query: false,
        }
    }

    /// Appends `/word`.
    pub fn word(mut self, word: &str) -> Target {
        self.text.push('/');
        encode(word, &mut self.text);
        self
    }

    /// Appends a pair to the query.
    pub fn pair(mut self, key: &str, value: impl ToString) -> Target {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(key);
        self.text.push('=');
        encode(&value.to_string(), &mut self.text);
        self
    }

    /// The same where there is a value.
    pub fn maybe(self, key: &str, value: Option<impl ToString>) -> Target {
        match value {
            Some(value) => self.pair(key, value),
            None => self,
        }
    }

    /// Path and query.
    pub fn into_string(self) -> String {
        self.text
    }
}

fn encode(word: &str, out: &mut String) {
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:,".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_stays_one_word() {
        let target = Target::new("/jobs")
            .word("../a b?é")
            .pair("since", "2026-01-01T00:00:00+01:00")
            .maybe("w", None::<&str>);
        assert_eq!(
            target.into_string(),
            "/api/v1/jobs/..%2Fa%20b%3F%C3%A9?since=2026-01-01T00:00:00%2B01:00"
        );
    }
}
