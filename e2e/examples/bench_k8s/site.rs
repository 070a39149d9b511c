//! What every group needs: a server on the cluster, a user, and the job of three trainers and two parameter servers.

use e2e::TestEnvironment;
use e2e::api_proxy::ApiProxy;
use e2e::cluster::{Cluster, ClusterServer, Difference};

pub const TRAINERS: usize = 3;
pub const PSERVERS: usize = 2;
pub const PODS: usize = TRAINERS + PSERVERS;

/// On a busy machine a pod may take long; a benchmark waits.
const LIMITS: &str = "  seat_limit: 600s\n  lost_limit: 600s\n  trouble_limit: 600s\n";

/// A server and its first user, who is configured in the environment. Ended when dropped, the server first.
pub struct Site {
    pub server: ClusterServer,
    pub env: TestEnvironment,
}

impl Site {
    pub fn start(cluster: &Cluster) -> Site {
        Site::start_with(cluster, None, "")
    }

    /// A server that reaches the cluster through this proxy, or one with further settings of its pods.
    pub fn start_with(cluster: &Cluster, proxy: Option<&ApiProxy>, pods: &str) -> Site {
        let mut env = TestEnvironment::new();
        let server = ClusterServer::start_with(&mut env, cluster, |server| Difference {
            kubeconfig: proxy.map(|proxy| proxy.kubeconfig(&server.path("proxy.conf"))),
            kubernetes: format!("{LIMITS}{pods}"),
            ..Difference::default()
        });
        server.configure(&env, 0);
        Site { server, env }
    }

    pub fn namespace(&self) -> &str {
        self.server.namespace(0)
    }

    /// The arguments of `paddlectl` that submit a gang of this name; `package` is its folder.
    pub fn submit_gang<'a>(&self, name: &'a str, package: &'a str) -> Vec<&'a str> {
        self.submit(name, package, ["3", "2"])
    }

    /// The same for other numbers of trainers and parameter servers.
    pub fn submit<'a>(
        &self,
        name: &'a str,
        package: &'a str,
        [trainers, pservers]: [&'a str; 2],
    ) -> Vec<&'a str> {
        let mut args = vec!["submit", "-jobname", name, "-entry", "sh train.sh"];
        args.extend(["-parallelism", trainers, "-pservers", pservers]);
        args.extend([
            "-cpu",
            "200m",
            "-pscpu",
            "200m",
            "-memory",
            "64Mi",
            "-psmemory",
            "64Mi",
        ]);
        args.push(package);
        args
    }
}
