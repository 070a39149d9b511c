//! A real HDFS: Hadoop's own small cluster, one name node and one data node in one process.

use std::process::Command;

use anyhow::{Context, Result};

use super::Running;
use super::process::{Process, Scratch};
use crate::step;
use crate::workspace::{Workspace, is_installed};

/// Why it cannot be started here.
pub fn missing() -> Option<String> {
    let names: Vec<&str> = ["java", "mvn"]
        .into_iter()
        .filter(|name| !is_installed(name))
        .collect();
    match names.as_slice() {
        [] => None,
        names => Some(format!(
            "there is no {} on this machine (`apt-get install default-jdk-headless maven`)",
            names.join(" and no ")
        )),
    }
}

/// Downloads the cluster's jars and compiles its few lines; a minute the first time. `run` runs a command.
pub fn fetch(workspace: &Workspace, run: fn(&mut Command) -> Result<()>) -> Result<()> {
    let built = workspace.target().join("hdfs");
    let done = built.join("done");
    let project = workspace.path("e2e/hdfs/pom.xml");
    let wanted = std::fs::read_to_string(&project).context("the cluster's project is there")?;
    if std::fs::read_to_string(&done).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    let mut maven = workspace.program("mvn", &["-q", "-B", "-f"]);
    maven
        .arg(&project)
        .arg(format!("-Dbuild.folder={}", built.display()))
        .args(["compile", "dependency:copy-dependencies"])
        .arg(format!("-DoutputDirectory={}", built.join("lib").display()));
    run(&mut maven).context("Hadoop's jars cannot be fetched here")?;
    std::fs::write(&done, wanted).context("cannot record that the jars are complete")
}

/// Whether Maven can download anything here. Its cache does not count, so the download plugin is fetched too.
pub fn is_offered(workspace: &Workspace) -> bool {
    let Ok(empty) = Scratch::new("maven") else {
        return false;
    };
    let words = ["-q", "-B", "dependency:get", "-Dtransitive=false"];
    let mut maven = workspace.program("mvn", &words);
    maven
        .arg("-Dartifact=org.apache.hadoop:hadoop-main:3.4.1:pom")
        .arg(format!("-Dmaven.repo.local={}", empty.path().display()));
    step::run(&mut maven).is_ok()
}

/// The running cluster.
pub struct Hdfs {
    port: String,
    classes: String,
    _process: Process,
    _folder: Scratch,
}

impl Hdfs {
    pub fn start(workspace: &Workspace) -> Result<Hdfs> {
        let folder = Scratch::new("hdfs")?;
        let built = workspace.target().join("hdfs");
        let classes = format!(
            "{}:{}",
            built.join("classes").display(),
            built.join("lib/*").display()
        );
        let mut command = Command::new("java");
        command
            .args(["-Xmx512m", "--add-opens", "java.base/java.lang=ALL-UNNAMED"])
            .arg(format!("-Djava.io.tmpdir={}", folder.path().display()))
            .arg("-cp")
            .arg(&classes)
            .arg("MiniHdfs")
            .arg(folder.path().join("cluster"))
            .current_dir(folder.path());
        let mut process = Process::start("hdfs", folder.path(), &mut command)?;
        let port = process.line_after("ready")?;
        Ok(Hdfs {
            port,
            classes,
            _process: process,
            _folder: folder,
        })
    }
}

impl Running for Hdfs {
    fn place(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.port)
    }

    /// Tests set quotas as an administrator does, with Hadoop's own program.
    fn more(&self) -> Vec<(&'static str, String)> {
        vec![("PADDLECLOUD_TEST_HDFS_CLASSES", self.classes.clone())]
    }
}
