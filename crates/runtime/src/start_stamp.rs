//! The annotation that a bind writes on a member of a group, as text.
//!
//! It names the pod by its UID, so that a copy on another pod says nothing: a user can create a pod with any annotation, but
//! does not know its UID before, and a policy forbids to write the annotation later. A text that cannot be read counts as
//! none: then nothing is rolled back because of it.

use jiff::Timestamp;
use muster_clock::millis;
use muster_engine::model::group::DisruptionMode;
use muster_engine::model::pod::StartStamp;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    /// The UID of the pod.
    pod: String,
    /// The UID of the group's object.
    group: String,
    /// When the start was decided.
    decided: String,
    confirmed: bool,
    min_count: u32,
    disruption_mode: Mode,
    priority: i32,
}

#[derive(Serialize, Deserialize)]
enum Mode {
    Pod,
    PodGroup,
}

/// The text of the stamp of a pod.
pub(crate) fn write(stamp: &StartStamp, pod_uid: &str) -> String {
    let decided = i64::try_from(stamp.decided_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let written = Written {
        pod: pod_uid.to_owned(),
        group: stamp.group_uid.clone(),
        decided: decided.unwrap_or(Timestamp::MAX).to_string(),
        confirmed: stamp.confirmed,
        min_count: stamp.minimum,
        disruption_mode: match stamp.disruption_mode {
            DisruptionMode::Pod => Mode::Pod,
            DisruptionMode::Group => Mode::PodGroup,
        },
        priority: stamp.priority,
    };
    serde_json::to_string(&written).unwrap_or_default()
}

/// The stamp in the text on a pod, if there is one.
pub(crate) fn read(text: &str, pod_uid: &str) -> Option<StartStamp> {
    let written: Written = serde_json::from_str(text).ok()?;
    (written.pod == pod_uid).then_some(())?;
    Some(StartStamp {
        group_uid: written.group,
        decided_ms: millis(written.decided.parse().ok()?),
        confirmed: written.confirmed,
        minimum: written.min_count,
        disruption_mode: match written.disruption_mode {
            Mode::Pod => DisruptionMode::Pod,
            Mode::PodGroup => DisruptionMode::Group,
        },
        priority: written.priority,
    })
}

/// A stamp for tests.
#[cfg(test)]
pub(crate) fn example() -> StartStamp {
    StartStamp {
        group_uid: "9b2e".to_owned(),
        decided_ms: 1_763_417_231_123,
        confirmed: false,
        minimum: 3,
        disruption_mode: DisruptionMode::Group,
        priority: 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_read_as_it_was_written() {
        for (decided_ms, confirmed, disruption_mode) in
            [(0, false, DisruptionMode::Pod), (1_763_417_231_123, true, DisruptionMode::Group)]
        {
            let stamp = StartStamp {
                group_uid: "9b2e \"quoted\"".to_owned(),
                decided_ms,
                confirmed,
                minimum: u32::MAX,
                disruption_mode,
                priority: i32::MIN,
            };
            assert_eq!(read(&write(&stamp, "77"), "78"), None, "it is the stamp of another pod");
            assert_eq!(read(&write(&stamp, "77"), "77"), Some(stamp));
        }
    }

    #[test]
    fn text_is_short_and_in_the_words_of_the_api() {
        let stamp = example();
        let text = r#"{"pod":"77","group":"9b2e","decided":"2025-11-17T22:07:11.123Z","confirmed":false,"minCount":3,"disruptionMode":"PodGroup","priority":7}"#;
        assert_eq!(write(&stamp, "77"), text);
    }

    #[test]
    fn unreadable_text_is_no_stamp() {
        for text in ["", "{}", "null", r#"{"group":"9b2e"}"#, r#"{"group":"9b2e","decided":"yesterday"}"#] {
            assert_eq!(read(text, "77"), None, "{text}");
        }
    }
}
