//! Which requests come from a web page of somebody else: a browser sends them to every port of its own machine.
//!
//! There are no passwords here, so on loopback the names in `Host` and `Origin` are what tells the machine's own programs
//! from a page. It must not know requests otherwise.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

use super::failure::Failure;

/// Refuses a request that a page of another site has sent, or that came by the name of another site.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text(ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    for (name, host) in [("Host", text(HOST)), ("Origin", origin)] {
        if let Some(host) = host.filter(|host| !is_own(host)) {
            let why = format!(
                "{name} {host:?}: on loopback only requests to and from this machine by its own names are taken"
            );
            return Err(Failure::new(403, "Forbidden", why));
        }
    }
    Ok(())
}

/// Whether it is an address or `localhost`, with or without a port.
fn is_own(host: &str) -> bool {
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

    fn taken(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        headers.extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
        check(&headers).is_ok()
    }

    #[test]
    fn pages_of_others_are_refused() {
        for host in ["127.0.0.1:8001", "127.0.0.1", "localhost:8001", "LOCALHOST", "[::1]:8001", "::1"] {
            assert!(taken(host, None), "{host}");
        }
        assert!(taken("127.0.0.1:8001", Some("http://localhost:8001")));
        assert!(!taken("127.0.0.1:8001", Some("https://evil.example")));
        assert!(!taken("127.0.0.1:8001", Some("null")));
        assert!(!taken("evil.example:8001", None));
        assert!(check(&HeaderMap::new()).is_ok(), "HTTP/1.0 knows no Host");
    }
}
