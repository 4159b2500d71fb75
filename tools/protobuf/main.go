// Generates the tables from which crates/playground-kubectl decodes protobuf, and the objects to test it with.
//
//	go run . tables  > ../../crates/playground-kubectl/src/protobuf/tables.txt
//	go run . answers ../../crates/playground/tests/protobuf_answers.jsonl
//
// The tables come from the struct tags of k8s.io/api; an answer is the JSON and the protobuf encoding of one object by
// Kubernetes' own code.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	resources "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	native "k8s.io/api/scheduling/v1beta1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var scheme = runtime.NewScheme()

func main() {
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, batch.AddToScheme, policy.AddToScheme, coordination.AddToScheme,
		events.AddToScheme, scheduling.AddToScheme, native.AddToScheme, storage.AddToScheme, resources.AddToScheme,
		node.AddToScheme, discovery.AddToScheme, authorization.AddToScheme, authentication.AddToScheme,
		autoscaling.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "tables":
		tables()
	case len(os.Args) == 3 && os.Args[1] == "answers":
		answers(os.Args[2])
	default:
		log.Fatal("usage: go run . tables, or go run . answers FILE")
	}
}

// Objects that clients send: those with metadata, and DeleteOptions, which are one kind in all groups.
func isSent(kind schema.GroupVersionKind, of reflect.Type) bool {
	if kind.Kind == "DeleteOptions" {
		return kind.Group == "" && kind.Version == "v1"
	}
	field, found := of.FieldByName("ObjectMeta")
	return found && field.Anonymous && kind.Version != runtime.APIVersionInternal
}

func tables() {
	var kinds []string
	messages := map[string]reflect.Type{}
	for kind, of := range scheme.AllKnownTypes() {
		if isSent(kind, of) {
			kinds = append(kinds, fmt.Sprintf("kind %s %s %s", kind.GroupVersion(), kind.Kind, name(of)))
			collect(of, messages)
		}
	}
	sort.Strings(kinds)
	fmt.Println("# Made by tools/protobuf from k8s.io/api; see table.rs for how it is read.")
	fmt.Println(strings.Join(kinds, "\n"))
	var names []string
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println("message", name)
		for _, line := range fields(messages[name]) {
			fmt.Println(line)
		}
	}
}

func name(of reflect.Type) string {
	parts := strings.Split(of.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], ".") + "." + of.Name()
}

// Types whose JSON form is not that of their fields.
var special = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "int-or-string",
	reflect.TypeFor[meta.Time]():            "time",
	reflect.TypeFor[meta.MicroTime]():       "micro-time",
	reflect.TypeFor[meta.FieldsV1]():        "json",
	reflect.TypeFor[runtime.RawExtension](): "json",
}

func collect(of reflect.Type, into map[string]reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(of.Elem(), into)
	case reflect.Struct:
		if _, is := special[of]; is || into[name(of)] != nil {
			return
		}
		into[name(of)] = of
		for i := range of.NumField() {
			if of.Field(i).Tag.Get("protobuf") != "" {
				collect(of.Field(i).Type, into)
			}
		}
	}
}

// One line for each field: number, name (a dot: inlined), cardinality and type. The cardinality tells how absent and
// empty values are shown: "?" an empty one is omitted, "!" it is written, "*" it is present if it was sent.
func fields(of reflect.Type) []string {
	var lines []string
	for i := range of.NumField() {
		field := of.Field(i)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		written, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if written == "" {
			written = "."
		}
		shape := "!"
		if strings.Contains(options, "omitempty") {
			shape = "?"
		}
		if field.Type.Kind() == reflect.Pointer {
			shape = "*"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s", tag[1], written, shape, kindOf(field.Type)))
	}
	sort.SliceStable(lines, func(a, b int) bool { return number(lines[a]) < number(lines[b]) })
	return lines
}

func number(line string) int {
	n, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil {
		log.Fatal(err)
	}
	return n
}

func kindOf(of reflect.Type) string {
	if is, found := special[of]; found {
		return is
	}
	switch of.Kind() {
	case reflect.Pointer:
		return kindOf(of.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Struct:
		return name(of)
	case reflect.Map:
		return "map " + kindOf(of.Elem())
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		// A named list is a message that wraps its items.
		if _, wrapped := reflect.PointerTo(of).MethodByName("Unmarshal"); wrapped {
			return "wrapped " + kindOf(of.Elem())
		}
		return "list " + kindOf(of.Elem())
	}
	log.Fatalf("%v has no form", of)
	return ""
}

// Reads objects as JSON, one a line, and writes both encodings of each into the same file.
func answers(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		var given struct{ JSON json.RawMessage }
		var head meta.TypeMeta
		must(json.Unmarshal([]byte(line), &given))
		must(json.Unmarshal(given.JSON, &head))
		object, err := scheme.New(head.GroupVersionKind())
		must(err)
		must(json.Unmarshal(given.JSON, object))
		var wire strings.Builder
		must(serializer.Encode(object, &wire))
		written, err := json.Marshal(object)
		must(err)
		fmt.Fprintf(&out, "{\"json\":%s,\"protobuf\":%q}\n", written, base64.StdEncoding.EncodeToString([]byte(wire.String())))
	}
	must(os.WriteFile(path, []byte(out.String()), 0o644))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
