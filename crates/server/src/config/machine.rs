//! The resources of this machine that the server may use: cores, memory, GPU cards and their type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use paddlecloud_core::gpu::{GpuType, NVIDIA_PRODUCT, has_type, models_beside, product_label};
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Inventory, Node, NodeTraits};
use serde::Deserialize;

use super::ConfigError;
use super::values::parsed_option;

/// The section `inventory`: what replaces the detected amounts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct InventoryEntry {
    #[serde(alias = "cores", deserialize_with = "parsed_option")]
    cpu: Option<Cpu>,
    #[serde(deserialize_with = "parsed_option")]
    memory: Option<Bytes>,
    gpus: Option<u32>,
    gpu_model: Option<String>,
}

impl InventoryEntry {
    pub fn check(self, types: &GpuLabels, path: &Path) -> Result<Inventory, ConfigError> {
        let model = self.gpu_model.as_deref();
        if let Some(model) = model.filter(|model| model.parse::<GpuType>().is_err()) {
            let problem = format!(
                "`inventory.gpu_model` is not the name of a model: `{}`",
                model.escape_debug()
            );
            return Err(ConfigError::in_file(path, problem).with_hint("for example `NVIDIA A100-SXM4-80GB`"));
        }
        let found = inventory(Path::new(ROOT), model, types);
        let nodes = found.nodes.into_iter().map(|mut node| {
            node.cpu = self.cpu.unwrap_or(node.cpu);
            node.memory = self.memory.unwrap_or(node.memory);
            node.gpus = self.gpus.unwrap_or(node.gpus);
            node
        });
        Ok(Inventory {
            nodes: nodes.collect(),
        })
    }
}

/// Where the kernel's files begin: `/`, or a stand-in for tests.
pub(super) const ROOT: &str = "/";

/// What the configuration says of types of GPUs: their names, and the labels of each.
pub type GpuLabels = BTreeMap<GpuType, BTreeMap<String, String>>;

/// The machine the server runs on, as the only node. `model` replaces what the driver says.
pub(super) fn inventory(root: &Path, model: Option<&str>, types: &GpuLabels) -> Inventory {
    let model = model.map(str::to_owned).or_else(|| gpu_model(root));
    let label = model.map(|model| (NVIDIA_PRODUCT.to_owned(), product_label(&model)));
    let labels: BTreeMap<String, String> = label.into_iter().collect();
    let named = types
        .iter()
        .filter(|(name, of_type)| has_type(&labels, name, of_type));
    let traits = NodeTraits {
        gpu_types: named.map(|(name, _)| name.clone()).collect(),
        gpu_models: models_beside(&labels, types.iter()),
        labels,
        ..NodeTraits::default()
    };
    Inventory {
        nodes: vec![Node {
            name: host_name().as_str().into(),
            cpu: Cpu::cores(cores()),
            memory: memory(),
            gpus: gpus(&root.join("dev")),
            taken: Default::default(),
            traits: traits.into(),
        }],
    }
}

/// The model of the machine's GPUs. If there are several there is none, because a job that names one could get another.
fn gpu_model(root: &Path) -> Option<String> {
    let mut models = gpu_models(&root.join("proc/driver/nvidia/gpus"));
    models.pop_first().filter(|_| models.is_empty())
}

/// The models of all cards, from the files of NVIDIA's driver: one folder for each card.
fn gpu_models(cards: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(cards) else {
        return BTreeSet::new();
    };
    let texts = entries
        .flatten()
        .filter_map(|card| std::fs::read_to_string(card.path().join("information")).ok());
    texts.filter_map(|text| model(&text)).collect()
}

/// `Model: \t\t NVIDIA A100-SXM4-80GB`
fn model(information: &str) -> Option<String> {
    let line = information.lines().find_map(|line| line.strip_prefix("Model:"))?;
    let name = line.trim();
    (!name.is_empty()).then(|| name.to_owned())
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

    /// A stand-in for a machine with these cards.
    fn machine_with(models: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("dev")).unwrap();
        for (card, model) in models.iter().enumerate() {
            std::fs::write(root.path().join(format!("dev/nvidia{card}")), "").unwrap();
            let folder = root
                .path()
                .join(format!("proc/driver/nvidia/gpus/0000:0{card}:00.0"));
            std::fs::create_dir_all(&folder).unwrap();
            let information = format!("Model: \t\t {model}\nIRQ:   \t\t 42\n");
            std::fs::write(folder.join("information"), information).unwrap();
        }
        root
    }

    fn node_of(models: &[&str], types: &GpuLabels) -> Node {
        inventory(machine_with(models).path(), None, types)
            .nodes
            .remove(0)
    }

    #[test]
    fn the_driver_names_the_type_of_the_cards() {
        let types = GpuLabels::from([
            ("fast".parse().unwrap(), labels_of("NVIDIA-A100-SXM4-80GB")),
            ("h100".parse().unwrap(), BTreeMap::new()),
        ]);
        let node = node_of(&["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"], &types);
        assert_eq!(node.gpus, 2);
        assert_eq!(node.traits.labels, labels_of("NVIDIA-A100-SXM4-80GB"));
        assert_eq!(node.traits.gpu_types, BTreeSet::from(["fast".parse().unwrap()]));
        assert_eq!(
            node.traits.gpu_models,
            BTreeSet::from(["a100-sxm4-80gb".parse().unwrap()])
        );
    }

    #[test]
    fn cards_of_several_models_have_no_type() {
        let node = node_of(&["Tesla T4", "NVIDIA A100-SXM4-80GB"], &GpuLabels::new());
        assert_eq!((node.gpus, &*node.traits), (2, &NodeTraits::default()));
        assert_eq!(*node_of(&[], &GpuLabels::new()).traits, NodeTraits::default());
    }

    fn labels_of(product: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(NVIDIA_PRODUCT.to_owned(), product.to_owned())])
    }

    #[test]
    fn this_machine_has_a_core_and_some_memory() {
        let node = inventory(Path::new(ROOT), None, &GpuLabels::new())
            .nodes
            .remove(0);
        assert!(node.cpu >= Cpu::cores(1) && node.memory >= Bytes::mib(1));
    }
}
