//! Rules about the crate graph, read from `cargo metadata`: which crate may depend on which, and what must never
//! reach a crate.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

/// The crates of ours that each crate may depend on, the program first, the leaves last.
const MAY_SEE: &[(&str, &[&str])] = &[
    (
        "paddlecloud",
        &[
            "paddlecloud-cli",
            "paddlecloud-runtime",
            "paddlecloud-server",
            "paddlecloud-supervisor",
        ],
    ),
    (
        "paddlecloud-cli",
        &[
            "paddlecloud-api",
            "paddlecloud-connect",
            "paddlecloud-core",
            "paddlecloud-dataprep",
            "paddlecloud-pfs",
            "paddlecloud-recordio",
            "paddlecloud-transfer",
        ],
    ),
    (
        "paddlecloud-server",
        &[
            "paddlecloud-accounts",
            "paddlecloud-api",
            "paddlecloud-backends",
            "paddlecloud-core",
            "paddlecloud-files",
            "paddlecloud-k8s",
            "paddlecloud-pfs",
            "paddlecloud-store",
            "paddlecloud-supervisor",
            // Only its tests: they use what users use.
            "paddlecloud-transfer",
            "paddlecloud-worker",
        ],
    ),
    (
        "paddlecloud-runtime",
        &[
            "paddlecloud-core",
            "paddlecloud-dataprep",
            "paddlecloud-pserver",
            "paddlecloud-supervisor",
            "paddlecloud-worker",
        ],
    ),
    (
        "paddlecloud-py",
        &[
            "paddlecloud-api",
            "paddlecloud-connect",
            "paddlecloud-core",
            "paddlecloud-pfs",
            "paddlecloud-pserver",
            "paddlecloud-recordio",
            "paddlecloud-transfer",
        ],
    ),
    (
        "paddlecloud-files",
        &[
            "paddlecloud-accounts",
            "paddlecloud-api",
            "paddlecloud-backends",
            "paddlecloud-core",
            "paddlecloud-pfs",
            "paddlecloud-store",
            "paddlecloud-supervisor",
            "paddlecloud-worker",
        ],
    ),
    (
        "paddlecloud-accounts",
        &[
            "paddlecloud-api",
            "paddlecloud-core",
            "paddlecloud-pfs",
            "paddlecloud-store",
            "paddlecloud-supervisor",
            "paddlecloud-worker",
        ],
    ),
    ("paddlecloud-store", &["paddlecloud-core", "paddlecloud-pfs"]),
    ("paddlecloud-backends", &["paddlecloud-pfs"]),
    (
        "paddlecloud-k8s",
        &["paddlecloud-core", "paddlecloud-link", "paddlecloud-worker"],
    ),
    ("paddlecloud-link", &["paddlecloud-core", "paddlecloud-worker"]),
    (
        "paddlecloud-connect",
        &[
            "paddlecloud-api",
            "paddlecloud-core",
            "paddlecloud-pfs",
            "paddlecloud-transfer",
        ],
    ),
    ("paddlecloud-transfer", &["paddlecloud-api", "paddlecloud-pfs"]),
    ("paddlecloud-dataprep", &["paddlecloud-recordio"]),
    ("paddlecloud-api", &["paddlecloud-core", "paddlecloud-pfs"]),
    ("paddlecloud-supervisor", &["paddlecloud-worker"]),
    ("paddlecloud-worker", &["paddlecloud-core"]),
    ("paddlecloud-core", &[]),
    ("paddlecloud-pfs", &[]),
    ("paddlecloud-pserver", &[]),
    ("paddlecloud-recordio", &[]),
    ("e2e", &[]),
    ("xtask", &[]),
];

/// What must never reach some crates, directly or not.
struct KeptOut {
    rule: &'static str,
    of: &'static [&'static str],
    out: &'static [&'static str],
    /// What is true of these crates, and would not be any more.
    because: &'static str,
}

