// Computes quantities and pod requests with Kubernetes' own code (k8s.io/component-helpers and
// k8s.io/apimachinery v0.37.1). It reads lines of {"q": "1.5Gi"} or {"pod": {...}, "use": true} and
// prints for each the value and the milli value, or the requests, the scoring amounts while pending,
// and the scoring amounts on a node. `answers.jsonl` was made from random lines this way.
// The defaults are those of the API server, whose code for them is not a library.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	rh "k8s.io/component-helpers/resource"
)

type in struct {
	Q   *string
	Pod *v1.Pod
	Use bool
}

var fill = v1.ResourceList{
	v1.ResourceCPU:    *resource.NewMilliQuantity(100, resource.DecimalSI),
	v1.ResourceMemory: *resource.NewQuantity(200*1024*1024, resource.DecimalSI),
}

func setdef(cs []v1.Container) {
	for i := range cs {
		for k, v := range cs[i].Resources.Limits {
			if cs[i].Resources.Requests == nil {
				cs[i].Resources.Requests = v1.ResourceList{}
			}
			if _, ok := cs[i].Resources.Requests[k]; !ok {
				cs[i].Resources.Requests[k] = v.DeepCopy()
			}
		}
	}
}
func huge(k v1.ResourceName) bool { return len(k) > 10 && k[:10] == "hugepages-" }
func podDef(p *v1.Pod) {
	r := p.Spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	if r.Limits == nil {
		r.Limits = v1.ResourceList{}
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	q := (&v1.Pod{Spec: v1.PodSpec{Containers: p.Spec.Containers, InitContainers: p.Spec.InitContainers}}).DeepCopy()
	for k, v := range rh.AggregateContainerLimits(q, rh.PodResourcesOptions{}) {
		if !huge(k) {
			continue
		}
		if _, ok := r.Requests[k]; ok {
			continue
		}
		if _, ok := r.Limits[k]; !ok {
			r.Limits[k] = v
		}
	}
	for k, v := range rh.AggregateContainerRequests(q, rh.PodResourcesOptions{}) {
		if _, ok := r.Requests[k]; !ok && rh.IsSupportedPodLevelResource(k) && !huge(k) {
			r.Requests[k] = v
		}
	}
	for k, v := range r.Limits {
		if _, ok := r.Requests[k]; !ok && rh.IsSupportedPodLevelResource(k) {
			r.Requests[k] = v
		}
	}
}
func base(l v1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for k, v := range l {
		n := v.Value()
		if k == "cpu" {
			n = v.MilliValue()
		}
		if n != 0 {
			out[string(k)] = n
		}
	}
	return out
}
func pair(l v1.ResourceList) [2]int64 {
	c := l[v1.ResourceCPU]
	m := l[v1.ResourceMemory]
	return [2]int64{c.MilliValue(), m.Value()}
}
func main() {
	sc := bufio.NewScanner(os.Stdin)
	sc.Buffer(nil, 1<<24)
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	for sc.Scan() {
		var i in
		if err := json.Unmarshal(sc.Bytes(), &i); err != nil {
			fmt.Fprintln(w, "badin", err)
			continue
		}
		if i.Q != nil {
			q, err := resource.ParseQuantity(*i.Q)
			if err != nil {
				fmt.Fprintln(w, "err")
				continue
			}
			fmt.Fprintln(w, q.Value(), q.MilliValue())
			continue
		}
		p := i.Pod
		setdef(p.Spec.Containers)
		setdef(p.Spec.InitContainers)
		podDef(p)
		o := rh.PodResourcesOptions{UseStatusResources: i.Use, InPlacePodLevelResourcesVerticalScalingEnabled: true}
		reqs := rh.PodRequests(p.DeepCopy(), o)
		of := o
		of.NonMissingContainerRequests = fill
		placed := rh.PodRequests(p.DeepCopy(), of)
		// As NodeResourcesFit computes its score: without pod-level requests and without the status.
		inc := rh.PodRequests(p.DeepCopy(), rh.PodResourcesOptions{NonMissingContainerRequests: fill, SkipPodLevelResources: true})
		if rh.IsPodLevelRequestsSet(p) {
			nm := v1.ResourceList{}
			for k, v := range fill {
				if _, ok := reqs[k]; !ok {
					nm[k] = v
				}
			}
			placed = reqs
			if len(nm) > 0 {
				o2 := o
				o2.NonMissingContainerRequests = nm
				placed = rh.PodRequests(p.DeepCopy(), o2)
			}
		}
		b, _ := json.Marshal([]any{base(reqs), pair(inc), pair(placed)})
		fmt.Fprintln(w, string(b))
	}
}
