//! Lists the objects of a run in the cluster. Pure: their names derive from the job.

use paddlecloud_core::job::Job;

use crate::names;
use crate::settings::{Namespaces, Placement};

/// One object, as `kubectl get KIND -n NAMESPACE NAME` finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
}

/// The objects of a started job, the owner first. A job that waits or has ended has none.
pub fn objects(
    job: &Job,
    namespace: &str,
    namespaces: &Namespaces,
    placement: &Placement,
) -> Vec<ObjectName> {
    if job.phase.is_final() || job.workers.iter().all(|worker| worker.attempt == 0) {
        return Vec::new();
    }
    let object = |kind, name| ObjectName {
        kind,
        namespace: namespace.to_owned(),
        name,
    };
    let mut objects = vec![object("Secret", names::owner(job))];
    if job.spec.registry.is_some() {
        objects.push(object("Secret", names::pull_secret(job)));
    }
    if let Placement::Volcano { .. } = placement {
        objects.push(object("PodGroup", names::group(&job.id)));
    }
    if *namespaces == Namespaces::PerUser && job.workers.len() > 1 {
        objects.push(object("NetworkPolicy", names::owner(job)));
    }
    for worker in job.workers.iter().filter(|worker| worker.attempt > 0) {
        let name = names::pod(worker, worker.attempt);
        if worker.attempt > 1 {
            objects.push(object("Secret", name.clone()));
        }
        objects.push(object("Pod", name));
    }
    objects
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::testing::samples;

    use super::*;

    fn words(job: &Job, placement: &Placement) -> Vec<String> {
        let objects = objects(job, "ada", &Namespaces::PerUser, placement);
        let words = |object: &ObjectName| format!("{} {}", object.kind, object.name);
        objects.iter().map(words).collect()
    }

    #[test]
    fn pull_secret_and_pod_group_are_objects_of_the_run() {
        let mut spec = samples::spec("my-job", 0, 1);
        spec.registry = Some("hub".into());
        let mut job = samples::starting(7, spec);
        job.workers[0].attempt = 1;
        let queue = "training".to_owned();
        let owner = names::owner(&job);
        let expected = [
            format!("Secret {owner}"),
            format!("Secret {owner}-pull"),
            format!("PodGroup {}", names::group(&job.id)),
            format!("Pod {}", job.workers[0].name),
        ];
        assert_eq!(words(&job, &Placement::Volcano { queue }), expected);
    }

    #[test]
    fn a_later_attempt_has_its_own_secret() {
        let mut job = samples::starting(7, samples::spec("my-job", 0, 2));
        job.workers[0].attempt = 1;
        job.workers[1].attempt = 2;
        let words = words(&job, &Placement::Pinned);
        let names: Vec<&str> = job.workers.iter().map(|worker| worker.name.as_str()).collect();
        let expected = [
            format!("Secret {}", names::owner(&job)),
            format!("NetworkPolicy {}", names::owner(&job)),
            format!("Pod {}", names[0]),
            format!("Secret {}-2", names[1]),
            format!("Pod {}-2", names[1]),
        ];
        assert_eq!(words, expected);
    }
}