const KEPT_OUT: &[KeptOut] = &[
    KeptOut {
        rule: "purity",
        of: &["paddlecloud-core", "paddlecloud-recordio", "paddlecloud-worker"],
        out: &["tokio", "reqwest", "axum", "hyper", "kube", "sqlx", "sqlx-core"],
        because: "must not need a runtime or a client",
    },
    KeptOut {
        rule: "layers",
        of: &["paddlecloud-store", "paddlecloud-accounts", "paddlecloud-files"],
        out: &["axum", "axum-core", "kube", "kube-core"],
        because: "answers no requests and knows no engine",
    },
];

/// Crates that reach ours only through one of ours.
const ONLY_THROUGH: &[(&[&str], &str)] = &[(&["sqlx", "sqlx-core"], "paddlecloud-store")];

/// Crates that only one of ours may depend on.
const OWNED: &[(&str, &str)] = &[
    ("sqlx", "paddlecloud-store"),
    ("kube", "paddlecloud-k8s"),
    ("k8s-openapi", "paddlecloud-k8s"),
    ("hdfs-native", "paddlecloud-backends"),
    ("object_store", "paddlecloud-backends"),
];

pub fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let graph = Graph::read(metadata)?;
    let mut findings = graph.direction();
    findings.extend(graph.owned());
    findings.extend(graph.kept_out());
    findings.extend(graph.only_through());
    Ok(findings)
}

/// The parts of `cargo metadata` that the rules use.
struct Graph {
    members: Vec<Member>,
    names: BTreeMap<String, String>,
    /// Package id to the ids it is built with; dev-dependencies are left out.
    edges: BTreeMap<String, Vec<String>>,
}

struct Member {
    id: String,
    name: String,
    /// Relative to the workspace's root.
    manifest: String,
    /// Declared dependencies of every kind.
    dependencies: BTreeSet<String>,
}

impl Graph {
    fn read(metadata: &Value) -> Result<Self> {
        let root = text(metadata, "workspace_root")?;
        let member_ids: BTreeSet<&str> = list(metadata, "workspace_members")?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut graph = Self {
            members: Vec::new(),
            names: BTreeMap::new(),
            edges: BTreeMap::new(),
        };
        for package in list(metadata, "packages")? {
            let (id, name) = (text(package, "id")?, text(package, "name")?);
            graph.names.insert(id.to_owned(), name.to_owned());
            if member_ids.contains(id) {
                graph.members.push(Member::read(package, root)?);
            }
        }
        let resolve = metadata
            .get("resolve")
            .context("cargo metadata has no `resolve`")?;
        for node in list(resolve, "nodes")? {
            graph
                .edges
                .insert(text(node, "id")?.to_owned(), built_with(node)?);
        }
        Ok(graph)
    }

    fn direction(&self) -> Vec<Finding> {
        let ours: BTreeSet<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
        let mut findings = Vec::new();
        for member in &self.members {
            let Some((_, allowed)) = MAY_SEE.iter().find(|(name, _)| *name == member.name) else {
                let advice = format!(
                    "`{}` is new: list the crates it may depend on in xtask's `MAY_SEE`",
                    member.name
                );
                findings.push(member.finding("direction", advice));
                continue;
            };
            for seen in member
                .dependencies
                .iter()
                .filter(|name| ours.contains(name.as_str()))
            {
                if !allowed.contains(&seen.as_str()) {
                    let advice = format!(
                        "`{}` must not depend on `{seen}`: dependencies point one way",
                        member.name
                    );
                    findings.push(member.finding("direction", advice));
                }
            }
        }
        findings
    }

    fn owned(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for member in &self.members {
            for (owned, owner) in OWNED {
                if member.dependencies.contains(*owned) && member.name != *owner {
                    let advice = format!("only `{owner}` may depend on `{owned}`");
                    findings.push(member.finding("owner", advice));
                }
            }
        }
        findings
    }

    fn kept_out(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for limit in KEPT_OUT {
            let bound = |member: &&Member| limit.of.contains(&member.name.as_str());
            for member in self.members.iter().filter(bound) {
                for way in self.ways(&member.id, limit.out, None) {
                    let advice = format!(
                        "`{}` {} but pulls in {way}: drop that dependency",
                        member.name, limit.because
                    );
                    findings.push(member.finding(limit.rule, advice));
                }
            }
        }
        findings
    }

