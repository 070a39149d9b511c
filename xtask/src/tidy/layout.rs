//! Rules about the paths and names of files.

use std::collections::BTreeMap;

use super::Finding;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "misc"];

/// The original documents name this module, so its users import it under that name.
const NAMED_BY_THE_DOCUMENTS: &[&str] = &["dataset/common.py", "dataset/common.pyi"];

pub fn check(paths: &[String]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = paths.iter().filter_map(|path| empty_name(path)).collect();
    findings.extend(design_numbers(paths));
    findings
}

fn empty_name(path: &str) -> Option<Finding> {
    if NAMED_BY_THE_DOCUMENTS.iter().any(|name| path.ends_with(name)) {
        return None;
    }
    let stem = |part: &str| part.split('.').next().unwrap_or(part).to_lowercase();
    let found = path
        .split('/')
        .find(|part| EMPTY_NAMES.contains(&stem(part).as_str()))?;
    let advice = format!("`{found}` says nothing: name it after its contents");
    Some(Finding {
        path: path.to_owned(),
        line: 0,
        rule: "name",
        advice,
    })
}

/// Design pages are `docs/design/NNNN-title.md`, each with its own number.
fn design_numbers(paths: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for path in paths {
        let Some(name) = path.strip_prefix("docs/design/") else {
            continue;
        };
        let advice = match design_number(name) {
            None => "design pages are named `NNNN-title.md`".to_owned(),
            Some(number) => match taken.insert(number, name) {
                None => continue,
                Some(first) => format!("the number {number} belongs to {first}: take the next free one"),
            },
        };
        findings.push(Finding {
            path: path.clone(),
            line: 0,
            rule: "design-number",
            advice,
        });
    }
    findings
}

fn design_number(name: &str) -> Option<&str> {
    let (number, title) = name.split_once('-')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && title.len() > 3 && title.ends_with(".md")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(paths: &[&str]) -> Vec<String> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        check(&paths)
            .into_iter()
            .map(|finding| format!("{} {}", finding.rule, finding.path))
            .collect()
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        assert_eq!(rules(&["crates/a/src/utils.rs"]), ["name crates/a/src/utils.rs"]);
        assert_eq!(
            rules(&["crates/a/tests/common/mod.rs"]),
            ["name crates/a/tests/common/mod.rs"]
        );
        assert!(rules(&["crates/a/src/commons.rs"]).is_empty());
    }

    #[test]
    fn the_module_of_the_documents_keeps_its_name() {
        assert!(rules(&["crates/py/python/paddle/v2/dataset/common.py"]).is_empty());
    }

    #[test]
    fn design_numbers_are_unique() {
        let found = rules(&[
            "docs/design/0001-a.md",
            "docs/design/0002-b.md",
            "docs/design/0002-c.md",
        ]);
        assert_eq!(found, ["design-number docs/design/0002-c.md"]);
    }

    #[test]
    fn a_decision_without_a_number_is_found() {
        assert_eq!(
            rules(&["docs/design/why.md"]),
            ["design-number docs/design/why.md"]
        );
    }
}
