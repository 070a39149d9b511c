//! Rules about the members' Cargo.toml: versions and paths of dependencies are in the root manifest only.

use super::{Finding, SourceFile};

pub fn check(file: &SourceFile) -> Vec<Finding> {
    let is_member = file.path.ends_with("/Cargo.toml") && !has_own_workspace(&file.text);
    if is_member { versions(file) } else { Vec::new() }
}

/// A fuzz crate has its own workspace and cannot inherit.
fn has_own_workspace(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "[workspace]")
}

fn versions(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut section = String::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
        } else if let Some(name) = own_version(&section, line) {
            let advice =
                format!("write `{name}.workspace = true` and give the version in the root Cargo.toml");
            findings.push(file.finding(index + 1, "versions", advice));
        }
    }
    findings
}

/// The dependency whose version or path this line sets by itself.
fn own_version<'a>(section: &'a str, line: &'a str) -> Option<&'a str> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    if is_list_of_dependencies(section) {
        let inherits = key.ends_with(".workspace") || value.contains("workspace = true");
        return (!inherits && !key.contains('.')).then_some(key);
    }
    let (list, name) = section.rsplit_once('.')?;
    (is_list_of_dependencies(list) && ["version", "path", "git"].contains(&key)).then_some(name)
}

fn is_list_of_dependencies(section: &str) -> bool {
    let last = section.rsplit('.').next().unwrap_or(section);
    ["dependencies", "dev-dependencies", "build-dependencies"].contains(&last)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&file(path, text))
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn inherited_dependencies_are_fine() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nserde.workspace = true\n\
                    tokio = { workspace = true, optional = true }\n[features]\nx = [\"dep:tokio\"]\n";
        assert!(lines("crates/a/Cargo.toml", text).is_empty());
    }

    #[test]
    fn a_version_in_a_member_is_found() {
        let text = "[dependencies]\nserde = \"1\"\n[dev-dependencies]\ntokio = { version = \"1\" }\n";
        assert_eq!(lines("crates/a/Cargo.toml", text), [2, 4]);
    }

    #[test]
    fn a_version_below_a_target_or_a_table_is_found() {
        let text =
            "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n[dependencies.serde]\nversion = \"1\"\n";
        assert_eq!(lines("crates/a/Cargo.toml", text), [2, 4]);
    }

    #[test]
    fn the_root_manifest_holds_the_versions() {
        assert!(lines("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\n").is_empty());
    }

    #[test]
    fn a_crate_outside_the_workspace_keeps_its_own() {
        let text = "[workspace]\n[dependencies]\nlibfuzzer-sys = \"0.4\"\n";
        assert!(lines("crates/recordio/fuzz/Cargo.toml", text).is_empty());
    }
}
