//! Rule about the reference: every key, metric and variable in the code is documented on its page.
//!
//! Commands and routes are not checked here: `cargo xtask spec` writes their pages.

use super::{Finding, SourceFile};

/// What a source file adds to the reference, and the pages that must document it.
struct Documented {
    source: &'static str,
    what: &'static str,
    names: fn(&str) -> Vec<(usize, String)>,
    pages: &'static [&'static str],
}

const DOCUMENTED: &[Documented] = &[
    Documented {
        source: "crates/server/src/config/file.rs",
        what: "key",
        names: keys,
        pages: &["docs/reference/server-configuration.md"],
    },
    Documented {
        source: "crates/server/src/config/backend.rs",
        what: "key",
        names: keys,
        pages: &["docs/admin/storage.md"],
    },
    Documented {
        source: "crates/connect/src/config/file.rs",
        what: "key",
        names: keys,
        pages: &["docs/reference/client-configuration.md"],
    },
    Documented {
        source: "crates/server/src/metrics.rs",
        what: "metric",
        names: metrics,
        pages: &["docs/reference/metrics.md"],
    },
    Documented {
        source: "crates/core/src/plan.rs",
        what: "variable",
        names: variables,
        pages: &["docs/reference/environment.md"],
    },
];

/// `page` returns the text of a file of the repository.
pub fn check(file: &SourceFile, page: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for documented in DOCUMENTED.iter().filter(|entry| entry.source == file.path) {
        let text: String = documented.pages.iter().filter_map(|path| page(path)).collect();
        for (line, name) in (documented.names)(without_tests(&file.text)) {
            if !names_word(&text, &name) {
                let what = documented.what;
                let advice = format!(
                    "describe the {what} `{name}` in {}",
                    documented.pages.join(" or ")
                );
                findings.push(file.finding(line, "reference", advice));
            }
        }
    }
    findings
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// Fields of the structs that are parsed from a file.
fn keys(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_read = false;
    let mut renamed = None;
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("#[derive(") {
            is_read = line.contains("Deserialize");
        } else if line.contains("struct ") && line.ends_with('{') {
            inside = is_read;
        } else if line == "}" {
            (inside, is_read) = (false, false);
        } else if let Some((_, rest)) = line.split_once("rename = \"") {
            renamed = rest.split('"').next().map(str::to_owned);
        } else if let Some(field) = field_name(line).filter(|_| inside) {
            found.push((index + 1, renamed.take().unwrap_or_else(|| field.to_owned())));
        }
    }
    found
}

fn field_name(line: &str) -> Option<&str> {
    let name = line.split_once(": ")?.0;
    let name = name.rsplit(' ').next()?;
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

fn metrics(text: &str) -> Vec<(usize, String)> {
    quoted(text, |word| {
        word.starts_with("paddlecloud_") && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    })
}

fn variables(text: &str) -> Vec<(usize, String)> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    // Values such as TRAINER are not variables, but the page has them too.
    quoted(text, |word| word.len() > 2 && word.chars().all(is_part))
}

fn quoted(text: &str, is_name: impl Fn(&str) -> bool) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    let words = lines.flat_map(|(index, line)| {
        let parts = line.split('"').skip(1).step_by(2);
        parts.map(move |part| (index + 1, part.to_owned()))
    });
    words.filter(|(_, word)| is_name(word)).collect()
}

/// Whether `name` is in the text and not part of a longer name.
fn names_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn advice(path: &str, text: &str, page: &str) -> Vec<String> {
        check(&file(path, text), |_| Some(page.to_owned()))
            .into_iter()
            .map(|finding| finding.advice)
            .collect()
    }

    #[test]
    fn a_key_without_a_description_is_found() {
        let text = "#[derive(Debug, Deserialize)]\nstruct File {\n    listen: u8,\n    tls: u8,\n}\n\
                    #[derive(Debug)]\nstruct Other {\n    inner: u8,\n}\n";
        let path = "crates/server/src/config/file.rs";
        assert_eq!(
            advice(path, text, "| `listen` | … |"),
            ["describe the key `tls` in docs/reference/server-configuration.md"]
        );
        assert!(advice("crates/server/src/other.rs", text, "").is_empty());
    }

    #[test]
    fn a_renamed_key_goes_by_its_written_name() {
        let text = "#[derive(Deserialize)]\nstruct A {\n    #[serde(rename = \"current-datacenter\")]\n    current: u8,\n}\n";
        let path = "crates/connect/src/config/file.rs";
        assert!(advice(path, text, "`current-datacenter`").is_empty());
        assert_eq!(advice(path, text, "`current`").len(), 1);
    }

    #[test]
    fn a_longer_name_does_not_describe_a_shorter_one() {
        assert!(!names_word("`PADDLE_PORTS`", "PADDLE_PORT"));
        assert!(names_word("`PADDLE_PORTS`, `PADDLE_PORT`", "PADDLE_PORT"));
    }

    #[test]
    fn metrics_and_variables_are_read_from_the_code_and_not_from_its_tests() {
        let text = "set(\"JOB_NAME\");\n#[cfg(test)]\nset(\"MY_FLAG\");\n";
        assert_eq!(advice("crates/core/src/plan.rs", text, "").len(), 1);
        let text = "head(\"paddlecloud_info\", \"gauge\");";
        assert_eq!(advice("crates/server/src/metrics.rs", text, "").len(), 1);
    }
}
