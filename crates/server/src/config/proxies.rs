//! The reverse proxies that are trusted to report a client's address.

use std::net::IpAddr;
use std::str::FromStr;

/// Proxies that the server believes, and the header they write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    /// Whether clients of the server's Unix sockets are proxies.
    unix: bool,
    pub header: ProxyHeader,
}

/// The header in which a proxy names its client. Only one is read: a client can send the other one itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyHeader {
    #[default]
    XForwardedFor,
    Forwarded,
}

/// An address, or a network like `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl TrustedProxies {
    /// Reads the list of the configuration: addresses, networks, and `unix` for the server's Unix sockets.
    pub fn parse(words: &[String], header: ProxyHeader) -> Result<TrustedProxies, String> {
        let mut trusted = TrustedProxies {
            header,
            ..TrustedProxies::default()
        };
        for word in words {
            match word.as_str() {
                "unix" => trusted.unix = true,
                word => trusted.networks.push(word.parse()?),
            }
        }
        Ok(trusted)
    }

    /// Whether this is the address of a trusted proxy; `None` is a client of a Unix socket.
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => self.networks.iter().any(|network| network.contains(address)),
            None => self.unix,
        }
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                prefix(own.to_bits(), self.bits) == prefix(other.to_bits(), self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let rest = 128 - self.bits;
                own.to_bits().checked_shr(rest) == other.to_bits().checked_shr(rest)
            }
            _ => false,
        }
    }
}

/// The first bits of an IPv4 address; `None` if there are none.
fn prefix(address: u32, bits: u32) -> Option<u32> {
    address.checked_shr(32 - bits)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || {
            format!(
                "`trusted_proxies`: `{}` is not a network: write `10.0.0.0/8`, an address, or `unix`",
                text.escape_debug()
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        Ok(Network { address, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(words: &[&str]) -> TrustedProxies {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        TrustedProxies::parse(&words, ProxyHeader::default()).unwrap()
    }

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        let proxies = trusted(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]);
        for (address, expected) in [
            ("10.255.0.1", true),
            ("::ffff:10.1.2.3", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.6", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(
                proxies.contains(Some(address.parse().unwrap())),
                expected,
                "{address}"
            );
        }
        assert!(!proxies.contains(None));
        assert!(trusted(&["unix"]).contains(None));
    }

    #[test]
    fn the_network_of_all_addresses_has_no_bits() {
        let all = trusted(&["0.0.0.0/0", "::/0"]);
        assert!(all.contains(Some("198.51.100.1".parse().unwrap())));
        assert!(all.contains(Some("2001:db8::1".parse().unwrap())));
    }

    #[test]
    fn an_invalid_network_is_refused_with_an_example() {
        for wrong in ["10.0.0.0/33", "proxy.example.org", "10.0.0.0/x", "::1/129", ""] {
            let error = TrustedProxies::parse(&[wrong.to_owned()], ProxyHeader::default()).unwrap_err();
            assert!(error.contains("is not a network: write `10.0.0.0/8`"), "{error}");
        }
    }
}
