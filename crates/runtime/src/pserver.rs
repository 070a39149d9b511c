//! `paddle pserver`: a parameter server that reads its job from flags and environment.
//!
//! The work on parameters is in `paddlecloud_pserver`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use paddlecloud_pserver::client::{self, ClientError};
use paddlecloud_pserver::hello::RunSecret;
use paddlecloud_pserver::server::{self, Admission, Server};

use crate::options::{Options, PserverError};

/// How long to wait for an unreachable server when asking for its state.
const STAT_PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the process is killed; with `--until_trainers_leave`, until the last trainer has signed off.
pub fn serve(options: Options) -> Result<(), PserverError> {
    let server = Server::new(server::Config {
        index: options.index,
        servers: options.servers,
        trainers: options.trainers,
        attempt: options.attempt,
        finished: options.finished,
        cores: options.cores,
        memory: options.memory,
        secret: options.secret.as_deref().map(RunSecret::new),
        patience: options.patience,
    });
    let admission = match &options.secret {
        Some(_) => Admission::BySecret,
        None => Admission::ByAddress(options.peers.iter().copied().collect()),
    };
    let addresses: Vec<SocketAddr> = (options.port..options.port + options.ports)
        .map(|port| SocketAddr::new(options.address, port))
        .collect();
    server::listen(&server, &addresses, &admission, paddlecloud_supervisor::peer_user)?;
    if let Some(port) = options.metrics_port {
        let address = server::serve_metrics(&server, SocketAddr::new(options.address, port))?;
        println!("metrics on http://{address}/metrics");
    }
    println!(
        "listening on {} ports {} to {}",
        options.address,
        options.port,
        options.port + options.ports - 1
    );
    println!(
        "parameter server {} of {} for {} trainer{}, {}",
        options.index,
        options.servers,
        options.trainers,
        if options.trainers == 1 { "" } else { "s" },
        memory(options.memory)
    );
    if options.until_trainers_leave {
        server.wait_until_all_left();
        println!("all trainers have left");
        return Ok(());
    }
    loop {
        thread::park();
    }
}

/// The states of the named servers, or of those of this job.
pub fn stat(args: &[OsString], env: impl Fn(&str) -> Option<String>) -> Vec<Result<String, ClientError>> {
    let named: Vec<String> = args
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let of_job = || env("PADDLE_PSERVERS_IP_PORT_LIST").unwrap_or_else(|| "127.0.0.1:7164".to_owned());
    let addresses = match named.is_empty() {
        true => of_job().split(',').map(str::to_owned).collect(),
        false => named,
    };
    let secret = env("PADDLE_PS_SECRET").map(|text| RunSecret::new(&text));
    client::stat(&addresses, secret.as_ref(), STAT_PATIENCE)
}

fn memory(limit: u64) -> String {
    match limit {
        u64::MAX => "no memory limit".to_owned(),
        limit => format!("{} MiB for parameters", limit >> 20),
    }
}
