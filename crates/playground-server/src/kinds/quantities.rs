//! Converts quantities in resource lists to the canonical form in which kube-apiserver stores them.
//!
//! A resource list is recognized by its field name. Must not depend on kinds.

use muster_api::quantity::Quantity;
use serde_json::{Map, Value};

use super::typed_decode::DecodeError;

/// The fields that are resource lists in the served kinds.
const RESOURCE_LISTS: [&str; 9] =
    ["allocatable", "allocatedResources", "capacity", "default", "hard", "limits", "overhead", "requests", "used"];

/// Kinds with fields that are named like a resource list and are none.
const WITHOUT_LISTS: [&str; 2] = ["CSINode", "CustomResourceDefinition"];

/// The value of a kind with every quantity in its canonical form.
pub(crate) fn canonical(kind: &str, mut value: Value) -> Result<Value, DecodeError> {
    if !WITHOUT_LISTS.contains(&kind) {
        rewrite(&mut value, "")?;
    }
    Ok(value)
}

/// Rewrites a field that is a quantity itself.
pub(super) fn canonicalize_field(value: &mut Value, field: &str) -> Result<(), DecodeError> {
    let Some(fields) = value.as_object_mut() else { return Ok(()) };
    let Some((key, written)) = fields.remove_entry(field) else { return Ok(()) };
    let mut list = Map::from_iter([(key.clone(), written)]);
    if is_flat(&list) {
        rewrite_list(&mut list, "").map_err(|error| DecodeError { field: key, ..error })?;
    }
    fields.extend(list);
    Ok(())
}

fn rewrite(value: &mut Value, path: &str) -> Result<(), DecodeError> {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields.iter_mut() {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match inner {
                    Value::Object(list) if RESOURCE_LISTS.contains(&key.as_str()) && is_flat(list) => {
                        rewrite_list(list, &path)?;
                    }
                    _ => rewrite(inner, &path)?,
                }
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter_mut().enumerate() {
                rewrite(entry, &format!("{path}[{index}]"))?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_flat(list: &Map<String, Value>) -> bool {
    list.values().all(|value| value.is_string() || value.is_number())
}

fn rewrite_list(list: &mut Map<String, Value>, path: &str) -> Result<(), DecodeError> {
    for (name, value) in list.iter_mut() {
        let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let quantity: Quantity = written
            .trim()
            .parse()
            .map_err(|error| DecodeError { field: format!("{path}.{name}"), why: format!("{written:?}: {error}") })?;
        *value = Value::String(print(quantity, &written));
    }
    Ok(())
}

const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANOS: i128 = 1_000_000_000;

/// Prints a quantity with the largest suffix that needs no fraction, in the format in which it was written.
fn print(quantity: Quantity, written: &str) -> String {
    let nanos = to_milli(quantity.nanos());
    if nanos == 0 {
        return "0".to_owned();
    }
    let exponent = written.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
    if written.trim_end().ends_with('i') && nanos % NANOS == 0 && nanos.abs() >= 1024 * NANOS {
        let (number, steps) = reduce(nanos / NANOS, 1024, BINARY.len() - 1);
        return format!("{number}{}", BINARY[steps]);
    }
    let (number, steps) = reduce(nanos, 1000, DECIMAL.len() - 1);
    match exponent.chars().next_back() {
        // `1E` is an exa, `1E3` an exponent.
        Some('e' | 'E') if exponent.len() < written.trim_end().len() => match 3 * steps as i64 - 9 {
            0 => number.to_string(),
            exponent => format!("{number}e{exponent}"),
        },
        _ => format!("{number}{}", DECIMAL[steps]),
    }
}

/// Quantities are stored in thousandths; finer ones are rounded away from zero.
fn to_milli(nanos: i128) -> i128 {
    const MILLI: i128 = NANOS / 1000;
    let rest = nanos % MILLI;
    if rest == 0 { nanos } else { nanos - rest + rest.signum() * MILLI }
}

/// Divides by `base` while there is no remainder, at most `most` times.
fn reduce(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < most && number % base == 0 {
        number /= base;
        steps += 1;
    }
    (number, steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_stored_as_in_kube_apiserver() {
        for (written, stored) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1500e0", "1500"),
            ("1E", "1E"),
            ("0", "0"),
            ("1.0005", "1001m"),
            ("-1u", "-1m"),
            ("-1", "-1"),
        ] {
            let decoded = canonical("Pod", json!({"requests": {"cpu": written}})).expect(written);
            assert_eq!(decoded["requests"]["cpu"], stored, "{written}");
        }
        assert_eq!(canonical("Pod", json!({"limits": {"cpu": 2}})).unwrap()["limits"]["cpu"], "2");
        assert_eq!(canonical("Pod", json!({"labels": {"limits": "x"}})).unwrap()["labels"]["limits"], "x");
        assert!(canonical("Pod", json!({"limits": {"cpu": "x"}})).is_err());
    }
}
