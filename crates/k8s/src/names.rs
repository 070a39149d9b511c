//! Names and labels of a run's objects. All derive from the run, the worker and the attempt, so that a repeated order
//! refers to the same object.

use std::collections::BTreeMap;

use paddlecloud_core::job::{Job, Role, Worker, WorkerKey};
use paddlecloud_core::names::{JobId, JobName};
use paddlecloud_core::ports::AttemptKey;

/// Prefix of labels other than the documented ones.
const PREFIX: &str = "cloud.paddlepaddle.org";

/// The server that created an object: two servers in one cluster ignore each other's objects.
pub const SERVER: &str = "cloud.paddlepaddle.org/server";
/// The ClusterRole that the server has bound in a namespace of its own. Admission lets its account bind it nowhere else.
pub const NAMESPACE_ROLE: &str = "cloud.paddlepaddle.org/namespace-role";
pub const RUN: &str = "cloud.paddlepaddle.org/run";
pub(crate) const ROLE: &str = "cloud.paddlepaddle.org/role";
pub(crate) const INDEX: &str = "cloud.paddlepaddle.org/index";
pub(crate) const ATTEMPT: &str = "cloud.paddlepaddle.org/attempt";

/// The longest host name, which is a DNS label.
const HOST_NAME: usize = 63;

/// Leaves room for the suffix `-pserver-9999`.
const GROUP_NAME: usize = HOST_NAME - 13;

/// The namespace of an account where another PaddleCloud server has the usual one. No account asks for a name with these
/// two hyphens and digits at its end, so no two share one.
pub fn namespace_beside(usual: &str, server: &str) -> String {
    let end = format!("--{server}");
    if usual.len() + end.len() <= HOST_NAME {
        return format!("{usual}{end}");
    }
    let mark = &blake3::hash(usual.as_bytes()).to_hex()[..8];
    let kept = HOST_NAME.saturating_sub(end.len() + mark.len() + 1);
    format!("{}-{mark}{end}", usual[..kept].trim_end_matches('-'))
}

/// The object that owns all others of a run: `<job>-<digits of the run's id>`.
pub fn owner(job: &Job) -> String {
    let digits = job.id.as_str().trim_start_matches("j_");
    object_name(&format!("{}-{digits}", job.spec.name))
}

/// The secret with which nodes pull the image of a run.
pub fn pull_secret(job: &Job) -> String {
    format!("{}-pull", owner(job))
}

/// The name of a run's gang in other systems. Short enough for a label, unlike the owner's name.
pub fn group(job: &JobId) -> String {
    format!("run-{}", job.as_str().trim_start_matches("j_"))
}

/// `<job>-trainer-3s4nz`; later attempts append their number.
pub fn pod(worker: &Worker, attempt: u32) -> String {
    match attempt {
        1 => object_name(&worker.name),
        later => object_name(&format!("{}-{later}", worker.name)),
    }
}

/// The host name of a pod: a single label, without the dots of the job's name.
pub fn host(worker: &Worker) -> String {
    let label = object_name(&worker.name).replace('.', "-");
    label[..label.len().min(HOST_NAME)]
        .trim_end_matches('-')
        .to_owned()
}

/// Object names are lower case and do not contain `.-` or `-.`. Everything else in a job's name is valid.
fn object_name(name: &str) -> String {
    let mut lower = name.to_ascii_lowercase();
    for (bad, good) in [(".-", "--"), ("-.", "--")] {
        while lower.contains(bad) {
            lower = lower.replace(bad, good);
        }
    }
    lower
}

/// The name of a printed job's Service, and the prefix of its pods' names: a DNS label that leaves room for
/// `-pserver-9999`. Names that had to be changed get a hash as suffix, so that no two jobs share one.
pub fn printed_group(job: &JobName) -> String {
    let text = job.as_str();
    let plain = text.to_ascii_lowercase().replace('.', "-");
    let starts_well = plain.starts_with(|first: char| first.is_ascii_lowercase());
    if plain == text && starts_well && plain.len() <= GROUP_NAME {
        return plain;
    }
    let mark = &blake3::hash(text.as_bytes()).to_hex()[..5];
    let stem = if starts_well {
        plain
    } else {
        format!("job-{plain}")
    };
    let stem = stem[..stem.len().min(GROUP_NAME - mark.len() - 1)].trim_end_matches('-');
    format!("{stem}-{mark}")
}

/// The documented label for selecting pods of a role.
pub fn role_label(role: Role) -> &'static str {
    match role {
        Role::Trainer => "paddle-job",
        Role::Pserver => "paddle-job-pserver",
    }
}

