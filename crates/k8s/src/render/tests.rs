//! Compares all objects of a run with snapshots.

use paddlecloud_core::scheduler::Quota;
use paddlecloud_core::spec::{JobSpec, SecretRef};
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
        namespace_role: None,
        placement: Placement::Pinned,
    }
}

fn job() -> Job {
    job_with(|_| {})
}

fn job_with(change: impl FnOnce(&mut JobSpec)) -> Job {
    let mut spec = samples::spec("My.Job", 1, 2);
    spec.trainer.gpu = 2;
    change(&mut spec);
    samples::starting(7, spec)
}

fn plan<'a>(job: &'a Job, position: usize, attempt: u32, mounts: &'a [Mount]) -> PodPlan<'a> {
    PodPlan {
        job,
        namespace: "ada",
        worker: &job.workers[position],
        attempt,
        node: Some("node2"),
        avoid: &[],
        any_of: &[],
        mounts,
        always_pull: false,
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

/// Where the pods of this job's parameter server and first trainer may run, and their resources.
fn node_choices(settings: &Settings, job: &Job) -> String {
    let pods = [0, 1].map(|worker| {
        let pod = json!(pod(settings, &plan(job, worker, 1, &[])).unwrap());
        let container = &pod["spec"]["containers"][0];
        json!({
            "container": container["name"],
            "limits": container["resources"]["limits"],
            "nodeSelector": pod["spec"]["nodeSelector"],
            "tolerations": pod["spec"]["tolerations"],
            "terms": pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                ["nodeSelectorTerms"],
        })
    });
    pods.map(|pod| pod.to_string()).join("\n")
}

#[test]
fn a_type_of_gpus_is_the_selector_tolerations_and_resource_of_its_trainers() {
    let job = job_with(|spec| {
        spec.gpu_type = Some("a100".parse().unwrap());
        spec.node_labels = BTreeMap::from([("zone".to_owned(), "x".to_owned())]);
    });
    let mut settings = settings();
    settings.pods.gpu_types = crate::settings::tests::a100();
    settings.pods.node_selector = BTreeMap::from([("zone".to_owned(), "mine".to_owned())]);
    insta::assert_snapshot!(node_choices(&settings, &job), @r#"
    {"container":"pserver","limits":{"cpu":"1000m","memory":"1073741824"},"nodeSelector":{"zone":"mine"},"terms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["node2"]}]}],"tolerations":null}
    {"container":"trainer","limits":{"cpu":"1000m","example.com/gpu":"2","memory":"1073741824"},"nodeSelector":{"pool":"a100","zone":"mine"},"terms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["node2"]}]}],"tolerations":[{"effect":"NoSchedule","key":"dedicated","operator":"Exists"}]}
    "#);
}

#[test]
fn a_pod_without_a_pin_gets_the_models_of_its_type_as_alternatives() {
    let job = job_with(|spec| spec.gpu_type = Some("a100".parse().unwrap()));
    let models = [
        (
            "nvidia.com/gpu.product".to_owned(),
            vec!["NVIDIA-A100-SXM4-80GB".to_owned()],
        ),
        (
            "cloud.google.com/gke-accelerator".to_owned(),
            vec!["nvidia-tesla-a100".to_owned()],
        ),
    ];
    let settings = settings();
    let pinned = pod(
        &settings,
        &PodPlan {
            any_of: &models,
            ..plan(&job, 1, 1, &[])
        },
    )
    .unwrap();
    assert_eq!(pinned, pod(&settings, &plan(&job, 1, 1, &[])).unwrap());
    let avoid = ["node1".to_owned()];
    let free = PodPlan {
        node: None,
        avoid: &avoid,
        any_of: &models,
        ..plan(&job, 1, 2, &[])
    };
    let affinity = pod(&settings, &free).unwrap().spec.unwrap().affinity;
    insta::assert_snapshot!(json!(affinity).to_string(), @r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"nvidia.com/gpu.product","operator":"In","values":["NVIDIA-A100-SXM4-80GB"]}],"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["node1"]}]},{"matchExpressions":[{"key":"cloud.google.com/gke-accelerator","operator":"In","values":["nvidia-tesla-a100"]}],"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["node1"]}]}]}}}"#);
}

#[test]
fn an_owner_holds_one_secret_for_each_worker() {
    let job = job();
    let secrets = RunSecrets {
        certificate: "PEM",
        first_attempts: vec!["a".into(), "b".into(), "c".into()],
        variables: &BTreeMap::new(),
    };
    insta::assert_snapshot!(yaml(&owner(&settings(), &job, "ada", &secrets)));
}

#[test]
fn a_pod_names_the_users_secrets_and_only_the_owner_holds_them() {
    let job = job_with(|spec| spec.secrets = vec![SecretRef::parse("api-key").unwrap()]);
    let variables = BTreeMap::from([("API_KEY".to_owned(), "canary".to_owned())]);
    let secrets = RunSecrets {
        certificate: "PEM",
        first_attempts: vec!["a".into(), "b".into(), "c".into()],
        variables: &variables,
    };
    let owner = owner(&settings(), &job, "ada", &secrets);
    let held = &owner.data.as_ref().unwrap()["env.API_KEY"];
    assert_eq!(held.0, b"canary");
    let pod = yaml(&pod(&settings(), &plan(&job, 1, 1, &[])).unwrap());
    assert!(!pod.contains("canary"), "{pod}");
    let container = serde_json::from_str::<serde_json::Value>(&pod).unwrap();
    let env = &container["spec"]["containers"][0]["env"];
    assert_eq!(
        env[0],
        json!({"name": "API_KEY", "valueFrom": {"secretKeyRef": {
            "name": owner.metadata.name, "key": "env.API_KEY"}}})
    );
    assert_eq!(env[1]["value"], "API_KEY", "{env}");
}

