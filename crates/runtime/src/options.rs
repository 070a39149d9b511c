//! The flags of `paddle pserver`, in the spelling of 2017, with the environment as fallback.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use paddlecloud_pserver::server::ListenError;

use crate::flags::{FlagError, Flags, Known};
use crate::tools;

/// Why a parameter server does not start.
#[derive(Debug, thiserror::Error)]
pub enum PserverError {
    #[error("`{flag}` must be a port number, not `{value}`")]
    Port { flag: &'static str, value: String },
    #[error("`{flag}` must be a number, not `{value}`")]
    Number { flag: &'static str, value: String },
    #[error("this is parameter server {index}, but there are {servers}")]
    Index { index: u32, servers: u32 },
    #[error("`{value}` in POD_IP is not an address")]
    Address { value: String },
    #[error("a flag is not UTF-8")]
    NotText,
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Where to listen, who may connect, and how much memory to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub address: IpAddr,
    pub port: u16,
    /// Dense and sparse ports together.
    pub ports: u16,
    /// This server's index, and the number of servers.
    pub index: u32,
    pub servers: u32,
    pub trainers: u32,
    /// The number of this worker's attempt.
    pub attempt: u32,
    /// Trainers that had succeeded when this attempt was started.
    pub finished: Vec<u32>,
    pub cores: usize,
    /// Bytes for parameters; `u64::MAX`: no limit.
    pub memory: u64,
    pub secret: Option<String>,
    /// Addresses of the job's workers; without a secret, only they may connect.
    pub peers: Vec<IpAddr>,
    /// The port for Prometheus; `None` for no metrics.
    pub metrics_port: Option<u16>,
    pub until_trainers_leave: bool,
    pub patience: Duration,
}

/// The options that have an effect; those of 2017 have none.
const KNOWN: Known<'static> = Known {
    valued: &[
        "port",
        "ports_num",
        "ports_num_for_sparse",
        "pserver_id",
        "pservers",
        "num_gradient_servers",
        "cores",
        "memory",
        "patience",
        "metrics_port",
    ],
    switches: &["until_trainers_leave"],
    commands: &tools::COMMANDS,
};

/// Memory for the program itself and its connections.
const OWN_MEMORY: u64 = 16 << 20;

impl Options {
    /// Reads `--port=7164` or `--port 7164`. Options that only the programs of 2017 had are accepted; others are an error.
    pub fn parse(args: &[OsString], env: impl Fn(&str) -> Option<String>) -> Result<Options, PserverError> {
        let words: Vec<&str> = args
            .iter()
            .map(|word| word.to_str().ok_or(PserverError::NotText))
            .collect::<Result<_, _>>()?;
        let given = Given {
            flags: KNOWN.parse(&words)?,
            env,
        };
        let (port, ports) = given.ports()?;
        let address = match given.variable("POD_IP") {
            Some(value) => value.parse().map_err(|_| PserverError::Address { value })?,
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let (index, servers) = given.position(address)?;
        Ok(Options {
            address,
            port,
            ports,
            index,
            servers,
            trainers: given
                .number("--num_gradient_servers", "PADDLE_INIT_NUM_GRADIENT_SERVERS", 1)?
                .max(1),
            attempt: attempt(&given.variable("PADDLECLOUD_ATTEMPT").unwrap_or_default()),
            finished: given.finished(),
            cores: given.number("--cores", "OMP_NUM_THREADS", 1)?.max(1),
            memory: for_parameters(given.number("--memory", "PADDLE_PS_MEMORY", u64::MAX)?),
            secret: given.variable("PADDLE_PS_SECRET"),
            peers: given.peers(),
            metrics_port: Some(given.number("--metrics_port", "PADDLE_PS_METRICS_PORT", 0)?)
                .filter(|port| *port > 0),
            until_trainers_leave: given.flags.contains_key("until_trainers_leave"),
            patience: Duration::from_secs(given.number("--patience", "PADDLE_PS_PATIENCE", 30)?),
        })
    }
}

struct Given<E> {
    flags: Flags,
    env: E,
}

impl<E: Fn(&str) -> Option<String>> Given<E> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    fn value(&self, flag: &str, variable: &str) -> Option<String> {
        let given = self.flags.get(flag.trim_start_matches('-'));
        let given = given.filter(|value| !value.is_empty()).cloned();
        given.or_else(|| self.variable(variable))
    }

    fn number<T: FromStr>(&self, flag: &'static str, variable: &str, default: T) -> Result<T, PserverError> {
        match self.value(flag, variable) {
            Some(value) => value.parse().map_err(|_| PserverError::Number { flag, value }),
            None => Ok(default),
        }
    }

    /// The first port and the number of ports: dense ones first, then sparse ones.
    fn ports(&self) -> Result<(u16, u16), PserverError> {
        let port = |flag: &'static str, variable, default| {
            self.number(flag, variable, default).map_err(|error| match error {
                PserverError::Number { flag, value } => PserverError::Port { flag, value },
                other => other,
            })
        };
        let first: u16 = port("--port", "PADDLE_INIT_PORT", 7164)?;
        let dense: u16 = port("--ports_num", "PADDLE_INIT_PORTS_NUM", 1)?;
        let sparse = port("--ports_num_for_sparse", "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", 1)?;
        let count = dense.saturating_add(sparse).max(1);
        if first == 0 || first.checked_add(count - 1).is_none() {
            return Err(PserverError::Port {
                flag: "--port",
                value: first.to_string(),
            });
        }
        Ok((first, count))
    }

