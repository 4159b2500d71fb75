// Runs Kubernetes' own code (k8s.io/apiextensions-apiserver v0.37.1) on custom resources. It reads lines of {"name",
// "schema", "old", "new"}, where `schema` is an openAPIV3Schema, omitted if it is that of the previous line, and `old`
// is omitted for a create, or of {"labels": "a=b"} and {"fields": "a=b"}, and prints each line again with `answer`: why
// the schema is rejected, or the dropped fields, the object as it would be stored, and the errors. With "status": true
// the update goes through the status subresource.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type line struct {
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	Old    json.RawMessage `json:"old,omitempty"`
	New    json.RawMessage `json:"new,omitempty"`
	Status bool            `json:"status,omitempty"`
	Labels *string         `json:"labels,omitempty"`
	Fields *string         `json:"fields,omitempty"`
	Answer any             `json:"answer"`
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func texts(errs field.ErrorList) []string {
	out := []string{}
	for _, err := range errs {
		out = append(out, string(err.Type)+" "+err.Error())
	}
	sort.Strings(out)
	return out
}

// refused returns why the API server would reject a CustomResourceDefinition with this schema.
func refused(props *apiextensions.JSONSchemaProps) []string {
	crd := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com", ResourceVersion: "1"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensions.NamespaceScoped,
			PreserveUnknownFields: new(bool),
			Names: apiextensions.CustomResourceDefinitionNames{
				Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Validation: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: props},
			Versions:   []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			Conversion: &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
		},
		Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	return texts(crdvalidation.ValidateCustomResourceDefinition(context.Background(), crd))
}

// stored converts an object to what the API server would store, and returns the fields that it dropped.
func stored(raw json.RawMessage, s *schema.Structural) (*unstructured.Unstructured, []string) {
	object := map[string]any{}
	must(utiljson.Unmarshal(raw, &object))
	dropped := []string{}
	dropped = append(dropped, pruning.PruneWithOptions(object, s, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s)
	if err, more := objectmeta.CoerceWithOptions(nil, object, s, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true}); err != nil {
		dropped = append(dropped, "cannot decode: "+err.Error())
	} else {
		dropped = append(dropped, more...)
	}
	defaulting.Default(object, s)
	sort.Strings(dropped)
	return &unstructured.Unstructured{Object: object}, dropped
}

func answer(in line) any {
	if in.Labels != nil {
		selector, err := labels.Parse(*in.Labels)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		return map[string]any{"printed": selector.String()}
	}
	if in.Fields != nil {
		selector, err := fields.ParseSelector(*in.Fields)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		return map[string]any{"printed": selector.String()}
	}
	external := &v1.JSONSchemaProps{}
	must(json.Unmarshal(in.Schema, external))
	props := &apiextensions.JSONSchemaProps{}
	must(v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external, props, nil))
	if why := refused(props); len(why) > 0 {
		return map[string]any{"refused": why}
	}
	s, err := schema.NewStructural(props)
	must(err)
	must(defaulting.PruneDefaults(s))
	validator, _, err := validation.NewSchemaValidator(props)
	must(err)
	var statusValidator validation.SchemaValidator
	var status *apiextensions.CustomResourceSubresourceStatus
	if in.Status {
		statusProps := props.Properties["status"]
		statusValidator, _, err = validation.NewSchemaValidator(&statusProps)
		must(err)
		status = &apiextensions.CustomResourceSubresourceStatus{}
	}
	kind := gvk.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	strategy := customresource.NewStrategy(runtime.NewScheme(), true, kind, validator, statusValidator, s, status, nil, nil)
	object, dropped := stored(in.New, s)
	var errs field.ErrorList
	switch {
	case in.Status:
		old, _ := stored(in.Old, s)
		errs = customresource.NewStatusStrategy(strategy).ValidateUpdate(context.Background(), object, old)
	case in.Old != nil:
		old, _ := stored(in.Old, s)
		errs = strategy.ValidateUpdate(context.Background(), object, old)
	default:
		errs = strategy.Validate(context.Background(), object)
	}
	return map[string]any{"dropped": dropped, "stored": object.Object, "errors": texts(errs)}
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	var schema json.RawMessage
	for in.Scan() {
		var one line
		if err := json.Unmarshal(in.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, in.Text())
			panic(err)
		}
		whole := one
		if whole.Schema == nil {
			whole.Schema = schema
		}
		schema = whole.Schema
		one.Answer = answer(whole)
		must(out.Encode(one))
	}
	must(in.Err())
}
