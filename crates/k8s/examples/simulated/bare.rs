//! The bare client: creates pods and nothing else, several at once, and deletes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinSet;

/// How many copies fill a simulated node, as our scheduler fills one after the other.
const COPIES_ON_A_NODE: usize = 25;

/// How many calls may be needed to delete all pods.
const CALLS: usize = 20;

/// Creates the pods of a file again and again, pinned to simulated nodes.
pub async fn create(client: Client, file: &str, copies: usize, clients: usize, nodes: usize) {
    let text = std::fs::read(file).expect("the file of pods");
    let pods: Vec<Pod> = serde_json::from_slice(&text).expect("a list of pods");
    let pods = Arc::new(pods);
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (client, pods, next) = (client.clone(), Arc::clone(&pods), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= copies * pods.len() {
                    return;
                }
                let mut pod = pods[index % pods.len()].clone();
                pod.metadata.name = Some(format!("{}-{}", pod.name_any(), index / pods.len()));
                let node = index / pods.len() / COPIES_ON_A_NODE % nodes;
                pin(&mut pod, &format!("simulated-{node}"));
                let namespace = pod.namespace().expect("a pod of the file has a namespace");
                let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                let made = api.create(&PostParams::default(), &pod).await;
                made.expect("the API server accepts the pod");
            }
        });
    }
    tasks.join_all().await;
}

/// Deletes pods. `kubectl` would send a call for each. The API server ends a call after a minute, in which it does not delete
/// thousands; what it has deleted by then is gone.
pub async fn delete(client: Client, namespace: &str, selector: &str) {
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let (at_once, these) = (
        DeleteParams::default().grace_period(0),
        ListParams::default().labels(selector),
    );
    for _ in 0..CALLS {
        if api.delete_collection(&at_once, &these).await.is_ok() {
            return;
        }
    }
    panic!("the API server does not delete the pods");
}

/// Replaces the node that a pod is pinned to.
fn pin(pod: &mut Pod, node: &str) {
    let spec = pod.spec.as_mut().expect("a pod has a spec");
    let affinity = spec
        .affinity
        .as_mut()
        .and_then(|affinity| affinity.node_affinity.as_mut());
    let required = affinity
        .and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_mut())
        .expect("the server pins its pods");
    for field in required
        .node_selector_terms
        .iter_mut()
        .flat_map(|term| &mut term.match_fields)
    {
        field
            .iter_mut()
            .for_each(|field| field.values = Some(vec![node.to_owned()]));
    }
}
