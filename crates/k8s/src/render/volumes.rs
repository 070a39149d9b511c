//! Renders what a pod mounts: the parts of the tree, its own small files, its secret. Pure.

use k8s_openapi::api::core::v1::{
    CSIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, KeyToPath, NFSVolumeSource,
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume as PodVolume, VolumeMount,
};

use super::{CERTIFICATE, PodPlan, secret_key};
use crate::settings::{Settings, Volume};
use crate::{names, quantity};

/// Where the launcher and the worker's small files are.
pub const OWN: &str = "/paddlecloud/own";
/// Where the launcher finds the secret and the server's certificate.
const LINK: &str = "/paddlecloud/link";
/// Where the launcher finds the tree's mark.
const TREE: &str = "/paddlecloud/tree";
/// The folder of the tree that contains its mark.
pub const TREE_FOLDER: &str = ".paddlecloud-tree";
/// The file in it that names the server that owns the tree.
pub const TREE_MARK: &str = "mark";

/// Files of the pod that programs expect at these paths.
const FILES: [(&str, &str); 5] = [
    ("hosts", "/etc/hosts"),
    ("test.list", "/test.list"),
    ("train.list", "/train.list"),
    ("trainer_count", "/trainer_count"),
    ("trainer_id", "/trainer_id"),
];

/// The mounts of the init container: where it installs the launcher, and the mark by which it recognizes the tree.
pub fn launcher_mounts(settings: &Settings) -> Vec<VolumeMount> {
    let tree = VolumeMount {
        sub_path: Some(settings.in_volume(TREE_FOLDER)),
        read_only: Some(true),
        ..mount("pfs", TREE)
    };
    vec![mount("own", OWN), tree]
}

fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

/// The mounts of the worker's container.
pub fn worker_mounts(settings: &Settings, plan: &PodPlan) -> Vec<VolumeMount> {
    let mut mounts = vec![
        mount("own", OWN),
        VolumeMount {
            read_only: Some(true),
            ..mount("link", LINK)
        },
        mount("shm", "/dev/shm"),
    ];
    mounts.extend(FILES.map(|(file, path)| VolumeMount {
        sub_path: Some(format!("files/{file}")),
        ..mount("own", path)
    }));
    mounts.extend(plan.mounts.iter().map(|part| VolumeMount {
        sub_path: Some(settings.in_volume(&part.source)),
        read_only: part.read_only.then_some(true),
        ..mount("pfs", &part.target)
    }));
    mounts
}

/// All volumes of a pod.
pub fn all(settings: &Settings, plan: &PodPlan) -> Vec<PodVolume> {
    let named = |name: &str| PodVolume {
        name: name.to_owned(),
        ..PodVolume::default()
    };
    vec![
        PodVolume {
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: plan.job.spec.disk.map(quantity::of_bytes),
                ..EmptyDirVolumeSource::default()
            }),
            ..named("own")
        },
        PodVolume {
            secret: Some(link_secret(plan)),
            ..named("link")
        },
        // Without a limit, it could use all memory of the node.
        PodVolume {
            empty_dir: Some(EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(quantity::of_bytes(plan.resources().memory)),
            }),
            ..named("shm")
        },
        tree(&settings.volume),
    ]
}

/// A pod sees only its own secret.
fn link_secret(plan: &PodPlan) -> SecretVolumeSource {
    let item = |key: &str, path: &str| KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        mode: None,
    };
    let name = match plan.attempt {
        1 => names::owner(plan.job),
        later => names::pod(plan.worker, later),
    };
    SecretVolumeSource {
        secret_name: Some(name),
        items: Some(vec![
            item(CERTIFICATE, CERTIFICATE),
            item(&secret_key(plan.worker), "secret"),
        ]),
        ..SecretVolumeSource::default()
    }
}

pub fn tree(volume: &Volume) -> PodVolume {
    let mut tree = PodVolume {
        name: "pfs".to_owned(),
        ..PodVolume::default()
    };
    match volume {
        Volume::HostPath(path) => {
            tree.host_path = Some(HostPathVolumeSource {
                path: path.clone(),
                type_: Some("Directory".to_owned()),
            });
        }
        Volume::Claim(name) => {
            tree.persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource {
                claim_name: name.clone(),
                read_only: None,
            });
        }
        Volume::Nfs { server, path } => {
            tree.nfs = Some(NFSVolumeSource {
                server: server.clone(),
                path: path.clone(),
                read_only: None,
            });
        }
        Volume::Csi { driver, attributes } => {
            tree.csi = Some(CSIVolumeSource {
                driver: driver.clone(),
                volume_attributes: Some(attributes.clone()),
                ..CSIVolumeSource::default()
            });
        }
    }
    tree
}
