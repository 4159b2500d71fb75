//! The tiers of the project's tests: how much of what could be played is played.
//!
//! `make test` plays the short tier, `make test-all` (`MUSTER_TIER=all`) everything. It must not know where anything is
//! played.

use std::env;

use crate::scenario::{About, Carrier, Scenario};

/// The environment variable that asks for everything.
const VARIABLE: &str = "MUSTER_TIER";

/// How much is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Each story once, and more often only where that can show something else.
    Short,
    /// Every story in every carrier, every seed.
    All,
}

impl Tier {
    /// The tier that the environment asks for.
    ///
    /// # Panics
    /// If it asks for one that does not exist.
    pub fn of_environment() -> Self {
        match env::var(VARIABLE).as_deref() {
            Ok("all") => Self::All,
            Ok("short") | Err(env::VarError::NotPresent) => Self::Short,
            other => panic!("{VARIABLE}: {other:?}: must be short or all"),
        }
    }

    /// One of two numbers.
    pub fn pick<T>(self, short: T, all: T) -> T {
        match self {
            Self::Short => short,
            Self::All => all,
        }
    }

    /// Whether this tier plays a story in a carrier: its own carrier always, the others where the carrier matters to it.
    pub fn plays(self, scenario: &Scenario, carrier: Carrier) -> bool {
        self == Self::All || scenario.about.contains(&About::Carriers) || scenario.own_carrier() == Some(carrier)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::parse;

    fn scenario(fields: &str) -> Scenario {
        parse(
            &format!("name: a story\n{fields}\nsteps:\n- hold: {{for: 1s, unbound: [\"default/*\"]}}\n"),
            Path::new("story.yaml"),
        )
        .unwrap()
    }

    fn carriers(scenario: &Scenario) -> Vec<Carrier> {
        Carrier::ALL.into_iter().filter(|carrier| Tier::Short.plays(scenario, *carrier)).collect()
    }

    #[test]
    fn a_story_about_decisions_is_played_in_its_own_carrier_only() {
        assert_eq!(carriers(&scenario("")), [Carrier::Muster]);
        assert_eq!(carriers(&scenario("about: [api]")), [Carrier::Muster]);
        assert_eq!(carriers(&scenario("carriers: [v1beta1, v1alpha1]")), [Carrier::V1beta1]);
        assert_eq!(carriers(&scenario("except: {muster: it has no words for it}")), [Carrier::MusterWorkload]);
        assert_eq!(carriers(&scenario("about: [carriers]")), Carrier::ALL);
        assert!(Carrier::ALL.into_iter().all(|carrier| Tier::All.plays(&scenario(""), carrier)));
    }
}
