//! What was said of whom, so that a thing is said once, and waiting only when it lasts.

use std::collections::BTreeMap;

use crate::command::Report;
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::queue::Entity;

#[derive(Clone, Debug, Default)]
struct Spoken {
    /// What the host was last told.
    last: Option<Diagnosis>,
    /// When that was.
    last_at: Millis,
    /// News that is only worth telling if it lasts, and when it has.
    pending: Option<(Millis, Report)>,
}

/// What was said of whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Voice {
    patience_ms: Millis,
    spoken: BTreeMap<Entity, Spoken>,
}

/// What to do with news.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// Tell the host.
    Now(Box<Report>),
    /// See whether it lasts until then.
    Later(Millis),
    /// It is known.
    Nothing,
}

impl Voice {
    pub(crate) fn new(patience_ms: Millis) -> Self {
        Self { patience_ms, spoken: BTreeMap::new() }
    }

    /// Takes news of an entity.
    pub(crate) fn say(&mut self, entity: Entity, now: Millis, report: Report) -> Said {
        let spoken = self.spoken.entry(entity).or_default();
        let waiting = report.diagnosis.is_waiting();
        if spoken.last.as_ref() == Some(&report.diagnosis) {
            spoken.pending = None;
            return Said::Nothing;
        }
        if !waiting {
            spoken.pending = None;
            spoken.last = Some(report.diagnosis.clone());
            spoken.last_at = now;
            return Said::Now(Box::new(report));
        }
        // News of waiting keeps the time of the first such news: the wait goes on, only its reason changes.
        if let Some((_, pending)) = &mut spoken.pending {
            *pending = report;
            return Said::Nothing;
        }
        let since = if spoken.last.as_ref().is_some_and(Diagnosis::is_waiting) { spoken.last_at } else { now };
        let due = since.saturating_add(self.patience_ms).max(now);
        spoken.pending = Some((due, report));
        Said::Later(due)
    }

    /// News that has lasted long enough.
    pub(crate) fn due(&mut self, entity: Entity, now: Millis) -> Option<Report> {
        let spoken = self.spoken.get_mut(&entity)?;
        let (_, report) = spoken.pending.take_if(|(due, _)| *due <= now)?;
        spoken.last = Some(report.diagnosis.clone());
        spoken.last_at = now;
        Some(report)
    }

    /// The wait is over; what was not told yet need not be.
    pub(crate) fn hush(&mut self, entity: Entity) {
        if let Some(spoken) = self.spoken.get_mut(&entity) {
            spoken.pending = None;
            if spoken.last.is_none() {
                self.spoken.remove(&entity);
            }
        }
    }

    pub(crate) fn forget(&mut self, entity: Entity) {
        self.spoken.remove(&entity);
    }

    /// The latest that is known, told or not.
    pub(crate) fn latest(&self, entity: Entity) -> Option<&Diagnosis> {
        let spoken = self.spoken.get(&entity)?;
        spoken.pending.as_ref().map(|(_, report)| &report.diagnosis).or(spoken.last.as_ref())
    }

    pub(crate) fn entities(&self) -> impl Iterator<Item = Entity> {
        self.spoken.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Subject;
    use crate::diagnosis::Waiting;
    use crate::model::group::GroupKey;
    use crate::model::ids::GroupId;

    const GROUP: Entity = Entity::Group(GroupId(0));

    fn report(diagnosis: Diagnosis) -> Report {
        Report { subject: Subject::Group(GroupKey::default()), diagnosis, members: vec![] }
    }

    fn members(have: u32) -> Report {
        report(Diagnosis::Waiting(Waiting::Members { subset: String::new(), have, need: 9 }))
    }

    #[test]
    fn waiting_is_told_when_it_lasts_and_then_not_too_often() {
        let mut voice = Voice::new(5000);
        assert_eq!(voice.say(GROUP, 100, members(1)), Said::Later(5100));
        assert_eq!(voice.say(GROUP, 4000, members(2)), Said::Nothing);
        assert_eq!(voice.due(GROUP, 5000), None);
        assert_eq!(voice.due(GROUP, 5100), Some(members(2)));
        assert_eq!(voice.say(GROUP, 5200, members(2)), Said::Nothing);
        assert_eq!(voice.say(GROUP, 5300, members(3)), Said::Later(10_100));
        assert_eq!(voice.latest(GROUP), Some(&members(3).diagnosis));
    }

    #[test]
    fn a_verdict_is_told_at_once_and_once() {
        let mut voice = Voice::new(5000);
        voice.say(GROUP, 0, members(1));
        let verdict = report(Diagnosis::Scheduled { minimum: 1, secured: 1 });
        assert_eq!(voice.say(GROUP, 10, verdict.clone()), Said::Now(Box::new(verdict.clone())));
        assert_eq!(voice.say(GROUP, 20, verdict), Said::Nothing);
        assert_eq!(voice.due(GROUP, 9999), None, "the verdict ended the wait");
    }

    #[test]
    fn news_that_is_taken_back_before_it_is_told_is_not_told() {
        let mut voice = Voice::new(5000);
        voice.say(GROUP, 0, members(1));
        assert_eq!(voice.due(GROUP, 5000), Some(members(1)));
        voice.say(GROUP, 6000, members(2));
        assert_eq!(voice.say(GROUP, 7000, members(1)), Said::Nothing);
        assert_eq!(voice.due(GROUP, 99_999), None, "the host knows of one member already");
    }

    #[test]
    fn a_short_wait_is_never_told() {
        let mut voice = Voice::new(5000);
        voice.say(GROUP, 0, members(1));
        voice.hush(GROUP);
        assert_eq!(voice.due(GROUP, 9999), None);
        assert_eq!(voice.latest(GROUP), None);
    }
}
