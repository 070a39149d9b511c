//! Rules about text in any file: no path of a developer's machine is committed.

use super::{Finding, SourceFile};

/// Written in two parts, so that this file does not match itself.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const OUTSIDE: &str = concat!("../", "shared");

/// The launcher's path inside our image, given by the original documents.
const IMAGE_LAUNCHER: &str = concat!("/ro", "ot/start.sh");

/// The only file that may refer to a folder beside the checkout.
const MAY_LOOK_OUTSIDE: &str = ".ci/run";

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
            let advice = format!("`{OUTSIDE}` is not part of the repository: bring in what is needed");
            findings.push(file.finding(index + 1, "outside", advice));
        }
    }
    findings
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
    fn only_ci_looks_outside() {
        assert_eq!(rules("README.md", OUTSIDE), [("outside", 1)]);
        assert!(rules(".ci/run", OUTSIDE).is_empty());
    }
}
