//! What a client wants to see of objects: all of them, their metadata, or rows of a table.
//!
//! The wish is read from the header `Accept`, before the request is answered; answers and lines of watches are put
//! into shape at the end. Failures are never reshaped. It must not know verbs or kinds.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use muster_determinism::clock::Clock;
use serde_json::{Value, json};

use super::answer::{Answer, List, printed};
use super::failure::Failure;
use super::presentation::{Include, OPENAPI_V2, Presentation, TableForm, partial};
use super::query::Query;
use super::request::{Route, route};
use crate::kinds::Kind;

const OFFERED: [&str; 1] = ["application/json"];
/// Ranges of types that JSON is in.
const JSON: [&str; 3] = ["application/json", "application/*", "*/*"];
/// What the real server offers as well.
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The shape of objects in answers; partial ones and tables in a version of `meta.k8s.io`.
#[derive(Clone, Debug)]
enum Shape {
    Full,
    Metadata(&'static str),
    Table(&'static str, Arc<dyn Presentation>),
}

/// What answers look like.
#[derive(Clone, Debug)]
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
    pub(crate) fn of(
        accept: Option<&str>,
        path: &str,
        query: &str,
        presentation: Option<&Arc<dyn Presentation>>,
    ) -> Result<Self, Failure> {
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
                (form, None)
                    if presentation.is_some() && path == "/openapi/v2" && form.replace('@', ".") == OPENAPI_V2 =>
                {
                    Some(Shape::Full)
                }
                (json, Some(conversion)) if JSON.contains(&json) && is_object => shape(conversion, presentation),
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
        match (&self.shape, answer, kind) {
            (Shape::Metadata(version), Answer::Json { code, text, warnings }, _) => {
                Ok(Answer::Json { code, text: reduced(&text, version), warnings })
            }
            (Shape::Metadata(version), Answer::List(list), _) => Ok(reduced_list(&list, version)),
            (Shape::Table(version, presentation), Answer::Json { code, text, warnings }, Some(kind)) => {
                let Some(object) = object_of(&text, kind) else { return Ok(Answer::Json { code, text, warnings }) };
                let form = TableForm { version, include: self.include()? };
                let table = presentation.table_of_object(kind, object, form, true, now);
                Ok(Answer::Json { code, text: printed(&table), warnings })
            }
            (Shape::Table(version, presentation), Answer::List(list), _) => {
                let form = TableForm { version, include: self.include()? };
                let text = presentation.table_of_list(&list, form, now);
                Ok(Answer::Json { code: 200, text, warnings: list.warnings })
            }
            (Shape::Table(..), Answer::Json { text, .. }, None) if !self.or_full && !is_status(&text) => {
                // Parts such as `scale` have no columns.
                Err(Failure::not_acceptable(&OFFERED))
            }
            (_, answer, _) => Ok(answer),
        }
    }

    /// The lines of a watch of `kind` as they are wanted.
    pub(crate) fn of_watch(&self, kind: Arc<Kind>, clock: Clock) -> Result<Lines, Failure> {
        Ok(Lines { shape: self.shape.clone(), include: self.include()?, kind, clock, is_first: true })
    }

    fn include(&self) -> Result<Include, Failure> {
        let Shape::Table(..) = self.shape else { return Ok(Include::Metadata) };
        Include::read(self.include.as_deref())
    }
}

fn shape((kind, group, version): (&str, &str, &str), presentation: Option<&Arc<dyn Presentation>>) -> Option<Shape> {
    if group != "meta.k8s.io" {
        return None;
    }
    let version = ["v1", "v1beta1"].into_iter().find(|known| *known == version)?;
    match kind {
        "Table" => presentation.map(|presentation| Shape::Table(version, Arc::clone(presentation))),
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
        if matches!(self.shape, Shape::Full) {
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
        match &self.shape {
            Shape::Full => object,
            Shape::Metadata(version) => partial(&object, version),
            Shape::Table(version, presentation) => {
                let is_first = std::mem::replace(&mut self.is_first, false);
                let form = TableForm { version, include: self.include };
                presentation.table_of_object(&self.kind, object, form, is_first, self.clock.now())
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

#[cfg(test)]
mod tests {
    use super::super::presentation::{Document, ProtobufError};
    use super::*;

    /// Something that answers nothing: only the choice is tested.
    #[derive(Debug)]
    struct Silent;

    impl Presentation for Silent {
        fn table_of_object(&self, _: &Kind, _: Value, _: TableForm, _: bool, _: Timestamp) -> Value {
            Value::Null
        }

        fn table_of_list(&self, _: &List, _: TableForm, _: Timestamp) -> Bytes {
            Bytes::new()
        }

        fn read_protobuf(&self, _: &[u8], _: (&str, &str)) -> Result<Value, ProtobufError> {
            Err(ProtobufError::NotProtobuf)
        }

        fn openapi(&self, _: &[&Kind], _: &[&str]) -> Option<Document> {
            None
        }
    }

    fn view_of(accept: &str, path: &str) -> Result<View, Failure> {
        View::of(Some(accept), path, "", Some(&(Arc::new(Silent) as Arc<dyn Presentation>)))
    }

    fn shape_of(accept: &str) -> Option<String> {
        view_of(accept, "/api/v1/pods").ok().map(|view| format!("{:?}", view.shape))
    }

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

    #[test]
    fn the_first_way_that_is_known_is_taken() {
        let table = TABLE;
        let shape = |name: &str| Some(name.to_owned());
        let [full, v1, v1beta1] = [shape("Full"), shape("Table(\"v1\", Silent)"), shape("Table(\"v1beta1\", Silent)")];
        assert_eq!(shape_of(table), v1);
        assert_eq!(shape_of(&table.replace("v1;", "v1beta1;")), v1beta1);
        assert_eq!(shape_of(&format!("{},application/json", table.replace("v1;", "v9;"))), full);
        assert_eq!(shape_of(&format!("application/json,{table}")), full);
        assert_eq!(shape_of(&format!("application/json;q=0.5,{table};q=0.9")), v1);
        assert_eq!(shape_of("application/yaml;as=Foo"), None);
        assert_eq!(shape_of(&table.replace("meta.k8s.io", "other.io")), None);
    }

    #[test]
    fn only_objects_have_tables() {
        assert!(view_of(TABLE, "/apis/apps/v1").is_err());
        let discovery = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io";
        assert!(view_of(discovery, "/apis").is_ok());
        assert!(view_of(discovery, "/apis/apps/v1").is_err());
        assert!(view_of(&discovery.replace("v2", "v3"), "/apis").is_err());
        assert!(view_of(&format!("{TABLE},application/json"), "/apis/apps/v1").is_ok());
    }

    #[test]
    fn without_a_presentation_there_are_no_tables() {
        let bare = |accept: &str, path: &str| View::of(Some(accept), path, "", None);
        assert!(bare(TABLE, "/api/v1/pods").is_err_and(|failure| failure.code == 406));
        let either = format!("{TABLE},application/json");
        assert!(bare(&either, "/api/v1/pods").is_ok_and(|view| matches!(view.shape, Shape::Full)));
        assert!(bare(&TABLE.replace("Table", "PartialObjectMetadata"), "/api/v1/pods").is_ok());
        assert!(bare(OPENAPI_V2, "/openapi/v2").is_err_and(|failure| failure.code == 406));
    }
}
