//! Rules about text in any file: no path of a developer's machine, no merge conflict, no unusual wording.

use super::rust_code::has_word;
use super::{Finding, SourceFile};

/// Written in two parts, so that this file does not match itself.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const OUTSIDE: &str = concat!("../", "shared");

/// It lists the wording that it refuses.
const THIS_FILE: &str = "xtask/src/tidy/words.rs";

/// The launcher's path inside our image, given by the original documents.
const IMAGE_LAUNCHER: &str = concat!("/ro", "ot/start.sh");

/// The only file that may refer to a folder beside the checkout.
const MAY_LOOK_OUTSIDE: &str = ".ci/run";

/// What git writes around two versions that it could not merge; split, so that this file does not match itself.
const CONFLICTS: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];

/// Wording that readers stumble over, and what to write instead.
const UNUSUAL: &[(&str, &str)] = &[
    ("anew", "again"),
    ("are told", "are notified, are reported"),
    ("cannot be had", "is unavailable, cannot be read"),
    ("goes on", "continues, resumes"),
    ("in vain", "without success"),
    ("is told", "is notified, is reported"),
    ("reckoned", "estimated, computed"),
    ("works no more", "no longer works"),
];

/// Files that are prose, or that contain comments and messages.
const WITH_PROSE: &[&str] = &[".md", ".py", ".rs", ".sh", ".toml", ".yaml", ".yml"];

pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for path in MACHINE_PATHS {
            if has_path(line, path) {
                let advice = format!("`{path}…` is one machine's path: take it from the environment");
                findings.push(file.finding(index + 1, "machine-path", advice));
            }
        }
        if line.contains(OUTSIDE) && file.path != MAY_LOOK_OUTSIDE {
            let advice = format!("`{OUTSIDE}` is not part of the repository: copy what is needed");
            findings.push(file.finding(index + 1, "outside", advice));
        }
        if CONFLICTS.iter().any(|mark| line.starts_with(mark)) {
            findings.push(file.finding(index + 1, "conflict", "resolve the merge conflict"));
        }
        if let Some((word, instead)) = unusual(file, line) {
            let advice = format!("instead of `{word}` write: {instead}");
            findings.push(file.finding(index + 1, "wording", advice));
        }
    }
    findings
}

fn unusual(file: &SourceFile, line: &str) -> Option<(&'static str, &'static str)> {
    let has_prose = WITH_PROSE.iter().any(|end| file.path.ends_with(end)) && file.path != THIS_FILE;
    let found = |(word, _): &&(&str, &str)| has_prose && has_word(line, word);
    UNUSUAL.iter().find(found).copied()
}

/// Whether an absolute path that begins with `start` is in the line.
fn has_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let continues_another = |c: char| c.is_alphanumeric() || "._-}$)/*".contains(c);
        let absolute = !line[..at].chars().next_back().is_some_and(continues_another);
        absolute && !line[at..].starts_with(IMAGE_LAUNCHER)
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        check(&file(path, text))
            .into_iter()
            .map(|finding| (finding.rule, finding.line))
            .collect()
    }

    #[test]
    fn a_machine_path_is_found() {
        let text = format!("a\nlet x = \"{}x\";\n", MACHINE_PATHS[0]);
        assert_eq!(rules("a.rs", &text), [("machine-path", 2)]);
        assert_eq!(
            rules("a.md", &format!("see {}x", MACHINE_PATHS[1])),
            [("machine-path", 1)]
        );
    }

    #[test]
    fn a_path_that_only_contains_it_is_fine() {
        assert!(rules("a.rs", &format!("$HOME{}x", MACHINE_PATHS[0])).is_empty());
        assert!(rules("a.md", IMAGE_LAUNCHER).is_empty());
    }

    #[test]
    fn a_merge_conflict_is_found() {
        let text = format!("a\n{}HEAD\nb\n=======\nc\n{}other\n", CONFLICTS[0], CONFLICTS[1]);
        assert_eq!(rules("a.md", &text), [("conflict", 2), ("conflict", 6)]);
    }

    #[test]
    fn unusual_wording_is_found_in_prose_and_comments_only() {
        assert_eq!(rules("a.md", "a\nit goes on\n"), [("wording", 2)]);
        assert_eq!(rules("a.rs", "// sent anew"), [("wording", 1)]);
        assert!(
            rules("a.rs", "fn begin_anew() {}").is_empty(),
            "part of a longer name"
        );
        assert!(
            rules("a.sql", "-- sent anew").is_empty(),
            "migrations do not change"
        );
    }

    #[test]
    fn only_ci_looks_outside() {
        assert_eq!(rules("README.md", OUTSIDE), [("outside", 1)]);
        assert!(rules(".ci/run", OUTSIDE).is_empty());
    }
}
