//! The subset of JSONPath that printer columns of custom resources use.
//!
//! Fields (`.a`, `['a\.b']`), elements (`[0]`, `[-1]`, `[1:3]`), all elements (`[*]`) and filters
//! (`[?(@.type=="Ready")]`). The rest of JSONPath (`..`, unions, template ranges) is rejected by the parser.

use serde_json::Value;

/// The longest path that is parsed.
const LENGTH_MAX: usize = 1024;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// One element, counted from the end if negative.
    Entry(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// Without it, the path on the left must exist.
    right: Option<(Comparison, Operand)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    Path(Vec<Step>),
}

impl JsonPath {
    /// Parses a path; the error describes the first mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Filters nest, and parsing them recurses.
        if text.len() > LENGTH_MAX {
            return Err(format!("has {} bytes, more than {LENGTH_MAX}", text.len()));
        }
        Parser { rest: text, in_filter: false }.parse_all().map(Self)
    }

    /// The first value at the path; `None` if the path does not fit the object.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        walk(&self.0, object)?.into_iter().next()
    }
}

/// All values at the path; `None` if a step does not fit.
fn walk<'a>(steps: &[Step], start: &'a Value) -> Option<Vec<&'a Value>> {
    let mut values = vec![start];
    for step in steps {
        let mut next = Vec::new();
        for value in values.into_iter().filter(|value| !value.is_null()) {
            go(step, value, &mut next)?;
        }
        values = next;
    }
    Some(values)
}

fn go<'a>(step: &Step, value: &'a Value, found: &mut Vec<&'a Value>) -> Option<()> {
    match step {
        Step::Field(name) => found.extend(value.as_object().and_then(|fields| fields.get(name))),
        Step::Entry(index) => {
            let entries = value.as_array()?;
            found.push(entries.get(position(*index, entries.len())?)?);
        }
        Step::Slice(from, to) => {
            let entries = value.as_array()?;
            let from = position(from.unwrap_or(0), entries.len())?;
            let to = position(to.unwrap_or(entries.len() as i64), entries.len())?;
            found.extend(entries.get(from..to)?);
        }
        Step::All => match value {
            Value::Array(entries) => found.extend(entries),
            Value::Object(fields) => found.extend(fields.values()),
            _ => {}
        },
        Step::Filter(filter) => {
            for entry in value.as_array()? {
                if filter.passes(entry)? {
                    found.push(entry);
                }
            }
        }
    }
    Some(())
}

/// The position of a possibly negative index in a list of this length.
fn position(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + length as i64 } else { index }).ok()
}

impl Filter {
    fn passes(&self, entry: &Value) -> Option<bool> {
        let left = walk(&self.left, entry).unwrap_or_default();
        let Some((comparison, operand)) = &self.right else { return Some(!left.is_empty()) };
        let right = match operand {
            Operand::Literal(value) => vec![value],
            Operand::Path(steps) => walk(steps, entry)?,
        };
        match (&*left, &*right) {
            ([], _) | (_, []) => Some(false),
            ([left], [right]) => compare(*comparison, left, right),
            // A filter compares single values only.
            _ => None,
        }
    }
}

/// Values of different types are not comparable.
fn compare(comparison: Comparison, left: &Value, right: &Value) -> Option<bool> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => return None,
    };
    Some(match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    })
}

struct Parser<'a> {
    rest: &'a str,
    /// Whether comparison operators end a name.
    in_filter: bool,
}

impl<'a> Parser<'a> {
    fn take(&mut self, token: &str) -> bool {
        let found = self.rest.strip_prefix(token);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn need(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("lacks {token:?} before {:?}", self.rest)) }
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Parses the whole input.
    fn parse_all(&mut self) -> Result<Vec<Step>, String> {
        let steps = self.steps()?;
        if self.rest.is_empty() { Ok(steps) } else { Err(format!("cannot be read from {:?} on", self.rest)) }
    }

