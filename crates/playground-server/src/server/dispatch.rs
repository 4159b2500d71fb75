//! Routes a request to its verb.

use std::sync::Arc;

use http::request::Parts;
use serde_json::json;

use super::body::{Expected, RequestBody};
use super::managed_fields::FieldTracking;
use super::query::{ListOptions, Query};
use super::request::{Route, Target, Verb, route};
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use super::update::{Part, update};
use super::watch::Watch;
use super::{Server, binding, body, create, delete, discovery, durability, eviction, patch, read, review, scale};
use crate::kinds::{Kind, SYSTEM_CLASSES, Strategy};

/// A response or a watch.
pub(crate) enum Reply {
    Response(ApiResponse),
    /// A response that contains objects of a kind.
    Objects(ApiResponse, Arc<Kind>),
    Watch(Box<Watch>),
}

/// A parsed request.
struct ParsedRequest<'a> {
    verb: Option<Verb>,
    target: &'a Target,
    query: Query,
    sent: RequestBody<'a>,
}

/// Handles a request.
pub(crate) fn dispatch(server: &Server, state: &mut State, parts: &Parts, bytes: &[u8]) -> Result<Reply, StatusError> {
    if let Some(why) = state.store.write_error()
        && ![http::Method::GET, http::Method::HEAD].contains(&parts.method)
    {
        return Err(durability::read_only_error(why));
    }
    let target = match route(parts.uri.path()) {
        Route::Resource(target) => target,
        Route::Other(path) => {
            return discovery::respond(server, state, &path, parts).map(Reply::Response);
        }
    };
    let user_agent = parts.headers.get(http::header::USER_AGENT).and_then(|header| header.to_str().ok());
    let query = Query::parse(parts.uri.query().unwrap_or_default()).with_user_agent(user_agent.unwrap_or_default());
    // Legacy clients watch by path, also single objects.
    let verb = if target.watch && parts.method == http::Method::GET {
        Some(Verb::Watch)
    } else {
        Verb::of(&parts.method, !target.name.is_empty(), query.is_watch())
    };
    let content_type = parts.headers.get(http::header::CONTENT_TYPE).and_then(|header| header.to_str().ok());
    let media_type = body::media_type(content_type);
    let sent = RequestBody { media_type: &media_type, bytes, presentation: server.presentation().map(AsRef::as_ref) };
    let request = ParsedRequest { verb, target: &target, query, sent };
    if is_legacy_binding(&target) {
        return legacy_binding(state, &request);
    }
    let kind = state.registry.get(&target.group, &target.version, &target.resource).cloned();
    let Some(kind) = kind else { return unknown_resource(state, &target) };
    let misplaced = kind.namespaced && target.namespace.is_empty() && !target.name.is_empty();
    if misplaced || (!kind.namespaced && !target.namespace.is_empty()) {
        return unknown_resource(state, &target);
    }
    if target.watch && verb != Some(Verb::Watch) {
        return Err(StatusError::method_not_allowed());
    }
    check_path_segment(&target.name)?;
    match &*target.subresource {
        "" => handle_object(server, state, &kind, &request),
        "status" if kind.has_subresource("status") => {
            handle_subresource(state, &kind, &request).map(|response| Reply::Objects(response, kind))
        }
        name if kind.has_subresource(name) => handle_subresource(state, &kind, &request).map(Reply::Response),
        _ if matches!(kind.strategy, Strategy::Custom(_)) => {
            Err(StatusError::not_found(kind.group_resource(), &target.name))
        }
        _ => Err(StatusError::no_such_path()),
    }
}

/// Distinguishes a resource that is not served in a built-in group from an unknown path.
fn unknown_resource(state: &State, target: &Target) -> Result<Reply, StatusError> {
    if state.registry.has_builtins(&target.group) {
        return Err(StatusError::no_such_path());
    }
    Ok(Reply::Response(ApiResponse::page_not_found()))
}

/// Rejects names that are special path segments.
fn check_path_segment(name: &str) -> Result<(), StatusError> {
    let why = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ => match name.chars().find(|c| ['/', '%'].contains(c)) {
            Some(c) => format!("may not contain '{c}'"),
            None => return Ok(()),
        },
    };
    Err(StatusError::bad_request(format!("Name parameter invalid: {name:?}: {why}")))
}

