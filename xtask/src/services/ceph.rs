//! A real CephFS on one machine: monitor, manager, one object store in memory, metadata server, mounted by FUSE.
//!
//! It does not touch the system's own configuration: it uses one file and one folder of ours.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Running;
use super::process::{Process, Scratch, free_ports};
use crate::workspace::is_installed;

const PROGRAMS: [&str; 8] = [
    "ceph",
    "ceph-fuse",
    "ceph-mds",
    "ceph-mgr",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "setfattr",
];

/// Why it cannot be started here.
pub fn missing() -> Option<String> {
    if let Some(name) = PROGRAMS.into_iter().find(|name| !is_installed(name)) {
        return Some(format!(
            "there is no {name} on this machine (`apt-get install --no-install-recommends ceph-mon ceph-osd ceph-mgr \
             ceph-mds ceph-fuse ceph-common attr`)"
        ));
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse on this machine".to_owned());
    }
    match std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)) {
        Ok(0) => None,
        _ => Some("only root can mount it".to_owned()),
    }
}

/// The mounted file system. Fields are dropped in order: clients before servers.
pub struct Ceph {
    mounted: PathBuf,
    fuse: Option<Process>,
    _servers: Vec<Process>,
    folder: Scratch,
}

impl Ceph {
    pub fn start() -> Result<Ceph> {
        let folder = Scratch::new("ceph")?;
        let config = configure(folder.path())?;
        let mut servers = Vec::new();
        make_monitor(folder.path(), &config)?;
        servers.push(server(folder.path(), &config, "ceph-mon", "a")?);
        ask(&config, &["mon", "enable-msgr2"])?;
        servers.push(server(folder.path(), &config, "ceph-mgr", "x")?);
        let id = uuid()?;
        ask(&config, &["osd", "new", &id])?;
        let make = ["-i", "0", "--mkfs", "--osd-uuid", &id, "-c"];
        quietly(Command::new("ceph-osd").args(make).arg(&config))?;
        servers.push(server(folder.path(), &config, "ceph-osd", "0")?);
        servers.push(server(folder.path(), &config, "ceph-mds", "a")?);
        for pool in ["meta", "data"] {
            ask(&config, &["osd", "pool", "create", pool, "8", "8", "replicated"])?;
        }
        ask(&config, &["fs", "new", "cephfs", "meta", "data"])?;
        let last = servers.last_mut().context("servers were started")?;
        last.wait_until("active", || {
            ask(&config, &["mds", "stat"]).is_ok_and(|said| said.contains("up:active"))
        })?;
        Ceph::mount(folder, &config, servers)
    }

    fn mount(folder: Scratch, config: &Path, servers: Vec<Process>) -> Result<Ceph> {
        let mounted = folder.path().join("mounted");
        std::fs::create_dir(&mounted)?;
        let mut command = Command::new("ceph-fuse");
        command
            .args(["-f", "-n", "client.admin", "--no-mon-config", "-c"])
            .arg(config)
            .arg(&mounted);
        let mut fuse = Process::start("ceph-fuse", folder.path(), &mut command)?;
        let before = device(folder.path());
        fuse.wait_until("mounted", || device(&mounted) != before)?;
        Ok(Ceph {
            mounted,
            fuse: Some(fuse),
            _servers: servers,
            folder,
        })
    }
}

impl Running for Ceph {
    fn place(&self) -> String {
        self.mounted.display().to_string()
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        // A file that a failed test holds open must not block the unmount: it completes when the last one closes.
        let _ = Command::new("umount").arg("-l").arg(&self.mounted).status();
        drop(self.fuse.take());
        debug_assert!(self.folder.path().exists(), "it goes after its users");
    }
}

/// One file with all settings; authentication is off, because nothing else can reach it.
fn configure(folder: &Path) -> Result<PathBuf> {
    for name in ["mon", "mgr", "osd", "mds", "run", "log"] {
        std::fs::create_dir(folder.join(name))?;
    }
    let [v2, v1] = free_ports()?;
    let at = folder.display();
    let text = format!(
        "[global]
fsid = {fsid}
mon initial members = a
mon host = [v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail crit = 1
ms bind ipv6 = false
run dir = {at}/run
pid file = {at}/run/$name.pid
admin socket = {at}/run/$name.asok
log file = {at}/log/$name.log
keyring = {at}/$type/keyring
[mon]
mon data = {at}/mon/data
[mgr]
mgr data = {at}/mgr
mgr initial modules =
[osd]
osd data = {at}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd memory target = 939524096
osd class update on start = false
[mds]
mds data = {at}/mds
",
        fsid = uuid()?,
    );
    let config = folder.join("ceph.conf");
    std::fs::write(&config, text)?;
    Ok(config)
}

fn make_monitor(folder: &Path, config: &Path) -> Result<()> {
    let text = std::fs::read_to_string(config)?;
    let setting = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::to_owned).context("it was just written")
    };
    let (fsid, address) = (setting("fsid = ")?, setting("mon host = ")?);
    let map = folder.join("monmap");
    let mut tool = Command::new("monmaptool");
    tool.args(["--create", "--addv", "a", &address, "--fsid", &fsid])
        .args(["--enable-all-features", "--clobber"])
        .arg(&map);
    quietly(&mut tool)?;
    let mut monitor = Command::new("ceph-mon");
    monitor
        .args(["--mkfs", "-i", "a", "-c"])
        .arg(config)
        .arg("--monmap")
        .arg(&map);
    quietly(&mut monitor)
}

fn server(folder: &Path, config: &Path, program: &str, id: &str) -> Result<Process> {
    let mut command = Command::new(program);
    command.args(["-f", "-i", id, "-c"]).arg(config);
    Process::start(program, folder, &mut command)
}

/// Asks the cluster something; it waits for the monitor by itself.
fn ask(config: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new("ceph")
        .args(["--connect-timeout", "60", "-c"])
        .arg(config)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("cannot start `ceph`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ceph {}` failed: {}", words.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", said.trim());
    }
    Ok(())
}

fn uuid() -> Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(text.trim().to_owned())
}

fn device(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(std::os::unix::fs::MetadataExt::dev(&metadata))
}
