//! The profiles by the scheduler names that select them.

use std::collections::BTreeMap;

use crate::settings::Profile;

/// All profiles.
#[derive(Debug)]
pub(crate) struct Profiles {
    all: Vec<Profile>,
    by_name: BTreeMap<String, u16>,
}

impl Profiles {
    pub(super) fn new(all: Vec<Profile>) -> Self {
        let names = all
            .iter()
            .zip(0_u16..)
            .flat_map(|(profile, number)| profile.scheduler_names.iter().map(move |name| (name.clone(), number)));
        Self { by_name: names.collect(), all }
    }

    /// The profile of pods with this scheduler name, and its number.
    pub(super) fn of(&self, scheduler_name: &str) -> Option<(u16, &Profile)> {
        let number = *self.by_name.get(scheduler_name)?;
        Some((number, &self.all[usize::from(number)]))
    }

    /// The first profile.
    pub(super) fn first(&self) -> Option<(u16, &Profile)> {
        self.all.first().map(|profile| (0, profile))
    }
}
