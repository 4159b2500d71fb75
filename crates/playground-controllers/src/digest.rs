//! Short stable hashes that controllers put into names and labels.
//!
//! Invariant: the same value gives the same hash in every run and on every machine.
//! Must not be used for anything secret.

use serde_json::Value;

const FNV_START: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;
/// The alphabet of safe names, indexed by digit (`rand.SafeEncodeString`).
const SAFE_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// 32-bit FNV-1.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(FNV_START, |hash, byte| hash.wrapping_mul(FNV_PRIME) ^ u32::from(*byte))
}

/// A hash of a value and its collision count, in characters that form no words.
pub(crate) fn short_name(value: &Value, collisions: Option<i32>) -> String {
    let mut text = canonical(value);
    if let Some(collisions) = collisions {
        text.push_str(&collisions.to_string());
    }
    let number = fnv(text.as_bytes()).to_string();
    number.bytes().map(|byte| char::from(SAFE_LETTERS[usize::from(byte) % SAFE_LETTERS.len()])).collect()
}

/// A value as Go's `json.Marshal` prints it: sorted keys, HTML characters escaped.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            let fields = keys.into_iter().map(|key| format!("{}:{}", quoted(key), canonical(&fields[key])));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let plain = Value::from(text).to_string();
    plain
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// SHA-1 of a text, in hexadecimal.
pub(crate) fn sha1(text: &str) -> String {
    let mut message = text.as_bytes().to_vec();
    let bits = (message.len() as u64) * 8;
    message.push(0x80);
    message.resize(message.len().next_multiple_of(64), 0);
    if message.len() < text.len() + 9 {
        message.resize(message.len() + 64, 0);
    }
    let end = message.len() - 8;
    message[end..].copy_from_slice(&bits.to_be_bytes());
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in message.chunks_exact(64) {
        let change = sha1_block(state, block);
        for (word, change) in state.iter_mut().zip(change) {
            *word = word.wrapping_add(change);
        }
    }
    format!("{:08x}{:08x}{:08x}{:08x}{:08x}", state[0], state[1], state[2], state[3], state[4])
}

fn sha1_block(state: [u32; 5], block: &[u8]) -> [u32; 5] {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let mut now = state;
    for (round, word) in words.iter().enumerate() {
        let [first, b, c, d, last] = now;
        let (mix, constant) = match round / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999_u32),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = first.rotate_left(5).wrapping_add(mix).wrapping_add(last).wrapping_add(constant).wrapping_add(*word);
        now = [next, first, b.rotate_left(30), c, d];
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sha1_is_that_of_the_standard() {
        assert_eq!(sha1(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
        for length in 50..70 {
            assert_eq!(sha1(&"a".repeat(length)).len(), 40, "{length}");
        }
        assert_eq!(sha1(&"a".repeat(64)), "0098ba824b5c16427bd7a1122a5a442a25ec644d");
    }

    #[test]
    fn fnv_is_that_of_the_standard() {
        assert_eq!((fnv(b""), fnv(b"a"), fnv(b"foobar")), (0x811c_9dc5, 0x050c_5d7e, 0x31f0_b262));
    }

    #[test]
    fn canonical_form_is_unique() {
        let value = json!({"b": [1, {"z": null, "a": "<&>"}], "a": "\u{e9}\"\n"});
        let text = "{\"a\":\"\u{e9}\\\"\\n\",\"b\":[1,{\"a\":\"\\u003c\\u0026\\u003e\",\"z\":null}]}";
        assert_eq!(canonical(&value), text);
        assert_ne!(short_name(&value, Some(0)), short_name(&value, Some(1)));
    }
}
