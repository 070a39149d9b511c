//! Reads from the sources which tests are ignored and why: `cargo test` has no filter by reason.
//!
//! Nothing is lost by a mistake here. The run of all tests skips only names of this list, and a run of a list counts.

use std::path::Path;

use anyhow::{Result, bail};

use super::Need;
use crate::tidy::{read_texts, tracked_paths};
use crate::workspace::Workspace;

/// A test with `#[ignore = "needs …"]`.
#[derive(Debug)]
pub struct Ignored {
    /// Its file, relative to the root.
    pub path: String,
    /// Without its modules; part of no other function's name.
    pub name: String,
    pub needs: Vec<&'static Need>,
}

/// A reason that does not consist of known words, and its line.
#[derive(Debug, PartialEq, Eq)]
pub struct BadReason {
    pub line: usize,
    pub reason: String,
}

const ATTRIBUTE: &str = "#[ignore";

/// Those of all packages.
pub fn in_workspace(workspace: &Workspace) -> Result<Vec<Ignored>> {
    let mut paths = tracked_paths(workspace)?;
    paths.retain(|path| path.ends_with(".rs"));
    let mut found = Vec::new();
    for file in read_texts(workspace, &paths)? {
        match in_text(&file.path, &file.text) {
            Ok(tests) => found.extend(tests),
            Err(bad) => bail!(
                "{}:{}: `{}` is not a known reason",
                file.path,
                bad.line,
                bad.reason
            ),
        }
    }
    Ok(found)
}

/// Those of one file.
pub fn in_text(path: &str, text: &str) -> Result<Vec<Ignored>, BadReason> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if !line.trim_start().starts_with(ATTRIBUTE) {
            continue;
        }
        let bad = |line: &str| BadReason {
            line: index + 1,
            reason: line.trim().to_owned(),
        };
        let needs = needs_of(line).ok_or_else(|| bad(line))?;
        let name = lines.by_ref().find_map(|(_, line)| function(line));
        found.push(Ignored {
            path: path.to_owned(),
            name: name.ok_or_else(|| bad(line))?.to_owned(),
            needs,
        });
    }
    Ok(found)
}

/// `needs A`, `needs A and B`, `needs A, B and C`.
fn needs_of(line: &str) -> Option<Vec<&'static Need>> {
    let reason = line
        .trim()
        .strip_prefix("#[ignore = \"needs ")?
        .strip_suffix("\"]")?;
    let words = reason.split(" and ").flat_map(|part| part.split(", "));
    words.map(Need::named).collect()
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_word = before.is_empty() || before.ends_with(' ');
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_');
    is_word.then(|| &after[..end.unwrap_or(after.len())])
}

/// Another function whose name contains that of this test: a filter would also match it.
pub fn ambiguous_name<'a>(test: &Ignored, functions: &[&'a str]) -> Option<&'a str> {
    let contains = |name: &&&str| name.contains(&test.name);
    let mut matching = functions.iter().filter(contains);
    matching.next()?;
    matching.next().copied()
}

impl Ignored {
    pub fn has(&self, word: &str) -> bool {
        self.needs.iter().any(|need| need.word == word)
    }

    /// How cargo selects its program.
    pub fn program(&self) -> Vec<&str> {
        let Some((_, below)) = self
            .path
            .split_once("/tests/")
            .filter(|_| !self.path.contains("/src/"))
        else {
            return vec!["--lib"];
        };
        let first = below.split('/').next().unwrap_or(below);
        vec!["--test", first.strip_suffix(".rs").unwrap_or(first)]
    }

