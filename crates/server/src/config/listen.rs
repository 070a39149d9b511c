//! The addresses that the server listens on.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One address: `127.0.0.1:8080`, `[::1]:0`, `unix:/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A host and a port; the host is resolved when the socket is opened.
    Tcp(String),
    Unix(PathBuf),
}

impl Default for Listen {
    fn default() -> Self {
        Listen::Tcp("127.0.0.1:8080".to_owned())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.starts_with('/') {
                return Ok(Listen::Unix(path.into()));
            }
            return Err(format!(
                "`{text}` must be an absolute path, for example `unix:/run/paddlecloud.sock`"
            ));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Listen::Tcp(text.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is not an address to listen on: write `127.0.0.1:8080` or `unix:/path`"
            )),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => f.write_str(address),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
