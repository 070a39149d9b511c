//! How often the API server is called over a job's life. The calls are counted by a proxy, whose time is not measured.

use e2e::api_proxy::ApiProxy;
use e2e::cluster::Cluster;

use crate::figures::Row;
use crate::site::Site;

pub fn measure(cluster: &Cluster) -> Vec<Row> {
    let proxy = ApiProxy::start(cluster);
    let site = Site::start_with(cluster, Some(&proxy), "");
    let package = site.env.package("calls").file("train.sh", "echo begun\n");
    let jobs = ["first", "second"];
    let counts: Vec<String> = jobs
        .iter()
        .map(|name| {
            proxy.forget();
            site.env.paddlectl(&site.submit_gang(name, package.arg())).ok();
            site.env.wait_for_status(name, "Succeeded");
            site.server.wait_until_empty(0);
            proxy.calls().len().to_string()
        })
        .collect();
    let measured = format!(
        "{} for the user's first job, {} for the next",
        counts[0], counts[1]
    );
    vec![Row::new(
        "API calls over a job's life, 3 + 2 pods",
        measured,
        "≤ 2 × pods + 6 = 16",
    )]
}