    fn only_through(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (crates, gate) in ONLY_THROUGH {
            for member in self.members.iter().filter(|member| member.name != *gate) {
                for way in self.ways(&member.id, crates, Some(gate)) {
                    let advice = format!("`{}` pulls in {way}, not through `{gate}`", member.name);
                    findings.push(member.finding("owner", advice));
                }
            }
        }
        findings
    }

    /// Every one of `wanted` that `start` is built with, each with one dependency path to it. Paths through `gate` do not count.
    fn ways(&self, start: &str, wanted: &[&str], gate: Option<&str>) -> Vec<String> {
        let mut ways = Vec::new();
        let mut seen = BTreeSet::from([start]);
        let mut open: Vec<(&str, String)> = vec![(start, String::new())];
        while let Some((id, way)) = open.pop() {
            for next in self.edges.get(id).into_iter().flatten() {
                if !seen.insert(next) {
                    continue;
                }
                let name = self.names.get(next).map_or("?", String::as_str);
                let way = if way.is_empty() {
                    format!("`{name}`")
                } else {
                    format!("{way} → `{name}`")
                };
                if wanted.contains(&name) {
                    ways.push(way);
                } else if gate != Some(name) {
                    open.push((next, way));
                }
            }
        }
        ways
    }
}

impl Member {
    fn read(package: &Value, root: &str) -> Result<Self> {
        let manifest = text(package, "manifest_path")?;
        let manifest = manifest
            .strip_prefix(root)
            .unwrap_or(manifest)
            .trim_start_matches('/');
        let mut dependencies = BTreeSet::new();
        for dependency in list(package, "dependencies")? {
            dependencies.insert(text(dependency, "name")?.to_owned());
        }
        Ok(Self {
            id: text(package, "id")?.to_owned(),
            name: text(package, "name")?.to_owned(),
            manifest: manifest.to_owned(),
            dependencies,
        })
    }

    fn finding(&self, rule: &'static str, advice: String) -> Finding {
        Finding {
            path: self.manifest.clone(),
            line: 0,
            rule,
            advice,
        }
    }
}

