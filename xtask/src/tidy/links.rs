//! Rules about documents: a link to a file of the repository must point to an existing file, and `docs/README.md` lists every page.

use super::{Finding, SourceFile};

/// `exists` answers for paths relative to the repository's root.
pub fn check(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for target in local_targets(line) {
            let path = joined(folder, target);
            if path.is_none_or(|path| !exists(&path)) {
                let advice = format!("the link to `{target}` is broken");
                findings.push(file.finding(index + 1, "link", advice));
            }
        }
    }
    findings
}

const LIST: &str = "docs/README.md";

/// Pages of the documentation that their list does not name.
pub fn unlisted(files: &[SourceFile]) -> Vec<Finding> {
    let Some(list) = files.iter().find(|file| file.path == LIST) else {
        return Vec::new();
    };
    let listed: Vec<String> = list
        .text
        .lines()
        .flat_map(local_targets)
        .filter_map(|target| joined("docs", target))
        .collect();
    let is_page = |file: &&SourceFile| file.path.starts_with("docs/") && file.path.ends_with(".md");
    let missing = files
        .iter()
        .filter(is_page)
        .filter(|page| page.path != LIST && !listed.contains(&page.path));
    missing
        .map(|page| page.finding(0, "unlisted-page", format!("add it to `{LIST}`")))
        .collect()
}

/// Targets of `[text](target)` that name files, without their `#section`.
fn local_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    files
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty())
}

/// `target` as seen from `folder`; `None` if it leaves the repository.
fn joined(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn lines(path: &str, text: &str, existing: &[&str]) -> Vec<usize> {
        let findings = check(&file(path, text), |path| existing.contains(&path));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_to_an_existing_file_is_fine() {
        assert!(lines("README.md", "see [a](docs/a.md#part)", &["docs/a.md"]).is_empty());
        assert!(lines("docs/guide/b.md", "see [a](../a.md)", &["docs/a.md"]).is_empty());
    }

    #[test]
    fn a_broken_link_is_found() {
        assert_eq!(lines("README.md", "x\n[a](docs/a.md) [b](b.md)", &["b.md"]), [2]);
        assert_eq!(lines("README.md", "[a](../a.md)", &[]), [1]);
    }

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        let list = |text| file(LIST, text);
        let page = || file("docs/guide/a.md", "# A\n");
        assert!(unlisted(&[list("- [a](guide/a.md)\n"), page()]).is_empty());
        let found = unlisted(&[list("nothing\n"), page()]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/guide/a.md");
    }

    #[test]
    fn links_to_the_web_and_within_the_page_are_not_followed() {
        assert!(lines("README.md", "[a](https://example.org/x) [b](#part)", &[]).is_empty());
    }
}
