//! Finds the peers of a pod by their names or in the cluster's list of pods. Waits until all are present.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_core::duration;
use paddlecloud_core::plan::Role;
use tokio::time::Instant;

use super::api::{Api, ListedPod};
use super::team::{Team, sorted_as_text};
use super::{Assembly, LaunchError};
use crate::launch::leaving::say;

/// Pause between two DNS lookups.
const PAUSE: Duration = Duration::from_millis(300);

/// How to find the pods of this job.
pub enum Discovery {
    Names(Names),
    Labels(Labels),
}

impl Discovery {
    /// A single trainer without peers.
    pub fn single() -> Discovery {
        Discovery::Names(Names {
            trainers: vec!["127.0.0.1".to_owned()],
            pservers: Vec::new(),
            role: Role::Trainer,
            index: 0,
        })
    }
}

/// Every worker's host name or address, in order of index.
#[derive(Debug, Clone)]
pub struct Names {
    pub trainers: Vec<String>,
    pub pservers: Vec<String>,
    pub role: Role,
    pub index: u32,
}

/// Pods of a Job without a completion index. Their ids are the order of their addresses, sorted as text.
#[derive(Debug, Clone)]
pub struct Labels {
    pub namespace: String,
    /// `key=value` of the pods with trainers.
    pub trainers: String,
    pub pservers: String,
    pub role: Role,
}

/// The result of one search for the peers.
enum Found {
    All(Team),
    /// A description of the missing peers.
    Not(String),
}

impl Names {
    pub fn check(&self) -> Result<(), LaunchError> {
        let (role, index) = (self.role, self.index);
        let count = self.of(role).len();
        match (index as usize) < count {
            true => Ok(()),
            false => Err(LaunchError::new(format!(
                "this is {role} {index}, but there are {count}, counted from 0"
            ))),
        }
    }

    fn of(&self, role: Role) -> &[String] {
        match role {
            Role::Pserver => &self.pservers,
            Role::Trainer => &self.trainers,
        }
    }

    async fn look(&self) -> Found {
        let mut missing = Vec::new();
        let pservers = resolve_all(&self.pservers, Role::Pserver, &mut missing).await;
        let trainers = resolve_all(&self.trainers, Role::Trainer, &mut missing).await;
        if !missing.is_empty() {
            return Found::Not(missing.join(", "));
        }
        let own = match self.role {
            Role::Pserver => &pservers,
            Role::Trainer => &trainers,
        };
        let own = own.get(self.index as usize).copied();
        Found::All(Team {
            own: own.unwrap_or(Ipv4Addr::LOCALHOST),
            index: self.index,
            pservers,
            trainers,
        })
    }
}

async fn resolve_all(names: &[String], role: Role, missing: &mut Vec<String>) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match resolve(name).await {
            Some(address) => addresses.push(address),
            None => missing.push(format!("{role} {index} (`{name}`)")),
        }
    }
    addresses
}

async fn resolve(name: &str) -> Option<Ipv4Addr> {
    let found = tokio::net::lookup_host((name, 0)).await.ok()?;
    found
        .map(|address| address.ip())
        .find_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
}

/// Waits for all peers. After the deadline, fails and names the missing ones.
pub async fn find(assembly: &Assembly, deadline: Instant) -> Result<Team, LaunchError> {
    match &assembly.discovery {
        Discovery::Names(names) => find_by_name(names, deadline, assembly.start_limit).await,
        Discovery::Labels(labels) => find_by_label(labels, assembly, deadline).await,
    }
}

