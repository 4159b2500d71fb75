#!/usr/bin/env python3
"""merge.py OUT REC1 REC2 ...: takes the first recording and marks as "unstable" what differs in the others."""
import json, os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
out, first, *rest = sys.argv[1:]


def differ(a, b, at):
    if type(a) is not type(b):
        return [at]
    if isinstance(a, dict):
        r = []
        for k in {**a, **b}:
            p = at + "/" + k.replace("~", "~0").replace("/", "~1")
            r += differ(a[k], b[k], p) if k in a and k in b else [p]
        return r
    if isinstance(a, list):
        if len(a) != len(b):
            return [at]
        return [x for i, (m, n) in enumerate(zip(a, b)) for x in differ(m, n, "%s/%d" % (at, i))]
    return [] if a == b else [at]


def dump(story, path):
    with open(path, "w") as f:
        f.write("{\n")
        for k, v in story.items():
            if k != "steps":
                f.write(" %s: %s,\n" % (json.dumps(k), json.dumps(v)))
        f.write(' "steps": [\n')
        for i, s in enumerate(story["steps"]):
            f.write("  {" + ",\n   ".join("%s: %s" % (json.dumps(k), json.dumps(v, ensure_ascii=False)) for k, v in s.items()) + "}%s\n" % ("," if i + 1 < len(story["steps"]) else ""))
        f.write(" ]\n}\n")


os.makedirs(out, exist_ok=True)
for name in sorted(os.listdir(first)):
    if not name.endswith(".json"):
        continue
    story = json.load(open(os.path.join(first, name)))
    for r in rest:
        other = json.load(open(os.path.join(r, name)))
        for i, (a, b) in enumerate(zip(story["steps"], other["steps"]), 1):
            found = differ(a.get("answer"), b.get("answer"), "")
            if found:
                old = a.get("unstable", [])
                new = [p for p in found if not any(p == q or p.startswith(q + "/") for q in old)]
                if new:
                    print(name, "step", i, new)
                    answer = a.pop("answer")
                    a["unstable"] = sorted(set(old + new))
                    a["answer"] = answer
    dump(story, os.path.join(out, name))
