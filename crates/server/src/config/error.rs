//! Configuration errors: one sentence with the location, and a hint.

use std::path::Path;

/// A configuration error. The sentence begins with `file:line:` if the line is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ConfigError {
    problem: String,
    hint: Option<String>,
}

impl ConfigError {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        ConfigError {
            problem: problem.into(),
            hint: None,
        }
    }

    pub(super) fn in_file(path: &Path, problem: impl std::fmt::Display) -> Self {
        ConfigError::new(format!("{}: {problem}", path.display()))
    }

    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            std::io::ErrorKind::IsADirectory => "it is a folder, not a file".to_owned(),
            std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
            _ => error.to_string(),
        };
        ConfigError::new(format!("cannot read `{}`: {what}", path.display()))
    }

    /// Converts a YAML error to a sentence with its line.
    pub(super) fn yaml(path: &Path, error: &serde_saphyr::Error) -> Self {
        let error = error.without_snippet();
        let place = match error.location().map(|location| location.line()) {
            Some(line) if line > 0 => format!("{}:{line}", path.display()),
            _ => path.display().to_string(),
        };
        if let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = error {
            let refused = ConfigError::new(format!("{place}: there is no setting `{field}`"));
            return refused.with_hint(match crate::nearest::nearest(field, expected.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the settings here are {}", expected.join(", ")),
            });
        }
        ConfigError::new(format!("{place}: {}", plain_words(error)))
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// The parser's message without its position and its advice to programmers.
fn plain_words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::SerdeMissingField { field, .. } => format!("`{field}` is missing"),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => {
            format!("`{variant}` is not one of {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` is given twice"),
        Error::DuplicateMappingKey { key: None, .. } => "a setting is given twice".to_owned(),
        other => first_line(&other.to_string()).replace("expected sequence start", "a list is expected here"),
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let end = line.rfind(" at line ").or_else(|| line.rfind(" (line "));
    let line = &line[..end.unwrap_or(line.len())];
    let start = line.starts_with("line ").then(|| line.find(": ")).flatten();
    line[start.map_or(0, |at| at + 2)..].to_owned()
}