async fn find_by_name(names: &Names, deadline: Instant, limit: Duration) -> Result<Team, LaunchError> {
    loop {
        let missing = match names.look().await {
            Found::All(team) => return Ok(team),
            Found::Not(missing) => missing,
        };
        if Instant::now() >= deadline {
            return Err(absent(limit, &missing));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn find_by_label(labels: &Labels, assembly: &Assembly, deadline: Instant) -> Result<Team, LaunchError> {
    let api = Api::of_this_pod()?;
    loop {
        let trainers = api
            .pods(&labels.namespace, &labels.trainers, deadline, say)
            .await?;
        let found = match labels.trainers == labels.pservers {
            true => labels.look(&trainers.pods, &trainers.pods, &trainers.local, assembly),
            false => {
                let pservers = api
                    .pods(&labels.namespace, &labels.pservers, deadline, say)
                    .await?;
                labels.look(&trainers.pods, &pservers.pods, &trainers.local, assembly)
            }
        };
        let missing = match found {
            Found::All(team) => return Ok(team),
            Found::Not(missing) => missing,
        };
        if Instant::now() >= deadline {
            return Err(absent(assembly.start_limit, &missing));
        }
        api.wait_for_change(&labels.namespace, &trainers.version, deadline)
            .await;
    }
}

impl Labels {
    /// `local` is the address from which this pod sent its request.
    fn look(
        &self,
        trainers: &[ListedPod],
        pservers: &[ListedPod],
        local: &Ipv4Addr,
        assembly: &Assembly,
    ) -> Found {
        let counts = [
            (trainers, assembly.trainers, &self.trainers),
            (pservers, assembly.pservers, &self.pservers),
        ];
        let short = counts
            .into_iter()
            .find_map(|(pods, count, label)| short_of(pods, count, label));
        if let Some(missing) = short {
            return Found::Not(missing);
        }
        let [trainers, pservers] = [trainers, pservers].map(in_order);
        let mine = match self.role {
            Role::Pserver => &pservers,
            Role::Trainer => &trainers,
        };
        match mine.iter().position(|address| address == local) {
            Some(index) => Found::All(Team {
                index: index as u32,
                own: *local,
                trainers,
                pservers,
            }),
            None => Found::Not(format!("this pod's own address {local} in the list of pods")),
        }
    }
}

/// Sorted by completion index if the Job sets one, otherwise by address.
fn in_order(pods: &[ListedPod]) -> Vec<Ipv4Addr> {
    let mut pods: Vec<&ListedPod> = pods.iter().filter(|pod| pod.address.is_some()).collect();
    let indexed = pods.iter().all(|pod| pod.index.is_some());
    pods.sort_by_key(|pod| pod.index);
    let addresses = pods.iter().filter_map(|pod| pod.address).collect();
    match indexed {
        true => addresses,
        false => sorted_as_text(addresses),
    }
}

/// Why these are not the expected pods.
fn short_of(pods: &[ListedPod], expected: u32, label: &str) -> Option<String> {
    let running = pods.iter().filter(|pod| pod.address.is_some()).count();
    if running == expected as usize {
        return None;
    }
    let waiting = pods.iter().filter(|pod| pod.address.is_none());
    let mut words: Vec<String> = waiting
        .map(|pod| format!("pod `{}` ({})", pod.name, pod.phase))
        .collect();
    words.insert(
        0,
        format!("{running} of {expected} pods with label `{label}` are running"),
    );
    Some(words.join(", "))
}

/// The error for peers that are missing after the limit.
pub fn absent(limit: Duration, missing: &str) -> LaunchError {
    let limit = SignedDuration::try_from(limit).map_or_else(|_| "the limit".to_owned(), duration::print);
    LaunchError::new(format!(
        "not all peers appeared within {limit}; missing: {missing}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str, address: Option<&str>) -> ListedPod {
        ListedPod {
            name: name.into(),
            phase: phase.into(),
            address: address.map(|address| address.parse().unwrap()),
            index: None,
        }
    }

    #[test]
    fn a_completion_index_decides_before_the_address() {
        let mut pods = [
            pod("a", "Running", Some("10.0.0.9")),
            pod("b", "Running", Some("10.0.0.10")),
        ];
        let text = |pods: &[ListedPod]| in_order(pods).iter().map(Ipv4Addr::to_string).collect::<Vec<_>>();
        assert_eq!(text(&pods), ["10.0.0.10", "10.0.0.9"]);
        pods[0].index = Some(0);
        pods[1].index = Some(1);
        assert_eq!(text(&pods), ["10.0.0.9", "10.0.0.10"]);
    }

    #[test]
    fn missing_pods_are_named_with_their_phase() {
        let pods = [pod("a", "Running", Some("10.0.0.1")), pod("b", "Pending", None)];
        let words = short_of(&pods, 3, "job-name=demo").unwrap();
        assert_eq!(
            words,
            "1 of 3 pods with label `job-name=demo` are running, pod `b` (Pending)"
        );
        assert_eq!(short_of(&pods, 1, "job-name=demo"), None);
    }

    #[tokio::test]
    async fn an_unresolvable_name_is_reported_at_the_limit() {
        let names = Names {
            trainers: vec!["127.0.0.1".into(), "nobody.invalid".into()],
            pservers: vec![],
            role: Role::Trainer,
            index: 0,
        };
        let error = find_by_name(&names, Instant::now(), Duration::from_secs(600)).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "not all peers appeared within 10m; missing: trainer 1 (`nobody.invalid`)"
        );
    }
}
