//! Parses structural schemas.
//!
//! What is rejected, and mostly the messages, are those of kube-apiserver; kube-apiserver reports all mistakes, this
//! stops at the first. Must not depend on objects.

use serde_json::{Value, json};

use super::default_check::check_default;
use super::field_error::FieldError;
use super::format::Format;
use super::node::{Additional, Checks, ListType, Node, Type};
use super::pattern::Pattern;
use super::raw_schema::RawSchema;
use super::rule_parse::parse_rules;

/// Where a schema is in the tree.
#[derive(Clone)]
pub(super) struct Place {
    level: Level,
    /// The path of the uncorrelatable part of the schema that this is in, if any.
    pub(super) uncorrelatable: Option<String>,
    /// Whether it describes the metadata of an object.
    inside_metadata: bool,
    /// Why defaults are forbidden here, if they are.
    no_defaults: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

impl Place {
    fn below(&self, level: Level) -> Place {
        Place { level, ..self.clone() }
    }

    /// Whether this is the schema of a whole object.
    pub(super) fn is_root(&self) -> bool {
        self.level == Level::Root
    }
}

/// Parses the schema of a whole object.
pub(super) fn parse(schema: &Value, path: &str) -> Result<Node, FieldError> {
    let place = Place { level: Level::Root, uncorrelatable: None, inside_metadata: false, no_defaults: None };
    let node = structural(schema, path.to_owned(), &place)?;
    if node.nullable {
        return Err(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    check_complete(&node.checks, &node, path, path)?;
    Ok(node)
}

fn structural(schema: &Value, path: String, place: &Place) -> Result<Node, FieldError> {
    let written = RawSchema::schema(schema, path)?;
    let mut node = Node {
        type_: type_of(&written)?,
        int_or_string: written.flag("x-kubernetes-int-or-string")?,
        nullable: written.flag("nullable")?,
        default: written.get("default").cloned(),
        preserve_unknown: preserve_unknown(&written)?,
        embedded: written.flag("x-kubernetes-embedded-resource")?,
        list_type: list_type(&written)?,
        is_atomic: written.text("x-kubernetes-map-type")? == Some("atomic"),
        ..Node::default()
    };
    fields(&mut node, &written, place)?;
    items(&mut node, &written, place)?;
    invariants(&node, &written, place)?;
    node.checks = checks(&written, &node)?;
    if node.embedded || place.is_root() {
        metadata(&node, &written, place)?;
    }
    list_map_keys(&node, &written)?;
    node.rules = parse_rules(&written, &node, place)?;
    if let Some(default) = &node.default {
        if let Some(reason) = &place.no_defaults {
            return Err(FieldError::forbidden(written.at("default"), format!("must not be set {reason}")));
        }
        check_default(default, &node, &written.at("default"))?;
    }
    Ok(node)
}

fn type_of(written: &RawSchema<'_>) -> Result<Option<Type>, FieldError> {
    let Some(name) = written.text("type")?.filter(|name| !name.is_empty()) else { return Ok(None) };
    match Type::ALL.into_iter().find(|type_| type_.name() == name) {
        Some(type_) => Ok(Some(type_)),
        None => Err(FieldError::not_supported(written.at("type"), name, &Type::ALL.map(Type::name))),
    }
}

fn preserve_unknown(written: &RawSchema<'_>) -> Result<bool, FieldError> {
    let keyword = "x-kubernetes-preserve-unknown-fields";
    match written.get(keyword) {
        None => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(other) => Err(FieldError::invalid(written.at(keyword), other.clone(), "must be true or undefined")),
    }
}

fn list_type(written: &RawSchema<'_>) -> Result<ListType, FieldError> {
    let keyword = "x-kubernetes-list-type";
    let keys = written.strings("x-kubernetes-list-map-keys")?;
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match (written.text(keyword)?, keys.is_empty()) {
        (None | Some("atomic"), true) => Ok(ListType::Atomic),
        (None, false) => Err(FieldError::required(written.at(keyword), detail)),
        (Some("map"), true) => {
            let path = written.at("x-kubernetes-list-map-keys");
            Err(FieldError::required(path, "must not be empty if x-kubernetes-list-type is map"))
        }
        (Some("map"), false) => Ok(ListType::Map(keys)),
        (Some(other), false) => Err(FieldError::invalid(written.at(keyword), other, detail)),
        (Some("set"), true) => Ok(ListType::Set),
        (Some(other), true) => Err(FieldError::not_supported(written.at(keyword), other, &["atomic", "set", "map"])),
    }
}

fn fields(node: &mut Node, written: &RawSchema<'_>, place: &Place) -> Result<(), FieldError> {
    let is_object = place.is_root() || node.embedded;
    for (name, schema) in written.map("properties")? {
        let mut below = place.below(Level::Field);
        if is_object && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            below.inside_metadata = true;
            if place.is_root() {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let field = structural(schema, format!("{}[{name}]", written.at("properties")), &below)?;
        node.properties.insert(name.clone(), field);
    }
    let path = written.at("additionalProperties");
    node.additional = match written.get("additionalProperties") {
        None => None,
        Some(_) if place.is_root() => return Err(FieldError::forbidden(path, "must not be used at the root")),
        Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
        Some(schema) => {
            let mut below = place.below(Level::Field);
            if place.inside_metadata {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            Some(Additional::Of(Box::new(structural(schema, path.clone(), &below)?)))
        }
    };
    let excludes_others = matches!(node.additional, Some(Additional::Of(_) | Additional::Allowed(false)));
    if excludes_others && !node.properties.is_empty() {
        return Err(FieldError::forbidden(path, "additionalProperties and properties are mutual exclusive"));
    }
    Ok(())
}

fn items(node: &mut Node, written: &RawSchema<'_>, place: &Place) -> Result<(), FieldError> {
    let path = written.at("items");
    match written.get("items") {
        None if node.type_ == Some(Type::Array) => return Err(FieldError::required(path, "must be specified")),
        None => {}
        Some(Value::Array(_)) => {
            return Err(FieldError::forbidden(path, "items must be a schema object and not an array"));
        }
        Some(schema) => {
            let mut below = place.below(Level::Item);
            if !matches!(node.list_type, ListType::Map(_)) {
                below.uncorrelatable.get_or_insert_with(|| written.path.clone());
            }
            node.items = Some(Box::new(structural(schema, path, &below)?));
        }
    }
    Ok(())
}

fn invariants(node: &Node, written: &RawSchema<'_>, place: &Place) -> Result<(), FieldError> {
    let name = node.type_.map_or("", Type::name);
    let must_be = |wanted: Type, keyword: &str| {
        let detail = format!("must be {} {keyword}", wanted.name());
        match node.type_ {
            Some(type_) if type_ == wanted => Ok(()),
            None => Err(FieldError::required(written.at("type"), detail)),
            Some(_) => Err(FieldError::invalid(written.at("type"), name, detail)),
        }
    };
    if node.embedded {
        must_be(Type::Object, "if x-kubernetes-embedded-resource is true")?;
    } else if node.type_.is_none() && !node.int_or_string && !node.preserve_unknown {
        let detail = match place.level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        return Err(FieldError::required(written.at("type"), detail));
    }
    if place.is_root() && node.type_.is_some_and(|type_| type_ != Type::Object) {
        return Err(FieldError::invalid(written.at("type"), name, "must be object at the root"));
    }
    for (keyword, is_set) in [
        ("x-kubernetes-preserve-unknown-fields", node.preserve_unknown),
        ("x-kubernetes-embedded-resource", node.embedded),
    ] {
        if node.int_or_string && is_set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            return Err(FieldError::invalid(written.at(keyword), true, detail));
        }
    }
    if let Some(map_type) = written.text("x-kubernetes-map-type")? {
        must_be(Type::Object, "if x-kubernetes-map-type is specified")?;
        if !matches!(map_type, "atomic" | "granular") {
            let path = written.at("x-kubernetes-map-type");
            return Err(FieldError::not_supported(path, map_type, &["atomic", "granular"]));
        }
    }
    if written.text("x-kubernetes-list-type")?.is_some() {
        must_be(Type::Array, "if x-kubernetes-list-type is specified")?;
    }
    if let (ListType::Set, Some(each)) = (&node.list_type, written.get("items")) {
        let (list_type, map_type) = (&each["x-kubernetes-list-type"], &each["x-kubernetes-map-type"]);
        let loose = match each["type"].as_str() {
            Some("array") if !list_type.is_null() && list_type != "atomic" => "x-kubernetes-list-type",
            Some("object") if map_type != "atomic" => "x-kubernetes-map-type",
            _ => return Ok(()),
        };
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let path = format!("{}.{loose}", written.at("items"));
        // kube-apiserver reports the list type in both cases.
        return Err(FieldError::invalid(path, list_type.clone(), detail));
    }
    Ok(())
}

/// Metadata belongs to kube-apiserver; a schema may restrict names only.
fn metadata(node: &Node, written: &RawSchema<'_>, place: &Place) -> Result<(), FieldError> {
    for name in ["kind", "apiVersion"] {
        if let Some(field) = node.properties.get(name).filter(|field| field.type_ != Some(Type::String)) {
            let path = format!("{}[{name}].type", written.at("properties"));
            return Err(FieldError::invalid(path, field.type_.map_or("", Type::name), "must be string"));
        }
    }
    if let Some(field) = node.properties.get("metadata") {
        let path = format!("{}[metadata]", written.at("properties"));
        if field.type_ != Some(Type::Object) {
            let name = field.type_.map_or("", Type::name);
            return Err(FieldError::invalid(format!("{path}.type"), name, "must be object"));
        }
        let schema = &written.get("properties").unwrap_or(&Value::Null)["metadata"];
        let inner = RawSchema::schema(schema, path.clone())?;
        let only_names = field.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName"));
        let says_more =
            !only_names || !inner.keywords().all(|keyword| matches!(keyword, "type" | "properties" | "default"));
        if place.is_root() && says_more {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            return Err(FieldError::forbidden(path, detail));
        }
    }
    if node.embedded && node.additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        return Err(FieldError::forbidden(written.at("additionalProperties"), detail));
    }
    if node.embedded && place.inside_metadata {
        let path = written.at("x-kubernetes-embedded-resource");
        return Err(FieldError::forbidden(path, "must not be used inside of resource meta"));
    }
    if node.embedded && !node.preserve_unknown && node.properties.is_empty() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        return Err(FieldError::required(written.at("properties"), detail));
    }
    Ok(())
}

/// The keys of a list of type map must be present and comparable in each element.
fn list_map_keys(node: &Node, written: &RawSchema<'_>) -> Result<(), FieldError> {
    let Some(each) = node.items.as_deref() else { return Ok(()) };
    let at = |rest: &str| format!("{}{rest}", written.at("items"));
    let kind = match &node.list_type {
        ListType::Atomic => return Ok(()),
        ListType::Set => "set",
        ListType::Map(_) => "map",
    };
    if each.nullable {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        return Err(FieldError::forbidden(at(".nullable"), detail));
    }
    let ListType::Map(keys) = &node.list_type else { return Ok(()) };
    if each.type_ != Some(Type::Object) {
        let name = each.type_.map_or("", Type::name);
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return Err(FieldError::invalid(at(".type"), name, detail));
    }
    for (index, key) in keys.iter().enumerate() {
        let refuse = |detail: &str| {
            let path = written.at("x-kubernetes-list-map-keys");
            Err(FieldError::invalid(path, json!(keys), detail))
        };
        if keys[..index].contains(key) {
            return refuse("must not contain duplicate entries");
        }
        let Some(field) = each.properties.get(key) else {
            return refuse("entries must all be names of item properties");
        };
        let path = at(&format!(".properties[{key}]"));
        if matches!(field.type_, Some(Type::Array | Type::Object)) {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            return Err(FieldError::invalid(format!("{path}.type"), "object", detail));
        }
        if field.default.is_none() && !each.checks.required.contains(key) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            return Err(FieldError::required(format!("{path}.default"), detail));
        }
        if field.nullable {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            return Err(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
    }
    Ok(())
}

fn checks(written: &RawSchema<'_>, node: &Node) -> Result<Checks, FieldError> {
    let format = match written.text("format")? {
        Some(name) if node.int_or_string => Format::parse(name, None),
        Some(name) => Format::parse(name, node.type_),
        None => Ok(None),
    };
    let pattern = match written.text("pattern")?.filter(|pattern| !pattern.is_empty()) {
        Some(pattern) => Some(Pattern::parse(pattern).map_err(|reason| {
            let detail = format!("must be a valid regular expression, but isn't: {reason}");
            FieldError::invalid(written.at("pattern"), pattern, detail)
        })?),
        None => None,
    };
    let multiple_of = written.number("multipleOf")?;
    if let Some(factor) =
        multiple_of.filter(|factor| *factor <= 0.0 || node.type_ == Some(Type::Integer) && *factor < 1.0)
    {
        return Err(FieldError::invalid(
            written.at("multipleOf"),
            factor,
            "must be positive, and at least 1 for integers",
        ));
    }
    Ok(Checks {
        format: format.map_err(|error| FieldError::forbidden(written.at("format"), error.to_string()))?,
        enumeration: written.list("enum")?.to_vec(),
        maximum: written.number("maximum")?,
        exclusive_maximum: written.flag("exclusiveMaximum")?,
        minimum: written.number("minimum")?,
        exclusive_minimum: written.flag("exclusiveMinimum")?,
        multiple_of,
        max_length: written.integer("maxLength")?,
        min_length: written.integer("minLength")?,
        pattern,
        max_items: written.integer("maxItems")?,
        min_items: written.integer("minItems")?,
        max_properties: written.integer("maxProperties")?,
        min_properties: written.integer("minProperties")?,
        required: written.strings("required")?,
        all_of: branches(written, "allOf")?,
        any_of: branches(written, "anyOf")?,
        one_of: branches(written, "oneOf")?,
        not: match written.get("not") {
            Some(schema) => Some(Box::new(nested(schema, written.at("not"), false)?)),
            None => None,
        },
    })
}

fn branches(written: &RawSchema<'_>, junctor: &str) -> Result<Vec<Node>, FieldError> {
    let schemas = written.list(junctor)?;
    // The only form in which types may appear below a junctor.
    let spells_int_or_string = junctor == "anyOf" && schemas == [json!({"type": "integer"}), json!({"type": "string"})];
    let parse = |(index, schema)| nested(schema, format!("{}[{index}]", written.at(junctor)), spells_int_or_string);
    schemas.iter().enumerate().map(parse).collect()
}

/// A schema below a junctor: it may validate values but not specify them.
fn nested(schema: &Value, path: String, may_have_type: bool) -> Result<Node, FieldError> {
    let written = RawSchema::schema(schema, path)?;
    for (keyword, detail) in [
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let says_nothing = match written.get(keyword) {
            None | Some(Value::Bool(false)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if !says_nothing {
            return Err(FieldError::forbidden(written.at(keyword), detail));
        }
    }
    let type_ = type_of(&written)?;
    if type_.is_some() && !may_have_type {
        return Err(FieldError::forbidden(written.at("type"), "must be empty to be structural"));
    }
    let mut node = Node { type_, ..Node::default() };
    for (name, schema) in written.map("properties")? {
        let path = format!("{}[{name}]", written.at("properties"));
        if name == "metadata" {
            return Err(FieldError::forbidden(path, "must not be specified in a nested context"));
        }
        node.properties.insert(name.clone(), nested(schema, path, false)?);
    }
    node.additional = match written.get("additionalProperties") {
        None => None,
        Some(Value::Bool(false)) => Some(Additional::Allowed(false)),
        Some(_) => {
            let path = written.at("additionalProperties");
            return Err(FieldError::forbidden(path, "must be undefined to be structural"));
        }
    };
    node.items = match written.get("items") {
        Some(schema) => Some(Box::new(nested(schema, written.at("items"), false)?)),
        None => None,
    };
    node.checks = checks(&written, &node)?;
    Ok(node)
}

/// Everything validated below a junctor of the root must also be specified in the schema itself.
fn check_complete(checks: &Checks, known: &Node, path: &str, checked: &str) -> Result<(), FieldError> {
    let junctors = [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)];
    for (junctor, nodes) in junctors {
        for (index, node) in nodes.iter().enumerate() {
            check_complete_node(node, Some(known), path, &format!("{checked}.{junctor}[{index}]"))?;
        }
    }
    match &checks.not {
        Some(node) => check_complete_node(node, Some(known), path, &format!("{checked}.not")),
        None => Ok(()),
    }
}

fn check_complete_node(node: &Node, known: Option<&Node>, path: &str, checked: &str) -> Result<(), FieldError> {
    let Some(known) = known else {
        return Err(FieldError::required(path, format!("because it is defined in {checked}")));
    };
    check_complete(&node.checks, known, path, checked)?;
    if let Some(each) = &node.items {
        check_complete_node(each, known.items.as_deref(), &format!("{path}.items"), &format!("{checked}.items"))?;
    }
    for (name, field) in &node.properties {
        let below = format!(".properties[{name}]");
        let known = known.properties.get(name);
        check_complete_node(field, known, &format!("{path}{below}"), &format!("{checked}{below}"))?;
    }
    Ok(())
}
