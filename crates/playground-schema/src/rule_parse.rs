//! Parses `x-kubernetes-validations`.
//!
//! Must not depend on how rules are evaluated.

use super::field_error::FieldError;
use super::field_path;
use super::node::Node;
use super::parse::Place;
use super::raw_schema::RawSchema;
use super::rule::{Reason, Rule, RuleSpec};

const KEYWORD: &str = "x-kubernetes-validations";
const FIELDS: [&str; 6] = ["rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf"];

/// The rules of a schema; `node` is the rest of the schema.
pub(super) fn parse_rules(schema: &RawSchema<'_>, node: &Node, place: &Place) -> Result<Vec<Rule>, FieldError> {
    let rules = schema.list(KEYWORD)?.iter().enumerate();
    rules
        .map(|(index, rule)| {
            let written = RawSchema::object(rule, format!("{}[{index}]", schema.at(KEYWORD)))?;
            parse_rule(&written, node, place)
        })
        .collect()
}

fn parse_rule(written: &RawSchema<'_>, node: &Node, place: &Place) -> Result<Rule, FieldError> {
    if let Some(unknown) = written.keywords().find(|field| !FIELDS.contains(field)) {
        return Err(FieldError::forbidden(written.at(unknown), "the keyword is not known"));
    }
    let text = |field: &str| Ok::<_, FieldError>(written.text(field)?.unwrap_or_default());
    let (rule, message, expression) = (text("rule")?, text("message")?, text("messageExpression")?);
    if rule.trim().is_empty() {
        return Err(FieldError::required(written.at("rule"), "rule is not specified"));
    }
    if !message.is_empty() && message.trim().is_empty() {
        return Err(FieldError::invalid(written.at("message"), message, "must be non-empty if specified"));
    }
    if message.trim().contains('\n') {
        return Err(FieldError::invalid(written.at("message"), message, "must not contain line breaks"));
    }
    if rule.trim().contains('\n') && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        return Err(FieldError::required(written.at("message"), detail));
    }
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        return Err(FieldError::required(written.at("messageExpression"), detail));
    }
    let field_path = match written.text("fieldPath")? {
        None | Some("") => String::new(),
        Some(path) => field_path::normalize(path, node)
            .ok_or_else(|| FieldError::invalid(written.at("fieldPath"), path, "must be a valid path"))?,
    };
    let spec = RuleSpec {
        rule: rule.to_owned(),
        message: message.to_owned(),
        message_expression: expression.to_owned(),
        reason: reason(written)?,
        field_path,
        optional_old_self: written.flag("optionalOldSelf")?,
    };
    let compiled = Rule::compile(spec, node, place.is_root() || node.embedded).map_err(|(field, error)| {
        FieldError::invalid(written.at(field), text(field).unwrap_or_default(), error.to_string())
    })?;
    if compiled.uses_old_self() {
        if let Some(path) = &place.uncorrelatable {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}");
            return Err(FieldError::invalid(written.at("rule"), rule, detail));
        }
    } else if let Some(optional) = written.get("optionalOldSelf") {
        let detail = "may not be set if oldSelf is not used in rule";
        return Err(FieldError::invalid(written.at("optionalOldSelf"), optional.clone(), detail));
    }
    Ok(compiled)
}

fn reason(written: &RawSchema<'_>) -> Result<Option<Reason>, FieldError> {
    Ok(match written.text("reason")? {
        None => None,
        Some("FieldValueInvalid") => Some(Reason::Invalid),
        Some("FieldValueForbidden") => Some(Reason::Forbidden),
        Some("FieldValueRequired") => Some(Reason::Required),
        Some("FieldValueDuplicate") => Some(Reason::Duplicate),
        Some(other) => {
            let known = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
            return Err(FieldError::not_supported(written.at("reason"), other, &known));
        }
    })
}
