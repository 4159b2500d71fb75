// Checks the CRDs and `crd_cases.yaml` with Kubernetes' own code (k8s.io/apiextensions-apiserver
// v0.37.1): the definitions must be accepted, including the cost of their rules, and every case must
// have its expected result. Run with the cases and the two CRDs as arguments; it prints mismatches.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	sv "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

type kind struct {
	s *structural.Structural
	v sv.SchemaValidator
	c *cel.Validator
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func load(path string) (string, kind) {
	data, err := os.ReadFile(path)
	must(err)
	var crd v1.CustomResourceDefinition
	must(yaml.UnmarshalStrict(data, &crd))
	v1.SetDefaults_CustomResourceDefinition(&crd)
	v1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var internal apiextensions.CustomResourceDefinition
	must(v1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil))
	internal.Status.StoredVersions = []string{"v1alpha1"}
	for _, e := range validation.ValidateCustomResourceDefinition(context.TODO(), &internal) {
		fmt.Fprintln(os.Stderr, path, "CRD:", e)
	}
	in := internal.Spec.Versions[0].Schema
	if in == nil {
		in = internal.Spec.Validation
	}
	s, err := structural.NewStructural(in.OpenAPIV3Schema)
	must(err)
	v, _, err := sv.NewSchemaValidator(in.OpenAPIV3Schema)
	must(err)
	return crd.Spec.Names.Kind, kind{s, v, cel.NewValidator(s, true, celconfig.PerCallLimit)}
}

func prepare(k kind, raw any) map[string]any {
	data, _ := json.Marshal(raw)
	var obj map[string]any
	must(json.Unmarshal(data, &obj))
	var fix func(v any) any
	fix = func(v any) any {
		switch t := v.(type) {
		case map[string]any:
			for k, x := range t {
				t[k] = fix(x)
			}
		case []any:
			for i, x := range t {
				t[i] = fix(x)
			}
		case float64:
			if t == float64(int64(t)) {
				return int64(t)
			}
		}
		return v
	}
	fix(obj)
	obj["apiVersion"], obj["kind"] = "muster.dev/v1alpha1", "X"
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, k.s)
	pruning.Prune(obj, k.s, true)
	defaulting.Default(obj, k.s)
	return obj
}

func main() {
	kinds := map[string]kind{}
	for _, p := range os.Args[2:] {
		n, k := load(p)
		kinds[n] = k
	}
	data, err := os.ReadFile(os.Args[1])
	must(err)
	var cases []struct {
		Name, Kind  string
		Old, Spec   any
		Error       *string
		SchemaError *string `json:"schema_error"`
		SeenBy      string  `json:"seen_by"`
	}
	must(yaml.Unmarshal(data, &cases))
	ctx := context.TODO()
	bad := 0
	for _, c := range cases {
		k := kinds[c.Kind]
		obj := prepare(k, map[string]any{"spec": c.Spec})
		var errs field.ErrorList
		var old map[string]any
		if c.Old != nil {
			old = prepare(k, map[string]any{"spec": c.Old})
			errs = append(errs, sv.ValidateCustomResourceUpdate(nil, obj, old, k.v)...)
		} else {
			errs = append(errs, sv.ValidateCustomResource(nil, obj, k.v)...)
		}
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.s, obj)...)
		if len(errs) == 0 {
			var oldAny any
			if old != nil {
				oldAny = old
			}
			e, _ := k.c.Validate(ctx, nil, k.s, obj, oldAny, celconfig.RuntimeCELCostBudget)
			errs = append(errs, e...)
		}
		want := c.Error
		if c.SchemaError != nil {
			want = c.SchemaError
		}
		if c.SeenBy == "rust" {
			want = nil
		}
		ok := want == nil && len(errs) == 0
		for _, e := range errs {
			if want != nil && e.Field == *want {
				ok = true
			}
		}
		if !ok {
			bad++
			w := "none"
			if want != nil {
				w = *want
			}
			fmt.Printf("MISMATCH %s: want %s got %v\n", c.Name, w, errs)
		} else if os.Getenv("V") != "" {
			fmt.Printf("ok %s: %v\n", c.Name, errs)
		}
	}
	fmt.Println(len(cases), "cases,", bad, "bad")
}
