//! The get and list verbs.
//!
//! All pages of a list show the same revision: that of the first page.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use muster_playground_store::{Key, Object};
use serde_json::{Map, Value, json};

use super::json_text;
use super::query::{ListOptions, Query, ResourceVersionMatch, parse_revision};
use super::request::Target;
use super::response::ApiResponse;
use super::selection::Selection;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::{Kind, Strategy};

/// Gets one object.
pub(crate) fn get(state: &State, kind: &Kind, target: &Target, query: &Query) -> Result<ApiResponse, StatusError> {
    if let Some(text) = query.text("resourceVersion") {
        let revision = parse_revision(text).map_err(|error| StatusError::without_reason(500, error.to_string()))?;
        check_revision_reached(state, revision)?;
    }
    let object = state.get(kind, &target.namespace, &target.name);
    let object = object.ok_or_else(|| StatusError::not_found(kind.group_resource(), &target.name))?;
    Ok(ApiResponse::object(200, kind, &object))
}

/// Rejects a revision that has not been reached yet.
pub(crate) fn check_revision_reached(state: &State, revision: u64) -> Result<(), StatusError> {
    let current = state.store.revision();
    if revision > current { Err(StatusError::revision_too_large(revision, current)) } else { Ok(()) }
}

/// A continue token: where the next page starts.
struct ContinueToken {
    /// The revision of the list; `None` for an inconsistent continuation at the latest revision.
    revision: Option<u64>,
    /// The page starts at the first key that is not less than this string.
    start: String,
}

const CONTINUE_VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token that means the latest.
const LATEST: i64 = -1;

impl ContinueToken {
    fn token(&self) -> String {
        let revision = self.revision.map_or(LATEST, |revision| revision as i64);
        BASE64.encode(json!({"v": CONTINUE_VERSION, "rv": revision, "start": self.start}).to_string())
    }

    fn parse(token: &str) -> Result<Self, StatusError> {
        let bad =
            |why: String| StatusError::bad_request(format!("invalid continue token: continue key is not valid{why}"));
        let text = BASE64.decode(token).map_err(|_| bad(": illegal base64 data".to_owned()))?;
        let (value, _) = json_text::parse(&text).map_err(|why| bad(format!(": {why}")))?;
        if value["v"] != CONTINUE_VERSION {
            let version = value["v"].as_str().unwrap_or_default();
            return Err(bad(format!(": server does not recognize this encoded version {version}")));
        }
        let revision = value["rv"].as_i64().unwrap_or_default();
        if revision == 0 {
            return Err(bad(format!(": incorrect encoded start resourceVersion (version {CONTINUE_VERSION})")));
        }
        let start = value["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(bad(format!(": encoded start key empty (version {CONTINUE_VERSION})")));
        }
        let inner = start.strip_prefix('/').unwrap_or(start);
        if inner.split('/').any(|part| ["", ".", ".."].contains(&part)) {
            return Err(bad(format!(": {start}")));
        }
        Ok(Self { revision: u64::try_from(revision).ok(), start: inner.to_owned() })
    }

    /// The first key of this page in a list of one namespace, or of all.
    fn first(&self, namespace: Option<&str>) -> Key {
        match (namespace, self.start.split_once('/')) {
            (Some(namespace), _) => Key::new(namespace, &self.start),
            (None, Some((namespace, name))) => Key::new(namespace, name),
            (None, None) => Key::new("", &self.start),
        }
    }

    /// The page after an object.
    fn after(revision: u64, key: &Key, everywhere: bool) -> Self {
        Self { revision: Some(revision), start: format!("{}\0", position(key, everywhere)) }
    }
}

/// The position of an object in a list of one namespace, or of all.
fn position(key: &Key, everywhere: bool) -> String {
    if everywhere && !key.namespace.is_empty() {
        format!("{}/{}", key.namespace, key.name)
    } else {
        key.name.to_string()
    }
}

/// Lists a collection, or a page of it.
pub(crate) fn list(
    state: &State,
    kind: &Arc<Kind>,
    target: &Target,
    options: &ListOptions,
) -> Result<ApiResponse, StatusError> {
    let selection = Selection::read(kind, target, options)?;
    let (page, metadata) = select(state, kind, &selection, options)?;
    Ok(ApiResponse::list(kind, metadata, page))
}

/// The selected objects and the metadata of the list.
pub(crate) fn select(
    state: &State,
    kind: &Kind,
    selection: &Selection,
    options: &ListOptions,
) -> Result<(Vec<Arc<Object>>, Value), StatusError> {
    let page = options.continued.as_deref().map(ContinueToken::parse).transpose()?;
    if page.is_some()
        && !matches!(options.resource_version_match, ResourceVersionMatch::Latest | ResourceVersionMatch::Any)
    {
        return Err(StatusError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let revision = match (&page, options.resource_version_match) {
        (Some(page), _) => page.revision.unwrap_or_else(|| state.store.revision()),
        (None, ResourceVersionMatch::Latest | ResourceVersionMatch::Any) => state.store.revision(),
        (None, ResourceVersionMatch::NotOlderThan(revision)) => {
            check_revision_reached(state, revision)?;
            state.store.revision()
        }
        (None, ResourceVersionMatch::Exactly(revision)) => revision,
    };
    check_revision_reached(state, revision)?;
    let namespace = selection.namespace();
    let snapshot = state.store.snapshot_at(kind.table, revision).map_err(|_| expired_error(page.as_ref()))?;
    let start =
        page.as_ref().map_or_else(|| Key::first_in(namespace.unwrap_or_default()), |page| page.first(namespace));
    let mut objects = snapshot.iter_from(&start).take_while(|object| selection.is_in_namespace(object));
    let matching = objects.by_ref().filter(|object| selection.matches(object)).cloned();
    let limit = options.limit.filter(|_| !selection.is_single());
    let found: Vec<Arc<Object>> = matching.take(limit.unwrap_or(usize::MAX)).collect();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
    // Whether any of the remaining objects match is not checked.
    if let Some(last) = found.last().filter(|_| limit == Some(found.len()))
        && objects.next().is_some()
    {
        let next = ContinueToken::after(revision, &last.key, namespace.is_none());
        metadata.insert("continue".to_owned(), json!(next.token()));
        if selection.is_everything() {
            metadata.insert("remainingItemCount".to_owned(), json!(objects.count() + 1));
        }
    }
    if matches!(kind.strategy, Strategy::Custom(_)) {
        // Lists of custom objects always have `continue`.
        metadata.entry("continue").or_insert(json!(""));
    }
    Ok((found, Value::Object(metadata)))
}

fn expired_error(page: Option<&ContinueToken>) -> StatusError {
    let Some(page) = page else {
        return StatusError::expired("The resourceVersion for the provided list is too old.");
    };
    let on = ContinueToken { revision: None, start: page.start.clone() };
    StatusError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .continue_with(on.token())
}
