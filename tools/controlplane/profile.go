// The profiles, by the minor version of Kubernetes that this binary was built from.
//
// `stock` is the default of a cluster. `gates` has the scheduling API of that version, with the feature gates that it
// needs. Gates that create or change objects by themselves (WorkloadWithJob creates a group for every Job) are left to
// `--gates`.
package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/component-base/version"
)

type profile struct {
	gates   []string // NAME=true
	runtime []string // GROUP/VERSION=true
}

var schedulingAPI = map[string]profile{
	"35": {
		gates:   []string{"GenericWorkload=true", "GangScheduling=true"},
		runtime: []string{"scheduling.k8s.io/v1alpha1=true"},
	},
	"36": {
		gates:   []string{"GenericWorkload=true", "GangScheduling=true", "WorkloadAwarePreemption=true"},
		runtime: []string{"scheduling.k8s.io/v1alpha2=true"},
	},
	"37": {
		gates:   []string{"GenericWorkload=true"},
		runtime: []string{"scheduling.k8s.io/v1beta1=true", "scheduling.k8s.io/v1alpha3=true"},
	},
}

// profileNamed returns the profile of this version, with more gates (NAME=true,NAME=false) appended.
func profileNamed(name, more string) (profile, error) {
	var chosen profile
	switch name {
	case "stock":
	case "gates":
		minor := version.Get().Minor
		known := false
		if chosen, known = schedulingAPI[minor]; !known {
			return profile{}, fmt.Errorf("profile gates: nothing is known of Kubernetes 1.%s", minor)
		}
	default:
		return profile{}, fmt.Errorf("--profile %q: there are gates and stock", name)
	}
	if more != "" {
		// A copy, since the list is shared.
		chosen.gates = append(slices.Clone(chosen.gates), strings.Split(more, ",")...)
	}
	return chosen, nil
}

func (p profile) gateFlags() []string {
	if len(p.gates) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(p.gates, ",")}
}

func (p profile) runtimeFlags() []string {
	if len(p.runtime) == 0 {
		return nil
	}
	return []string{"--runtime-config=" + strings.Join(p.runtime, ",")}
}
