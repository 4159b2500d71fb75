//! What a client wants to see of objects: all of them, their metadata, or rows of a table.
//!
//! The wish is read from the header `Accept`, before the request is answered; answers and lines of watches are put
//! into shape at the end. Failures are never reshaped. It must not know verbs or kinds.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{Answer, List, printed};
use super::failure::Failure;
use super::openapi::OLD_FORM;
use super::query::Query;
use super::request::{Route, route};
use super::table::{Include, table_of_list, table_of_object};
use crate::clock::Clock;
use crate::kinds::Kind;

const OFFERED: [&str; 1] = ["application/json"];
/// Ranges of types that JSON is in.
const JSON: [&str; 3] = ["application/json", "application/*", "*/*"];
/// What the real server offers as well.
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The shape of objects in answers; partial ones and tables in a version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Full,
    Metadata(&'static str),
    Table(&'static str),
}

/// What answers look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    shape: Shape,
    /// How much of its object a row of a table carries, as the client wrote it.
    include: Option<String>,
    /// Whether the client would take the whole as well.
    or_full: bool,
}

/// One of the ways that a client accepts.
pub(crate) struct Offer<'a> {
    pub(crate) media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Offer<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        Self { media_type, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// What the answer is to be turned into: kind, group and version.
    pub(crate) fn conversion(&self) -> Option<(&str, &str, &str)> {
        let [kind, group, version] = ["as", "g", "v"].map(|name| self.parameter(name));
        let asked = kind.is_some() || group.is_some() || version.is_some();
        asked.then(|| (kind.unwrap_or_default(), group.unwrap_or_default(), version.unwrap_or_default()))
    }

    /// How much the client likes it.
    fn weight(&self) -> f64 {
        self.parameter("q").and_then(|text| text.parse().ok()).unwrap_or(1.0)
    }
}

/// The ways that a client accepts, best first.
pub(crate) fn offers(accept: &str) -> Vec<Offer<'_>> {
    let mut offers: Vec<Offer<'_>> = accept.split(',').map(Offer::read).collect();
    offers.sort_by(|one, other| other.weight().total_cmp(&one.weight()));
    offers
}

impl View {
    const FULL: View = View { shape: Shape::Full, include: None, or_full: true };

    /// The first way among those that the client accepts which this server has for what is asked for.
    pub(crate) fn of(accept: Option<&str>, path: &str, query: &str) -> Result<Self, Failure> {
        let Some(accept) = accept.map(str::trim).filter(|accept| !accept.is_empty()) else { return Ok(View::FULL) };
        let is_object = matches!(route(path), Route::Resource(_));
        let is_text = !path.starts_with("/api") || path.ends_with("/log");
        let mut is_known = false;
        let offers = offers(accept);
        let or_full = offers.iter().any(|offer| JSON.contains(&offer.media_type) && offer.conversion().is_none());
        for offer in offers {
            is_known |= JSON.contains(&offer.media_type) || [YAML, PROTOBUF].contains(&offer.media_type);
            let shape = match (offer.media_type, offer.conversion()) {
                (json, None) if JSON.contains(&json) => Some(Shape::Full),
                ("text/plain" | "text/*", _) if is_text => Some(Shape::Full),
                // kubectl writes an @ where the header's rules want a dot.
                (form, None) if path == "/openapi/v2" && form.replace('@', ".") == OLD_FORM => Some(Shape::Full),
                (json, Some(conversion)) if JSON.contains(&json) && is_object => shape(conversion),
                // Discovery looks for the forms of its own.
                ("application/json", Some(("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2" | "v2beta1")))
                    if ["/api", "/apis"].contains(&path.trim_end_matches('/')) =>
                {
                    Some(Shape::Full)
                }
                _ => None,
            };
            if let Some(shape) = shape {
                let include = Query::parse(query).text("includeObject").map(str::to_owned);
                return Ok(View { shape, include, or_full });
            }
        }
        Err(if is_known { Failure::not_acceptable(&OFFERED) } else { Failure::nothing_acceptable(&OFFERED) })
    }

    /// An answer as it is wanted. Of answers that are no objects of `kind` nothing can be made.
    pub(crate) fn of_answer(&self, answer: Answer, kind: Option<&Kind>, now: Timestamp) -> Result<Answer, Failure> {
        match (self.shape, answer, kind) {
            (Shape::Metadata(version), Answer::Json { code, text, warnings }, _) => {
                Ok(Answer::Json { code, text: reduced(&text, version), warnings })
            }
            (Shape::Metadata(version), Answer::List(list), _) => Ok(reduced_list(&list, version)),
            (Shape::Table(version), Answer::Json { code, text, warnings }, Some(kind)) => {
                let Some(object) = object_of(&text, kind) else { return Ok(Answer::Json { code, text, warnings }) };
                let table = table_of_object(kind, object, version, self.include()?, true, now);
                Ok(Answer::Json { code, text: printed(&table), warnings })
            }
            (Shape::Table(version), Answer::List(list), _) => {
                let text = table_of_list(&list, version, self.include()?, now);
                Ok(Answer::Json { code: 200, text, warnings: list.warnings })
            }
            (Shape::Table(_), Answer::Json { text, .. }, None) if !self.or_full && !is_status(&text) => {
                // Parts such as `scale` have no columns.
                Err(Failure::not_acceptable(&OFFERED))
            }
            (_, answer, _) => Ok(answer),
        }
    }

