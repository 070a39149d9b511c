//! Which objects of the cluster a run has. Pure: their names derive from the job.

use paddlecloud_core::job::Job;

use crate::names;
use crate::settings::Namespaces;

/// One object, as `kubectl get KIND -n NAMESPACE NAME` finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
}

/// The objects of a job that has been started: what owns the others first. A job that waits or is over has none.
pub fn objects(job: &Job, namespaces: &Namespaces) -> Vec<ObjectName> {
    if job.phase.is_final() || job.workers.iter().all(|worker| worker.attempt == 0) {
        return Vec::new();
    }
    let namespace = namespaces.of(&job.user);
    let object = |kind, name| ObjectName {
        kind,
        namespace: namespace.clone(),
        name,
    };
    let mut objects = vec![object("Secret", names::owner(job))];
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

    #[test]
    fn a_later_attempt_has_a_secret_beside_its_pod() {
        let mut job = samples::starting(7, samples::spec("my-job", 0, 2));
        job.workers[0].attempt = 1;
        job.workers[1].attempt = 2;
        let words: Vec<String> = objects(&job, &Namespaces::PerUser)
            .iter()
            .map(|object| format!("{} {}", object.kind, object.name))
            .collect();
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
