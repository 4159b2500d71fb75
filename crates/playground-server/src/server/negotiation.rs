//! Content negotiation: whole objects, their metadata only, or rows of a table.
//!
//! The form is determined from the `Accept` header before the request is handled; responses and watch events are
//! converted at the end. Errors are never converted. Must not depend on verbs or kinds.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use muster_clock::Clock;
use serde_json::{Value, json};

use super::presentation::{Include, OPENAPI_V2, Presentation, TableForm, partial};
use super::query::Query;
use super::request::{Route, route};
use super::response::{ApiResponse, List, encode};
use super::status_error::StatusError;
use crate::kinds::Kind;

const OFFERED: [&str; 1] = ["application/json"];
/// Media ranges that include JSON.
const JSON: [&str; 3] = ["application/json", "application/*", "*/*"];
/// What kube-apiserver offers in addition.
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The form of objects in responses; metadata and tables in a version of `meta.k8s.io`.
#[derive(Clone, Debug)]
enum Shape {
    Full,
    Metadata(&'static str),
    Table(&'static str, Arc<dyn Presentation>),
}

/// The negotiated form of responses.
#[derive(Clone, Debug)]
pub(crate) struct View {
    shape: Shape,
    /// How much of its object a row of a table includes, as written by the client.
    include: Option<String>,
    /// Whether the client also accepts whole objects.
    accepts_full: bool,
}

/// One of the media types that a client accepts.
pub(crate) struct MediaRange<'a> {
    pub(crate) media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        Self { media_type, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The requested conversion: kind, group and version.
    pub(crate) fn conversion(&self) -> Option<(&str, &str, &str)> {
        let [kind, group, version] = ["as", "g", "v"].map(|name| self.parameter(name));
        let requested = kind.is_some() || group.is_some() || version.is_some();
        requested.then(|| (kind.unwrap_or_default(), group.unwrap_or_default(), version.unwrap_or_default()))
    }

    /// The quality value.
    fn weight(&self) -> f64 {
        self.parameter("q").and_then(|text| text.parse().ok()).unwrap_or(1.0)
    }
}

/// The accepted media types, most preferred first.
pub(crate) fn accepted_ranges(accept: &str) -> Vec<MediaRange<'_>> {
    let mut accepted_ranges: Vec<MediaRange<'_>> = accept.split(',').map(MediaRange::read).collect();
    accepted_ranges.sort_by(|one, other| other.weight().total_cmp(&one.weight()));
    accepted_ranges
}

impl View {
    const FULL: View = View { shape: Shape::Full, include: None, accepts_full: true };

    /// The first accepted media type that this server supports for the path.
    pub(crate) fn of(
        accept: Option<&str>,
        path: &str,
        query: &str,
        presentation: Option<&Arc<dyn Presentation>>,
    ) -> Result<Self, StatusError> {
        let Some(accept) = accept.map(str::trim).filter(|accept| !accept.is_empty()) else { return Ok(View::FULL) };
        let is_object = matches!(route(path), Route::Resource(_));
        let is_text = !path.starts_with("/api") || path.ends_with("/log");
        let mut is_known = false;
        let accepted_ranges = accepted_ranges(accept);
        let accepts_full =
            accepted_ranges.iter().any(|offer| JSON.contains(&offer.media_type) && offer.conversion().is_none());
        for offer in accepted_ranges {
            is_known |= JSON.contains(&offer.media_type) || [YAML, PROTOBUF].contains(&offer.media_type);
            let shape = match (offer.media_type, offer.conversion()) {
                (json, None) if JSON.contains(&json) => Some(Shape::Full),
                ("text/plain" | "text/*", _) if is_text => Some(Shape::Full),
                // kubectl writes an @ where the media type should have a dot.
                (form, None)
                    if presentation.is_some() && path == "/openapi/v2" && form.replace('@', ".") == OPENAPI_V2 =>
                {
                    Some(Shape::Full)
                }
                (json, Some(conversion)) if JSON.contains(&json) && is_object => shape(conversion, presentation),
                // Discovery negotiates these itself.
                ("application/json", Some(("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2" | "v2beta1")))
                    if ["/api", "/apis"].contains(&path.trim_end_matches('/')) =>
                {
                    Some(Shape::Full)
                }
                _ => None,
            };
            if let Some(shape) = shape {
                let include = Query::parse(query).text("includeObject").map(str::to_owned);
                return Ok(View { shape, include, accepts_full });
            }
        }
        Err(if is_known { StatusError::not_acceptable(&OFFERED) } else { StatusError::nothing_acceptable(&OFFERED) })
    }

