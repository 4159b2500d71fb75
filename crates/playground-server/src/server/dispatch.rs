//! From a request to the verb that answers it.

use std::sync::Arc;

use http::request::Parts;
use serde_json::json;

use super::answer::Answer;
use super::body::{Expected, Sent};
use super::failure::Failure;
use super::ownership::Owners;
use super::query::{ListOptions, Query};
use super::request::{Route, Target, Verb, route};
use super::state::State;
use super::update::{Part, update};
use super::watch::Watch;
use super::{Server, binding, body, create, delete, discovery, durability, eviction, patch, read, review, scale};
use crate::kinds::{Kind, Rules, SYSTEM_CLASSES};

/// An answer now, or a stream of them.
pub(crate) enum Reply {
    Answer(Answer),
    /// An answer that shows objects of a kind.
    Objects(Answer, Arc<Kind>),
    Watch(Box<Watch>),
}

/// A request, taken apart.
struct Asked<'a> {
    verb: Option<Verb>,
    target: &'a Target,
    query: Query,
    sent: Sent<'a>,
}

/// Answers a request.
pub(crate) fn dispatch(server: &Server, state: &mut State, parts: &Parts, bytes: &[u8]) -> Result<Reply, Failure> {
    if let Some(why) = state.store.broken()
        && ![http::Method::GET, http::Method::HEAD].contains(&parts.method)
    {
        return Err(durability::refused(why));
    }
    let target = match route(parts.uri.path()) {
        Route::Resource(target) => target,
        Route::Other(path) => {
            return discovery::answer(server, state, &path, parts).map(Reply::Answer);
        }
    };
    let user_agent = parts.headers.get(http::header::USER_AGENT).and_then(|header| header.to_str().ok());
    let query = Query::parse(parts.uri.query().unwrap_or_default()).asked_by(user_agent.unwrap_or_default());
    // Old clients watch by the path, an object as well.
    let verb = if target.watch && parts.method == http::Method::GET {
        Some(Verb::Watch)
    } else {
        Verb::of(&parts.method, !target.name.is_empty(), query.is_watch())
    };
    let content_type = parts.headers.get(http::header::CONTENT_TYPE).and_then(|header| header.to_str().ok());
    let media_type = body::media_type(content_type);
    let sent = Sent { media_type: &media_type, bytes, presentation: server.presentation().map(AsRef::as_ref) };
    let asked = Asked { verb, target: &target, query, sent };
    if is_old_binding(&target) {
        return old_binding(state, &asked);
    }
    let kind = state.registry.get(&target.group, &target.version, &target.resource).cloned();
    let Some(kind) = kind else { return nothing_there(state, &target) };
    let misplaced = kind.namespaced && target.namespace.is_empty() && !target.name.is_empty();
    if misplaced || (!kind.namespaced && !target.namespace.is_empty()) {
        return nothing_there(state, &target);
    }
    if target.watch && verb != Some(Verb::Watch) {
        return Err(Failure::method_not_allowed());
    }
    path_segment(&target.name)?;
    match &*target.subresource {
        "" => whole(server, state, &kind, &asked),
        "status" if kind.has_subresource("status") => {
            subresource(state, &kind, &asked).map(|answer| Reply::Objects(answer, kind))
        }
        name if kind.has_subresource(name) => subresource(state, &kind, &asked).map(Reply::Answer),
        _ if matches!(kind.rules, Rules::Custom(_)) => Err(Failure::not_found(kind.about(), &target.name)),
        _ => Err(Failure::no_such_path()),
    }
}

/// A resource that is not served, in a group that always is, is told from a path that means nothing.
fn nothing_there(state: &State, target: &Target) -> Result<Reply, Failure> {
    if state.registry.has_builtins(&target.group) {
        return Err(Failure::no_such_path());
    }
    Ok(Reply::Answer(Answer::page_not_found()))
}

/// Names that would mean something else in a path name nothing.
fn path_segment(name: &str) -> Result<(), Failure> {
    let why = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ => match name.chars().find(|c| ['/', '%'].contains(c)) {
            Some(c) => format!("may not contain '{c}'"),
            None => return Ok(()),
        },
    };
    Err(Failure::bad_request(format!("Name parameter invalid: {name:?}: {why}")))
}

