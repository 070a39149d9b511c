//! The true address of a client behind trusted proxies.
//!
//! It is decided once, by the first middleware: everything behind it (login delays, limits, the audit log) reads
//! [`Peer::address`].

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use paddlecloud_accounts::auth::Peer;
use paddlecloud_accounts::refusals::Limit;
use paddlecloud_api::error::{ErrorBody, ErrorName};

use super::Shared;
use super::reply::Refused;
use crate::config::{ProxyHeader, TrustedProxies};

/// Entries of the header that are read at most. A longer chain of proxies is not real.
const MOST_HOPS: usize = 32;

/// Sets the true address of a request's client. A client with too many connections through proxies is refused.
pub(super) async fn set(State(app): Shared, mut request: Request, next: Next) -> Response {
    if let Some(mut peer) = request.extensions_mut().remove::<Peer>() {
        let replaced = resolve(&mut peer, request.headers(), &app.config.trusted_proxies);
        request.extensions_mut().insert(peer);
        if replaced != Some(false) {
            app.metrics.refusals.count(Limit::Connections);
        }
        if replaced.is_none() {
            let problem = "too many connections";
            return Refused(ErrorBody::new(ErrorName::TooManyRequests, problem)).into_response();
        }
    }
    next.run(request).await
}

/// Returns whether another connection is ended for this one, or `None` if the client's address has too many.
fn resolve(peer: &mut Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<bool> {
    if !trusted.contains(peer.address) {
        return Some(false);
    }
    peer.address = client_address(peer.address, headers, trusted);
    match (&peer.connection, peer.address) {
        (Some(connection), Some(address)) if !trusted.contains(Some(address)) => connection.is_from(address),
        _ => Some(false),
    }
}

/// Walks from the nearest proxy towards the client and stops at the first address that is not a trusted proxy's. Entries
/// before it were written by the client itself.
fn client_address(peer: Option<IpAddr>, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<IpAddr> {
    let name = match trusted.header {
        ProxyHeader::XForwardedFor => "x-forwarded-for",
        ProxyHeader::Forwarded => "forwarded",
    };
    let values: Vec<&[u8]> = headers
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes())
        .collect();
    let mut nearest = peer;
    // Each hop is decoded by itself: what a client wrote must not make the proxy's own entry unreadable.
    let hops = values
        .iter()
        .rev()
        .flat_map(|value| value.rsplit(|byte| *byte == b','));
    for hop in hops.take(MOST_HOPS) {
        if !trusted.contains(nearest) {
            break;
        }
        let hop = std::str::from_utf8(hop).unwrap_or_default();
        let text = match trusted.header {
            ProxyHeader::XForwardedFor => Some(hop.trim()),
            ProxyHeader::Forwarded => forwarded_for(hop),
        };
        // For a proxy that hides its client, the proxy's own address is used.
        match text.and_then(address) {
            Some(address) => nearest = Some(address),
            None => break,
        }
    }
    nearest
}

/// The value of `for` in one element of `Forwarded`: `for="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    Some(value.trim_matches('"'))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let plain = bare.unwrap_or(text).parse::<IpAddr>();
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip());
    let address = plain.or_else(|_| with_port()).ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: Option<&str>, header: ProxyHeader, lines: &[&str]) -> Option<String> {
        let words = ["10.0.0.0/8", "127.0.0.1", "unix"].map(str::to_owned);
        let trusted = TrustedProxies::parse(&words, header).unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            let name: axum::http::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let mut peer = Peer {
            address: peer.map(|address| address.parse().unwrap()),
            ..Peer::default()
        };
        assert_eq!(resolve(&mut peer, &headers, &trusted), Some(false));
        peer.address.map(|address| address.to_string())
    }

    #[test]
    fn the_first_untrusted_address_from_the_right_is_the_clients() {
        let by = |peer, lines: &[&str]| seen(Some(peer), ProxyHeader::XForwardedFor, lines).unwrap();
        let two = "X-Forwarded-For: 198.51.100.9, 192.0.2.1, 10.0.0.2";
        assert_eq!(
            by("10.0.0.1", &[two]),
            "192.0.2.1",
            "198.51.100.9 is the client's own word"
        );
        assert_eq!(by("203.0.113.5", &[two]), "203.0.113.5", "not a proxy of ours");
        assert_eq!(by("10.0.0.1", &[]), "10.0.0.1", "the proxy asks for itself");
        assert_eq!(
            by("10.0.0.1", &["X-Forwarded-For: 10.0.0.3, 10.0.0.2"]),
            "10.0.0.3"
        );
        assert_eq!(
            by("10.0.0.1", &["X-Forwarded-For: 192.0.2.1, nonsense"]),
            "10.0.0.1"
        );
        assert_eq!(by("10.0.0.1", &["X-Forwarded-For: 192.0.2.1:4711"]), "192.0.2.1");
        assert_eq!(
            by("10.0.0.1", &["X-Forwarded-For: ::ffff:192.0.2.1"]),
            "192.0.2.1"
        );
        let lines = ["X-Forwarded-For: 198.51.100.9", "X-Forwarded-For: 192.0.2.1"];
        assert_eq!(by("10.0.0.1", &lines), "192.0.2.1", "lines are one list");
    }

    #[test]
    fn an_undecodable_entry_hides_no_later_entry() {
        let words = ["10.0.0.0/8".to_owned()];
        let trusted = TrustedProxies::parse(&words, ProxyHeader::XForwardedFor).unwrap();
        let mut headers = HeaderMap::new();
        let value = axum::http::HeaderValue::from_bytes(b"\xff, 192.0.2.1").unwrap();
        headers.append("x-forwarded-for", value);
        let found = client_address(Some("10.0.0.1".parse().unwrap()), &headers, &trusted);
        assert_eq!(found, Some("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn only_the_configured_header_counts() {
        let lines = [
            "X-Forwarded-For: 198.51.100.9",
            "Forwarded: for=192.0.2.1;proto=https, For=\"[2001:db8::7]:4711\";by=10.0.0.1",
        ];
        let by = |header| seen(Some("127.0.0.1"), header, &lines);
        assert_eq!(by(ProxyHeader::Forwarded).as_deref(), Some("2001:db8::7"));
        assert_eq!(by(ProxyHeader::XForwardedFor).as_deref(), Some("198.51.100.9"));
        let hidden = ["Forwarded: for=192.0.2.1, for=_hidden"];
        let hidden = seen(Some("127.0.0.1"), ProxyHeader::Forwarded, &hidden);
        assert_eq!(hidden.as_deref(), Some("127.0.0.1"));
    }

    #[test]
    fn a_proxy_on_a_unix_socket_can_be_trusted() {
        let by = seen(None, ProxyHeader::XForwardedFor, &["X-Forwarded-For: 192.0.2.1"]);
        assert_eq!(by.as_deref(), Some("192.0.2.1"));
    }

    proptest::proptest! {
        #[test]
        fn any_header_leaves_an_address(text in "[ -~]{0,60}") {
            for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
                let lines = [format!("X-Forwarded-For: {text}"), format!("Forwarded: {text}")];
                let lines = lines.each_ref().map(String::as_str);
                proptest::prop_assert!(seen(Some("10.0.0.1"), header, &lines).is_some());
            }
        }
    }
}
