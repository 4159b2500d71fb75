#!/usr/bin/env python3
"""field_types.py GOMODS > crates/playground-schema/src/types.txt

Generates the field ownership of the built-in kinds: their types and fields, which lists are sets or have keys, and
which lists and maps are atomic. The source are the schemas that client-go and apiextensions-apiserver 1.37.1 have for
apply; GOMODS is the Go module folder that contains them (…/pkg/mod/k8s.io).
The top of the output describes the format.
"""
import glob, json, os, re, sys
import yaml

HEAD = """\
# How fields of built-in kinds are owned: one line for each type, made by tools/recorder/field_types.py.
#   @v1/Pod Pod        objects of this apiVersion and kind are of this type
#   Pod spec:PodSpec=  a type and its fields; a type with ! is owned as one thing
# A field is of a type: s text, n number, b boolean, u any scalar, * anything, or one of the types below.
#   []T list that is one thing   [~]T set   [a,b]T list with keys   <>T map   <!>T map that is one thing   T! owned whole
# Behind = stands what the field is if nobody set it; a bare = is an empty object.
"""
KINDS = """v1/Pod v1/Node v1/Namespace v1/Event events.k8s.io/v1/Event v1/ConfigMap v1/Secret v1/Service v1/ServiceAccount
v1/Endpoints v1/PersistentVolumeClaim v1/PersistentVolume v1/ReplicationController v1/ResourceQuota v1/LimitRange v1/PodTemplate
apps/v1/ReplicaSet apps/v1/Deployment apps/v1/StatefulSet apps/v1/DaemonSet apps/v1/ControllerRevision batch/v1/Job batch/v1/CronJob
policy/v1/PodDisruptionBudget scheduling.k8s.io/v1/PriorityClass scheduling.k8s.io/v1beta1/PodGroup scheduling.k8s.io/v1beta1/Workload
coordination.k8s.io/v1/Lease apiextensions.k8s.io/v1/CustomResourceDefinition node.k8s.io/v1/RuntimeClass discovery.k8s.io/v1/EndpointSlice
storage.k8s.io/v1/StorageClass storage.k8s.io/v1/CSINode storage.k8s.io/v1/CSIDriver storage.k8s.io/v1/CSIStorageCapacity
storage.k8s.io/v1/VolumeAttachment resource.k8s.io/v1/ResourceClaim resource.k8s.io/v1/ResourceClaimTemplate
resource.k8s.io/v1/ResourceSlice resource.k8s.io/v1/DeviceClass""".split()


def nulls_of(mods):
    """Type to the fields that Go prints as null if unset: times, and fields without omitempty."""
    nulls = {}
    for folder, package in (("api@v0.37.1", "io.k8s.api"), ("apimachinery@v0.37.1/pkg/apis", "io.k8s.apimachinery.pkg.apis"),
                            ("apiextensions-apiserver@v0.37.1/pkg/apis", "io.k8s.apiextensions-apiserver.pkg.apis")):
        for path in glob.glob(os.path.join(mods, folder, "*/*/types*.go")):
            group, version = path.split("/")[-3:-1]
            name = None
            for line in open(path):
                if start := re.match(r"type (\w+) struct", line):
                    name = "%s.%s.%s.%s" % (package, group, version, start[1])
                field = re.match(r'\s+\w+\s+(\S+)\s+`json:"(\w+)(,[^"]*)?"', line)
                if not field:
                    continue
                type_, field, more = field[1], field[2], field[3] or ""
                is_time = re.fullmatch(r"(metav1\.)?(Time|MicroTime)", type_) and "omitzero" not in more
                is_null = "omitempty" not in more and re.match(r"\*|\[\]|map\[", type_)
                if is_time or is_null:
                    nulls.setdefault(name, set()).add(field)
    return nulls


def types_of(path):
    text = open(path).read()
    return yaml.safe_load(re.search(r"typed\.YAMLObject\(`(.*?)`\)", text, re.S)[1])["types"]


def full_name(kind):
    *gv, name = kind.split("/")
    group, version = ("core", gv[0]) if len(gv) == 1 else gv
    if group == "apiextensions.k8s.io":
        return "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.%s.%s" % (version, name)
    return "io.k8s.api.%s.%s.%s" % (group.split(".")[0], version, name)


def main():
    mods = sys.argv[1]
    types = {}
    for f in ("client-go@v0.37.1/applyconfigurations/internal/internal.go",
              "apiextensions-apiserver@v0.37.1/pkg/client/applyconfiguration/internal/internal.go"):
        for t in types_of(os.path.join(mods, f)):
            types.setdefault(t["name"], t)
    short, names, lines = {}, {}, {}
    nulls = nulls_of(mods)
    SCALARS = {"string": "s", "numeric": "n", "boolean": "b", "untyped": "u"}

    def name_of(full):
        if full in names:
            return names[full]
        plain = full.rsplit(".", 1)[1]
        if plain in short:
            plain = full.split(".")[-3] + plain
            assert plain not in short, full
        short[plain] = full
        names[full] = plain
        lines[plain] = None
        lines[plain] = line(plain, types[full])
        return plain

    def atom(a):
        """The text of an inlined type."""
        if "namedType" in a:
            full = a["namedType"]
            if full.startswith("__untyped"):
                return "*"
            t = types[full]
            if "map" not in t or "fields" not in t["map"]:
                return atom({k: v for k, v in t.items() if k != "name"})
            whole = a.get("elementRelationship") == "atomic" and t["map"].get("elementRelationship") != "atomic"
            return name_of(full) + ("!" if whole else "")
        if "scalar" in a and "map" in a:
            return "*"
        if "scalar" in a:
            return SCALARS[a["scalar"]]
        if "list" in a:
            l = a["list"]
            inner = atom(l["elementType"])
            if l["elementRelationship"] == "atomic":
                return "[]" + inner
            return "[%s]%s" % (",".join(l.get("keys", ["~"])), inner)
        m = a["map"]
        assert "fields" not in m, a
        if "elementType" not in m:
            return "<>*"
        return ("<!>" if m.get("elementRelationship") == "atomic" else "<>") + atom(m["elementType"])

    def line(plain, t):
        m = t["map"]
        out = [plain + ("!" if m.get("elementRelationship") == "atomic" else "")]
        for f in m["fields"]:
            text = "%s:%s" % (f["name"], atom(f["type"]))
            if "default" in f:
                d = f["default"]
                if d == {}:
                    text += "="
                elif not isinstance(d, dict) and not isinstance(d, list):
                    text += "=" + json.dumps(d)
            elif f["name"] in nulls.get(t["name"], ()):
                text += "=null"
            out.append(text)
        assert "elementType" not in m, plain
        return " ".join(out)

    roots = ["@%s %s" % (k, name_of(full_name(k))) for k in KINDS]
    name_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    print(HEAD + "\n".join(roots) + "\n" + "\n".join(lines[k] for k in sorted(lines)))


main()
