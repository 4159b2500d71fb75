//! Get and list.
//!
//! A list that is read in pages shows one moment: later pages are read from the revision of the first.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use muster_playground_store::{Key, Object};
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::failure::Failure;
use super::json_text;
use super::query::{Freshness, ListOptions, Query, parse_revision};
use super::request::Target;
use super::selection::Selection;
use super::state::State;
use crate::kinds::{Kind, Rules};

/// One object.
pub(crate) fn get(state: &State, kind: &Kind, target: &Target, query: &Query) -> Result<Answer, Failure> {
    if let Some(text) = query.text("resourceVersion") {
        let revision = parse_revision(text).map_err(|error| Failure::plain(500, error.to_string()))?;
        not_newer_than_now(state, revision)?;
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
    /// The moment that the list shows; none if its past is gone and the client goes on with the present.
    revision: Option<u64>,
    /// The page holds what does not come before this, in the order of texts.
    start: String,
}

const CONTINUE_VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token that means the present.
const PRESENT: i64 = -1;

impl Page {
    fn token(&self) -> String {
        let revision = self.revision.map_or(PRESENT, |revision| revision as i64);
        BASE64.encode(json!({"v": CONTINUE_VERSION, "rv": revision, "start": self.start}).to_string())
    }

    fn parse(token: &str) -> Result<Self, Failure> {
        let bad = |why: String| Failure::bad_request(format!("invalid continue token: continue key is not valid{why}"));
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

    /// The first key that may stand on this page of a list of one namespace, or of all.
    fn first(&self, namespace: Option<&str>) -> Key {
        match (namespace, self.start.split_once('/')) {
            (Some(namespace), _) => Key::new(namespace, &self.start),
            (None, Some((namespace, name))) => Key::new(namespace, name),
            (None, None) => Key::new("", &self.start),
        }
    }

    /// The page after an object.
    fn after(revision: u64, key: &Key, everywhere: bool) -> Self {
        Self { revision: Some(revision), start: format!("{}\0", place(key, everywhere)) }
    }
}

/// Where an object stands in a list of one namespace, or of all.
fn place(key: &Key, everywhere: bool) -> String {
    if everywhere && !key.namespace.is_empty() {
        format!("{}/{}", key.namespace, key.name)
    } else {
        key.name.to_string()
    }
}

/// A collection, or a page of it.
pub(crate) fn list(state: &State, kind: &Arc<Kind>, target: &Target, options: &ListOptions) -> Result<Answer, Failure> {
    let selection = Selection::read(kind, target, options)?;
    let (page, metadata) = select(state, kind, &selection, options)?;
    Ok(Answer::list(kind, metadata, page))
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
        (Some(page), _) => page.revision.unwrap_or_else(|| state.store.revision()),
        (None, Freshness::Latest | Freshness::Any) => state.store.revision(),
        (None, Freshness::NotOlderThan(revision)) => {
            not_newer_than_now(state, revision)?;
            state.store.revision()
        }
        (None, Freshness::Exactly(revision)) => revision,
    };
    not_newer_than_now(state, revision)?;
    let namespace = selection.namespace();
    let moment = state.store.at(kind.table, revision).map_err(|_| too_old(page.as_ref()))?;
    let start =
        page.as_ref().map_or_else(|| Key::first_of(namespace.unwrap_or_default()), |page| page.first(namespace));
    let mut objects = moment.from(&start).take_while(|object| selection.is_in_namespace(object));
    let matching = objects.by_ref().filter(|object| selection.matches(object)).cloned();
    let limit = options.limit.filter(|_| !selection.is_one());
    let found: Vec<Arc<Object>> = matching.take(limit.unwrap_or(usize::MAX)).collect();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
    // Whether what is left matches is seen only by who asks for it.
    if let Some(last) = found.last().filter(|_| limit == Some(found.len()))
        && objects.next().is_some()
    {
        let next = Page::after(revision, &last.key, namespace.is_none());
        metadata.insert("continue".to_owned(), json!(next.token()));
        if selection.is_everything() {
            metadata.insert("remainingItemCount".to_owned(), json!(objects.count() + 1));
        }
    }
    if matches!(kind.rules, Rules::Custom(_)) {
        // Lists of custom objects name the next page in any case.
        metadata.entry("continue").or_insert(json!(""));
    }
    Ok((found, Value::Object(metadata)))
}

fn too_old(page: Option<&Page>) -> Failure {
    let Some(page) = page else {
        return Failure::expired("The resourceVersion for the provided list is too old.");
    };
    let on = Page { revision: None, start: page.start.clone() };
    Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .continue_with(on.token())
}
