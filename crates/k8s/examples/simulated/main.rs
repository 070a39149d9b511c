//! The other sides of `cargo xtask bench k8s many`, where no node is real: a bare client that creates the same pods, an
//! observer that counts running pods, and launchers without a worker that speak the link's protocol.
//!
//! The benchmark itself is in `e2e`, which uses no Kubernetes client.

mod bare;
mod launchers;
mod observer;

use kube::Client;
use observer::running_pods;

const HELP: &str = "\
Usage: simulated create FILE COPIES CLIENTS NODES
                                              create all pods of the file COPIES times, CLIENTS at once
       simulated delete NAMESPACE SELECTOR    delete these pods in one call, without their nodes
       simulated observe NAMESPACE SELECTOR PODS
                                              print `running` when this many pods run
       simulated launch NAMESPACE SELECTOR PODS
                                              link every running pod to its server; print `started` when all of them
                                              are started, and end them when stdin is closed
";

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let client = Client::try_default()
        .await
        .expect("KUBECONFIG leads to a cluster");
    match words[..] {
        ["create", file, copies, clients, nodes] => {
            bare::create(client, file, count(copies), count(clients), count(nodes)).await;
        }
        ["delete", namespace, selector] => bare::delete(client, namespace, selector).await,
        ["observe", namespace, selector, pods] => {
            observer::observe(running_pods(client, namespace, selector), count(pods)).await;
        }
        ["launch", namespace, selector, pods] => {
            let running = running_pods(client.clone(), namespace, selector);
            launchers::launch(client, namespace, running, count(pods)).await;
        }
        _ => print!("{HELP}"),
    }
}

fn count(text: &str) -> usize {
    text.parse().expect("a number")
}
