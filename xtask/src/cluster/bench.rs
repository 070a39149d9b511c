//! `cargo xtask bench k8s`: the released programs on the cluster of the cluster tests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::{Cluster, SHELL_IMAGE, missing, variable};
use crate::image;
use crate::step;
use crate::workspace::Workspace;

/// Not the image of the tests: both may run at the same time.
const BENCH_IMAGE: &str = "paddlecloud.test/launcher:bench";

/// Builds the programs and the launcher's image, and runs the benchmark with these arguments.
pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    if let Some(why) = missing() {
        bail!(why);
    }
    let cluster = Cluster::find()?;
    let image = workspace.target().join("static/bench");
    let _ = fs::remove_dir_all(&image);
    fs::create_dir_all(&image)?;
    fs::copy(image::launcher(workspace, "release")?, image.join("paddle"))?;
    cluster.load(BENCH_IMAGE, &image)?;
    let release = ["build", "--locked", "--release", "-p"];
    step::run(workspace.cargo(&release).arg("paddlecloud"))?;
    step::run(
        workspace
            .cargo(&release)
            .args(["paddlecloud-k8s", "--example", "simulated"]),
    )?;
    let mut bench = workspace.cargo(&["run", "--locked", "--release", "-p", "e2e"]);
    bench
        .args(["--example", "bench_k8s", "--"])
        .args(args)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("PATH", &cluster.path)
        .env(
            "PADDLECLOUD_TEST_CLUSTER",
            variable("PADDLECLOUD_CLUSTER_ADDRESS")?,
        )
        .env("PADDLECLOUD_TEST_LAUNCHER_IMAGE", BENCH_IMAGE)
        .env("PADDLECLOUD_TEST_SHELL_IMAGE", SHELL_IMAGE);
    match kwok(workspace) {
        Ok((kwok, module)) => {
            bench
                .env("PADDLECLOUD_BENCH_KWOK", kwok)
                .env("PADDLECLOUD_BENCH_KWOK_MODULE", module);
        }
        Err(error) => eprintln!("`many` and `single` are skipped: kwok cannot be built: {error:#}"),
    }
    step::run(&mut bench)
}

/// kwok, which simulates nodes and their pods, built from its Go module; and the module's folder.
fn kwok(workspace: &Workspace) -> Result<(PathBuf, String)> {
    let program = workspace.target().join("kwok");
    let mut go = workspace.program("go", &["build", "-o"]);
    go.arg(&program)
        .arg("sigs.k8s.io/kwok/cmd/kwok")
        .current_dir(workspace.path("tools/kwok"));
    step::run(&mut go)?;
    let mut list = workspace.program("go", &["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]);
    let module = step::capture(list.current_dir(workspace.path("tools/kwok")))?;
    Ok((program, String::from_utf8(module)?.trim().to_owned()))
}
