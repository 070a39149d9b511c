//! Checks the Helm chart with Helm itself: it renders, and the committed plain manifests are its output.
//!
//! Helm comes from the Go module registry, or is the one in `PATH`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{self, Steps};
use crate::workspace::{Workspace, is_installed};

const TITLE: &str = "helm chart";
const VERSION: &str = "v3.19.0";
const CHART: &str = "deploy/helm/paddlecloud";
const MANIFESTS: &str = "deploy/kubernetes/paddlecloud.yaml";
/// The node that plain manifests name, to be replaced by the administrator: the chart refuses to render without one.
const NODE: &str = "nodeSelector.kubernetes\\.io/hostname=NODE";
const RENDER: [&str; 7] = [
    "template",
    "paddlecloud",
    CHART,
    "-n",
    "paddlecloud",
    "--set",
    NODE,
];

/// Values that the committed manifests do not use; each must render.
const VARIANTS: [&[&str]; 7] = [
    &["--set", "storage.claim=files,storage.hostPath="],
    &["--set", "storage.nfs.server=files,storage.nfs.path=/export"],
    &["--set", "data.claim=data,nodeSelector=null"],
    &["--set", "admin=ada@example.org,users={bob},tlsSecret=tls"],
    &["--set", "kubernetes.placement=kueue,settings.logs.keep=1G"],
    &["--set", "settings.tls.names={cloud.example.org}"],
    &["--set", "kubernetes.namespaces.ada=team"],
];

/// Values that the chart refuses, and what it says then.
const REFUSALS: [(&str, &str); 6] = [
    (
        "nodeSelector=null",
        "set `nodeSelector` to that node, or `data.claim`",
    ),
    ("settings.listen=a", "`settings.listen` cannot be set"),
    (
        "tlsSecret=a,settings.tls.names={a}",
        "`settings.tls` cannot be set",
    ),
    ("admin=a,settings.users={}", "`settings.users` cannot be set"),
    ("kubernetes.link.address=a", "`kubernetes.link` cannot be set"),
    (
        "kubernetes.namespace_role=a",
        "`kubernetes.namespace_role` cannot be set",
    ),
];

pub fn check(workspace: &Workspace, steps: &mut Steps) {
    match helm(workspace) {
        None => steps.skip(TITLE, "helm is not installed, and neither is Go, which could build it"),
        Some(helm) => steps.run(
            TITLE,
            "run `helm template paddlecloud deploy/helm/paddlecloud -n paddlecloud --set 'nodeSelector.kubernetes\\.io/hostname=NODE' \
             > deploy/kubernetes/paddlecloud.yaml`",
            || compare(workspace, &helm),
        ),
    }
}

fn compare(workspace: &Workspace, helm: &str) -> Result<()> {
    step::run(&mut workspace.program(helm, &["lint", "--strict", "--quiet", CHART, "--set", NODE]))?;
    for values in VARIANTS {
        step::capture(workspace.program(helm, &RENDER).args(values))?;
    }
    for (values, words) in REFUSALS {
        check_refusal(workspace.program(helm, &RENDER).args(["--set", values]), words)?;
    }
    check_administrator(workspace, helm)?;
    let rendered = step::capture(&mut workspace.program(helm, &RENDER))?;
    let committed =
        fs::read(workspace.path(MANIFESTS)).with_context(|| format!("cannot read {MANIFESTS}"))?;
    if rendered != committed {
        bail!("{MANIFESTS} is not what the chart renders");
    }
    Ok(())
}

fn check_refusal(helm: &mut Command, words: &str) -> Result<()> {
    let output = helm.output().context("cannot run helm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !said.contains(words) {
        bail!("the chart must refuse this and say \"{words}\": {helm:?}: {said}");
    }
    Ok(())
}

/// The chart makes no password where the administrator names a Secret.
fn check_administrator(workspace: &Workspace, helm: &str) -> Result<()> {
    for (values, secret, made) in [
        ("admin=ada", "paddlecloud-admin", true),
        ("admin=ada,adminSecret=own", "own", false),
    ] {
        let rendered = step::capture(workspace.program(helm, &RENDER).args(["--set", values]))?;
        let rendered = String::from_utf8(rendered)?;
        let is_used = rendered.contains(&format!("secret: {{secretName: {secret}, defaultMode: 0440}}"));
        if !is_used || rendered.contains("kind: Secret\n") != made {
            bail!("the password of the administrator is not in `{secret}` with {values}");
        }
    }
    Ok(())
}

/// The program: the one that was built in the background, one of this machine, or a new one.
pub fn helm(workspace: &Workspace) -> Option<String> {
    if !built(workspace).is_file() && !is_installed("helm") {
        installation(workspace).and_then(|mut install| step::run(&mut install).ok());
    }
    let built = built(workspace);
    match built.is_file() {
        true => Some(built.to_string_lossy().into_owned()),
        false => is_installed("helm").then(|| "helm".to_owned()),
    }
}

fn built(workspace: &Workspace) -> PathBuf {
    workspace.target().join("tools/bin/helm")
}

/// The command that builds Helm, unless that is done or cannot be done.
pub fn installation(workspace: &Workspace) -> Option<Command> {
    if built(workspace).is_file() || is_installed("helm") || !is_installed("go") {
        return None;
    }
    let mut install = Command::new("go");
    install
        .args(["install", &format!("helm.sh/helm/v3/cmd/helm@{VERSION}")])
        .env("GOBIN", workspace.target().join("tools/bin"));
    Some(install)
}