    /// Converts a response. Only responses with objects of `kind` can be converted.
    pub(crate) fn convert_response(
        &self,
        response: ApiResponse,
        kind: Option<&Kind>,
        now: Timestamp,
    ) -> Result<ApiResponse, StatusError> {
        match (&self.shape, response, kind) {
            (Shape::Metadata(version), ApiResponse::Json { code, text, warnings }, _) => {
                Ok(ApiResponse::Json { code, text: to_partial(&text, version), warnings })
            }
            (Shape::Metadata(version), ApiResponse::List(list), _) => Ok(to_partial_list(&list, version)),
            (Shape::Table(version, presentation), ApiResponse::Json { code, text, warnings }, Some(kind)) => {
                let Some(object) = object_of(&text, kind) else {
                    return Ok(ApiResponse::Json { code, text, warnings });
                };
                let form = TableForm { version, include: self.include()? };
                let table = presentation.table_of_object(kind, object, form, true, now);
                Ok(ApiResponse::Json { code, text: encode(&table), warnings })
            }
            (Shape::Table(version, presentation), ApiResponse::List(list), _) => {
                let form = TableForm { version, include: self.include()? };
                let text = presentation.table_of_list(&list, form, now);
                Ok(ApiResponse::Json { code: 200, text, warnings: list.warnings })
            }
            (Shape::Table(..), ApiResponse::Json { text, .. }, None) if !self.accepts_full && !is_status(&text) => {
                // Subresources such as `scale` have no columns.
                Err(StatusError::not_acceptable(&OFFERED))
            }
            (_, response, _) => Ok(response),
        }
    }

    /// The converter for the events of a watch of `kind`.
    pub(crate) fn event_converter(&self, kind: Arc<Kind>, clock: Clock) -> Result<EventConverter, StatusError> {
        Ok(EventConverter { shape: self.shape.clone(), include: self.include()?, kind, clock, is_first: true })
    }

    fn include(&self) -> Result<Include, StatusError> {
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

/// Converts the events of one watch.
pub(crate) struct EventConverter {
    shape: Shape,
    include: Include,
    kind: Arc<Kind>,
    clock: Clock,
    /// Whether this is the first table: only it has columns.
    is_first: bool,
}

impl EventConverter {
    /// Converts complete lines.
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
            out.put_slice(&encode(&event));
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

/// The object in a response, unless the response is something else.
fn object_of(text: &Bytes, kind: &Kind) -> Option<Value> {
    let value: Value = serde_json::from_slice(text).ok()?;
    (value["kind"] == *kind.kind).then_some(value)
}

fn is_status(text: &Bytes) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|value| value["kind"] == "Status")
}

fn to_partial(text: &Bytes, version: &str) -> Bytes {
    match serde_json::from_slice::<Value>(text) {
        Ok(value) if value["kind"] != "Status" => encode(&partial(&value, version)),
        _ => text.clone(),
    }
}

fn to_partial_list(list: &List, version: &str) -> ApiResponse {
    let items: Vec<Value> = list.items.iter().map(|object| partial(&list.kind.show(object.value()), version)).collect();
    // kube-apiserver builds a new list here, whose items are null if there are none.
    let items = if items.is_empty() { Value::Null } else { json!(items) };
    ApiResponse::value(
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

    /// Only negotiation is tested, so this does nothing.
    #[derive(Debug)]
    struct NoPresentation;

    impl Presentation for NoPresentation {
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

    fn view_of(accept: &str, path: &str) -> Result<View, StatusError> {
        View::of(Some(accept), path, "", Some(&(Arc::new(NoPresentation) as Arc<dyn Presentation>)))
    }

    fn shape_of(accept: &str) -> Option<String> {
        view_of(accept, "/api/v1/pods").ok().map(|view| format!("{:?}", view.shape))
    }

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

    #[test]
    fn first_supported_media_type_is_used() {
        let table = TABLE;
        let shape = |name: &str| Some(name.to_owned());
        let [full, v1, v1beta1] =
            [shape("Full"), shape("Table(\"v1\", NoPresentation)"), shape("Table(\"v1beta1\", NoPresentation)")];
        assert_eq!(shape_of(table), v1);
        assert_eq!(shape_of(&table.replace("v1;", "v1beta1;")), v1beta1);
        assert_eq!(shape_of(&format!("{},application/json", table.replace("v1;", "v9;"))), full);
        assert_eq!(shape_of(&format!("application/json,{table}")), full);
        assert_eq!(shape_of(&format!("application/json;q=0.5,{table};q=0.9")), v1);
        assert_eq!(shape_of("application/yaml;as=Foo"), None);
        assert_eq!(shape_of(&table.replace("meta.k8s.io", "other.io")), None);
    }

    #[test]
    fn tables_are_for_objects_only() {
        assert!(view_of(TABLE, "/apis/apps/v1").is_err());
        let discovery = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io";
        assert!(view_of(discovery, "/apis").is_ok());
        assert!(view_of(discovery, "/apis/apps/v1").is_err());
        assert!(view_of(&discovery.replace("v2", "v3"), "/apis").is_err());
        assert!(view_of(&format!("{TABLE},application/json"), "/apis/apps/v1").is_ok());
    }

    #[test]
    fn tables_need_a_presentation() {
        let bare = |accept: &str, path: &str| View::of(Some(accept), path, "", None);
        assert!(bare(TABLE, "/api/v1/pods").is_err_and(|failure| failure.code == 406));
        let either = format!("{TABLE},application/json");
        assert!(bare(&either, "/api/v1/pods").is_ok_and(|view| matches!(view.shape, Shape::Full)));
        assert!(bare(&TABLE.replace("Table", "PartialObjectMetadata"), "/api/v1/pods").is_ok());
        assert!(bare(OPENAPI_V2, "/openapi/v2").is_err_and(|failure| failure.code == 406));
    }
}