/// Verbs on objects and collections.
fn handle_object(
    server: &Server,
    state: &mut State,
    kind: &Arc<Kind>,
    request: &ParsedRequest<'_>,
) -> Result<Reply, StatusError> {
    let ParsedRequest { target, query, sent, .. } = request;
    let verb = request.verb.ok_or_else(StatusError::method_not_allowed)?;
    let everywhere = kind.namespaced && target.namespace.is_empty();
    if kind.is_review() {
        if verb != Verb::Create || everywhere || !target.name.is_empty() {
            return Err(StatusError::method_not_allowed());
        }
        return review::review(state, kind, target, query, &sent.object(kind)?).map(Reply::Response);
    }
    let response = match verb {
        Verb::Get => read::get(state, kind, target, query),
        Verb::List => read::list(state, kind, target, &ListOptions::read(query, false)?),
        Verb::Watch => {
            let options = ListOptions::read(query, true)?;
            let watch = Watch::open(server, state, kind, target, &options)?;
            return Ok(Reply::Watch(Box::new(watch)));
        }
        Verb::Create if everywhere || !target.name.is_empty() => Err(StatusError::method_not_allowed()),
        Verb::Create => create::create(state, kind, target, query, &sent.object(kind)?),
        Verb::Update => update(state, kind, target, query, &sent.object(kind)?, Part::Main),
        Verb::Patch => patch::patch(state, kind, target, query, sent.media_type, sent.bytes, Part::Main),
        Verb::Delete => delete::delete(state, kind, target, &delete::options(query, *sent)?),
        Verb::DeleteCollection if everywhere || !kind.supports_delete_collection() => {
            Err(StatusError::method_not_allowed())
        }
        Verb::DeleteCollection => {
            let options = delete::options(query, *sent)?;
            delete::delete_collection(state, kind, target, &ListOptions::read(query, false)?, &options)
        }
    };
    let warnings = kind.deprecation().into_iter().collect();
    response.map(|response| Reply::Objects(response.with_warnings(warnings), Arc::clone(kind)))
}

/// Verbs on subresources.
fn handle_subresource(state: &mut State, kind: &Kind, request: &ParsedRequest<'_>) -> Result<ApiResponse, StatusError> {
    let ParsedRequest { target, query, sent, .. } = request;
    match (&*target.subresource, request.verb) {
        ("status", Some(Verb::Get)) => read::get(state, kind, target, query),
        ("status", Some(Verb::Update)) => update(state, kind, target, query, &sent.object(kind)?, Part::Status),
        ("status", Some(Verb::Patch)) => {
            patch::patch(state, kind, target, query, sent.media_type, sent.bytes, Part::Status)
        }
        ("scale", Some(Verb::Get)) => scale::get(state, kind, target),
        ("scale", Some(Verb::Update)) => {
            let bytes = sent.into_json(Expected::SCALE)?;
            scale::set(state, kind, target, query, &bytes, scale::ScaleWrite::Update)
        }
        ("scale", Some(Verb::Patch)) => {
            let write_form = scale::ScaleWrite::of(sent.media_type)?;
            scale::set(state, kind, target, query, sent.bytes, write_form)
        }
        ("binding", Some(Verb::Create)) => {
            let bytes = sent.into_json(Expected::BINDING)?;
            binding::bind(state, kind, target, query, &bytes)
        }
        ("eviction", Some(Verb::Create)) => {
            let bytes = sent.into_json(Expected::EVICTION)?;
            eviction::evict(state, kind, target, query, &bytes)
        }
        ("log", Some(Verb::Get)) => log(state, kind, target),
        _ => Err(StatusError::method_not_allowed()),
    }
}

/// Simulated containers have no output; the log is one line that says so.
fn log(state: &State, kind: &Kind, target: &Target) -> Result<ApiResponse, StatusError> {
    let pod = state.get(kind, &target.namespace, &target.name);
    let pod = pod.ok_or_else(|| StatusError::not_found(kind.group_resource(), &target.name))?.value();
    if !crate::kinds::is_bound(&pod) {
        return Ok(ApiResponse::NoContent);
    }
    let text = format!("{} is simulated: it has no output\n", target.name);
    Ok(ApiResponse::Text { code: 200, text })
}

/// The legacy way to bind: a collection of its own, with the pod's name in the body.
fn is_legacy_binding(target: &Target) -> bool {
    target.group.is_empty() && target.resource == "bindings" && !target.namespace.is_empty() && target.name.is_empty()
}

fn legacy_binding(state: &mut State, request: &ParsedRequest<'_>) -> Result<Reply, StatusError> {
    if request.verb != Some(Verb::Create) {
        return Err(StatusError::method_not_allowed());
    }
    let bytes = request.sent.into_json(Expected::BINDING)?;
    let pods = Arc::clone(state.registry.builtin("", "pods"));
    binding::bind(state, &pods, request.target, &request.query, &bytes).map(Reply::Response)
}

/// Creates the objects that every cluster has, unless they exist.
pub(crate) fn bootstrap(state: &mut State) {
    let mut put = |group: &str, plural: &str, value: serde_json::Value| {
        let kind = Arc::clone(state.registry.builtin(group, plural));
        if state.get(&kind, "", value["metadata"]["name"].as_str().unwrap_or_default()).is_some() {
            return;
        }
        let target = Target {
            group: group.to_owned(),
            version: kind.version.to_string(),
            resource: plural.to_owned(),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            watch: false,
        };
        let created = create::insert(state, &kind, &target, value, FieldTracking::Manager("kube-apiserver"), false);
        assert!(created.is_ok(), "a new server accepts its initial objects");
    };
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        put("", "namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    for (name, value, description) in SYSTEM_CLASSES {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        });
        put("scheduling.k8s.io", "priorityclasses", class);
    }
}