    fn steps(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            if self.take("[") {
                steps.extend(self.bracket()?);
            } else if self.rest.starts_with("..") {
                return Err("has \"..\", which is not supported".to_owned());
            } else if self.take(".") {
                if self.take("*") {
                    steps.push(Step::All);
                    continue;
                }
                let name = self.field()?;
                // A lone dot is the object itself.
                if !name.is_empty() {
                    steps.push(Step::Field(name));
                }
            } else {
                return Ok(steps);
            }
        }
    }

    /// A field name; a backslash escapes the next character.
    fn field(&mut self) -> Result<String, String> {
        let mut name = String::new();
        loop {
            let ends = if self.in_filter { ".,[]$@{}\\=<>!()" } else { ".,[]$@{}\\" };
            name.push_str(self.take_while(|c| !c.is_whitespace() && !ends.contains(c)));
            if !self.take("\\") {
                return Ok(name);
            }
            let Some(next) = self.rest.chars().next() else { return Err("ends in a backslash".to_owned()) };
            name.push(next);
            self.rest = &self.rest[next.len_utf8()..];
        }
    }

    fn bracket(&mut self) -> Result<Vec<Step>, String> {
        self.skip_blanks();
        let steps = if self.take("?(") {
            vec![self.filter()?]
        } else if self.take("*") {
            vec![Step::All]
        } else if self.rest.starts_with('\'') {
            // A quoted name is parsed as a path: dots separate fields unless escaped.
            let path = format!(".{}", self.quoted()?.unwrap_or_default());
            Parser { rest: &path, in_filter: false }.parse_all()?
        } else {
            vec![self.entries()?]
        };
        self.skip_blanks();
        self.need("]")?;
        Ok(steps)
    }

    fn entries(&mut self) -> Result<Step, String> {
        let first = self.integer()?;
        if !self.take(":") {
            return first.map(Step::Entry).ok_or_else(|| format!("has no index before {:?}", self.rest));
        }
        Ok(Step::Slice(first, self.integer()?))
    }

    fn integer(&mut self) -> Result<Option<i64>, String> {
        match self.take_while(|c| c.is_ascii_digit() || c == '-') {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| format!("has {digits:?} where a number must be")),
        }
    }

    fn quoted(&mut self) -> Result<Option<String>, String> {
        for quote in ["'", "\""] {
            if self.take(quote) {
                let Some((inside, rest)) = self.rest.split_once(quote) else {
                    return Err(format!("has no {quote} after {:?}", self.rest));
                };
                self.rest = rest;
                return Ok(Some(inside.to_owned()));
            }
        }
        Ok(None)
    }

    fn filter(&mut self) -> Result<Step, String> {
        self.skip_blanks();
        self.need("@")?;
        let outside = std::mem::replace(&mut self.in_filter, true);
        let left = self.steps()?;
        self.skip_blanks();
        let operators = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let operator = operators.into_iter().find(|(operator, _)| self.take(operator));
        let right = operator.map(|(_, comparison)| Ok::<_, String>((comparison, self.operand()?))).transpose()?;
        self.in_filter = outside;
        self.skip_blanks();
        self.need(")")?;
        Ok(Step::Filter(Filter { left, right }))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.skip_blanks();
        if self.take("@") {
            return self.steps().map(Operand::Path);
        }
        if let Some(text) = self.quoted()? {
            return Ok(Operand::Literal(Value::String(text)));
        }
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || ".+-".contains(c));
        serde_json::from_str(word)
            .map(Operand::Literal)
            .map_err(|_| format!("compares with {word:?}, which is no text, number or boolean"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str) -> Value {
        let object = json!({
            "spec": {"replicas": 3, "a.b": "dotted", "list": [1, 2, 3], "none": null},
            "status": {"conditions": [
                {"type": "Started", "status": "True", "n": 1}, {"type": "Ready", "status": "False", "n": 5},
            ]},
        });
        JsonPath::parse(path).unwrap().first(&object).cloned().unwrap_or_else(|| json!("nothing"))
    }

    #[test]
    fn deeply_nested_path_is_rejected() {
        let nested = format!(".a{}", "[?(@".repeat(10_000));
        assert_eq!(JsonPath::parse(&nested).err().unwrap(), "has 40002 bytes, more than 1024");
        assert!(JsonPath::parse(&nested[..1000]).is_err());
    }

    #[test]
    fn paths_select_values() {
        let expected = [
            (".spec.replicas", json!(3)),
            (".spec['a\\.b']", json!("dotted")),
            (".spec['list'][1]", json!(2)),
            (".spec.a\\.b", json!("dotted")),
            (".spec.list[0]", json!(1)),
            (".spec.list[-1]", json!(3)),
            (".spec.list[1:3]", json!(2)),
            (".spec.list[*]", json!(1)),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("False")),
            (".status.conditions[?(@.type == 'Started')].status", json!("True")),
            (".status.conditions[?(@.n>2)].type", json!("Ready")),
            (".status.conditions[?(@.type!='Started')].n", json!(5)),
            (".status.conditions[?(@.status)].type", json!("Started")),
            (".spec.none", Value::Null),
        ];
        for (path, value) in expected {
            assert_eq!(found(path), value, "{path}");
        }
    }

    #[test]
    fn missing_values_are_not_found() {
        for path in [
            ".spec.none.deeper",
            ".spec['a.b']",
            ".spec.list[9]",
            ".spec.replicas[0]",
            ".status.conditions[?(@.type==\"Gone\")].status",
            ".status.conditions[?(@.type==3)].status",
            ".spec.list[2:9]",
        ] {
            assert_eq!(found(path), "nothing", "{path}");
        }
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for path in [
            "..a",
            ".a[",
            ".a[\"b\"]",
            ".a[x]",
            ".a[0,1]",
            ".a[?(@.b==)]",
            ".a['b]",
            ".a b",
            "{.a}",
            ".a[?(.b)]",
            ".a\\",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
