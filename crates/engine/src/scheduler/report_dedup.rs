//! Deduplication of reports: each diagnosis is reported once, and waiting only if it lasts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::command::{MemberVerdict, Report};
use crate::diagnosis::Diagnosis;
use crate::model::Millis;
use crate::model::pod::PodName;
use crate::queue::Entity;

#[derive(Clone, Debug, Default)]
struct EntityReports {
    /// The last report that was sent.
    last: Option<Arc<Report>>,
    /// When it was sent.
    last_at: Millis,
    /// The last of them that says whether the group is scheduled. A loss and a failed bind do not.
    standing: Option<Arc<Report>>,
    /// The last of them that says why members wait, if some do.
    explanation: Option<Arc<Report>>,
    /// A report that is only sent if it lasts, and when it is due.
    pending: Option<(Millis, Report)>,
}

impl EntityReports {
    fn sent(&mut self, report: &Report, now: Millis) {
        let report = Arc::new(report.clone());
        match report.diagnosis {
            Diagnosis::BindFailed { .. } | Diagnosis::Degraded { evicted: 0, .. } => {}
            Diagnosis::Healthy { .. } | Diagnosis::Degraded { .. } => self.standing = Some(report.clone()),
            _ => {
                self.standing = Some(report.clone());
                self.explanation = Some(report.clone());
            }
        }
        self.last = Some(report);
        self.last_at = now;
    }
}

/// The reports of all entities.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReportDedup {
    delay_ms: Millis,
    entity_reports: BTreeMap<Entity, EntityReports>,
}

/// When a report is sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReportTiming {
    /// At once.
    Now(Box<Report>),
    /// At this time, if it lasts.
    Later(Millis),
    /// Not at all: it is known already.
    Nothing,
}

impl ReportDedup {
    pub(crate) fn new(delay_ms: Millis) -> Self {
        Self { delay_ms, entity_reports: BTreeMap::new() }
    }

    /// Submits the current diagnosis of an entity.
    pub(crate) fn submit(&mut self, entity: Entity, now: Millis, report: Report) -> ReportTiming {
        let entity_reports = self.entity_reports.entry(entity).or_default();
        // A pending loss is only replaced by a recovery or by a later loss.
        let is_of_loss = matches!(
            report.diagnosis,
            Diagnosis::Scheduled { .. } | Diagnosis::Healthy { .. } | Diagnosis::Degraded { .. }
        );
        let pending = entity_reports.pending.as_ref().map(|(_, pending)| &pending.diagnosis);
        let loss_pending = matches!(pending, Some(Diagnosis::Degraded { .. })) && !is_of_loss;
        if entity_reports.last.as_deref() == Some(&report) {
            entity_reports.pending.take_if(|_| !loss_pending);
            return ReportTiming::Nothing;
        }
        let like = |last: &Report| report.diagnosis.is_like_refusal(&last.diagnosis);
        if report.diagnosis.is_urgent() && !entity_reports.last.as_deref().is_some_and(like) {
            entity_reports.pending.take_if(|_| !loss_pending);
            entity_reports.sent(&report, now);
            return ReportTiming::Now(Box::new(report));
        }
        if loss_pending {
            return ReportTiming::Nothing;
        }
        // A pending wait keeps its due time: the wait goes on, only its reason changes.
        if let Some((_, pending)) = &mut entity_reports.pending {
            *pending = report;
            return ReportTiming::Nothing;
        }
        let waiting_sent = entity_reports.last.as_ref().is_some_and(|last| !last.diagnosis.is_urgent());
        let since = if waiting_sent { entity_reports.last_at } else { now };
        let due = since.saturating_add(self.delay_ms).max(now);
        entity_reports.pending = Some((due, report));
        ReportTiming::Later(due)
    }

    /// The pending report, if it is due.
    pub(crate) fn due(&mut self, entity: Entity, now: Millis) -> Option<Report> {
        let entity_reports = self.entity_reports.get_mut(&entity)?;
        let (_, report) = entity_reports.pending.take_if(|(due, _)| *due <= now)?;
        entity_reports.sent(&report, now);
        Some(report)
    }

    /// The wait is over: drops its pending report.
    pub(crate) fn drop_waiting(&mut self, entity: Entity) {
        self.drop_pending(entity, |diagnosis| matches!(diagnosis, Diagnosis::Waiting(_)));
    }

    /// The group has its minimum again: drops the pending report of its loss.
    pub(crate) fn drop_degraded(&mut self, entity: Entity) {
        self.drop_pending(entity, |diagnosis| matches!(diagnosis, Diagnosis::Degraded { .. }));
    }

    fn drop_pending(&mut self, entity: Entity, of_kind: impl Fn(&Diagnosis) -> bool) -> bool {
        let Some(entity_reports) = self.entity_reports.get_mut(&entity) else { return false };
        let dropped = entity_reports.pending.take_if(|(_, report)| of_kind(&report.diagnosis)).is_some();
        if entity_reports.last.is_none() && entity_reports.pending.is_none() {
            self.entity_reports.remove(&entity);
        }
        dropped
    }

    /// Whether the entity was waiting in the last report that was sent.
    pub(crate) fn last_reported_waiting(&self, entity: Entity) -> bool {
        let last = self.entity_reports.get(&entity).and_then(|entity_reports| entity_reports.last.as_ref());
        last.is_some_and(|report| {
            !matches!(
                report.diagnosis,
                Diagnosis::Scheduled { .. } | Diagnosis::Healthy { .. } | Diagnosis::Degraded { .. }
            )
        })
    }

    pub(crate) fn forget(&mut self, entity: Entity) {
        self.entity_reports.remove(&entity);
    }

