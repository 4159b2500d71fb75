//! The table of protobuf messages: the fields of each by number, with their JSON names and types.
//!
//! `tools/protobuf` generates its text. A line is `kind API-VERSION KIND MESSAGE`, `message NAME`, or a field of the
//! message above it: number, JSON name (a dot: inlined), how an empty value is shown, type.
//! Must not depend on the wire format.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The whole table.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("tables.txt")));

/// A message's index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageId(usize);

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// Bytes that contain JSON.
    Json,
    Message(MessageId),
    /// A message with a list of strings, which is a plain list in JSON.
    Texts,
}

/// The cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plurality {
    One,
    List,
    /// With string keys.
    Map,
}

/// How JSON shows an empty value. Go's encoder sends the values of all fields that are not pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Empty {
    /// Omitted.
    LeftOut,
    /// As the empty value.
    Written,
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    /// `None`: the field is inlined into its parent.
    pub(super) name: Option<&'static str>,
    pub(super) empty: Empty,
    pub(super) plurality: Plurality,
    pub(super) holds: Type,
}

/// A message.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Without its package.
    pub(super) name: &'static str,
    fields: Vec<Field>,
}

impl Message {
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        self.fields.binary_search_by_key(&number, |field| field.number).ok().map(|index| &self.fields[index])
    }
}

/// All messages, and the kinds among them.
pub(super) struct Table {
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
}

impl Table {
    pub(super) fn message(&self, id: MessageId) -> &Message {
        &self.messages[id.0]
    }

    /// The message of a kind.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        // DeleteOptions are the same in every group.
        let api_version = if kind == "DeleteOptions" { "v1" } else { api_version };
        self.kinds.get(&(api_version, kind)).copied()
    }

    /// Parses the text, which is part of the program: an error in it is a bug.
    fn parse(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let names = lines().filter_map(|line| line.strip_prefix("message "));
        let ids: HashMap<&str, MessageId> = names.enumerate().map(|(index, name)| (name, MessageId(index))).collect();
        let mut table = Table { messages: Vec::new(), kinds: HashMap::new() };
        for line in lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match *words {
                ["kind", api_version, kind, message] => drop(table.kinds.insert((api_version, kind), ids[message])),
                ["message", name] => {
                    let name = name.rsplit('.').next().unwrap_or(name);
                    table.messages.push(Message { name, fields: Vec::new() });
                }
                [number, name, empty, ref holds @ ..] => {
                    let message = table.messages.last_mut().expect("a message above its fields");
                    message.fields.push(field(&ids, number, name, empty, holds));
                }
                _ => unreachable!("a line of the table: {line}"),
            }
        }
        table
    }
}

fn field(
    ids: &HashMap<&str, MessageId>,
    number: &str,
    name: &'static str,
    empty: &str,
    holds: &[&'static str],
) -> Field {
    let (plurality, holds) = match *holds {
        ["list", holds] => (Plurality::List, holds),
        ["map", "wrapped", "text"] => (Plurality::Map, "texts"),
        ["map", holds] => (Plurality::Map, holds),
        [holds] => (Plurality::One, holds),
        _ => unreachable!("a type of the table: {holds:?}"),
    };
    let holds = match holds {
        "text" => Type::Text,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "int-or-string" => Type::IntOrString,
        "time" => Type::Time,
        "micro-time" => Type::MicroTime,
        "json" => Type::Json,
        "texts" => Type::Texts,
        message => Type::Message(ids[message]),
    };
    Field {
        number: number.parse().expect("a number of the table"),
        name: (name != ".").then_some(name),
        empty: if empty == "?" { Empty::LeftOut } else { Empty::Written },
        plurality,
        holds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_parses_and_fields_are_sorted() {
        for message in &TABLE.messages {
            assert!(message.fields.is_sorted_by(|a, b| a.number < b.number), "{}", message.name);
        }
        let pod = TABLE.message(TABLE.kind("v1", "Pod").expect("pods"));
        assert_eq!(pod.name, "Pod");
        assert_eq!(pod.field(2).and_then(|field| field.name), Some("spec"));
        assert!(pod.field(99).is_none());
        assert_eq!(TABLE.kind("batch/v1", "DeleteOptions"), TABLE.kind("v1", "DeleteOptions"));
        assert!(TABLE.kind("v2", "Pod").is_none());
    }
}
