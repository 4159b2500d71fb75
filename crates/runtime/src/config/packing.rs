//! Presets of scores that pack pods instead of spreading them.

use muster_engine::{Scoring, Strategy, Weighted};
use serde::{Deserialize, Serialize};

/// Resources of GPUs and similar devices.
const DEVICES: [&str; 7] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "google.com/tpu",
];
/// A device counts as much as all of a node's CPU and memory many times over.
const WEIGHT_OF_DEVICE: i64 = 50;
/// Packing outweighs images and preferred spread.
const WEIGHT_OF_FIT: i64 = 5;

/// A preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Packing {
    /// Pods with devices go where the most are in use already, so that whole nodes stay free for groups.
    Gpu,
}

impl Packing {
    /// The scores of the preset. A device counts only for pods that request it.
    pub(super) fn scoring(self) -> Scoring {
        let Self::Gpu = self;
        let weighted = |name: &str, weight| Weighted { name: name.to_owned(), weight };
        let devices = DEVICES.iter().map(|name| weighted(name, WEIGHT_OF_DEVICE));
        let others = ["cpu", "memory"].iter().map(|name| weighted(name, 1));
        Scoring {
            strategy: Strategy::MostAllocated,
            fit_resources: devices.chain(others).collect(),
            weight_fit: WEIGHT_OF_FIT,
            weight_balanced: 0,
            ..Scoring::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Configuration, File, Overrides};
    use super::*;

    fn profiles(body: &str) -> Result<Vec<muster_engine::Profile>, String> {
        let text = format!("apiVersion: config.muster.dev/v1alpha1\nkind: MusterConfiguration\n{body}");
        let file = File::read(&text).map_err(|error| error.to_string())?;
        let made = Configuration::new(file, Overrides::default()).map_err(|error| error.to_string())?;
        Ok(made.settings.engine.profiles)
    }

    #[test]
    fn one_line_packs_devices() {
        let made = profiles("packing: gpu\nprofiles: [{schedulerNames: [other]}]").unwrap();
        assert_eq!(made[0].scoring, Packing::Gpu.scoring());
        assert_eq!(made[1].scoring, Scoring::default());
        let second = profiles("profiles: [{schedulerNames: [other], packing: gpu}]").unwrap();
        assert_eq!(second[1].scoring, Packing::Gpu.scoring());
    }

    #[test]
    fn a_preset_and_scores_exclude_each_other() {
        let error = profiles("packing: gpu\nscoring: {strategy: MostAllocated}").unwrap_err();
        assert!(error.contains("packing: gpu: ") && error.contains("scoring"), "{error}");
        let error = profiles("packing: cpu").unwrap_err();
        assert!(error.contains("packing"), "{error}");
    }
}
