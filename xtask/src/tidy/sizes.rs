//! `cargo xtask tidy --sizes`: the size of each crate, and of the file service, as Markdown tables.
//!
//! It only measures. Only Rust is counted; a line counts if it has more than a comment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::SourceFile;
use super::rust_code::{code_only, without_comments};

/// How many of a crate's largest functions are listed.
const LARGEST: usize = 3;

/// The code of the file service, by crate: paths or their prefixes. Remote stores (HDFS, S3) are not part of it.
const FILE_SERVICE: [(&str, &[&str]); 8] = [
    ("pfs", &["crates/pfs/"]),
    (
        "server",
        &[
            "crates/server/src/app/files",
            "crates/server/src/app/packages",
            "crates/server/src/app/taking.rs",
            "crates/server/src/http/alive.rs",
            "crates/server/src/http/files/",
            "crates/server/src/http/gather.rs",
            "crates/server/src/http/packages.rs",
            "crates/server/src/http/refusal/files.rs",
            "crates/server/src/http/silence.rs",
        ],
    ),
    (
        "api",
        &["crates/api/src/client/upload.rs", "crates/api/src/files"],
    ),
    ("transfer", &["crates/transfer/"]),
    (
        "cli",
        &[
            "crates/cli/src/commands/cat.rs",
            "crates/cli/src/commands/check.rs",
            "crates/cli/src/commands/cp.rs",
            "crates/cli/src/commands/du.rs",
            "crates/cli/src/commands/file.rs",
            "crates/cli/src/commands/fsck.rs",
            "crates/cli/src/commands/ls.rs",
            "crates/cli/src/commands/mkdir.rs",
            "crates/cli/src/commands/mv.rs",
            "crates/cli/src/commands/pfs.rs",
            "crates/cli/src/commands/publish.rs",
            "crates/cli/src/commands/rm.rs",
            "crates/cli/src/commands/stat.rs",
            "crates/cli/src/commands/sync.rs",
            "crates/cli/src/commands/uploads.rs",
            "crates/cli/src/transfer/",
        ],
    ),
    ("connect", &["crates/connect/src/package.rs"]),
    ("files", &["crates/files/"]),
    ("store", &["crates/store/src/file_index.rs"]),
];

/// The sizes of one crate.
#[derive(Debug, Default)]
struct Size {
    code: usize,
    tests: usize,
    public_items: usize,
    functions: Vec<Function>,
}

/// A function that is not test code.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    path: String,
    /// From 1.
    line: usize,
    /// Lines of code from the signature to the closing brace.
    lines: usize,
}

/// The table of all crates among `files`, with a row for their sum.
pub fn table(files: &[SourceFile]) -> String {
    let mut crates: BTreeMap<&str, Size> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some(name) = crate_of(&file.path) {
            crates.entry(name).or_default().add(file);
        }
    }
    let mut table = "| crate | code | tests | public items | largest functions (lines) |\n".to_owned();
    table.push_str("| --- | ---: | ---: | ---: | --- |\n");
    let mut sum = Size::default();
    for (name, size) in crates {
        row(&mut table, &format!("`{name}`"), &size);
        sum.code += size.code;
        sum.tests += size.tests;
        sum.public_items += size.public_items;
        sum.functions.extend(size.functions);
    }
    row(&mut table, "all", &sum);
    table
}

/// The table of the file service, with a row for the sum.
pub fn file_service(files: &[SourceFile]) -> String {
    let mut table = "| file service, in | code | tests |\n| --- | ---: | ---: |\n".to_owned();
    let mut sum = Size::default();
    let mut row = |name: &str, size: &Size| {
        writeln!(table, "| {name} | {} | {} |", size.code, size.tests)
            .expect("a string takes all that is written");
    };
    for (name, paths) in FILE_SERVICE {
        let mut size = Size::default();
        let is_part = |file: &&SourceFile| paths.iter().any(|path| file.path.starts_with(path));
        for file in files.iter().filter(|file| file.is_rust()).filter(is_part) {
            size.add(file);
        }
        row(&format!("`{name}`"), &size);
        sum.code += size.code;
        sum.tests += size.tests;
    }
    row("all", &sum);
    table
}

fn row(table: &mut String, name: &str, size: &Size) {
    let mut functions: Vec<&Function> = size.functions.iter().collect();
    functions.sort_by_key(|function| (usize::MAX - function.lines, &function.path, function.line));
    let largest: Vec<String> = functions
        .into_iter()
        .take(LARGEST)
        .map(|function| {
            let file = function
                .path
                .rsplit_once("src/")
                .map_or(function.path.as_str(), |(_, file)| file);
            format!("`{}` {} ({file})", function.name, function.lines)
        })
        .collect();
    writeln!(
        table,
        "| {name} | {} | {} | {} | {} |",
        size.code,
        size.tests,
        size.public_items,
        largest.join(", ")
    )
    .expect("a string takes all that is written");
}

/// `crates/core/src/job.rs` belongs to `core`, `xtask/src/main.rs` to `xtask`; a file of no crate to none.
fn crate_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match (parts.next()?, parts.next()?) {
        ("crates", name) => Some(name),
        (name @ ("e2e" | "xtask"), _) => Some(name),
        _ => None,
    }
}