    /// Whether `cargo test` with these arguments may run it. A wrong `false` makes no test silent: the test is not
    /// skipped then.
    pub fn may_be_selected(&self, arguments: &[String]) -> bool {
        let mut packages = Vec::new();
        let mut words = Vec::new();
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            match argument {
                "-p" | "--package" => packages.extend(rest.next()),
                option if option.starts_with('-') => {}
                word => words.push(word),
            }
        }
        let path = Path::new(&self.path);
        let is_in = |package: &&str| {
            let folder = package.strip_prefix("paddlecloud-").unwrap_or(package);
            path.starts_with(folder) || path.starts_with(Path::new("crates").join(folder))
        };
        let full = format!("{}::{}", self.modules(), self.name);
        (packages.is_empty() || packages.iter().any(is_in))
            && (words.is_empty() || words.iter().any(|word| full.contains(word)))
    }

    /// The path as modules, as far as a path tells.
    fn modules(&self) -> String {
        let path = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let path = path.strip_suffix("/mod").unwrap_or(path);
        path.replace('/', "::")
    }
}

/// The functions that begin in a file.
pub fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<&'static str>> {
        Some(needs_of(line)?.into_iter().map(|need| need.word).collect())
    }

    #[test]
    fn a_reason_lists_known_words() {
        assert_eq!(words("#[ignore = \"needs root\"]").unwrap(), ["root"]);
        let three = "    #[ignore = \"needs root, buildah and busybox\"]";
        assert_eq!(words(three).unwrap(), ["root", "buildah", "busybox"]);
        for bad in ["#[ignore]", "#[ignore = \"slow\"]", "#[ignore = \"needs luck\"]"] {
            assert_eq!(words(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_function_below_a_reason_is_its_test() {
        let text =
            "#[test]\nfn a() {}\n\n#[tokio::test]\n#[ignore = \"needs root\"]\nasync fn b_is_so() {\n}\n";
        let found = in_text("crates/a/src/b.rs", text).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].name, found[0].needs[0].word), ("b_is_so", "root"));
        let bad = in_text("a.rs", "\n#[ignore = \"slow\"]\nfn a() {}\n").unwrap_err();
        assert_eq!((bad.line, &*bad.reason), (2, "#[ignore = \"slow\"]"));
        assert!(
            in_text("a.rs", "#[ignore = \"needs root\"]\n").is_err(),
            "it has no function"
        );
    }

    fn test_in(path: &str) -> Ignored {
        let text = "#[ignore = \"needs root\"]\nfn one_fact() {}\n";
        in_text(path, text).unwrap().remove(0)
    }

    #[test]
    fn a_path_names_the_program_of_a_test() {
        for (path, program) in [
            ("crates/server/src/store/tests/mod.rs", &["--lib"][..]),
            ("crates/server/tests/files/load.rs", &["--test", "files"]),
            ("crates/backends/tests/suite.rs", &["--test", "suite"]),
            ("e2e/tests/e2e/cluster/life.rs", &["--test", "e2e"]),
        ] {
            assert_eq!(test_in(path).program(), program, "{path}");
        }
    }

    #[test]
    fn arguments_for_other_packages_or_names_do_not_select_a_test() {
        let test = test_in("crates/server/tests/files/load.rs");
        for (selected, arguments) in [
            (true, "-p paddlecloud-server"),
            (true, "-p e2e -p paddlecloud-server files::load -- --nocapture"),
            (true, "one_fact"),
            (false, "-p paddlecloud-core"),
            (false, "-p paddlecloud-server accounts::"),
        ] {
            let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            assert_eq!(test.may_be_selected(&words), selected, "{arguments}");
        }
        let e2e = test_in("e2e/tests/e2e/attack/mod.rs");
        assert!(e2e.may_be_selected(&["-p".to_owned(), "e2e".to_owned(), "attack::one".to_owned()]));
    }

    #[test]
    fn a_name_that_is_part_of_another_is_found() {
        let test = test_in("a.rs");
        assert_eq!(ambiguous_name(&test, &["one_fact", "another"]), None);
        assert_eq!(
            ambiguous_name(&test, &["one_fact", "one_fact_more"]),
            Some("one_fact_more")
        );
    }
}