/// The labels by which `paddlectl` and users select pods.
pub fn labels(server: &str, job: &Job, worker: WorkerKey, attempt: u32) -> BTreeMap<String, String> {
    let mut labels = run_labels(server, &job.id);
    labels.insert(role_label(worker.role).to_owned(), job.spec.name.to_string());
    labels.insert(ROLE.to_owned(), worker.role.to_string());
    labels.insert(INDEX.to_owned(), worker.index.to_string());
    labels.insert(ATTEMPT.to_owned(), attempt.to_string());
    labels
}

/// Labels of every object of a run.
pub fn run_labels(server: &str, run: &JobId) -> BTreeMap<String, String> {
    BTreeMap::from([
        (
            "app.kubernetes.io/managed-by".to_owned(),
            "paddlecloud".to_owned(),
        ),
        (SERVER.to_owned(), server.to_owned()),
        (RUN.to_owned(), run.to_string()),
    ])
}

/// Selects every pod of this server.
pub fn selector(server: &str) -> String {
    debug_assert!(SERVER.starts_with(PREFIX));
    format!("{SERVER}={server}")
}

/// The attempt that a pod's labels name.
pub fn attempt_of(labels: &BTreeMap<String, String>) -> Option<AttemptKey> {
    let [job, role, index, attempt] = [RUN, ROLE, INDEX, ATTEMPT].map(|label| labels.get(label));
    format!("{}.{}-{}.{}", job?, role?, index?, attempt?).parse().ok()
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::testing::samples;

    use super::*;

    fn job(name: &str) -> Job {
        samples::starting(7, samples::spec(name, 1, 2))
    }

    /// Whether the API server accepts this as an object name.
    fn is_subdomain(name: &str) -> bool {
        let label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        name.len() <= 253 && name.split('.').all(label)
    }

    #[test]
    fn every_job_name_gives_names_that_the_api_server_takes() {
        let long = "x".repeat(63);
        for name in ["my-job", "Job-7", "a.b", "1.2", "a-.b", "a.-b", "A.-.-.b", &long] {
            let job = job(name);
            assert!(is_subdomain(&owner(&job)), "{}", owner(&job));
            assert!(is_subdomain(&pull_secret(&job)), "{}", pull_secret(&job));
            let group = group(&job.id);
            assert!(is_subdomain(&group) && group.len() <= 63, "{group}");
            for worker in &job.workers {
                for attempt in [1, 12] {
                    let pod = pod(worker, attempt);
                    assert!(is_subdomain(&pod), "{pod}");
                }
                let host = host(worker);
                assert!(
                    is_subdomain(&host) && !host.contains('.') && host.len() <= 63,
                    "{host}"
                );
            }
        }
    }

    #[test]
    fn every_job_name_gives_a_name_for_its_service() {
        let named = |name: &str| printed_group(&name.parse().unwrap());
        assert_eq!(named("my-job"), "my-job");
        let long = "x".repeat(63);
        for name in ["Job-7", "a.b", "1.2", "a-.b", "7", &long] {
            let group = named(name);
            assert!(
                is_subdomain(&group) && !group.contains('.') && group.len() <= 50,
                "{group}"
            );
            assert!(
                group.starts_with(|first: char| first.is_ascii_lowercase()),
                "{group}"
            );
        }
        assert_ne!(named("a.b"), named("a-b"));
    }

    #[test]
    fn a_namespace_beside_that_of_another_server_is_a_label_and_unique() {
        assert_eq!(namespace_beside("ada", "c83a494cce50"), "ada--c83a494cce50");
        let long = "x".repeat(63);
        let beside = namespace_beside(&long, "c83a494cce50");
        assert!(is_subdomain(&beside) && beside.len() <= 63, "{beside}");
        let near = format!("{}y", &long[..62]);
        assert_ne!(beside, namespace_beside(&near, "c83a494cce50"));
    }

    #[test]
    fn a_later_attempt_adds_its_number() {
        let job = job("my-job");
        let worker = &job.workers[1];
        assert_eq!(pod(worker, 1), worker.name);
        assert_eq!(pod(worker, 2), format!("{}-2", worker.name));
    }

    #[test]
    fn labels_read_back_as_their_attempt() {
        let job = job("my-job");
        let key = AttemptKey {
            job: job.id.clone(),
            worker: WorkerKey::pserver(0),
            attempt: 3,
        };
        let labels = labels("here", &job, key.worker, key.attempt);
        assert_eq!(attempt_of(&labels), Some(key));
        assert_eq!(attempt_of(&BTreeMap::new()), None);
    }
}
