//! The rule about ignored tests: their reason says what they need, and their names can be used as filters.

use super::{Finding, SourceFile};
use crate::needs::{self, Ignored};

const RULE: &str = "ignored-test";

pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rust: Vec<&SourceFile> = files.iter().filter(|file| file.is_rust()).collect();
    let functions: Vec<&str> = rust
        .iter()
        .flat_map(|file| needs::functions(&file.text))
        .collect();
    let mut findings = Vec::new();
    for file in rust {
        match needs::in_text(&file.path, &file.text) {
            Ok(tests) => findings.extend(tests.iter().filter_map(|test| name(file, test, &functions))),
            Err(bad) => {
                let advice = "write `#[ignore = \"needs …\"]` with words of `xtask/src/needs.rs`: a test that never runs \
                              proves nothing";
                findings.push(file.finding(bad.line, RULE, advice));
            }
        }
    }
    findings
}

fn name(file: &SourceFile, test: &Ignored, functions: &[&str]) -> Option<Finding> {
    let other = needs::ambiguous_name(test, functions)?;
    let advice = format!(
        "`{}` is part of `{other}`: rename one of them, because tests are left out by name",
        test.name
    );
    Some(file.finding(0, RULE, advice))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn found(text: &str) -> usize {
        check(&[file("a.rs", text)]).len()
    }

    #[test]
    fn a_reason_that_says_what_is_needed_is_fine() {
        assert_eq!(
            found("#[test]\n#[ignore = \"needs root and strace\"]\nfn f() {}\n"),
            0
        );
    }

    #[test]
    fn any_other_reason_is_found() {
        assert_eq!(found("#[test]\n#[ignore]\nfn f() {}\n"), 1);
        assert_eq!(found("#[test]\n#[ignore = \"slow\"]\nfn f() {}\n"), 1);
    }

    #[test]
    fn a_name_that_is_part_of_another_is_found_in_any_file() {
        let ignored = file("a.rs", "#[test]\n#[ignore = \"needs root\"]\nfn one_fact() {}\n");
        let other = file("b.rs", "#[test]\nfn one_fact_more() {}\n");
        assert_eq!(check(&[ignored, other]).len(), 1);
    }
}
