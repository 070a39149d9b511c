//! Counts running pods, at the least cost for the API server: it receives metadata only, and only of running pods.

use std::collections::HashSet;
use std::pin::pin;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};

pub async fn observe(running: impl Stream<Item = PartialObjectMeta<Pod>>, pods: usize) {
    let mut seen = HashSet::new();
    let mut running = pin!(running);
    while let Some(pod) = running.next().await {
        seen.insert(pod.name_any());
        if seen.len() == pods {
            println!("running");
            return;
        }
    }
}

/// Every running pod of a namespace with these labels, some of them several times.
pub fn running_pods(
    client: Client,
    namespace: &str,
    selector: &str,
) -> impl Stream<Item = PartialObjectMeta<Pod>> + use<> {
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, namespace);
    let running = watcher::Config::default().fields("status.phase=Running");
    let events = watcher(api, running.labels(selector));
    events.filter_map(|event| async move {
        match event.expect("the pods can be watched") {
            Event::Apply(pod) | Event::InitApply(pod) => Some(pod),
            Event::Delete(_) | Event::Init | Event::InitDone => None,
        }
    })
}
