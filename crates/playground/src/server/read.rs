//! Get and list.
//!
//! A list that is read in pages shows one moment: later pages are read from the revision of the first.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::failure::Failure;
use super::query::{Freshness, ListOptions, Query, parse_revision};
use super::request::Target;
use super::selection::Selection;
use super::state::State;
use crate::kinds::Kind;
use crate::store::{Key, Object};

/// One object.
pub(crate) fn get(state: &State, kind: &Kind, target: &Target, query: &Query) -> Result<Answer, Failure> {
    if let Some(text) = query.text("resourceVersion") {
        not_newer_than_now(state, parse_revision(text)?)?;
    }
    let object = state.get(kind, &target.namespace, &target.name);
    let object = object.ok_or_else(|| Failure::not_found(kind.about(), &target.name))?;
    Ok(Answer::object(200, kind, &object))
}

/// Refuses a revision that is yet to come.
pub(crate) fn not_newer_than_now(state: &State, revision: u64) -> Result<(), Failure> {
    let current = state.store.revision();
    if revision > current { Err(Failure::revision_too_large(revision, current)) } else { Ok(()) }
}

/// Where the next page starts.
struct Page {
    revision: u64,
    last: Key,
}

const CONTINUE_VERSION: &str = "meta.k8s.io/v1";

impl Page {
    fn token(&self) -> String {
        let start = format!("{}/{}", self.last.namespace, self.last.name);
        BASE64.encode(json!({"v": CONTINUE_VERSION, "rv": self.revision, "start": start}).to_string())
    }

    fn parse(token: &str) -> Result<Self, Failure> {
        let bad = |why: &str| Failure::bad_request(format!("continue key is not valid: {why}"));
        let text = BASE64.decode(token.trim_end_matches('=')).map_err(|error| bad(&error.to_string()))?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| bad(&error.to_string()))?;
        if value["v"] != CONTINUE_VERSION {
            return Err(bad("server does not recognize this encoded version"));
        }
        let revision = value["rv"].as_u64().filter(|revision| *revision > 0);
        let start = value["start"].as_str().and_then(|start| start.split_once('/'));
        let (revision, (namespace, name)) =
            revision.zip(start).ok_or_else(|| bad("incorrect encoded start resourceVersion"))?;
        Ok(Self { revision, last: Key::new(namespace, name) })
    }
}

/// A collection, or a page of it.
pub(crate) fn list(state: &State, kind: &Kind, target: &Target, options: &ListOptions) -> Result<Answer, Failure> {
    let selection = Selection::read(kind, target, options)?;
    let (page, metadata) = select(state, kind, &selection, options)?;
    Ok(Answer::list(kind, &metadata, &page))
}

/// The selected objects and the list's metadata.
pub(crate) fn select(
    state: &State,
    kind: &Kind,
    selection: &Selection,
    options: &ListOptions,
) -> Result<(Vec<Arc<Object>>, Value), Failure> {
    let page = options.continued.as_deref().map(Page::parse).transpose()?;
    if page.is_some() && !matches!(options.freshness, Freshness::Latest | Freshness::Any) {
        return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
    }
    let revision = match (&page, options.freshness) {
        (Some(page), _) => page.revision,
        (None, Freshness::Latest | Freshness::Any) => state.store.revision(),
        (None, Freshness::NotOlderThan(revision)) => {
            not_newer_than_now(state, revision)?;
            state.store.revision()
        }
        (None, Freshness::Exactly(revision)) => revision,
    };
    not_newer_than_now(state, revision)?;
    let after = page.map(|page| page.last);
    let wanted =
        |object: &Arc<Object>| after.as_ref().is_none_or(|last| object.key.is_after(last)) && selection.matches(object);
    let mut found: Vec<Arc<Object>> = if state.store.is_unchanged_since(kind.table, revision) {
        state.store.list(kind.table, selection.namespace()).filter(|object| wanted(object)).cloned().collect()
    } else {
        let past = state.store.list_at(kind.table, revision).map_err(|_| too_old(after.is_some()))?;
        past.into_values().filter(wanted).collect()
    };
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
    if let Some(limit) = options.limit
        && found.len() > limit
    {
        if selection.is_everything() {
            metadata.insert("remainingItemCount".to_owned(), json!(found.len() - limit));
        }
        found.truncate(limit);
        let last = found.last().expect("a page is not empty").key.clone();
        metadata.insert("continue".to_owned(), json!(Page { revision, last }.token()));
    }
    Ok((found, Value::Object(metadata)))
}

fn too_old(paging: bool) -> Failure {
    if paging {
        return Failure::expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.",
        );
    }
    Failure::expired("The resourceVersion for the provided list is too old.")
}
