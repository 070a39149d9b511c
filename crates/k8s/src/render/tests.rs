//! What a run looks like in the cluster, compared as a whole.

use paddlecloud_core::testing::samples;

use super::*;
use crate::settings::{Namespaces, Placement, PodIdentity, PodSettings, Volume};

fn settings() -> Settings {
    Settings {
        server: "here".into(),
        link: "10.0.0.1:7164".into(),
        launcher_image: "paddlecloud/launcher:1".into(),
        default_image: Some("python:3".into()),
        volume: Volume::HostPath("/srv/paddlecloud".into()),
        identity: PodIdentity { uid: 1000, gid: 1000 },
        pods: PodSettings::default(),
        sub_path: String::new(),
        namespaces: Namespaces::PerUser,
        placement: Placement::Pinned,
    }
}

fn job() -> Job {
    let mut spec = samples::spec("My.Job", 1, 2);
    spec.trainer.gpu = 2;
    samples::starting(7, spec)
}

fn plan<'a>(job: &'a Job, position: usize, attempt: u32, mounts: &'a [Mount]) -> PodPlan<'a> {
    PodPlan {
        job,
        worker: &job.workers[position],
        attempt,
        node: Some("node2"),
        avoid: &[],
        mounts,
        owner: owner_reference(job, "0b0e"),
    }
}

fn yaml(object: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(object).unwrap()
}

#[test]
fn a_trainer_is_a_restricted_pod_pinned_to_its_node() {
    let job = job();
    let mounts = [Mount {
        source: "home/me".into(),
        target: "/pfs/local/home/me".into(),
        read_only: false,
    }];
    let pod = pod(&settings(), &plan(&job, 1, 1, &mounts)).unwrap();
    insta::assert_snapshot!(yaml(&pod));
}

#[test]
fn an_owner_holds_one_secret_for_each_worker() {
    let job = job();
    let secrets = RunSecrets {
        certificate: "PEM".into(),
        first_attempts: vec!["a".into(), "b".into(), "c".into()],
    };
    insta::assert_snapshot!(yaml(&owner(&settings(), &job, &secrets)));
}

#[test]
fn a_later_attempt_has_a_name_and_a_secret_of_its_own() {
    let job = job();
    let plan = plan(&job, 0, 2, &[]);
    let made = pod(&settings(), &plan).unwrap();
    let secret = later_secret(&settings(), &plan, "PEM", "s");
    let name = made.metadata.name.clone();
    assert_eq!(secret.metadata.name, name);
    assert!(name.unwrap().ends_with("-2"));
    let volumes = made.spec.unwrap().volumes.unwrap();
    let link = volumes.iter().find(|volume| volume.name == "link").unwrap();
    assert_eq!(link.secret.as_ref().unwrap().secret_name, secret.metadata.name);
}

#[test]
fn the_configuration_reaches_every_pod() {
    let mut settings = settings();
    settings.pods = PodSettings {
        node_selector: BTreeMap::from([("pool".into(), "train".into())]),
        tolerations: vec![crate::settings::Toleration {
            key: Some("gpu".into()),
            value: None,
            effect: Some("NoSchedule".into()),
        }],
        priority_class: Some("batch".into()),
        annotations: BTreeMap::from([("team".into(), "vision".into())]),
    };
    settings.volume = Volume::Nfs {
        server: "files".into(),
        path: "/export".into(),
    };
    let job = job();
    let pod = pod(&settings, &plan(&job, 0, 1, &[])).unwrap();
    let spec = pod.spec.unwrap();
    assert_eq!(pod.metadata.annotations, Some(settings.pods.annotations.clone()));
    assert_eq!(spec.node_selector, Some(settings.pods.node_selector.clone()));
    assert_eq!(spec.priority_class_name.as_deref(), Some("batch"));
    let toleration = &spec.tolerations.unwrap()[0];
    assert_eq!(toleration.operator.as_deref(), Some("Exists"));
    let volumes = spec.volumes.unwrap();
    assert!(volumes.iter().any(|volume| volume.nfs.is_some()));
}

