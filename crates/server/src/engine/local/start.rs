//! Constructs the local engine from the configuration, and the folder of programs that its workers call by name.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use paddlecloud_accounts::auth::Secret;
use paddlecloud_files::homes::Storage;
use paddlecloud_worker::protocol::Isolation;

use super::{BootId, LocalEngine, LocalSettings, launch};
use crate::config::Config;
use crate::logs::SegmentLogs;
use crate::programs::default_path;

/// Programs that workers call by name; all are this executable.
const WORKERS_PROGRAMS: [&str; 2] = ["paddle", "paddle-data"];

/// Constructs the engine. `logs` must use the data folder of `config`.
pub fn start(
    config: &Config,
    isolation: Isolation,
    secret: &Secret,
    storage: Storage,
    logs: SegmentLogs,
) -> io::Result<LocalEngine> {
    let program = match &config.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?,
    };
    let settings = LocalSettings {
        data: config.data.clone(),
        datacenter: config.datacenter.clone(),
        nodes: config.inventory.nodes.clone(),
        address_seed: address_seed(&config.data),
        isolation,
        logs: config.logs.limits(),
        log_copy: config.logs.copy,
        boot: BootId::read()?,
        programs: programs_folder(&config.data, &program)?,
        program,
        path: default_path(config.python.as_deref()),
    };
    Ok(LocalEngine::new(settings, storage, logs, secret.clone()))
}

/// Creates the folder that is first in the workers' `PATH`. Its entries, such as `paddle`, are links to this program.
fn programs_folder(data: &Path, program: &Path) -> io::Result<PathBuf> {
    let folder = data.join("bin");
    std::fs::create_dir_all(&folder)?;
    for name in WORKERS_PROGRAMS {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == program) {
            continue;
        }
        let fresh = folder.join(format!(".{name}.new"));
        let _ = std::fs::remove_file(&fresh);
        std::os::unix::fs::symlink(program, &fresh)?;
        std::fs::rename(&fresh, &link)?;
    }
    make_python(&folder.join(launch::PYTHON_FOLDER))?;
    Ok(folder)
}

/// Creates a `python` for machines that have only `python3`. It runs the `python3` of the worker's `PATH`.
fn make_python(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (script, fresh) = (folder.join("python"), folder.join(".python.new"));
    std::fs::write(&fresh, "#!/bin/sh\nexec python3 \"$@\"\n")?;
    for made in [folder, &fresh] {
        std::fs::set_permissions(made, std::fs::Permissions::from_mode(0o755))?;
    }
    std::fs::rename(fresh, script)
}

/// A seed derived from the data folder's path, so that it survives a restart.
fn address_seed(data: &Path) -> u64 {
    let hash = blake3::hash(data.as_os_str().as_encoded_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}