    /// This server's index and the number of servers. The index is given, or found by address in the list of servers.
    fn position(&self, address: IpAddr) -> Result<(u32, u32), PserverError> {
        let servers = self.servers();
        let found = servers.iter().position(|server| *server == address.to_string());
        let default = found.unwrap_or(0) as u32;
        let index = self.number("--pserver_id", "PADDLE_PSERVER_ID", default)?;
        let servers = (servers.len() as u32).max(1);
        match index < servers {
            true => Ok((index, servers)),
            false => Err(PserverError::Index { index, servers }),
        }
    }

    /// The hosts of all parameter servers, in order.
    fn servers(&self) -> Vec<String> {
        let host = |word: &str| match word.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_string(),
            Err(_) => word.rsplit_once(':').map_or(word, |(host, _)| host).to_owned(),
        };
        let hosts = self
            .value("--pservers", "PADDLE_PSERVERS_IP_PORT_LIST")
            .or_else(|| self.variable("PADDLE_INIT_PSERVERS"))
            .unwrap_or_default();
        let words = hosts.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(host).collect()
    }

    fn finished(&self) -> Vec<u32> {
        let trainers = self.variable("PADDLE_PS_FINISHED").unwrap_or_default();
        let trainers = trainers.split(',').filter_map(|word| word.parse().ok());
        trainers.collect()
    }

    fn peers(&self) -> Vec<IpAddr> {
        let trainers = self.variable("PADDLE_TRAINER_ENDPOINTS").unwrap_or_default();
        let trainers = trainers
            .split(',')
            .filter_map(|word| word.trim().parse::<SocketAddr>().ok());
        let servers = self.servers().into_iter().filter_map(|host| host.parse().ok());
        trainers.map(|address| address.ip()).chain(servers).collect()
    }
}

/// `<run>.pserver-0.2` is the second attempt.
fn attempt(marker: &str) -> u32 {
    let number = marker.rsplit('.').next().and_then(|number| number.parse().ok());
    number.unwrap_or(1)
}

fn for_parameters(memory: u64) -> u64 {
    match memory {
        u64::MAX => u64::MAX,
        memory => (memory - memory / 8).saturating_sub(OWN_MEMORY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str, env: &[(&str, &str)]) -> Result<Options, PserverError> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Options::parse(&args, |name| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_line_of_2017_is_understood() {
        let line = "--nics=eth0 --port=7170 --ports_num=2 --ports_num_for_sparse 3 --comment=paddle_process_by_paddle --num_gradient_servers=3";
        let options = parse(line, &[("POD_IP", "127.64.0.9")]).unwrap();
        assert_eq!(options.address, "127.64.0.9".parse::<IpAddr>().unwrap());
        assert_eq!((options.port, options.ports, options.trainers), (7170, 5, 3));
        assert_eq!((options.index, options.servers), (0, 1));
        assert_eq!((options.memory, options.metrics_port), (u64::MAX, None));
    }

    #[test]
    fn environment_variables_replace_missing_flags() {
        let options = parse(
            "",
            &[
                ("PADDLE_INIT_PORT", "8000"),
                ("PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "0"),
            ],
        )
        .unwrap();
        assert_eq!((options.port, options.ports), (8000, 1));
    }

    #[test]
    fn a_worker_of_ours_knows_its_place_memory_and_peers() {
        let options = parse(
            "",
            &[
                ("POD_IP", "127.64.0.2"),
                ("PADDLE_PSERVER_ID", "1"),
                ("PADDLE_PSERVERS_IP_PORT_LIST", "127.64.0.1:7164,127.64.0.2:7164"),
                ("PADDLE_TRAINER_ENDPOINTS", "127.64.0.3:12001"),
                ("PADDLE_PS_MEMORY", "1073741824"),
                ("PADDLECLOUD_ATTEMPT", "j_1.pserver-1.3"),
                ("PADDLE_PS_FINISHED", "0,2"),
                ("OMP_NUM_THREADS", "4"),
            ],
        )
        .unwrap();
        assert_eq!(
            (options.index, options.servers, options.attempt, options.cores),
            (1, 2, 3, 4)
        );
        assert_eq!(options.memory >> 20, 880);
        assert_eq!(options.finished, [0, 2]);
        let peers: Vec<String> = options.peers.iter().map(IpAddr::to_string).collect();
        assert_eq!(peers, ["127.64.0.3", "127.64.0.1", "127.64.0.2"]);
    }

    #[test]
    fn a_pod_of_a_job_of_2017_finds_its_number_by_its_address() {
        let pods = [
            ("POD_IP", "10.0.0.7"),
            ("PADDLE_INIT_PSERVERS", "10.0.0.5,10.0.0.7,10.0.0.9"),
        ];
        let options = parse("--until_trainers_leave --metrics_port=9100", &pods).unwrap();
        assert_eq!(options.metrics_port, Some(9100));
        assert_eq!((options.index, options.servers), (1, 3));
        assert!(options.until_trainers_leave);
    }

    #[test]
    fn nonsense_is_named() {
        assert!(
            parse("--port=99999", &[])
                .unwrap_err()
                .to_string()
                .contains("`99999`")
        );
        assert!(parse("--port=0", &[]).is_err());
        assert!(parse("--port=65535 --ports_num=2", &[]).is_err());
        assert!(parse("", &[("POD_IP", "here")]).is_err());
        assert!(parse("--num_gradient_servers=many", &[]).is_err());
        let error = parse("--num_gradient_server=2", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown option `--num_gradient_server`; did you mean `--num_gradient_servers`?"
        );
        let error = parse("", &[("PADDLE_PSERVER_ID", "2")]).unwrap_err();
        assert_eq!(error.to_string(), "this is parameter server 2, but there are 1");
    }
}
