//! Rules about which part of the code may name what: SQL, Kubernetes, errors of the wire, stdout, the clock.

use super::rust_code::{code_only, lines_with_word};
use super::{Finding, SourceFile};

/// Words that only some files may use.
struct Reserved {
    rule: &'static str,
    words: &'static [&'static str],
    /// Where the rule applies; everywhere if empty.
    within: &'static [&'static str],
    /// Where the words belong.
    home: &'static [&'static str],
    /// Whether the rule applies to tests too.
    binds_tests: bool,
    advice: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        rule: "sql",
        words: &["sqlx"],
        within: &[],
        home: &["crates/store/"],
        binds_tests: true,
        advice: "only the crate `store` uses SQL: give it a method that says what you need",
    },
    Reserved {
        rule: "kubernetes",
        words: &["kube", "k8s_openapi"],
        within: &[],
        home: &["crates/k8s/"],
        binds_tests: true,
        advice: "only the crate `k8s` talks to Kubernetes: go through the `Engine` port",
    },
    Reserved {
        rule: "wire-errors",
        words: &["ErrorBody", "ErrorName", "paddlecloud_api::error"],
        within: &[
            "crates/server/src/",
            "crates/accounts/",
            "crates/files/",
            "crates/store/",
        ],
        home: &["crates/server/src/http/"],
        binds_tests: true,
        advice: "only `server::http` knows errors of the wire: return the error enum of the layer",
    },
    Reserved {
        rule: "stdout",
        words: &["println!", "print!", "stdout()"],
        within: &["crates/cli/src/"],
        home: &["crates/cli/src/printer.rs", "crates/cli/src/printer/"],
        binds_tests: false,
        advice: "only `cli::printer` writes to stdout, and only data: hand it what to print",
    },
    Reserved {
        rule: "clock",
        words: &["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now"],
        within: &["crates/core/src/", "crates/recordio/src/"],
        home: &[],
        binds_tests: false,
        advice: "a function that needs the time takes `now` as an argument",
    },
    Reserved {
        rule: "core-io",
        words: &[
            "std::fs",
            "std::process",
            "std::env",
            "TcpStream",
            "TcpListener",
            "UnixStream",
        ],
        within: &["crates/core/src/"],
        home: &[],
        binds_tests: false,
        advice: "`core` does no I/O: take the value, return what to do",
    },
];

pub fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let rules = RESERVED.iter().filter(|rule| rule.applies_to(&file.path));
    rules.flat_map(|rule| rule.findings(file, &code)).collect()
}

impl Reserved {
    fn applies_to(&self, path: &str) -> bool {
        let below = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
        let bound = self.binds_tests || !is_test_path(path);
        bound && (self.within.is_empty() || below(self.within)) && !below(self.home)
    }

    fn findings(&self, file: &SourceFile, code: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let code = if self.binds_tests {
            code
        } else {
            before_tests(code)
        };
        for word in self.words {
            for line in lines_with_word(code, word) {
                findings.push(file.finding(line, self.rule, format!("`{word}`: {}", self.advice)));
            }
        }
        findings
    }
}

pub(super) fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// The code above the file's own test module; tests come last in a file.
pub(super) fn before_tests(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod tests {").next().unwrap_or(code)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&file(path, text))
            .into_iter()
            .map(|finding| finding.rule)
            .collect()
    }

    #[test]
    fn sql_belongs_to_the_store() {
        let text = "use sqlx::AnyPool;";
        assert!(rules("crates/store/src/jobs.rs", text).is_empty());
        assert!(rules("crates/store/src/tests/jobs.rs", text).is_empty());
        for path in [
            "accounts/src/users.rs",
            "files/src/homes/mod.rs",
            "server/src/app/jobs.rs",
            "server/src/store.rs",
            "pfs/src/store/local.rs",
        ] {
            assert_eq!(rules(&format!("crates/{path}"), text), ["sql"], "{path}");
        }
        assert!(rules("crates/server/src/app/jobs.rs", "// sqlx is not here").is_empty());
    }

    #[test]
    fn kubernetes_belongs_to_its_crate() {
        assert_eq!(rules("crates/k8s/src/apply.rs", "use kube::Client;"), [""; 0]);
        assert_eq!(
            rules("crates/server/src/run.rs", "use kube::Client;"),
            ["kubernetes"]
        );
        assert_eq!(rules("crates/server/src/run.rs", "let kubeconfig = 1;"), [""; 0]);
    }

    #[test]
    fn errors_of_the_wire_belong_to_http() {
        for text in [
            "use paddlecloud_api::error::ErrorBody;",
            "use paddlecloud_api::{error::{ErrorName as Name}, Envelope};",
            "use paddlecloud_api::error;",
        ] {
            assert!(
                rules("crates/server/src/app/jobs.rs", text).contains(&"wire-errors"),
                "{text}"
            );
            assert_eq!(rules("crates/server/src/http/refusal/jobs.rs", text), [""; 0]);
            assert_eq!(rules("crates/server/tests/files/quota.rs", text), [""; 0]);
            assert_eq!(rules("crates/cli/src/commands/rm.rs", text), [""; 0]);
        }
        for path in [
            "crates/accounts/src/auth/tests.rs",
            "crates/files/src/homes/mod.rs",
            "crates/store/src/jobs.rs",
        ] {
            let found = rules(path, "use paddlecloud_api::error::ErrorName;");
            assert_eq!(found, ["wire-errors", "wire-errors"], "{path}");
        }
        let in_tests = "#[cfg(test)]\nmod tests {\n    use paddlecloud_api::error::ErrorName;\n}\n";
        assert!(!rules("crates/files/src/files/list.rs", in_tests).is_empty());
        assert_eq!(
            rules("crates/server/src/app/jobs.rs", "use super::AppError;"),
            [""; 0]
        );
    }

    #[test]
    fn the_client_prints_only_in_its_printer() {
        assert_eq!(
            rules("crates/cli/src/commands/logs.rs", "println!(\"x\")"),
            ["stdout"]
        );
        assert_eq!(
            rules("crates/cli/src/commands/logs.rs", "io::stdout().lock()"),
            ["stdout"]
        );
        assert!(rules("crates/cli/src/commands/logs.rs", "eprintln!(\"x\")").is_empty());
        assert!(rules("crates/cli/src/printer.rs", "println!(\"x\")").is_empty());
        assert!(rules("crates/server/src/run.rs", "println!(\"x\")").is_empty());
    }

    #[test]
    fn core_reads_no_clock_and_opens_no_file() {
        assert_eq!(
            rules("crates/core/src/job.rs", "let now = Timestamp::now();"),
            ["clock"]
        );
        assert_eq!(rules("crates/core/src/job.rs", "use std::fs::File;"), ["core-io"]);
        assert_eq!(
            rules("crates/server/src/run.rs", "let now = Timestamp::now();"),
            [""; 0]
        );
    }

    #[test]
    fn tests_of_core_may_read_the_environment() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::env;\n}\n";
        assert!(rules("crates/core/src/job.rs", text).is_empty());
        assert!(rules("crates/core/src/job/tests.rs", "use std::env;").is_empty());
        assert_eq!(rules("crates/server/tests/store.rs", "use sqlx::Any;"), ["sql"]);
    }
}
