// Runs Kubernetes' own code (k8s.io/kubernetes v1.36.4) for native Workloads and PodGroups in
// v1alpha2. It reads lines of {"kind", "gates", "old", "new"}, with all gates but GenericWorkload and
// GangScheduling off or on, and prints for each the stored spec and all errors.
// `answers.jsonl` was made from random lines this way.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	"k8s.io/kubernetes/pkg/registry/scheduling/podgroup"
	"k8s.io/kubernetes/pkg/registry/scheduling/workload"
)

type in struct {
	Kind  string          `json:"kind"`
	Gates bool            `json:"gates"`
	Old   json.RawMessage `json:"old,omitempty"`
	New   json.RawMessage `json:"new"`
}

type oneError struct {
	Field string `json:"field"`
	Cause string `json:"cause"`
	Body  string `json:"body"`
}

type out struct {
	in
	Spec   any        `json:"spec,omitempty"`
	Errors []oneError `json:"errors"`
}

func decode(data []byte) runtime.Object {
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), data)
	if err != nil {
		panic(fmt.Sprint(err, string(data)))
	}
	return obj
}

func main() {
	if err := utilfeature.DefaultMutableFeatureGate.Set("GenericWorkload=true"); err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var line in
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			panic(err)
		}
		on := fmt.Sprint(line.Gates)
		if err := utilfeature.DefaultMutableFeatureGate.Set("GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=" + on +
			",WorkloadAwarePreemption=" + on + ",DRAWorkloadResourceClaims=" + on); err != nil {
			panic(err)
		}
		info := &request.RequestInfo{APIGroup: "scheduling.k8s.io", APIVersion: "v1alpha2", Namespace: "d", IsResourceRequest: true}
		var create rest.RESTCreateStrategy
		var update rest.RESTUpdateStrategy
		switch line.Kind {
		case "Workload":
			create, update = workload.Strategy, workload.Strategy
			info.Resource = "workloads"
		case "PodGroup":
			create, update = podgroup.NewStrategy(), podgroup.NewStrategy()
			info.Resource = "podgroups"
		case "PodGroupStatus":
			update = podgroup.NewStatusStrategy(podgroup.NewStrategy())
			info.Resource, info.Subresource = "podgroups", "status"
		}
		ctx := request.WithNamespace(request.WithRequestInfo(context.Background(), info), "d")
		obj := decode(line.New)
		var errs field.ErrorList
		if len(line.Old) == 0 {
			create.PrepareForCreate(ctx, obj)
			errs = create.Validate(ctx, obj)
		} else {
			old := decode(line.Old)
			update.PrepareForUpdate(ctx, obj, old)
			errs = update.ValidateUpdate(ctx, obj, old)
		}
		versioned, err := legacyscheme.Scheme.ConvertToVersion(obj, v1alpha2.SchemeGroupVersion)
		if err != nil {
			panic(err)
		}
		data, _ := json.Marshal(versioned)
		var stored map[string]any
		json.Unmarshal(data, &stored)
		answer := out{in: line, Errors: []oneError{}}
		if len(errs) == 0 {
			answer.Spec = stored["spec"]
		}
		for _, e := range errs {
			answer.Errors = append(answer.Errors, oneError{e.Field, string(e.Type), e.ErrorBody()})
		}
		data, _ = json.Marshal(answer)
		fmt.Println(string(data))
	}
}
