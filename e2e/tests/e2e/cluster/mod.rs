//! Jobs on a real Kubernetes cluster, driven as on one machine.

mod api_server;
mod bad_input;
mod by_hand;
mod crash;
mod disruptions;
mod gangs;
mod installed;
mod life;
mod nodes;
mod rights;
mod secrets;
mod storage;
mod tenancy;
mod training;

use e2e::TestEnvironment;
use e2e::api_proxy::ApiProxy;
use e2e::cluster::{Cluster, ClusterServer, Difference};

/// A server that reaches the API server through a proxy, and its first user.
fn start_behind_proxy(cluster: &Cluster) -> (TestEnvironment, ApiProxy, ClusterServer) {
    let mut env = TestEnvironment::new();
    let proxy = ApiProxy::start(cluster);
    let server = ClusterServer::start_with(&mut env, cluster, |server| Difference {
        kubeconfig: Some(proxy.kubeconfig(&server.path("proxy.conf"))),
        ..Difference::default()
    });
    server.configure(&env, 0);
    (env, proxy, server)
}
