//! The address of a server: with or without a scheme, or a Unix socket.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A server's address, parsed from a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp {
        tls: bool,
        /// Without brackets, also for IPv6.
        host: String,
        port: u16,
        /// Prefix of every path; empty or `/prefix`.
        base: String,
    },
    Unix(PathBuf),
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an endpoint: {problem}")]
pub struct EndpointError {
    text: String,
    problem: &'static str,
}

impl Endpoint {
    pub fn unix(path: impl AsRef<Path>) -> Endpoint {
        Endpoint::Unix(path.as_ref().to_owned())
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, Endpoint::Tcp { tls: true, .. })
    }

    /// Whether passwords and tokens travel through a network in plain text.
    pub fn is_exposed(&self) -> bool {
        matches!(self, Endpoint::Tcp { tls: false, host, .. } if !is_loopback(host))
    }

    /// The value of the `Host` header.
    pub(super) fn authority(&self) -> String {
        match self {
            Endpoint::Unix(_) => "localhost".to_owned(),
            Endpoint::Tcp { tls, host, port, .. } => {
                let host = bracketed(host);
                let default = if *tls { 443 } else { 80 };
                if *port == default {
                    host
                } else {
                    format!("{host}:{port}")
                }
            }
        }
    }

    pub(super) fn base(&self) -> &str {
        match self {
            Endpoint::Unix(_) => "",
            Endpoint::Tcp { base, .. } => base,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp { tls, base, .. } => {
                let scheme = if *tls { "https" } else { "http" };
                write!(f, "{scheme}://{}{base}", self.authority())
            }
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        parse(text.trim()).map_err(|problem| EndpointError {
            text: text.escape_debug().to_string(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Endpoint, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        let absolute = path.starts_with('/');
        return absolute
            .then(|| Endpoint::unix(path))
            .ok_or("a unix socket needs an absolute path, for example `unix:/run/paddle.sock`");
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
        None => (None, text),
    };
    let (authority, base) = match rest.find('/') {
        Some(slash) => (&rest[..slash], rest[slash..].trim_end_matches('/')),
        None => (rest, ""),
    };
    if base.contains(['?', '#']) || base.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("the path contains invalid characters");
    }
    if authority.contains('@') {
        return Err("put the user name in `username:`, not in the address");
    }
    let (host, port) = split_port(authority)?;
    let tls = match scheme.as_deref() {
        Some("https") => true,
        Some("http") => false,
        None => !is_loopback(host),
        Some(_) => return Err("only `http://`, `https://` and `unix:` are supported"),
    };
    Ok(Endpoint::Tcp {
        tls,
        host: host.to_owned(),
        port: port.unwrap_or(if tls { 443 } else { 80 }),
        base: base.to_owned(),
    })
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    const BAD_PORT: &str = "the port must be a number from 1 to 65535";
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("a `]` is missing")?;
            host.parse::<std::net::Ipv6Addr>()
                .map_err(|_| "the brackets must contain an IPv6 address")?;
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':').ok_or(BAD_PORT)?),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() {
        return Err("the host is missing, for example `https://cloud.example.org`");
    }
    if !host.chars().all(plain) {
        return Err("the host contains invalid characters");
    }
    let number = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or(BAD_PORT);
    Ok((host, port.map(number).transpose()?))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match text.parse::<Endpoint>() {
            Ok(endpoint) => endpoint.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn plain_http_is_exposed_beyond_this_machine() {
        for (text, expected) in [
            ("http://cloud.example.org", true),
            ("http://192.0.2.1:8080", true),
            ("cloud.example.org", false),
            ("http://127.0.0.1:8080", false),
            ("http://localhost:8080", false),
            ("unix:/run/paddlecloud.sock", false),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().is_exposed(), expected, "{text}");
        }
    }

    #[test]
    fn the_addresses_of_the_documents_are_read() {
        assert_eq!(
            shown("http://cloud.paddlepaddle.org"),
            "http://cloud.paddlepaddle.org"
        );
        assert_eq!(shown("dc1.paddlepaddle.org"), "https://dc1.paddlepaddle.org");
    }

    #[test]
    fn without_a_scheme_only_loopback_is_plain() {
        assert_eq!(shown("localhost:8080"), "http://localhost:8080");
        assert_eq!(shown("127.0.0.1:8080///"), "http://127.0.0.1:8080");
        assert_eq!(shown("[::1]:8080/"), "http://[::1]:8080");
        assert_eq!(shown("10.0.0.1:8443/paddle//"), "https://10.0.0.1:8443/paddle");
        assert_eq!(shown("https://LOCALHOST"), "https://LOCALHOST");
        assert_eq!(shown("unix:/run/p.sock"), "unix:/run/p.sock");
    }

    #[test]
    fn nonsense_says_what_is_wrong() {
        for bad in [
            "",
            "http://",
            "ftp://x",
            "a b",
            "http://u:p@h",
            "h:0",
            "h:99999",
            "h:x",
            "[::1",
            "unix:rel",
            "[abc]",
            "http://h/a?b",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
        assert_eq!(
            shown("ftp://x"),
            "`ftp://x` is not an endpoint: only `http://`, `https://` and `unix:` are supported"
        );
    }
}
