//! The direction between the modules of one crate: a module names only modules of its own row or of rows below.
//!
//! Only for the server and the crates of which it was made; what is between crates is in `crates`. Tests are exempt; they
//! construct whole servers.

use super::layering::{before_tests, is_test_path};
use super::rust_code::code_only;
use super::{Finding, SourceFile};

/// The crates whose modules have an order.
const ORDERED: &[(&str, Rows)] = &[
    ("crates/accounts/src/", ACCOUNTS),
    ("crates/files/src/", FILES),
    ("crates/server/src/", ROWS),
];

type Rows = &'static [&'static [&'static str]];

/// Files that declare the modules and belong to none.
const ENTRIES: &[&str] = &["lib.rs", "main.rs"];

/// The server's modules, from the program's start down to those that know none of the others.
const ROWS: Rows = &[
    &["run"],
    &["backup", "fuzzing", "init", "start"],
    &["http"],
    &["app"],
    &["engine"],
    &["logs"],
    &["reconcile"],
    &["config"],
    &["data_folder"],
    &["job_status", "metrics", "nearest", "programs", "ready"],
];

const FILES: Rows = &[
    &["files"],
    &["runs"],
    &["packages"],
    &["homes"],
    &["lane", "locks", "queue"],
];

const ACCOUNTS: Rows = &[
    &["accounts", "authority", "oidc", "secrets", "tls"],
    &["auth"],
    &["rates", "users"],
    &["certificate_request", "connections", "key_source", "refusals"],
];

pub fn check(file: &SourceFile) -> Vec<Finding> {
    let ordered = ORDERED
        .iter()
        .find_map(|(root, rows)| Some((file.path.strip_prefix(root)?, *rows)));
    let Some((inside, rows)) = ordered else {
        return Vec::new();
    };
    if !file.is_rust() || is_test_path(&file.path) || ENTRIES.contains(&inside) {
        return Vec::new();
    }
    let module = inside.split(['/', '.']).next().unwrap_or(inside);
    let Some(row) = row_of(rows, module) else {
        let advice = format!("the module `{module}` is new: give it a row in xtask's `server_modules.rs`");
        return vec![file.finding(0, "server-direction", advice)];
    };
    let code = code_only(&file.text);
    let code = before_tests(&code);
    let mut findings = Vec::new();
    for (line, named) in named_modules(code) {
        if row_of(rows, named).is_some_and(|other| other < row) {
            let advice =
                format!("`{module}` must not name `{named}`, which is above it: pass a value or a port");
            findings.push(file.finding(line, "server-direction", advice));
        }
    }
    findings
}

fn row_of(rows: Rows, module: &str) -> Option<usize> {
    rows.iter().position(|row| row.contains(&module))
}

/// The modules behind `crate::name` and `crate::{name, …}`, with their lines from 1.
fn named_modules(code: &str) -> Vec<(usize, &str)> {
    let mut named = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        if code[..at].ends_with(is_name_char) {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => named.extend(group_names(group).into_iter().map(|name| (line, name))),
            None => named.push((line, leading_name(rest))),
        }
    }
    named
}

/// The first names of a group's members: `a` and `b` of `a::{c, d}, b}`.
fn group_names(group: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(leading_name(group[start..at].trim_start()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(leading_name(group[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !is_name_char(c)).unwrap_or(text.len());
    &text[..end]
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let found = check(&file(path, text));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_use_of_a_higher_module_is_found_in_every_form() {
        let expected = |line| {
            format!(
                "crates/server/src/logs/a.rs:{line}: [server-direction] `logs` must not name `app`, which is above it: \
                 pass a value or a port"
            )
        };
        for (text, line) in [
            ("use crate::app::App;", 1),
            ("\nfn f() { crate::app::internal() }", 2),
            ("use crate::{reconcile::{self, Jobs}, app::App};", 1),
            ("pub(crate) use crate::app;", 1),
        ] {
            assert_eq!(
                findings("crates/server/src/logs/a.rs", text),
                [expected(line)],
                "{text}"
            );
        }
    }

    #[test]
    fn a_use_of_a_lower_or_the_same_module_is_allowed() {
        let text =
            "use crate::reconcile::Jobs;\nuse crate::logs::Logs;\nuse crate::VERSION;\n// crate::app\n";
        assert_eq!(findings("crates/server/src/logs/a.rs", text), [""; 0]);
        assert_eq!(
            findings("crates/server/src/init.rs", "use crate::start::Server;"),
            [""; 0]
        );
        assert_eq!(
            findings("crates/server/src/start.rs", "use crate::init::init;"),
            [""; 0]
        );
    }

    #[test]
    fn tests_and_other_crates_are_exempt() {
        let text = "#[cfg(test)]\nmod tests {\n    use crate::app::App;\n}\n";
        assert_eq!(findings("crates/server/src/logs/a.rs", text), [""; 0]);
        assert_eq!(
            findings("crates/server/src/logs/tests/a.rs", "use crate::app::App;"),
            [""; 0]
        );
        assert_eq!(
            findings("crates/cli/src/store/a.rs", "use crate::app::App;"),
            [""; 0]
        );
    }

    #[test]
    fn modules_keep_their_order_in_the_crates_below_the_server() {
        for (path, higher) in [
            ("files/src/homes/mod.rs", "runs"),
            ("files/src/queue.rs", "files"),
            ("accounts/src/users.rs", "auth"),
            ("accounts/src/auth/tokens.rs", "secrets"),
        ] {
            let found = findings(&format!("crates/{path}"), &format!("use crate::{higher}::Any;"));
            assert!(
                found[0].contains(&format!("must not name `{higher}`")),
                "{found:?}"
            );
        }
        assert_eq!(
            findings("crates/files/src/files/mod.rs", "use crate::homes::Storage;"),
            [""; 0]
        );
    }

    #[test]
    fn a_module_without_a_row_is_found() {
        for crate_name in ["server", "accounts", "files"] {
            let found = findings(&format!("crates/{crate_name}/src/novelty.rs"), "");
            assert!(found[0].contains("`novelty` is new"), "{found:?}");
        }
    }
}