/// Tests, shared test code, and programs that are not released.
fn is_test_path(path: &str) -> bool {
    let not_shipped = ["tests", "testing", "conformance", "benches", "examples", "fuzz"];
    path.split('/')
        .any(|part| not_shipped.contains(&part.strip_suffix(".rs").unwrap_or(part)))
}

impl Size {
    fn add(&mut self, file: &SourceFile) {
        let code = code_only(&file.text);
        let counted: Vec<bool> = without_comments(&file.text)
            .lines()
            .map(|line| !line.trim().is_empty())
            .collect();
        let in_test = if is_test_path(&file.path) {
            vec![true; counted.len()]
        } else {
            test_lines(&code)
        };
        for (line, text) in code.lines().enumerate() {
            match (counted[line], in_test[line]) {
                (false, _) => {}
                (true, true) => self.tests += 1,
                (true, false) => {
                    self.code += 1;
                    self.public_items += usize::from(is_public_item(text));
                }
            }
        }
        for (name, first, last) in functions(&code) {
            if !in_test[first] {
                self.functions.push(Function {
                    name: name.to_owned(),
                    path: file.path.clone(),
                    line: first + 1,
                    lines: counted[first..=last].iter().filter(|counted| **counted).count(),
                });
            }
        }
    }
}

/// For every line of `code`, whether it belongs to an item that only tests have.
fn test_lines(code: &str) -> Vec<bool> {
    let mut in_test = vec![false; code.lines().count()];
    for mark in ["#[cfg(test)]", "#[cfg(all(test,"] {
        for (start, _) in code.match_indices(mark) {
            let end = item_end(code, start + mark.len());
            in_test[line_of(code, start)..=line_of(code, end)].fill(true);
        }
    }
    in_test
}

/// Name, first and last line (from 0) of every function that has a body.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let begins_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &code[at + "fn ".len()..];
        let length = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let end = item_end(code, at);
        if begins_word && length > 0 && code[..=end].ends_with('}') {
            found.push((&rest[..length], line_of(code, at), line_of(code, end)));
        }
    }
    found
}

/// The end of the item that begins at `start`: its closing brace, or the semicolon of one without a body.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return start + at;
                }
            }
            ';' if depth == 0 => return start + at,
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count()
}

/// Whether a line declares something that other crates can name; fields and re-exports are not counted.
fn is_public_item(line: &str) -> bool {
    let Some(declared) = line.trim_start().strip_prefix("pub ") else {
        return false;
    };
    let kinds = [
        "fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "async", "unsafe",
    ];
    declared
        .split_whitespace()
        .next()
        .is_some_and(|word| kinds.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const SOURCE: &str = "\
//! Not counted.

/// Not counted either.
pub fn large(x: [u8; 2]) -> bool {
    // a comment
    let text = \"two
    lines\";

    x.is_empty()
}

pub(crate) struct Hidden;
pub struct Shown {
    pub field: u8,
}

#[cfg(test)]
use std::fs;

#[cfg(test)]
mod tests {
    #[test]
    fn much_longer_than_what_it_tests() {
        assert!(true);
        assert!(true);
        assert!(true);
        assert!(true);
    }
}
";

    fn size(path: &str) -> Size {
        let mut size = Size::default();
        size.add(&file(path, SOURCE));
        size
    }

    #[test]
    fn code_is_counted_separately_from_tests_and_comments() {
        let size = size("crates/core/src/a.rs");
        assert_eq!((size.code, size.tests, size.public_items), (9, 12, 2));
    }

    #[test]
    fn a_function_is_measured_in_lines_of_code() {
        let expected = Function {
            name: "large".to_owned(),
            path: "crates/core/src/a.rs".to_owned(),
            line: 4,
            lines: 5,
        };
        assert_eq!(size("crates/core/src/a.rs").functions, [expected]);
    }

    #[test]
    fn a_test_file_is_all_test() {
        for path in [
            "crates/core/tests/a.rs",
            "crates/core/src/testing.rs",
            "crates/pfs/src/store/conformance.rs",
        ] {
            let size = size(path);
            assert_eq!((size.code, size.tests, size.public_items), (0, 21, 0), "{path}");
            assert!(size.functions.is_empty());
        }
    }

    #[test]
    fn every_crate_has_a_row_and_all_of_them_one() {
        let files = [
            file("crates/core/src/a.rs", SOURCE),
            file("xtask/src/b.rs", "fn b() {}\n"),
            file("docs/c.rs", "fn c() {}\n"),
        ];
        let expected = "\
| crate | code | tests | public items | largest functions (lines) |
| --- | ---: | ---: | ---: | --- |
| `core` | 9 | 12 | 2 | `large` 5 (a.rs) |
| `xtask` | 1 | 0 | 0 | `b` 1 (b.rs) |
| all | 10 | 12 | 2 | `large` 5 (a.rs), `b` 1 (b.rs) |
";
        assert_eq!(table(&files), expected);
    }

    #[test]
    fn code_that_moves_files_is_counted_in_every_crate() {
        let files = [
            file("crates/pfs/src/a.rs", SOURCE),
            file("crates/server/src/http/files/b.rs", SOURCE),
            file("crates/server/src/http/jobs.rs", SOURCE),
        ];
        let table = file_service(&files);
        assert!(table.contains("| `pfs` | 9 | 12 |\n| `server` | 9 | 12 |\n| `api` | 0 | 0 |\n"));
        assert!(table.ends_with("| all | 18 | 24 |\n"));
    }
}
