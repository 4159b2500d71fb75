//! Names with wildcards: `default/a-*`. A star matches any text, including none; nothing else is special.
//!
//! Must not depend on what the names belong to.

use serde::{Deserialize, Deserializer, de};

/// A name in which stars match any text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glob(String);

impl Glob {
    /// The pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it has no wildcards.
    pub fn is_plain(&self) -> bool {
        !self.0.contains('*')
    }

    /// The text of the pattern.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(de::Error::custom("\"\" names nothing"));
        }
        Ok(Self(text))
    }
}

/// Pods by namespace and name: `namespace/name`, with wildcards in the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pods {
    /// The namespace.
    pub namespace: String,
    /// The names.
    pub name: Glob,
}

impl<'de> Deserialize<'de> for Pods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !namespace.contains('*') && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self { namespace: namespace.to_owned(), name: Glob::new(name) })
            }
            _ => Err(de::Error::custom(format!(
                "{text:?} does not name pods: write namespace/name, with * for any text in the name, such as \
                 default/a-*"
            ))),
        }
    }
}

impl std::fmt::Display for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a-*", "a-", true),
            ("a-*", "a-12", true),
            ("a-*", "b-a-1", false),
            ("*", "", true),
            ("*-1", "a-1", true),
            ("*-1", "a-12", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn pods_are_named_with_their_namespace() {
        let read = |text: &str| serde_json::from_value::<Pods>(text.into());
        assert_eq!(read("ml/a-*").unwrap(), Pods { namespace: "ml".to_owned(), name: Glob::new("a-*") });
        for text in ["a-0", "/a-0", "ml/", "*/a", "a/b/c", ""] {
            assert!(read(text).unwrap_err().to_string().contains(&format!("{text:?}")), "{text}");
        }
    }
}