#[test]
fn without_any_image_there_is_no_pod() {
    let mut settings = settings();
    settings.default_image = None;
    let job = job();
    assert_eq!(pod(&settings, &plan(&job, 0, 1, &[])), Err(NoImage));
}

#[test]
fn a_user_has_a_namespace_with_four_fences() {
    let quota = paddlecloud_core::scheduler::Quota {
        cpu: Some(paddlecloud_core::quantity::Cpu::millis(8000)),
        memory: Some(paddlecloud_core::quantity::Bytes::mib(1024)),
        gpu: Some(2),
        ..paddlecloud_core::scheduler::Quota::default()
    };
    let tenant = tenancy::tenant(&settings(), "ada", &quota);
    let all = [
        yaml(&tenant.namespace),
        yaml(&tenant.quota),
        yaml(&tenant.limits),
        yaml(&tenant.network),
    ];
    insta::assert_snapshot!(all.join("\n---\n"));
    let job = job();
    let network = tenancy::run_network(&settings(), &job, owner_reference(&job, "0b0e")).unwrap();
    insta::assert_snapshot!("workers_of_a_run_reach_each_other", yaml(&network));
}

#[test]
fn a_worker_that_lost_its_node_goes_elsewhere() {
    let job = job();
    let avoid = ["node2".to_owned(), "node3".to_owned()];
    let plan = PodPlan {
        node: None,
        avoid: &avoid,
        ..plan(&job, 1, 2, &[])
    };
    let made = pod(&settings(), &plan).unwrap();
    assert!(!is_pinned(&made));
    let affinity = yaml(&made.spec.unwrap().affinity);
    assert_eq!(affinity.matches("NotIn").count(), 2, "{affinity}");
}

#[test]
fn kueue_admits_a_run_as_a_pod_group() {
    let mut settings = settings();
    settings.placement = Placement::Kueue {
        queue: "training".into(),
    };
    let job = job();
    let unpinned = PodPlan {
        node: None,
        ..plan(&job, 1, 1, &[])
    };
    insta::assert_snapshot!(yaml(&pod(&settings, &unpinned).unwrap().metadata));
    assert!(gang::pod_group(&settings, &job, owner_reference(&job, "0b0e")).is_none());
}

#[test]
fn volcano_seats_a_run_as_a_pod_group_of_its_own_kind() {
    let mut settings = settings();
    settings.placement = Placement::Volcano {
        queue: "training".into(),
    };
    let job = job();
    let unpinned = PodPlan {
        node: None,
        ..plan(&job, 1, 1, &[])
    };
    let pod = pod(&settings, &unpinned).unwrap();
    assert_eq!(pod.spec.unwrap().scheduler_name.as_deref(), Some("volcano"));
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations["scheduling.k8s.io/group-name"], names::group(&job.id));
    let group = gang::pod_group(&settings, &job, owner_reference(&job, "0b0e")).unwrap();
    insta::assert_snapshot!(yaml(&group));
}

#[test]
fn a_csi_volume_and_given_namespaces_reach_the_pods() {
    let mut settings = settings();
    settings.volume = Volume::Csi {
        driver: "cephfs.csi.ceph.com".into(),
        attributes: BTreeMap::from([("fsName".into(), "train".into())]),
    };
    settings.sub_path = "/tree/".into();
    settings.namespaces = Namespaces::Given(BTreeMap::from([("*".into(), "team".into())]));
    let job = job();
    let mounts = [Mount {
        source: "home/ada".into(),
        target: "/pfs/local/home/ada".into(),
        read_only: false,
    }];
    let pod = pod(&settings, &plan(&job, 0, 1, &mounts)).unwrap();
    assert_eq!(pod.metadata.namespace.as_deref(), Some("team"));
    let spec = yaml(&pod.spec);
    assert!(spec.contains("cephfs.csi.ceph.com"), "{spec}");
    assert!(spec.contains("\"tree/home/ada\""), "{spec}");
    assert_eq!(settings.volume.security_level(), "restricted");
}
