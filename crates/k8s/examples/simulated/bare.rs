//! The bare client: creates pods and nothing else, several at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinSet;

pub async fn create(client: Client, file: &str, copies: usize, clients: usize) {
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
                let namespace = pod.namespace().expect("a pod of the file has a namespace");
                let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                let made = api.create(&PostParams::default(), &pod).await;
                made.expect("the API server accepts the pod");
            }
        });
    }
    tasks.join_all().await;
}
