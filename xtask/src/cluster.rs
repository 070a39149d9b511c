//! Tests on a real Kubernetes cluster: the launcher as a static program, its image, and the tests that use both.
//!
//! The cluster is that of `KUBECONFIG`, or one that `PADDLECLOUD_CLUSTER_UP --proxy` starts: a program that prints
//! `export` lines. `PADDLECLOUD_CLUSTER_IMAGE NAME:TAG FOLDER [--from NAME:TAG]` loads an image into it, `--debian NAME:TAG` one of
//! Debian. Pods reach this machine at `PADDLECLOUD_CLUSTER_ADDRESS`. `PADDLECLOUD_CLUSTER_NODE
//! add|del N` adds and removes a node; tests of nodes are skipped without it.

pub mod bench;

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::chart;
use crate::image;
use crate::needs::{self, NotRun};
use crate::services::IfMissing;
use crate::step::{self, Steps};
use crate::test::{build_programs, has_torch};
use crate::workspace::Workspace;

const LAUNCHER_IMAGE: &str = "paddlecloud.test/launcher:1";
/// An image with bash, our programs and a stand-in for the trainer.
const RUNTIME_IMAGE: &str = "paddlecloud.test/runtime:1";
/// The server as tests build it, which is not static.
const SERVER_IMAGE: &str = "paddlecloud.test/server:1";
/// The same server under another version, to upgrade to.
const NEXT_SERVER_IMAGE: &str = "paddlecloud.test/server:2";
/// An image with Python, numpy and our wheel.
const TRAINING_IMAGE: &str = "paddlecloud.test/training:1";
const DEBIAN_IMAGE: &str = "paddlecloud.test/debian:1";
/// PaddlePaddle, which a test adds, needs libgomp.
const DEBIAN_PACKAGES: &str = "python3,python3-numpy,libgomp1";
/// An image with PyTorch. It is large, so it is made only where the machine has that package too.
const TORCH_IMAGE: &str = "paddlecloud.test/torch:1";
const TORCH_PACKAGES: &str = "python3,python3-torch";
/// An image with a shell that always exists.
const SHELL_IMAGE: &str = "testbed.local/busybox:1";

const TITLE: &str = "cluster tests";
const FIX: &str = "run `cargo xtask test --with cluster`";

/// Adds the step, or says why it is skipped.
pub fn test(workspace: &Workspace, steps: &mut Steps, if_missing: IfMissing) {
    match (missing(), if_missing) {
        (None, _) => {
            steps.run("launcher", "see above", || launcher(workspace).map(drop));
            let mut not_run = NotRun::new();
            steps.run(TITLE, FIX, || run(workspace, &mut not_run));
            for (tests, how) in not_run {
                steps.skip(&tests, how);
            }
        }
        (Some(why), IfMissing::Skipped) => steps.skip(TITLE, why),
        (Some(why), IfMissing::Fails) => steps.run(TITLE, "give it a cluster", || bail!(why)),
    }
}

fn missing() -> Option<&'static str> {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set("KUBECONFIG") && !is_set("PADDLECLOUD_CLUSTER_UP") {
        return Some(
            "there is no cluster: set KUBECONFIG, PADDLECLOUD_CLUSTER_IMAGE and PADDLECLOUD_CLUSTER_ADDRESS",
        );
    }
    if !is_set("PADDLECLOUD_CLUSTER_IMAGE") || !is_set("PADDLECLOUD_CLUSTER_ADDRESS") {
        return Some("set PADDLECLOUD_CLUSTER_IMAGE and PADDLECLOUD_CLUSTER_ADDRESS too");
    }
    None
}

/// Builds `paddle` so that it runs in any image.
fn launcher(workspace: &Workspace) -> Result<PathBuf> {
    image::launcher(workspace, "dev")
}

