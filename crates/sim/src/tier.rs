//! Test tiers: which part of the test cases a run covers.
//!
//! `make test` runs the short tier, `make test-all` (`MUSTER_TIER=all`) everything. Must not depend on where tests run.

use std::env;

use crate::scenario::{About, Carrier, Scenario};

/// The environment variable that selects the tier.
const VARIABLE: &str = "MUSTER_TIER";

/// How many test cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Each scenario once; in several carriers only if the carrier matters to it.
    Short,
    /// Every scenario in every carrier, every seed.
    All,
}

impl Tier {
    /// The tier that the environment selects.
    ///
    /// # Panics
    /// If the environment names an unknown tier.
    pub fn of_environment() -> Self {
        match env::var(VARIABLE).as_deref() {
            Ok("all") => Self::All,
            Ok("short") | Err(env::VarError::NotPresent) => Self::Short,
            other => panic!("{VARIABLE}: {other:?}: must be short or all"),
        }
    }

    /// The value for this tier.
    pub fn pick<T>(self, short: T, all: T) -> T {
        match self {
            Self::Short => short,
            Self::All => all,
        }
    }

    /// Whether this tier runs a scenario in a carrier: always in its own carrier, in others if the carrier matters to
    /// it.
    pub fn runs(self, scenario: &Scenario, carrier: Carrier) -> bool {
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
            &format!("name: a scenario\n{fields}\nsteps:\n- hold: {{for: 1s, unbound: [\"default/*\"]}}\n"),
            Path::new("scenario.yaml"),
        )
        .unwrap()
    }

    fn carriers(scenario: &Scenario) -> Vec<Carrier> {
        Carrier::ALL.into_iter().filter(|carrier| Tier::Short.runs(scenario, *carrier)).collect()
    }

    #[test]
    fn scenario_about_decisions_runs_in_its_own_carrier_only() {
        assert_eq!(carriers(&scenario("")), [Carrier::Muster]);
        assert_eq!(carriers(&scenario("about: [api]")), [Carrier::Muster]);
        assert_eq!(carriers(&scenario("carriers: [v1beta1, v1alpha1]")), [Carrier::V1beta1]);
        assert_eq!(carriers(&scenario("except: {muster: it cannot express it}")), [Carrier::MusterWorkload]);
        assert_eq!(carriers(&scenario("about: [carriers]")), Carrier::ALL);
        assert!(Carrier::ALL.into_iter().all(|carrier| Tier::All.runs(&scenario(""), carrier)));
    }
}
