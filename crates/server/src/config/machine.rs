//! The resources of this machine that the server may use: cores, memory and GPU cards.

use std::path::{Path, PathBuf};

use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Inventory, Node};

/// The machine the server runs on, as the only node.
pub(super) fn inventory() -> Inventory {
    Inventory {
        nodes: vec![Node {
            name: host_name().as_str().into(),
            cpu: Cpu::cores(cores()),
            memory: memory(),
            gpus: gpus(Path::new("/dev")),
            taken: Default::default(),
            traits: Default::default(),
        }],
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

/// Cores by affinity and cgroup quota; the standard library considers both.
fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// The machine's memory, or the server's cgroup limit if that is less.
pub fn memory() -> Bytes {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let total = read(Path::new("/proc/meminfo")).and_then(|text| mem_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups);
    let least = limits
        .iter()
        .filter_map(|path| read(path)?.trim().parse::<u64>().ok())
        .min();
    let memory = total.unwrap_or(1 << 30).min(least.unwrap_or(u64::MAX));
    Bytes::new(memory)
}

/// `MemTotal:       65842732 kB`
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Every file that may contain a memory limit of this process: its cgroups and their ancestors, v1 and v2.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let own = Path::new(group.trim_start_matches('/'));
        files.extend(
            own.ancestors()
                .map(|folder| Path::new(root).join(folder).join(file)),
        );
    }
    files
}

/// The number of NVIDIA GPUs, by their device files.
fn gpus(dev: &Path) -> u32 {
    let Ok(entries) = std::fs::read_dir(dev) else {
        return 0;
    };
    let is_card = |name: &str| {
        let digits = name.strip_prefix("nvidia").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let cards = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_card));
    cards.count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_table() {
        assert_eq!(
            mem_total("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2048 * 1024)
        );
        assert_eq!(mem_total("nothing"), None);
    }

    #[test]
    fn limits_of_all_groups_above_count() {
        let files = limit_files("7:cpu,memory:/a/b\n3:pids:/x\n0::/c\n");
        let texts: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(
            texts,
            [
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/c/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }

    #[test]
    fn only_numbered_devices_are_cards() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "null"] {
            std::fs::write(dev.path().join(name), "").unwrap();
        }
        assert_eq!(gpus(dev.path()), 2);
    }

    #[test]
    fn this_machine_has_a_core_and_some_memory() {
        let node = inventory().nodes.remove(0);
        assert!(node.cpu >= Cpu::cores(1) && node.memory >= Bytes::mib(1));
    }
}
