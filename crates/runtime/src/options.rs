//! The flags of `paddle pserver`, in the spelling of 2017, with the environment behind them.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};

/// Why a parameter server does not start.
#[derive(Debug, thiserror::Error)]
pub enum PserverError {
    #[error("`{flag}` is not a number a port can have: `{value}`")]
    Port { flag: &'static str, value: String },
    #[error("`{value}` in POD_IP is not an address")]
    Address { value: String },
    #[error("a flag is not readable text")]
    NotText,
    #[error("cannot listen on {address}:{port}: {source}")]
    Listen {
        address: IpAddr,
        port: u16,
        source: std::io::Error,
    },
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub address: IpAddr,
    pub port: u16,
    /// Dense and sparse ports together.
    pub ports: u16,
}

impl Options {
    /// Reads `--port=7164` or `--port 7164`; unknown flags are the trainer's and are passed over.
    pub fn parse(args: &[OsString], env: impl Fn(&str) -> Option<String>) -> Result<Options, PserverError> {
        let words: Vec<&str> = args
            .iter()
            .map(|word| word.to_str().ok_or(PserverError::NotText))
            .collect::<Result<_, _>>()?;
        let number = |flag: &'static str, variable: &str, default: u16| {
            let given = flag_value(&words, flag)
                .or_else(|| env(variable))
                .filter(|value| !value.is_empty());
            match given {
                Some(value) => value.parse().map_err(|_| PserverError::Port { flag, value }),
                None => Ok(default),
            }
        };
        let port = number("--port", "PADDLE_INIT_PORT", 7164)?;
        let dense = number("--ports_num", "PADDLE_INIT_PORTS_NUM", 1)?;
        let sparse = number("--ports_num_for_sparse", "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", 1)?;
        let ports = dense.saturating_add(sparse).max(1);
        if port.checked_add(ports - 1).is_none() || port == 0 {
            return Err(PserverError::Port {
                flag: "--port",
                value: port.to_string(),
            });
        }
        let address = match env("POD_IP").filter(|value| !value.is_empty()) {
            Some(value) => value.parse().map_err(|_| PserverError::Address { value })?,
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        Ok(Options { address, port, ports })
    }
}

fn flag_value(words: &[&str], flag: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        if *word == flag {
            return words.get(at + 1).map(|value| (*value).to_owned());
        }
        word.strip_prefix(flag)?.strip_prefix('=').map(str::to_owned)
    })
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
        assert_eq!(
            options,
            Options {
                address: "127.64.0.9".parse().unwrap(),
                port: 7170,
                ports: 5
            }
        );
    }

    #[test]
    fn the_environment_stands_in_for_flags() {
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
    }
}
