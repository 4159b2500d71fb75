//! Discovery and other paths that name no resource.
//!
//! `catalogue` collects what is served; `unaggregated` has one document per group and version, `aggregated` (preferred
//! by kubectl) a single one.

mod aggregated;
mod catalogue;
mod health;
mod unaggregated;

use http::request::Parts;
use serde_json::{Value, json};

use super::Server;
use super::query::Query;
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::Kind;

/// Answers a path that names no resource.
pub(crate) fn respond(server: &Server, state: &State, path: &str, request: &Parts) -> Result<ApiResponse, StatusError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_get = [http::Method::GET, http::Method::HEAD].contains(&request.method);
    let known = match *parts {
        ["version" | "api" | "apis"] | ["api", _] => true,
        ["apis", group] | ["apis", group, _] => catalogue::serves(state, group),
        _ => false,
    };
    if known && !is_get {
        return Err(StatusError::method_not_allowed());
    }
    let accept = request.headers.get(http::header::ACCEPT).and_then(|header| header.to_str().ok());
    if let ([root @ ("api" | "apis")], Some(form)) = (&*parts, accept.and_then(aggregated::wanted)) {
        return Ok(aggregated::respond(state, *root == "api", form));
    }
    match *parts {
        [] => Ok(unaggregated::paths(state, server.presentation().is_some())),
        ["version"] => Ok(ApiResponse::value(200, &version(state.native_groups.release()))),
        ["healthz" | "readyz" | "livez", ref rest @ ..] => {
            let query = Query::parse(request.uri.query().unwrap_or_default());
            Ok(health::respond(parts[0], rest, &query, state.store.write_error().map(|why| &**why)))
        }
        ["openapi", ref rest @ ..] if is_get => {
            let kinds: Vec<&Kind> = catalogue::served(state).map(AsRef::as_ref).collect();
            let document = server.presentation().and_then(|presentation| presentation.openapi(&kinds, rest));
            Ok(document.map_or_else(ApiResponse::page_not_found, ApiResponse::Document))
        }
        ["api"] => Ok(unaggregated::versions()),
        ["apis"] => Ok(unaggregated::groups(state)),
        ["apis", name] => Ok(unaggregated::group(state, name).unwrap_or_else(ApiResponse::page_not_found)),
        ["api", version] => unaggregated::resources(state, "", version),
        ["apis", group, version] if known => unaggregated::resources(state, group, version),
        ["api", _, ..] => Err(StatusError::no_such_path()),
        ["apis", group, ..] if catalogue::serves(state, group) => Err(StatusError::no_such_path()),
        _ => Ok(ApiResponse::page_not_found()),
    }
}

/// The Kubernetes release whose API this server implements.
fn version(release: &str) -> Value {
    let mut parts = release.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next(), parts.next());
    let before = minor.and_then(|minor| minor.parse::<u32>().ok()).map(|minor| minor.saturating_sub(1).to_string());
    json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": before,
        "gitVersion": format!("{release}+muster-playground"), "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
