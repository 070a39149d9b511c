//! The client runs on Linux, macOS and Windows: code that is specific to one system must be marked.
//!
//! The mark is a file named after the system, or a `#[cfg(…)]` line on the item or a block around it. Tests run on
//! Linux and are exempt.

use super::rust_code::{code_only, has_word};
use super::{Finding, SourceFile};

/// The crates of `paddlectl` on every system.
const CLIENT: &[&str] = &[
    "crates/api/src/",
    "crates/cli/src/",
    "crates/connect/src/",
    "crates/core/src/",
    "crates/dataprep/src/",
    "crates/paddlecloud/src/",
    "crates/pfs/src/",
    "crates/recordio/src/",
    "crates/transfer/src/",
];

/// Modules that are declared for one system as a whole, under other names.
const DECLARED: &[&str] = &[
    "crates/connect/src/embedded.rs",
    "crates/connect/src/embedded/",
    "crates/connect/src/holder.rs",
    "crates/pfs/src/durable.rs",
    "crates/pfs/src/small_disk.rs",
    "crates/pfs/src/testing.rs",
];

/// Words that exist only on one system, or one family of them.
const WORDS: &[&str] = &[
    "std::os::unix",
    "std::os::fd",
    "std::os::linux",
    "std::os::windows",
    "rustix",
    "nix",
    "libc",
    "windows_sys",
    "UnixStream",
    "UnixListener",
    "signal::unix",
];

const NAMES: &[&str] = &["linux", "macos", "unix", "windows"];

pub fn check(file: &SourceFile) -> Vec<Finding> {
    let below = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    if !file.is_rust() || !below(CLIENT) || below(DECLARED) || is_marked_by_name(&file.path) {
        return Vec::new();
    }
    let code = code_only(&file.text);
    // Strings are blanked in `code`; a `cfg` needs them.
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let word = WORDS.iter().find(|word| has_word(line, word));
        if let Some(word) = word.filter(|_| !is_marked_by_cfg(&lines, index)) {
            let advice = format!(
                "`{word}` does not exist on every system: move it to a file `unix.rs`, `linux.rs` or `windows.rs`, \
                 or put `#[cfg(…)]` on it"
            );
            findings.push(file.finding(index + 1, "portable", advice));
        }
    }
    findings
}

fn is_marked_by_name(path: &str) -> bool {
    path.split('/').any(|part| {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        NAMES.contains(&stem) || stem == "tests"
    })
}

/// Whether the item on a line, or a block around it, has a `cfg` that names a system or tests.
fn is_marked_by_cfg(lines: &[&str], index: usize) -> bool {
    let mut level = indent(lines[index]);
    // Whether the lines just above can still be attributes of the current item, and whether they are its signature.
    let (mut is_own, mut in_signature) = (true, false);
    for line in lines[..index].iter().rev() {
        let text = line.trim_start();
        let is_opener = !text.is_empty() && indent(line) < level;
        if is_opener {
            level = indent(line);
            is_own = true;
        }
        if text.starts_with("//") || (in_signature && indent(line) > level) {
            continue;
        }
        if text.is_empty() || indent(line) > level {
            is_own = false;
        } else if !text.starts_with("#[") {
            is_own = is_opener || in_signature;
            in_signature = is_own && text.starts_with(')');
        } else if is_own && names_a_system(text) {
            return true;
        }
    }
    false
}

fn names_a_system(attribute: &str) -> bool {
    let system = ["unix", "windows", "target_os", "target_family", "test"];
    attribute.starts_with("#[cfg") && system.iter().any(|name| has_word(attribute, name))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&file(path, text))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    const CLI: &str = "crates/cli/src/world.rs";

    #[test]
    fn a_planted_line_is_found() {
        assert_eq!(lines(CLI, "use std::os::unix::fs::symlink;\n"), [1]);
        assert_eq!(lines(CLI, "fn f() {\n    let x = libc::getuid();\n}\n"), [2]);
        assert_eq!(
            lines("crates/pfs/src/root/mod.rs", "use rustix::fs::open;\n"),
            [1]
        );
    }

    #[test]
    fn words_in_text_other_crates_and_longer_names_are_ignored() {
        assert!(lines("crates/server/src/run.rs", "use rustix::fs::open;\n").is_empty());
        assert!(lines(CLI, "// libc\nlet x = \"libc\"; let phoenix = unix_nanos;\n").is_empty());
    }

    #[test]
    fn a_file_named_after_a_system_is_marked() {
        for path in [
            "crates/cli/src/silence/unix.rs",
            "crates/pfs/src/sys/windows/stat.rs",
        ] {
            assert!(lines(path, "use rustix::fs::open;\n").is_empty(), "{path}");
        }
        assert_eq!(lines("crates/pfs/src/unixoid.rs", "use rustix::fs::open;\n"), [1]);
    }

    #[test]
    fn a_cfg_line_marks_only_its_item() {
        let text = "#[cfg(unix)]\nfn f(\n    a: u8,\n) -> u8 {\n    let x = 1;\n    libc::getuid()\n}\n\nfn g() {\n    libc::getuid()\n}\n";
        assert_eq!(lines(CLI, text), [10]);
        let text = "#[cfg(unix)]\nuse libc::a;\nuse libc::b;\n";
        assert_eq!(lines(CLI, text), [3]);
        let text = "impl A {\n    #[cfg(target_os = \"linux\")]\n    // why\n    fn f() {\n        libc::a();\n    }\n\n    fn g() {\n        libc::b();\n    }\n}\n";
        assert_eq!(lines(CLI, text), [9]);
        let text = "    #[cfg(unix)]\n    if a {\n        b();\n    }\n    libc::c();\n";
        assert_eq!(lines(CLI, text), [5]);
        let text = "#[cfg(feature = \"x\")]\nuse libc::a;\n";
        assert_eq!(lines(CLI, text), [2]);
    }

    #[test]
    fn tests_may_use_what_their_system_has() {
        let text = "#[cfg(test)]\nmod tests {\n    use libc::a;\n}\n";
        assert!(lines(CLI, text).is_empty());
        assert!(lines("crates/pfs/src/root/tests.rs", "use libc::a;\n").is_empty());
    }
}
