//! What was said of whom, so that a thing is said once, and waiting only when it lasts.

use std::collections::BTreeMap;

use crate::command::Report;
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::queue::Entity;

#[derive(Clone, Debug, Default)]
struct Spoken {
    /// What the host was last told.
    last: Option<Report>,
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
        // A loss that is not told yet is only ended by what puts it right, or by later news of it.
        let is_of_loss = matches!(
            report.diagnosis,
            Diagnosis::Scheduled { .. } | Diagnosis::Healthy { .. } | Diagnosis::Degraded { .. }
        );
        let pending = spoken.pending.as_ref().map(|(_, pending)| &pending.diagnosis);
        let loss_pending = matches!(pending, Some(Diagnosis::Degraded { .. })) && !is_of_loss;
        if spoken.last.as_ref() == Some(&report) {
            spoken.pending.take_if(|_| !loss_pending);
            return Said::Nothing;
        }
        let like = |last: &Report| report.diagnosis.is_like_refusal(&last.diagnosis);
        if report.diagnosis.is_urgent() && !spoken.last.as_ref().is_some_and(like) {
            spoken.pending.take_if(|_| !loss_pending);
            spoken.last = Some(report.clone());
            spoken.last_at = now;
            return Said::Now(Box::new(report));
        }
        if loss_pending {
            return Said::Nothing;
        }
        // News of waiting keeps the time of the first such news: the wait goes on, only its reason changes.
        if let Some((_, pending)) = &mut spoken.pending {
            *pending = report;
            return Said::Nothing;
        }
        let told = spoken.last.as_ref().is_some_and(|last| !last.diagnosis.is_urgent());
        let since = if told { spoken.last_at } else { now };
        let due = since.saturating_add(self.patience_ms).max(now);
        spoken.pending = Some((due, report));
        Said::Later(due)
    }

    /// News that has lasted long enough.
    pub(crate) fn due(&mut self, entity: Entity, now: Millis) -> Option<Report> {
        let spoken = self.spoken.get_mut(&entity)?;
        let (_, report) = spoken.pending.take_if(|(due, _)| *due <= now)?;
        spoken.last = Some(report.clone());
        spoken.last_at = now;
        Some(report)
    }

    /// The wait is over; what was not told of it yet need not be.
    pub(crate) fn hush(&mut self, entity: Entity) {
        self.drop_pending(entity, |diagnosis| matches!(diagnosis, Diagnosis::Waiting(_)));
    }

    /// The group is whole again: what was to be told of its loss is not true any more.
    pub(crate) fn take_back_degraded(&mut self, entity: Entity) {
        self.drop_pending(entity, |diagnosis| matches!(diagnosis, Diagnosis::Degraded { .. }));
    }

    fn drop_pending(&mut self, entity: Entity, of_kind: impl Fn(&Diagnosis) -> bool) -> bool {
        let Some(spoken) = self.spoken.get_mut(&entity) else { return false };
        let dropped = spoken.pending.take_if(|(_, report)| of_kind(&report.diagnosis)).is_some();
        if spoken.last.is_none() && spoken.pending.is_none() {
            self.spoken.remove(&entity);
        }
        dropped
    }

    /// Whether the host was last told that somebody waits.
    pub(crate) fn says_it_waits(&self, entity: Entity) -> bool {
        let last = self.spoken.get(&entity).and_then(|spoken| spoken.last.as_ref());
        last.is_some_and(|report| {
            !matches!(
                report.diagnosis,
                Diagnosis::Scheduled { .. } | Diagnosis::Healthy { .. } | Diagnosis::Degraded { .. }
            )
        })
    }

    pub(crate) fn forget(&mut self, entity: Entity) {
        self.spoken.remove(&entity);
    }

    /// The latest that is known, told or not.
    pub(crate) fn latest(&self, entity: Entity) -> Option<&Diagnosis> {
        let spoken = self.spoken.get(&entity)?;
        let report = spoken.pending.as_ref().map(|(_, report)| report).or(spoken.last.as_ref())?;
        Some(&report.diagnosis)
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
    use crate::model::pod::RefusalKind;

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
    fn a_refusal_is_told_at_once_but_each_further_pod_is_not() {
        let mut voice = Voice::new(5000);
        let refused = |field: &str, pods| {
            let (kind, value, reason) = (RefusalKind::Unsupported, String::new(), String::new());
            let waiting = Waiting::PodRefused { pod: "p".into(), kind, field: field.into(), value, reason, pods };
            report(Diagnosis::Waiting(waiting))
        };
        assert!(matches!(voice.say(GROUP, 0, refused("a", 1)), Said::Now(_)));
        assert_eq!(voice.say(GROUP, 100, refused("a", 2)), Said::Later(5100));
        assert_eq!(voice.say(GROUP, 200, refused("a", 3)), Said::Nothing);
        assert_eq!(voice.due(GROUP, 5100), Some(refused("a", 3)));
        assert!(matches!(voice.say(GROUP, 5200, refused("b", 3)), Said::Now(_)), "another field is news");
    }

    #[test]
    fn a_short_wait_is_never_told() {
        let mut voice = Voice::new(5000);
        voice.say(GROUP, 0, members(1));
        voice.hush(GROUP);
        assert_eq!(voice.due(GROUP, 9999), None);
        assert_eq!(voice.latest(GROUP), None);
    }

    #[test]
    fn a_loss_is_told_although_other_news_come_in_between() {
        let mut voice = Voice::new(5000);
        let lost = || report(Diagnosis::Degraded { minimum: 3, secured: 2, evicted: 0 });
        assert_eq!(voice.say(GROUP, 0, lost()), Said::Later(5000));
        let failed = report(Diagnosis::BindFailed { node: "n".into(), message: "no".into() });
        assert_eq!(voice.say(GROUP, 10, failed.clone()), Said::Now(Box::new(failed)));
        assert_eq!(voice.say(GROUP, 20, members(1)), Said::Nothing);
        voice.hush(GROUP);
        assert_eq!(voice.due(GROUP, 5000), Some(lost()));
    }
}