    /// The latest diagnosis, sent or pending.
    pub(crate) fn latest(&self, entity: Entity) -> Option<&Diagnosis> {
        let entity_reports = self.entity_reports.get(&entity)?;
        let report = entity_reports.pending.as_ref().map(|(_, report)| report).or(entity_reports.last.as_deref())?;
        Some(&report.diagnosis)
    }

    /// The last diagnosis that was sent and says whether the entity is scheduled.
    pub(crate) fn standing(&self, entity: Entity) -> Option<&Diagnosis> {
        Some(&self.entity_reports.get(&entity)?.standing.as_ref()?.diagnosis)
    }

    /// The verdicts about waiting members in the last report that was sent and explains them.
    pub(crate) fn verdicts(&self, entity: Entity) -> &[(Arc<PodName>, MemberVerdict)] {
        let explanation = self.entity_reports.get(&entity).and_then(|reports| reports.explanation.as_ref());
        explanation.map_or(&[], |report| &report.members)
    }

    pub(crate) fn entities(&self) -> impl Iterator<Item = Entity> {
        self.entity_reports.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Waiting;
    use crate::model::group::GroupKey;
    use crate::model::ids::GroupId;
    use crate::model::pod::RefusalKind;
    use crate::model::subject::Subject;

    const GROUP: Entity = Entity::Group(GroupId(0));

    fn report(diagnosis: Diagnosis) -> Report {
        Report { subject: Subject::Group(GroupKey::default()), diagnosis, members: vec![] }
    }

    fn members(have: u32) -> Report {
        report(Diagnosis::Waiting(Waiting::Members { subset: String::new(), have, need: 9, stateful_set: None }))
    }

    #[test]
    fn waiting_is_reported_when_it_lasts_and_then_rate_limited() {
        let mut dedup = ReportDedup::new(5000);
        assert_eq!(dedup.submit(GROUP, 100, members(1)), ReportTiming::Later(5100));
        assert_eq!(dedup.submit(GROUP, 4000, members(2)), ReportTiming::Nothing);
        assert_eq!(dedup.due(GROUP, 5000), None);
        assert_eq!(dedup.due(GROUP, 5100), Some(members(2)));
        assert_eq!(dedup.submit(GROUP, 5200, members(2)), ReportTiming::Nothing);
        assert_eq!(dedup.submit(GROUP, 5300, members(3)), ReportTiming::Later(10_100));
        assert_eq!(dedup.latest(GROUP), Some(&members(3).diagnosis));
    }

    #[test]
    fn result_is_reported_at_once_and_only_once() {
        let mut dedup = ReportDedup::new(5000);
        dedup.submit(GROUP, 0, members(1));
        let verdict = report(Diagnosis::Scheduled { minimum: 1, scheduled: 1 });
        assert_eq!(dedup.submit(GROUP, 10, verdict.clone()), ReportTiming::Now(Box::new(verdict.clone())));
        assert_eq!(dedup.submit(GROUP, 20, verdict), ReportTiming::Nothing);
        assert_eq!(dedup.due(GROUP, 9999), None, "the result ended the wait");
    }

    #[test]
    fn change_that_is_reverted_before_it_is_due_is_not_reported() {
        let mut dedup = ReportDedup::new(5000);
        dedup.submit(GROUP, 0, members(1));
        assert_eq!(dedup.due(GROUP, 5000), Some(members(1)));
        dedup.submit(GROUP, 6000, members(2));
        assert_eq!(dedup.submit(GROUP, 7000, members(1)), ReportTiming::Nothing);
        assert_eq!(dedup.due(GROUP, 99_999), None, "one member was reported already");
    }

    #[test]
    fn refusal_is_reported_at_once_but_further_pods_are_delayed() {
        let mut dedup = ReportDedup::new(5000);
        let refused = |field: &str, pods| {
            let (kind, value, reason) = (RefusalKind::Unsupported, String::new(), String::new());
            let waiting = Waiting::PodRefused { pod: "p".into(), kind, field: field.into(), value, reason, pods };
            report(Diagnosis::Waiting(waiting))
        };
        assert!(matches!(dedup.submit(GROUP, 0, refused("a", 1)), ReportTiming::Now(_)));
        assert_eq!(dedup.submit(GROUP, 100, refused("a", 2)), ReportTiming::Later(5100));
        assert_eq!(dedup.submit(GROUP, 200, refused("a", 3)), ReportTiming::Nothing);
        assert_eq!(dedup.due(GROUP, 5100), Some(refused("a", 3)));
        assert!(matches!(dedup.submit(GROUP, 5200, refused("b", 3)), ReportTiming::Now(_)), "another field is urgent");
    }

    #[test]
    fn short_wait_is_never_reported() {
        let mut dedup = ReportDedup::new(5000);
        dedup.submit(GROUP, 0, members(1));
        dedup.drop_waiting(GROUP);
        assert_eq!(dedup.due(GROUP, 9999), None);
        assert_eq!(dedup.latest(GROUP), None);
    }

    #[test]
    fn loss_is_reported_despite_other_reports_in_between() {
        let mut dedup = ReportDedup::new(5000);
        let lost = || report(Diagnosis::Degraded { minimum: 3, scheduled: 2, evicted: 0 });
        assert_eq!(dedup.submit(GROUP, 0, lost()), ReportTiming::Later(5000));
        let failed = report(Diagnosis::BindFailed { node: "n".into(), message: "no".into() });
        assert_eq!(dedup.submit(GROUP, 10, failed.clone()), ReportTiming::Now(Box::new(failed)));
        assert_eq!(dedup.submit(GROUP, 20, members(1)), ReportTiming::Nothing);
        dedup.drop_waiting(GROUP);
        assert_eq!(dedup.due(GROUP, 5000), Some(lost()));
    }
}