    /// The lines of a watch of `kind` as they are wanted.
    pub(crate) fn of_watch(&self, kind: Arc<Kind>, clock: Clock) -> Result<Lines, Failure> {
        Ok(Lines { shape: self.shape, include: self.include()?, kind, clock, is_first: true })
    }

    fn include(&self) -> Result<Include, Failure> {
        let Shape::Table(_) = self.shape else { return Ok(Include::Metadata) };
        Include::read(self.include.as_deref())
    }
}

fn shape((kind, group, version): (&str, &str, &str)) -> Option<Shape> {
    if group != "meta.k8s.io" {
        return None;
    }
    let version = ["v1", "v1beta1"].into_iter().find(|known| *known == version)?;
    match kind {
        "Table" => Some(Shape::Table(version)),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Shape::Metadata(version)),
        _ => None,
    }
}

/// Shapes the lines of one watch.
pub(crate) struct Lines {
    shape: Shape,
    include: Include,
    kind: Arc<Kind>,
    clock: Clock,
    /// Whether nothing was told yet: columns are defined once.
    is_first: bool,
}

impl Lines {
    /// Whole lines as they are wanted.
    pub(crate) fn of(&mut self, chunk: Bytes) -> Bytes {
        if self.shape == Shape::Full {
            return chunk;
        }
        let mut out = BytesMut::new();
        for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(mut event) = serde_json::from_slice::<Value>(line) else { continue };
            if event["type"] != "ERROR" {
                let object = event["object"].take();
                event["object"] = self.object(object);
            }
            out.put_slice(&printed(&event));
            out.put_u8(b'\n');
        }
        out.freeze()
    }

    fn object(&mut self, object: Value) -> Value {
        match self.shape {
            Shape::Full => object,
            Shape::Metadata(version) => partial(&object, version),
            Shape::Table(version) => {
                let is_first = std::mem::replace(&mut self.is_first, false);
                table_of_object(&self.kind, object, version, self.include, is_first, self.clock.now())
            }
        }
    }
}

/// The object in an answer, unless the answer is about something else.
fn object_of(text: &Bytes, kind: &Kind) -> Option<Value> {
    let value: Value = serde_json::from_slice(text).ok()?;
    (value["kind"] == *kind.kind).then_some(value)
}

fn is_status(text: &Bytes) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|value| value["kind"] == "Status")
}

fn reduced(text: &Bytes, version: &str) -> Bytes {
    match serde_json::from_slice::<Value>(text) {
        Ok(value) if value["kind"] != "Status" => printed(&partial(&value, version)),
        _ => text.clone(),
    }
}

fn reduced_list(list: &List, version: &str) -> Answer {
    let items: Vec<Value> = list.items.iter().map(|object| partial(&list.kind.show(object.value()), version)).collect();
    // The real server makes this list anew, and has nothing where nothing is in it.
    let items = if items.is_empty() { Value::Null } else { json!(items) };
    Answer::value(
        200,
        &json!({
            "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": list.metadata, "items": items,
        }),
    )
}

/// An object's metadata alone.
pub(super) fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": object["metadata"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(accept: &str) -> Option<Shape> {
        View::of(Some(accept), "/api/v1/pods", "").ok().map(|view| view.shape)
    }

    #[test]
    fn the_first_way_that_is_known_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(shape_of(table), Some(Shape::Table("v1")));
        assert_eq!(shape_of(&table.replace("v1;", "v1beta1;")), Some(Shape::Table("v1beta1")));
        assert_eq!(shape_of(&format!("{},application/json", table.replace("v1;", "v9;"))), Some(Shape::Full));
        assert_eq!(shape_of(&format!("application/json,{table}")), Some(Shape::Full));
        assert_eq!(shape_of(&format!("application/json;q=0.5,{table};q=0.9")), Some(Shape::Table("v1")));
        assert_eq!(shape_of("application/yaml;as=Foo"), None);
        assert_eq!(shape_of(&table.replace("meta.k8s.io", "other.io")), None);
    }

    #[test]
    fn only_objects_have_tables() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert!(View::of(Some(table), "/apis/apps/v1", "").is_err());
        let discovery = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io";
        assert!(View::of(Some(discovery), "/apis", "").is_ok());
        assert!(View::of(Some(discovery), "/apis/apps/v1", "").is_err());
        assert!(View::of(Some(&discovery.replace("v2", "v3")), "/apis", "").is_err());
        assert!(View::of(Some(&format!("{table},application/json")), "/apis/apps/v1", "").is_ok());
    }
}