fn run(workspace: &Workspace, not_run: &mut NotRun) -> Result<()> {
    let cluster = Cluster::find()?;
    let image = workspace.target().join("static/image");
    let _ = fs::remove_dir_all(&image);
    fs::create_dir_all(&image)?;
    fs::copy(launcher(workspace)?, image.join("paddle"))?;
    cluster.load(LAUNCHER_IMAGE, &image)?;
    let root = workspace.target().join("static/runtime");
    runtime_root(workspace, &image.join("paddle"), &root)?;
    let mut debian = Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?);
    cluster.image(debian.args(["--debian", "--packages", DEBIAN_PACKAGES, DEBIAN_IMAGE]))?;
    let mut load = Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?);
    cluster.image(load.arg(RUNTIME_IMAGE).arg(&root).args(["--from", DEBIAN_IMAGE]))?;
    build_programs(workspace)?;
    let root = workspace.target().join("static/server");
    server_root(workspace, &root)?;
    let mut load = Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?);
    load.arg(SERVER_IMAGE)
        .arg(&root)
        .args(["--from", DEBIAN_IMAGE, "--entrypoint"]);
    cluster.image(load.args([
        r#"["/usr/local/bin/paddlecloud-server"]"#,
        "--cmd",
        r#"["--config", "/etc/paddlecloud/server.yaml"]"#,
    ]))?;
    let root = workspace.target().join("static/next");
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("etc/paddlecloud-release"), "2\n")?;
    let mut load = Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?);
    cluster.image(
        load.arg(NEXT_SERVER_IMAGE)
            .arg(&root)
            .args(["--from", SERVER_IMAGE]),
    )?;
    let root = workspace.target().join("static/training");
    training_root(workspace, &root)?;
    let mut load = Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?);
    cluster.image(load.arg(TRAINING_IMAGE).arg(&root).args(["--from", DEBIAN_IMAGE]))?;
    let torch = has_torch();
    if torch {
        let mut debian = Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?);
        cluster.image(debian.args(["--debian", "--packages", TORCH_PACKAGES, TORCH_IMAGE]))?;
    }
    let address = variable("PADDLECLOUD_CLUSTER_ADDRESS")?;
    let helm = chart::helm(workspace);
    let path = Some(cluster.path.as_str());
    needs::run_kind(workspace, needs::CLUSTER, path, not_run, |command| {
        command
            .env("KUBECONFIG", &cluster.kubeconfig)
            .env("PATH", &cluster.path)
            .env("PADDLECLOUD_TEST_CLUSTER", &address)
            .env("PADDLECLOUD_TEST_LAUNCHER_IMAGE", LAUNCHER_IMAGE)
            .env("PADDLECLOUD_TEST_RUNTIME_IMAGE", RUNTIME_IMAGE)
            .env("PADDLECLOUD_TEST_SERVER_IMAGE", SERVER_IMAGE)
            .env("PADDLECLOUD_TEST_NEXT_SERVER_IMAGE", NEXT_SERVER_IMAGE)
            .env("PADDLECLOUD_TEST_TRAINING_IMAGE", TRAINING_IMAGE)
            .env("PADDLECLOUD_TEST_SHELL_IMAGE", SHELL_IMAGE);
        if torch {
            command.env("PADDLECLOUD_TEST_TORCH_IMAGE", TORCH_IMAGE);
        }
        if let Some(helm) = &helm {
            command.env("PADDLECLOUD_TEST_HELM", helm);
        }
    })
}

/// The contents of our image for workers, with a stand-in for the trainer, on any Debian.
fn runtime_root(workspace: &Workspace, program: &Path, root: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(root);
    let programs = root.join("usr/local/bin");
    fs::create_dir_all(&programs)?;
    fs::create_dir_all(root.join("root"))?;
    fs::copy(program, programs.join("paddle"))?;
    for name in ["paddle_k8s", "start_paddle", "start_paddle.py"] {
        symlink("paddle", programs.join(name))?;
    }
    fs::copy(workspace.path("e2e/stand_in_trainer.sh"), programs.join("python"))?;
    fs::copy(
        workspace.path("deploy/images/runtime/start.sh"),
        root.join("root/start.sh"),
    )?;
    Ok(())
}

/// The program that was just built, which fits a Debian of the same age.
fn server_root(workspace: &Workspace, root: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(root);
    let programs = root.join("usr/local/bin");
    fs::create_dir_all(&programs)?;
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(programs.join("paddlecloud"));
    step::run(strip.arg(workspace.built_program()))?;
    symlink("paddlecloud", programs.join("paddlecloud-server"))?;
    Ok(())
}

/// Our wheel, where Debian's Python finds it; its programs come from the launcher.
fn training_root(workspace: &Workspace, root: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(root);
    let (packages, programs) = (
        root.join("usr/lib/python3/dist-packages"),
        root.join("usr/local/bin"),
    );
    fs::create_dir_all(&packages)?;
    fs::create_dir_all(&programs)?;
    symlink("/usr/bin/python3", programs.join("python"))?;
    let python = workspace.target().join("py");
    fs::create_dir_all(&python)?;
    // The lock of `crates/py/tests/environment.sh`: other tests may build the wheel at the same time.
    let script = r#"wheel=$(crates/py/tests/build.sh) && python3 -m zipfile -e "$wheel" "$0""#;
    let mut unpack = workspace.program("flock", &[]);
    unpack.arg(python.join("lock")).args(["bash", "-c", script]);
    step::run(unpack.arg(&packages))
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}

struct Cluster {
    kubeconfig: String,
    path: String,
}

impl Cluster {
    fn find() -> Result<Cluster> {
        let up = env::var("PADDLECLOUD_CLUSTER_UP").unwrap_or_default();
        if up.is_empty() {
            return Ok(Cluster {
                kubeconfig: variable("KUBECONFIG")?,
                path: variable("PATH")?,
            });
        }
        let script = r#"exports=$("$0" --proxy) && eval "$exports" && printf '%s\n' "$KUBECONFIG" "$PATH""#;
        let printed = step::capture(Command::new("bash").args(["-c", script, &up]))?;
        let printed = String::from_utf8(printed)?;
        let mut lines = printed.lines().map(str::to_owned);
        match (lines.next(), lines.next()) {
            (Some(kubeconfig), Some(path)) => Ok(Cluster { kubeconfig, path }),
            _ => bail!("`{up}` did not say where the cluster is"),
        }
    }

    fn load(&self, image: &str, folder: &Path) -> Result<()> {
        self.image(
            Command::new(variable("PADDLECLOUD_CLUSTER_IMAGE")?)
                .arg(image)
                .arg(folder),
        )
    }

    fn image(&self, command: &mut Command) -> Result<()> {
        step::run(command.env("KUBECONFIG", &self.kubeconfig))
    }
}
