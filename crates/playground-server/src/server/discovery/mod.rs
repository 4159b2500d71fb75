//! What the server serves, told in the way that clients ask before anything else.
//!
//! This file finds the answer for a path that names no resource. What is served is gathered in `catalogue`, and told
//! group by group (`plain`) or all at once (`aggregated`, which kubectl prefers).

mod aggregated;
mod catalogue;
mod health;
mod plain;

use http::request::Parts;
use serde_json::{Value, json};

use super::Server;
use super::answer::Answer;
use super::failure::Failure;
use super::query::Query;
use super::state::State;
use crate::kinds::Kind;

/// Answers a path that names no resource.
pub(crate) fn answer(server: &Server, state: &State, path: &str, request: &Parts) -> Result<Answer, Failure> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_get = [http::Method::GET, http::Method::HEAD].contains(&request.method);
    let known = match *parts {
        ["version" | "api" | "apis"] | ["api", _] => true,
        ["apis", group] | ["apis", group, _] => catalogue::serves(state, group),
        _ => false,
    };
    if known && !is_get {
        return Err(Failure::method_not_allowed());
    }
    let accept = request.headers.get(http::header::ACCEPT).and_then(|header| header.to_str().ok());
    if let ([root @ ("api" | "apis")], Some(form)) = (&*parts, accept.and_then(aggregated::wanted)) {
        return Ok(aggregated::answer(state, *root == "api", form));
    }
    match *parts {
        [] => Ok(plain::paths(state, server.presentation().is_some())),
        ["version"] => Ok(Answer::value(200, &version(state.native_groups.release()))),
        ["healthz" | "readyz" | "livez", ref rest @ ..] => {
            let query = Query::parse(request.uri.query().unwrap_or_default());
            Ok(health::answer(parts[0], rest, &query, state.store.broken().map(|why| &**why)))
        }
        ["openapi", ref rest @ ..] if is_get => {
            let kinds: Vec<&Kind> = catalogue::served(state).map(AsRef::as_ref).collect();
            let document = server.presentation().and_then(|presentation| presentation.openapi(&kinds, rest));
            Ok(document.map_or_else(Answer::page_not_found, Answer::Document))
        }
        ["api"] => Ok(plain::versions()),
        ["apis"] => Ok(plain::groups(state)),
        ["apis", name] => Ok(plain::group(state, name).unwrap_or_else(Answer::page_not_found)),
        ["api", version] => plain::resources(state, "", version),
        ["apis", group, version] if known => plain::resources(state, group, version),
        ["api", _, ..] => Err(Failure::no_such_path()),
        ["apis", group, ..] if catalogue::serves(state, group) => Err(Failure::no_such_path()),
        _ => Ok(Answer::page_not_found()),
    }
}

/// The Kubernetes release whose API this server follows.
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