/// Verbs on objects and collections.
fn whole(server: &Server, state: &mut State, kind: &Arc<Kind>, asked: &Asked<'_>) -> Result<Reply, Failure> {
    let Asked { target, query, sent, .. } = asked;
    let verb = asked.verb.ok_or_else(Failure::method_not_allowed)?;
    let everywhere = kind.namespaced && target.namespace.is_empty();
    if kind.is_review() {
        if verb != Verb::Create || everywhere || !target.name.is_empty() {
            return Err(Failure::method_not_allowed());
        }
        return review::review(state, kind, target, query, &sent.object(kind)?).map(Reply::Answer);
    }
    let answer = match verb {
        Verb::Get => read::get(state, kind, target, query),
        Verb::List => read::list(state, kind, target, &ListOptions::read(query, false)?),
        Verb::Watch => {
            let options = ListOptions::read(query, true)?;
            let watch = Watch::open(server, state, kind, target, &options)?;
            return Ok(Reply::Watch(Box::new(watch)));
        }
        Verb::Create if everywhere || !target.name.is_empty() => Err(Failure::method_not_allowed()),
        Verb::Create => create::create(state, kind, target, query, &sent.object(kind)?),
        Verb::Update => update(state, kind, target, query, &sent.object(kind)?, Part::Main),
        Verb::Patch => patch::patch(state, kind, target, query, sent.media_type, sent.bytes, Part::Main),
        Verb::Delete => delete::delete(state, kind, target, &delete::options(query, *sent)?),
        Verb::DeleteCollection if everywhere || !kind.deletes_collections() => Err(Failure::method_not_allowed()),
        Verb::DeleteCollection => {
            let options = delete::options(query, *sent)?;
            delete::delete_collection(state, kind, target, &ListOptions::read(query, false)?, &options)
        }
    };
    let told = kind.deprecation().into_iter().collect();
    answer.map(|answer| Reply::Objects(answer.with_warnings(told), Arc::clone(kind)))
}

/// Verbs on parts of objects.
fn subresource(state: &mut State, kind: &Kind, asked: &Asked<'_>) -> Result<Answer, Failure> {
    let Asked { target, query, sent, .. } = asked;
    match (&*target.subresource, asked.verb) {
        ("status", Some(Verb::Get)) => read::get(state, kind, target, query),
        ("status", Some(Verb::Update)) => update(state, kind, target, query, &sent.object(kind)?, Part::Status),
        ("status", Some(Verb::Patch)) => {
            patch::patch(state, kind, target, query, sent.media_type, sent.bytes, Part::Status)
        }
        ("scale", Some(Verb::Get)) => scale::get(state, kind, target),
        ("scale", Some(Verb::Update)) => {
            let bytes = sent.in_json(Expected::SCALE)?;
            scale::set(state, kind, target, query, &bytes, scale::Form::Whole)
        }
        ("scale", Some(Verb::Patch)) => {
            let form = scale::Form::of(sent.media_type)?;
            scale::set(state, kind, target, query, sent.bytes, form)
        }
        ("binding", Some(Verb::Create)) => {
            let bytes = sent.in_json(Expected::BINDING)?;
            binding::bind(state, kind, target, query, &bytes)
        }
        ("eviction", Some(Verb::Create)) => {
            let bytes = sent.in_json(Expected::EVICTION)?;
            eviction::evict(state, kind, target, query, &bytes)
        }
        ("log", Some(Verb::Get)) => log(state, kind, target),
        _ => Err(Failure::method_not_allowed()),
    }
}

/// Simulated containers write nothing; one line says so.
fn log(state: &State, kind: &Kind, target: &Target) -> Result<Answer, Failure> {
    let pod = state.get(kind, &target.namespace, &target.name);
    let pod = pod.ok_or_else(|| Failure::not_found(kind.about(), &target.name))?.value();
    if !crate::kinds::is_bound(&pod) {
        return Ok(Answer::Nothing);
    }
    let text = format!("{} is simulated: it has no output\n", target.name);
    Ok(Answer::Text { code: 200, text })
}

/// The oldest way to bind: a collection of its own, with the pod's name in the body.
fn is_old_binding(target: &Target) -> bool {
    target.group.is_empty() && target.resource == "bindings" && !target.namespace.is_empty() && target.name.is_empty()
}

fn old_binding(state: &mut State, asked: &Asked<'_>) -> Result<Reply, Failure> {
    if asked.verb != Some(Verb::Create) {
        return Err(Failure::method_not_allowed());
    }
    let bytes = asked.sent.in_json(Expected::BINDING)?;
    let pods = Arc::clone(state.registry.builtin("", "pods"));
    binding::bind(state, &pods, asked.target, &asked.query, &bytes).map(Reply::Answer)
}

/// What every cluster has, as far as it is not there.
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
        let made = create::insert(state, &kind, &target, value, Owners::Writer("kube-apiserver"), false);
        assert!(made.is_ok(), "a fresh server takes its first objects");
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
