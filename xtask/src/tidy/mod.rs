//! `cargo xtask tidy`: checks the invariants of ARCHITECTURE.md, as far as a program can.
//!
//! Every rule is a function from text (a file, the list of files, `cargo metadata`) to findings, so each is tested on
//! small strings.

mod crates;
mod ignored;
mod layering;
mod layout;
mod links;
mod manifest;
mod portable;
mod reference;
mod rust_code;
mod server_modules;
mod sizes;
mod source;
mod words;

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{no_arguments, step};

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    /// From 1; 0 for the file as a whole.
    pub line: usize,
    pub rule: &'static str,
    /// What is wrong and what to do about it.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: ", self.path)?,
            line => write!(f, "{}:{line}: ", self.path)?,
        }
        write!(f, "[{}] {}", self.rule, self.advice)
    }
}

/// A file of the repository; paths are relative to the root and use `/`.
#[derive(Debug)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

impl SourceFile {
    pub fn finding(&self, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            rule,
            advice: advice.into(),
        }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    if args == ["--sizes"] {
        let files = read_texts(workspace, &tracked_paths(workspace)?)?;
        print!("{}\n{}", sizes::table(&files), sizes::file_service(&files));
        return Ok(());
    }
    no_arguments("tidy", args)?;
    check(workspace)?;
    eprintln!("tidy: no findings");
    Ok(())
}

/// An error that lists every finding.
pub fn check(workspace: &Workspace) -> Result<()> {
    let paths = tracked_paths(workspace)?;
    let files = read_texts(workspace, &paths)?;
    let metadata = step::capture(&mut workspace.cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    let metadata = serde_json::from_slice(&metadata).context("cargo metadata did not print JSON")?;

    let mut findings = layout::check(&paths);
    findings.extend(crates::check(&metadata)?);
    findings.extend(ignored::check(&files));
    findings.extend(links::unlisted(&files));
    for file in &files {
        findings.extend(source::check(file));
        findings.extend(layering::check(file));
        findings.extend(server_modules::check(file));
        findings.extend(manifest::check(file));
        findings.extend(portable::check(file));
        findings.extend(words::check(file));
        findings.extend(reference::check(file, |page| {
            fs::read_to_string(workspace.path(page)).ok()
        }));
        findings.extend(links::check(file, |target| workspace.path(target).exists()));
    }
    report(findings)
}

fn report(mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("one finding"),
        n => bail!("{n} findings"),
    }
}

/// Tracked files, and new ones that are not ignored.
pub fn tracked_paths(workspace: &Workspace) -> Result<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = step::capture(&mut workspace.program("git", &args))?;
    let listed = String::from_utf8(listed).context("a file name is not UTF-8")?;
    let mut paths: Vec<String> = listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    paths.retain(|path| workspace.path(path).is_file());
    Ok(paths)
}

/// The text files; a file that is not UTF-8 has no lines to check.
pub fn read_texts(workspace: &Workspace, paths: &[String]) -> Result<Vec<SourceFile>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = fs::read(workspace.path(path)).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile {
                path: path.clone(),
                text,
            });
        }
    }
    Ok(files)
}

#[cfg(test)]
pub fn file(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_rule_and_advice() {
        let finding = file("a.rs", "").finding(3, "header", "begin with `//!`");
        assert_eq!(finding.to_string(), "a.rs:3: [header] begin with `//!`");
    }

    #[test]
    fn a_finding_about_a_whole_file_has_no_line() {
        let finding = file("a.rs", "").finding(0, "length", "split it");
        assert_eq!(finding.to_string(), "a.rs: [length] split it");
    }

    #[test]
    fn any_finding_is_an_error() {
        assert!(report(Vec::new()).is_ok());
        assert!(report(vec![file("a.rs", "").finding(1, "header", "x")]).is_err());
    }
}
