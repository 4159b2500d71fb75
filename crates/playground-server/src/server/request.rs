//! Parses the method, path and query of a request.
//!
//! Invariant: paths are parsed only here. Must not depend on which resources exist.

use http::Method;

/// A path below `/api/v1` or `/apis/GROUP/VERSION` that names a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// Empty for cluster-scoped requests.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// Whether the path itself is a watch, as legacy clients request it.
    pub(crate) watch: bool,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A resource.
    Resource(Target),
    /// Any other path, without a trailing slash.
    Other(String),
}

/// Parses a path.
pub(crate) fn route(path: &str) -> Route {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let parts: Vec<String> = inner.split('/').map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let resource = match &*parts {
        ["api", version, "watch", rest @ ..] if !rest.is_empty() => target("", version, rest, true),
        ["api", version, rest @ ..] if !rest.is_empty() => target("", version, rest, false),
        ["apis", group, version, "watch", rest @ ..] if !rest.is_empty() => target(group, version, rest, true),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => target(group, version, rest, false),
        _ => None,
    };
    resource.map_or_else(|| Route::Other(format!("/{}", parts.join("/"))), Route::Resource)
}

fn target(group: &str, version: &str, rest: &[&str], watch: bool) -> Option<Target> {
    let (namespace, resource, name, subresource) = match *rest {
        // A namespace is itself a resource.
        ["namespaces"] => ("", "namespaces", "", ""),
        ["namespaces", name] => ("", "namespaces", name, ""),
        ["namespaces", name, subresource @ ("status" | "finalize")] => ("", "namespaces", name, subresource),
        ["namespaces", namespace, resource] => (namespace, resource, "", ""),
        ["namespaces", namespace, resource, name] => (namespace, resource, name, ""),
        ["namespaces", namespace, resource, name, subresource] => (namespace, resource, name, subresource),
        [resource] => ("", resource, "", ""),
        [resource, name] => ("", resource, name, ""),
        [resource, name, subresource] => ("", resource, name, subresource),
        _ => return None,
    };
    let [group, version, resource, namespace, name, subresource] =
        [group, version, resource, namespace, name, subresource].map(str::to_owned);
    Some(Target { group, version, resource, namespace, name, subresource, watch })
}

fn decoded(part: &str) -> String {
    percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// A verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb of a method on an object or a collection, if there is one.
    pub(crate) fn of(method: &Method, named: bool, watch: bool) -> Option<Verb> {
        Some(match (method.as_str(), named) {
            ("GET", false) if watch => Verb::Watch,
            ("GET", true) => Verb::Get,
            ("GET", false) => Verb::List,
            ("POST", _) => Verb::Create,
            ("PUT", true) => Verb::Update,
            ("PATCH", true) => Verb::Patch,
            ("DELETE", true) => Verb::Delete,
            ("DELETE", false) => Verb::DeleteCollection,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> [String; 6] {
        let Route::Resource(found) = route(path) else { panic!("{path} names no resource") };
        [found.group, found.version, found.resource, found.namespace, found.name, found.subresource]
    }

    #[test]
    fn paths_are_parsed() {
        assert_eq!(resource("/api/v1/pods"), ["", "v1", "pods", "", "", ""]);
        assert_eq!(resource("/api/v1/namespaces/a/pods/b/status"), ["", "v1", "pods", "a", "b", "status"]);
        assert_eq!(resource("/api/v1/namespaces/a"), ["", "v1", "namespaces", "", "a", ""]);
        assert_eq!(resource("/api/v1/namespaces/a/status"), ["", "v1", "namespaces", "", "a", "status"]);
        assert_eq!(resource("/apis/g.io/v2/nodes/n%2Fx"), ["g.io", "v2", "nodes", "", "n/x", ""]);
        assert!(matches!(route("/api/v1/watch/pods"), Route::Resource(Target { watch: true, .. })));
        // An empty segment counts; no resource has this name.
        assert_eq!(resource("/api/v1//pods"), ["", "v1", "", "", "pods", ""]);
        for other in ["/", "/api", "/api/v1", "/apis/g/v1", "/version", "/api/v1/a/b/c/d", "//"] {
            assert!(matches!(route(other), Route::Other(_)), "{other}");
        }
    }
}