fn built_with(node: &Value) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for dependency in list(node, "deps")? {
        let only_for_tests = list(dependency, "dep_kinds")?
            .iter()
            .all(|kind| kind["kind"] == "dev");
        if !only_for_tests {
            ids.push(text(dependency, "pkg")?.to_owned());
        }
    }
    Ok(ids)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key]
        .as_str()
        .with_context(|| format!("cargo metadata lacks the text `{key}`"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key]
        .as_array()
        .with_context(|| format!("cargo metadata lacks the list `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Metadata in which every crate is built with the ones beside it; `dev:x` is a dev-dependency.
    fn metadata(crates: &[(&str, &[&str])], members: &[&str]) -> Value {
        let name = |dependency: &str| dependency.trim_start_matches("dev:").to_owned();
        let packages = crates.iter().map(|(id, needs)| {
            let dependencies: Vec<_> = needs.iter().map(|need| json!({"name": name(need)})).collect();
            let manifest = format!("/repo/crates/{id}/Cargo.toml");
            json!({"id": id, "name": id, "manifest_path": manifest, "dependencies": dependencies})
        });
        let nodes = crates.iter().map(|(id, needs)| {
            let deps = needs.iter().map(|need| {
                let kind = if need.starts_with("dev:") {
                    json!("dev")
                } else {
                    Value::Null
                };
                json!({"pkg": name(need), "dep_kinds": [{"kind": kind}]})
            });
            json!({"id": id, "deps": deps.collect::<Vec<_>>()})
        });
        json!({
            "workspace_root": "/repo",
            "workspace_members": members,
            "packages": packages.collect::<Vec<_>>(),
            "resolve": {"nodes": nodes.collect::<Vec<_>>()},
        })
    }

    fn advice(metadata: &Value) -> Vec<String> {
        check(metadata).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_on_a_lower_layer_is_allowed() {
        let crates: &[(&str, &[&str])] = &[
            ("paddlecloud-api", &["paddlecloud-core"]),
            ("paddlecloud-core", &["serde"]),
            ("serde", &[]),
        ];
        assert!(advice(&metadata(crates, &["paddlecloud-api", "paddlecloud-core"])).is_empty());
    }

    #[test]
    fn a_dependency_on_a_higher_layer_is_found_even_in_tests() {
        let crates: &[(&str, &[&str])] = &[
            ("paddlecloud-core", &["dev:paddlecloud-api"]),
            ("paddlecloud-api", &[]),
        ];
        let found = advice(&metadata(crates, &["paddlecloud-api", "paddlecloud-core"]));
        let expected = "crates/paddlecloud-core/Cargo.toml: [direction] `paddlecloud-core` must not depend on \
                        `paddlecloud-api`: dependencies point one way";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let found = advice(&metadata(&[("paddlecloud-new", &[])], &["paddlecloud-new"]));
        assert!(found[0].contains("MAY_SEE"), "{found:?}");
    }

    #[test]
    fn a_transitive_runtime_is_found_with_its_path() {
        let crates: &[(&str, &[&str])] = &[
            ("paddlecloud-recordio", &["a"]),
            ("a", &["tokio"]),
            ("tokio", &[]),
        ];
        let found = advice(&metadata(crates, &["paddlecloud-recordio"]));
        assert!(found[0].contains("pulls in `a` → `tokio`"), "{found:?}");
    }

    #[test]
    fn tests_of_the_domain_may_use_a_runtime() {
        let crates: &[(&str, &[&str])] = &[("paddlecloud-core", &["dev:tokio"]), ("tokio", &[])];
        assert!(advice(&metadata(crates, &["paddlecloud-core"])).is_empty());
    }

    #[test]
    fn only_the_store_depends_on_sql() {
        let crates: &[(&str, &[&str])] = &[("paddlecloud-cli", &["sqlx"]), ("sqlx", &[])];
        let found = advice(&metadata(crates, &["paddlecloud-cli"]));
        assert!(
            found[0].contains("only `paddlecloud-store` may depend on `sqlx`"),
            "{found:?}"
        );
    }
    #[test]
    fn the_web_framework_and_kubernetes_reach_no_crate_below_the_server() {
        for name in ["paddlecloud-store", "paddlecloud-accounts", "paddlecloud-files"] {
            for forbidden in ["axum", "kube"] {
                let crates: &[(&str, &[&str])] = &[(name, &["a"]), ("a", &[forbidden]), (forbidden, &[])];
                let found = advice(&metadata(crates, &[name]));
                let way = format!("pulls in `a` → `{forbidden}`");
                assert!(found.iter().any(|line| line.contains(&way)), "{found:?}");
                let dev = format!("dev:{forbidden}");
                let in_tests: &[(&str, &[&str])] = &[(name, &[&dev]), (forbidden, &[])];
                let found = advice(&metadata(in_tests, &[name]));
                assert!(!found.iter().any(|line| line.contains("pulls in")), "{found:?}");
            }
        }
    }

    #[test]
    fn sql_reaches_the_server_only_through_the_store() {
        let through: &[(&str, &[&str])] = &[
            ("paddlecloud-server", &["paddlecloud-store"]),
            ("paddlecloud-store", &["sqlx"]),
            ("sqlx", &["sqlx-core"]),
            ("sqlx-core", &[]),
        ];
        let members = ["paddlecloud-server", "paddlecloud-store"];
        assert_eq!(advice(&metadata(through, &members)), [""; 0]);
        let beside: &[(&str, &[&str])] = &[("paddlecloud-server", &["a"]), ("a", &["sqlx"]), ("sqlx", &[])];
        let found = advice(&metadata(beside, &members[..1]));
        assert!(
            found[0].contains("pulls in `a` → `sqlx`, not through `paddlecloud-store`"),
            "{found:?}"
        );
    }
}
