//! Rules about single source files: header, length, unfinished code, sleeping tests.

use super::rust_code::{code_only, has_word, lines_with_word};
use super::{Finding, SourceFile};

const MOST_LINES: usize = 600;

pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(length(file));
    if file.is_rust() {
        let code = code_only(&file.text);
        findings.extend(header(file));
        findings.extend(unfinished(file, &code));
        findings.extend(sleeping_rust_test(file, &code));
    }
    if file.path.ends_with(".py") {
        findings.extend(sleeping_python_test(file));
    }
    findings
}

fn length(file: &SourceFile) -> Option<Finding> {
    let is_code = [".rs", ".py", ".sh", ".ts", ".tsx"]
        .iter()
        .any(|end| file.path.ends_with(end));
    let lines = file.text.lines().count();
    (is_code && lines > MOST_LINES).then(|| {
        file.finding(
            0,
            "length",
            format!("{lines} lines, at most {MOST_LINES}: split it by what it does"),
        )
    })
}

fn header(file: &SourceFile) -> Option<Finding> {
    let first = file
        .text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("");
    let says_something = first
        .strip_prefix("//!")
        .is_some_and(|rest| !rest.trim().is_empty());
    (!says_something).then(|| {
        file.finding(
            1,
            "header",
            "begin the file with `//!` and one sentence on its job",
        )
    })
}

fn unfinished(file: &SourceFile, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for word in ["todo!", "unimplemented!"] {
        for line in lines_with_word(code, word) {
            findings.push(file.finding(
                line,
                "unfinished",
                format!("`{word}` must not be committed: write the code"),
            ));
        }
    }
    findings
}

/// A pause is allowed only in a function that waits for a condition with a limit, and says so in its name.
fn sleeping_rust_test(file: &SourceFile, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_test = is_test_path(&file.path);
    let mut function = "";
    for (index, line) in code.lines().enumerate() {
        in_test |= line.trim_start().starts_with("#[cfg(test)]");
        function = function_name(line).unwrap_or(function);
        let sleeps = ["thread::sleep", "time::sleep"]
            .iter()
            .any(|call| has_word(line, call));
        if in_test && sleeps && !is_waiting(function) {
            findings.push(sleep_finding(file, index + 1));
        }
    }
    findings
}

fn sleeping_python_test(file: &SourceFile) -> Vec<Finding> {
    let is_test = is_test_path(&file.path) || file_name(&file.path).starts_with("test_");
    if !is_test {
        return Vec::new();
    }
    let sleeps = |line: &str| has_word(line, "time.sleep(");
    let lines = file.text.lines().enumerate().filter(|(_, line)| sleeps(line));
    lines.map(|(index, _)| sleep_finding(file, index + 1)).collect()
}

fn sleep_finding(file: &SourceFile, line: usize) -> Finding {
    let advice =
        "a test must not sleep: wait for the condition itself, in a function `wait_until…` with a limit";
    file.finding(line, "sleeping-test", advice)
}

fn is_test_path(path: &str) -> bool {
    path.starts_with("e2e/") || path.split('/').rev().skip(1).any(|folder| folder == "tests")
}

fn is_waiting(function: &str) -> bool {
    function.starts_with("wait_until") || function.starts_with("wait_for")
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let starts_word = before.is_empty() || before.ends_with(' ');
    let end = after
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(after.len());
    (starts_word && end > 0).then(|| &after[..end])
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
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
    fn a_file_with_a_header_is_fine() {
        assert!(rules("crates/a/src/b.rs", "//! Does b.\n\nfn b() {}\n").is_empty());
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(rules("crates/a/src/b.rs", "fn b() {}\n"), [("header", 1)]);
        assert_eq!(rules("crates/a/src/b.rs", "//!\nfn b() {}\n"), [("header", 1)]);
        assert_eq!(rules("crates/a/src/b.rs", "// b\n"), [("header", 1)]);
    }

    #[test]
    fn a_file_of_more_than_600_lines_is_found() {
        let text = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines - 1));
        assert!(rules("a.rs", &text(600)).is_empty());
        assert_eq!(rules("a.rs", &text(601)), [("length", 0)]);
        assert!(rules("a.json", &text(601)).is_empty());
    }

    #[test]
    fn unfinished_code_is_found_but_not_talk_about_it() {
        assert_eq!(rules("a.rs", "//! A.\nfn f() { todo!() }"), [("unfinished", 2)]);
        assert_eq!(
            rules("a.rs", "//! A.\nfn f() { unimplemented!(\"x\") }"),
            [("unfinished", 2)]
        );
        assert_eq!(
            rules("a.rs", "//! A.\n// no todo!() here\nconst X: &str = \"todo!\";"),
            []
        );
    }

    #[test]
    fn a_sleep_in_a_test_is_found() {
        let body = "//! A.\nfn f() { std::thread::sleep(D) }";
        assert_eq!(rules("crates/a/tests/t.rs", body), [("sleeping-test", 2)]);
        assert_eq!(rules("e2e/src/lib.rs", body), [("sleeping-test", 2)]);
        assert!(rules("crates/a/src/lib.rs", body).is_empty());
    }

    #[test]
    fn a_sleep_in_a_test_module_is_found() {
        let text = "//! A.\nfn f() {}\n#[cfg(test)]\nmod tests {\nfn t() { tokio::time::sleep(D).await }\n}";
        assert_eq!(rules("crates/a/src/lib.rs", text), [("sleeping-test", 5)]);
    }

    #[test]
    fn waiting_for_a_condition_may_pause() {
        let text = "//! A.\nfn wait_until(c: C) {\n  while !c() { thread::sleep(D) }\n}";
        assert!(rules("e2e/src/wait.rs", text).is_empty());
    }

    #[test]
    fn a_python_test_must_not_sleep_either() {
        assert_eq!(
            rules("examples/tests/test_a.py", "import time\ntime.sleep(1)\n"),
            [("sleeping-test", 2)]
        );
        assert!(rules("examples/a/train.py", "time.sleep(1)\n").is_empty());
    }
}