#[test]
fn a_registry_becomes_a_pull_secret_that_is_used_for_every_pull() {
    let job = job_with(|spec| spec.registry = Some("hub".into()));
    let login = |server: &str| RegistryLogin {
        server: server.to_owned(),
        username: "ada".into(),
        password: "canary".into(),
    };
    let made = |server: &str| {
        let owner = owner_reference(&job, "0b0e");
        pull_secret(&settings(), &job, "ada", &login(server), owner)
    };
    let secret = made("registry.example.org:5000");
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/dockerconfigjson"));
    let config = |secret: &Secret| -> serde_json::Value {
        serde_json::from_slice(&secret.data.as_ref().unwrap()[".dockerconfigjson"].0).unwrap()
    };
    let entry = json!({"username": "ada", "password": "canary"});
    assert_eq!(
        config(&secret),
        json!({"auths": {"registry.example.org:5000": entry}})
    );
    for server in ["docker.io", "https://index.docker.io/"] {
        assert_eq!(
            config(&made(server)),
            json!({"auths": {"https://index.docker.io/v1/": entry}})
        );
    }
    let plan = PodPlan {
        always_pull: true,
        ..plan(&job, 1, 1, &[])
    };
    let spec = pod(&settings(), &plan).unwrap().spec.unwrap();
    let named = spec.image_pull_secrets.unwrap().remove(0).name;
    assert_eq!(Some(named), secret.metadata.name);
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(spec.init_containers.unwrap()[0].image_pull_policy, None);
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
        ..PodSettings::default()
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
fn a_pod_needs_an_image() {
    let mut settings = settings();
    settings.default_image = None;
    let job = job();
    assert_eq!(pod(&settings, &plan(&job, 0, 1, &[])), Err(NoImage));
}

#[test]
fn a_user_has_a_namespace_with_quota_limits_and_network_policy() {
    let quota = Quota {
        cpu: Some(paddlecloud_core::quantity::Cpu::millis(8000)),
        memory: Some(paddlecloud_core::quantity::Bytes::mib(1024)),
        gpu: Some(2),
        ..Quota::default()
    };
    let tenant = tenancy::tenant(&settings(), None, "ada", &quota);
    let all = [
        yaml(&tenant.namespace),
        yaml(&tenant.quota),
        yaml(&tenant.limits),
        yaml(&tenant.network),
    ];
    insta::assert_snapshot!(all.join("\n---\n"));
    let job = job();
    let network = tenancy::run_network(&settings(), &job, "ada", owner_reference(&job, "0b0e")).unwrap();
    insta::assert_snapshot!("workers_of_a_run_reach_each_other", yaml(&network));
}

#[test]
fn what_a_worker_writes_is_limited_and_not_reserved() {
    let job = job_with(|spec| spec.disk = Some(Bytes::mib(300)));
    let spec = pod(&settings(), &plan(&job, 0, 1, &[])).unwrap().spec.unwrap();
    let amount = "300Mi";
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        let resources = container.resources.as_ref().unwrap();
        assert_eq!(resources.limits.as_ref().unwrap()[DISK].0, amount);
        assert_eq!(resources.requests.as_ref().unwrap()[DISK].0, "0");
    }
    let own = &spec.volumes.unwrap()[0];
    let limit = own.empty_dir.as_ref().unwrap().size_limit.clone();
    assert_eq!(limit.unwrap().0, amount, "{}", own.name);
}

#[test]
fn the_server_binds_its_role_to_its_own_account() {
    let settings = Settings {
        namespace_role: Some("paddlecloud-users".into()),
        ..settings()
    };
    let binding = |user: &str| {
        let grant = tenancy::Grant::new("paddlecloud-users", user);
        let tenant = tenancy::tenant(&settings, Some(&grant), "ada", &Quota::default());
        let labels = tenant.namespace.metadata.labels.unwrap();
        assert_eq!(labels[names::NAMESPACE_ROLE], "paddlecloud-users");
        tenant.binding.unwrap()
    };
    let account = binding("system:serviceaccount:paddlecloud:server");
    insta::assert_snapshot!(yaml(&account));
    let person = binding("ada@example.org");
    assert_ne!(person.metadata.name, account.metadata.name);
    let subject = &person.subjects.unwrap()[0];
    assert_eq!(
        (subject.kind.as_str(), subject.name.as_str()),
        ("User", "ada@example.org")
    );
}

#[test]
fn a_worker_that_lost_its_node_avoids_it() {
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
    assert!(gang::pod_group(&settings, &job, "ada", owner_reference(&job, "0b0e")).is_none());
}

#[test]
fn volcano_schedules_a_run_as_its_own_kind_of_pod_group() {
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
    let group = gang::pod_group(&settings, &job, "ada", owner_reference(&job, "0b0e")).unwrap();
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
    let namespace = settings.namespaces.of(&job.user, || "own".to_owned());
    assert_eq!(namespace, "team");
    let mounts = [Mount {
        source: "home/ada".into(),
        target: "/pfs/local/home/ada".into(),
        read_only: false,
    }];
    let pod = pod(&settings, &plan(&job, 0, 1, &mounts)).unwrap();
    let spec = yaml(&pod.spec);
    assert!(spec.contains("cephfs.csi.ceph.com"), "{spec}");
    assert!(spec.contains("\"tree/home/ada\""), "{spec}");
    assert_eq!(settings.volume.security_level(), "restricted");
}
