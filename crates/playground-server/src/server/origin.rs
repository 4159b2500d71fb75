//! Rejects cross-site requests: a web page in a browser can send requests to every port of the local machine.
//!
//! There is no authentication, so on loopback only `Host` and `Origin` distinguish local programs from a web page. Must
//! not depend on anything else of a request.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

use super::status_error::StatusError;

/// Rejects a request from a page of another site, or under the host name of another site.
pub(super) fn check(headers: &HeaderMap) -> Result<(), StatusError> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text(ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    for (name, host) in [("Host", text(HOST)), ("Origin", origin)] {
        if let Some(host) = host.filter(|host| !is_local(host)) {
            let why = format!(
                "{name} {host:?}: on loopback only requests to and from this machine by its own names are taken"
            );
            return Err(StatusError::new(403, "Forbidden", why));
        }
    }
    Ok(())
}

/// Whether it is an IP address or `localhost`, with or without a port.
fn is_local(host: &str) -> bool {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        headers.extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
        check(&headers).is_ok()
    }

    #[test]
    fn cross_site_requests_are_rejected() {
        for host in ["127.0.0.1:8001", "127.0.0.1", "localhost:8001", "LOCALHOST", "[::1]:8001", "::1"] {
            assert!(accepted(host, None), "{host}");
        }
        assert!(accepted("127.0.0.1:8001", Some("http://localhost:8001")));
        assert!(!accepted("127.0.0.1:8001", Some("https://evil.example")));
        assert!(!accepted("127.0.0.1:8001", Some("null")));
        assert!(!accepted("evil.example:8001", None));
        assert!(check(&HeaderMap::new()).is_ok(), "HTTP/1.0 has no Host header");
    }
}
