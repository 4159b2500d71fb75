#!/usr/bin/env python3
"""Replays the recordings on a running API server and stores its answers.

  record.py -o OUTDIR [story.json ...]     (default: all of crates/playground/tests/stories)

The format is described in crates/playground/tests/stories/README.md.
Recordings with "forgets" are skipped unless FORGETS=1 is set (see forget.sh); then only they are replayed.
"""
import copy, glob, http.client, json, os, re, ssl, sys, threading, time, datetime

HERE = os.path.dirname(os.path.abspath(__file__))
# The folder of up.sh.
FOLDER = os.environ.get("FOLDER", "/tmp/muster-recorder-%d" % os.getuid())
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
SUBST = re.compile(r"\$\{([A-Za-z0-9_]+)((?:\.[^{}]+)?)\}")
PORT = json.load(open(os.path.join(FOLDER, "controlplane.json")))["ports"]["kube-apiserver"]
ADMIN = ssl.create_default_context(cafile=os.path.join(FOLDER, "certificates/ca.crt"))
ADMIN.load_cert_chain(os.path.join(FOLDER, "certificates/admin.crt"), os.path.join(FOLDER, "certificates/admin.key"))


def connect(timeout=60):
    return http.client.HTTPSConnection("127.0.0.1", PORT, timeout=timeout, context=ADMIN)


def headers(do):
    h = {"Accept": do.get("accept", "application/json"), "User-Agent": "stories"}
    if do.get("contentType"):
        h["Content-Type"] = do["contentType"]
    return h


# ---- values of earlier answers

def look(value, path):
    """a.b[0].c; a key with dots in it is written in brackets with quotes: a['x.y/z']."""
    for key, index, quoted in re.findall(r"([^.\[\]]+)|\[(\d+)\]|\['([^']+)'\]", path):
        if index:
            value = value[int(index)]
        else:
            value = value[quoted or key]
    return value


def pointer(p):
    return [t.replace("~1", "/").replace("~0", "~") for t in p.split("/")[1:]]


def edit(base, spec):
    for p, v in spec.get("$set", {}).items():
        *way, last = pointer(p)
        at = base
        for t in way:
            at = at[int(t)] if isinstance(at, list) else at.setdefault(t, {})
        if isinstance(at, list):
            if last == "-":
                at.append(v)
            else:
                at[int(last)] = v
        else:
            at[last] = v
    for p in spec.get("$remove", []):
        *way, last = pointer(p)
        at = base
        for t in way:
            at = at[int(t)] if isinstance(at, list) else at[t]
        if isinstance(at, list):
            del at[int(last)]
        else:
            at.pop(last, None)
    return base


def fill(v, seen):
    if isinstance(v, str):
        whole = SUBST.fullmatch(v)
        if whole:
            return look(seen[whole[1]], whole[2][1:])
        return SUBST.sub(lambda m: str(look(seen[m[1]], m[2][1:])), v)
    if isinstance(v, list):
        return [fill(x, seen) for x in v]
    if isinstance(v, dict):
        if "$from" in v:
            base = copy.deepcopy(seen[v["$from"]])
            return edit(base, fill({k: x for k, x in v.items() if k != "$from"}, seen))
        return {k: fill(x, seen) for k, x in v.items()}
    return v


# ---- what differs from run to run becomes a placeholder

class Normal:
    def __init__(self, keeps):
        self.keeps = keeps  # whether the recording covers managedFields
        self.names = {}   # placeholder class -> {value: placeholder}
        self.rename = {}  # generated names
        self.ages = []    # columns of the last table that hold ages

    def number(self, kind, value):
        m = self.names.setdefault(kind, {})
        return m.setdefault(value, "<%s:%d>" % (kind, len(set(m.values())) + 1))

    def text(self, s):
        def u(m):
            return m[0] if m[0].startswith("00000000-") else self.number("uid", m[0])
        s = UUID.sub(u, s)
        # the server's own address, which has a fixed port in the recordings
        s = s.replace("127.0.0.1:%d" % PORT, "127.0.0.1:26443")
        s = TIME.sub(self.time, s)
        for name, new in self.rename.items():
            s = s.replace(name, new)
        if re.search(r"resource ?version|storage error|continue|object has been modified", s, re.I):
            s = re.sub(r"current: \d+", "current: <rv>", s)
            s = re.sub(r"too old resource version: (\S+) \(\d+\)", r"too old resource version: \1 (<rv>)", s)
            for rv, new in self.names.get("rv", {}).items():
                s = re.sub(r"(?<![\w:<.])%s\b" % rv, new, s)
        return s

    @staticmethod
    def time(m):
        t = m[0]
        try:
            when = datetime.datetime.fromisoformat(re.sub(r"\.\d+", "", t).replace("Z", "+00:00"))
        except ValueError:
            return t
        off = abs((when - datetime.datetime.now(datetime.timezone.utc)).total_seconds())
        if off > 36 * 3600:
            return t  # a time that the recording wrote itself
        return "<microtime>" if "." in t else "<time>"

    def learn(self, v):
        if isinstance(v, dict):
            m = v.get("metadata")
            if isinstance(m, dict) and m.get("generateName") and m.get("name", "").startswith(m["generateName"][:58]) and m["name"] not in self.rename \
               and re.fullmatch(r"[bcdfghjklmnpqrstvwxz2456789]{5}", m["name"][-5:]):
                self.rename[m["name"]] = m["name"][:-5] + "<suffix:%d>" % (len(self.rename) + 1)
            for x in v.values():
                self.learn(x)
        elif isinstance(v, list):
            for x in v:
                self.learn(x)

    def value(self, v, where=()):
        if isinstance(v, str):
            return self.text(v)
        if isinstance(v, list):
            return [self.value(x, where + ("[]",)) for x in v]
        if not isinstance(v, dict):
            return v
        is_list = isinstance(v.get("items"), list) or v.get("kind") in ("Table", "Status") or str(v.get("kind")).endswith("List")
        bookmark = "k8s.io/initial-events-end" in json.dumps(v.get("metadata", {}).get("annotations", {})) if isinstance(v.get("metadata"), dict) else False
        out = {}
        for k, x in v.items():
            if k == "causes" and all(c.get("reason") == "FieldManagerConflict" for c in x):
                x = sorted(x, key=lambda c: [json.dumps(c[f], ensure_ascii=False) for f in ("message", "field")])  # in any order
            if k == "managedFields" and not self.keeps:
                continue
            if k == "metadata" and isinstance(x, dict):
                m = dict(x)
                if not self.keeps:
                    m.pop("managedFields", None)
                rv = m.get("resourceVersion")
                cont = m.get("continue")
                m = self.value({a: b for a, b in m.items() if a not in ("resourceVersion", "continue")}, where + (k,))
                if isinstance(rv, str):
                    if rv in ("", "0") or not rv.isdigit():
                        m["resourceVersion"] = rv
                    elif is_list or bookmark or v.get("$bookmark"):
                        m["resourceVersion"] = "<rv>"
                    else:
                        m["resourceVersion"] = self.number("rv", rv)
                if isinstance(cont, str):
                    m["continue"] = "<continue>" if cont else ""
                if isinstance(m.get("managedFields"), list):
                    # the order depends on times
                    m["managedFields"].sort(key=lambda e: [e.get(f, "") for f in ("operation", "manager", "subresource", "apiVersion")])
                # keep the server's order of keys
                out[k] = {a: m[a] for a in x if a in m}
            else:
                out[self.text(k) if k.startswith("k:{") else k] = self.value(x, where + (k,))
        if v.get("kind") == "Table":
            if v.get("columnDefinitions"):
                self.ages = [i for i, c in enumerate(v["columnDefinitions"]) if c["name"] in ("Age", "Last Seen", "First Seen")]
            for row in out.get("rows") or []:
                for i in self.ages:
                    row["cells"][i] = "<age>"
        return out


# ---- one step

def request(do):
    body = None
    if "body" in do:
        body = json.dumps(do["body"], separators=(",", ":"), ensure_ascii=False).encode()
    elif "bodyText" in do:
        body = do["bodyText"].encode()
    elif "bodyRepeat" in do:
        r = do["bodyRepeat"]
        body = (r.get("before", "") + r["unit"] * r["count"] + r.get("middle", "") + r.get("unitAfter", "") * r["count"] + r.get("after", "")).encode()
    h = headers(do)
    if body is not None and "Content-Type" not in h and do.get("contentType") != "":
        h["Content-Type"] = "application/json"
    c = connect()
    try:
        c.putrequest(do["method"], do["path"].replace(" ", "%20"), skip_accept_encoding=True)
        for k, v in h.items():
            c.putheader(k, v)
        if body is not None:
            c.putheader("Content-Length", str(len(body)))
        c.endheaders()
        if body is not None:
            try:
                c.send(body)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                pass
        r = c.getresponse()
        data = r.read()
    finally:
        c.close()
    answer = {"code": r.status, "contentType": r.getheader("Content-Type")}
    kept = {}
    for name in ("Retry-After", "Warning", "Allow"):
        values = r.headers.get_all(name)
        if values:
            kept[name] = values if len(values) > 1 else values[0]
    if kept:
        answer["headers"] = kept
    raw = None
    if "json" in (answer["contentType"] or "") and data:
        raw = json.loads(data)
        answer["body"] = raw
    else:
        answer["text"] = data.decode(errors="replace")
    return answer, raw


def read_watch(do, want, seconds, got, ready=None, answer=None):
    c = connect(timeout=seconds)
    end = time.time() + seconds
    answer = {} if answer is None else answer
    try:
        c.request("GET", do["path"], headers=headers(do))
        r = c.getresponse()
        answer.update(code=r.status, contentType=r.getheader("Content-Type"))
        if ready:
            ready.set()
        if r.status != 200 or "watch" not in do["path"]:
            data = r.read()
            answer["body" if "json" in answer["contentType"] else "text"] = json.loads(data) if "json" in answer["contentType"] else data.decode()
            return answer
        answer["closed"] = False
        while len(got) < want and time.time() < end:
            line = r.readline()
            if not line:
                answer["closed"] = True
                break
            got.append(json.loads(line))
    except (TimeoutError, OSError):
        pass
    finally:
        if ready:
            ready.set()
        c.close()
    return answer


def holds(until, answer):
    if "code" in until and answer["code"] != until["code"]:
        return False
    if "path" in until:
        try:
            v = look(answer.get("body"), until["path"])
        except (KeyError, IndexError, TypeError):
            v = None
        if "equals" in until and v != until["equals"]:
            return False
        if "exists" in until and (v is not None) != until["exists"]:
            return False
    return True


def play(story):
    keeps = bool(story.get("managedFields"))
    seen, normal, watches, out, last = {}, Normal(keeps), {}, [], {}
    for number, step in enumerate(story["steps"], 1):
        rec = dict(step)
        if "pauseMs" in step:
            time.sleep(step["pauseMs"] / 1000)
        if step.get("forget"):
            import subprocess
            subprocess.run([os.path.join(HERE, "forget.sh")], check=True)
            out.append(rec)
            continue
        if "watch" in step:
            w = fill(step["watch"], seen)
            want, seconds = w.get("events", 1 << 30), w.get("seconds", 10)
            if "collect" in w:
                got, answer, thread, cond = watches[w["collect"]]
                end = time.time() + seconds
                while len(got) < want and time.time() < end and thread.is_alive():
                    time.sleep(0.05)
                answer = dict(code=200)
                events = list(got)[:want]
                del got[:len(events)]
            elif "open" in w:
                got, answer, ready = [], {}, threading.Event()
                t = threading.Thread(target=read_watch, args=(w, 1 << 30, 60, got, ready, answer), daemon=True)
                t.start()
                ready.wait(10)
                watches[w["open"]] = (got, answer, t, ready)
                rec["answer"] = {"code": answer.get("code")}
                out.append(rec)
                continue
            else:
                events = []
                answer = read_watch(w, want, seconds, events)
            if len(events) == 1 and "type" not in events[0]:
                answer["body"] = events[0]  # not a watch at all
            if "body" not in answer and "text" not in answer:
                normal.learn(events)
                for e in events:
                    if e["type"] == "BOOKMARK":
                        e["object"]["$bookmark"] = True
                events = [normal.value(e) for e in events]
                for e in events:
                    e["object"].pop("$bookmark", None)
                answer["events"] = events
            else:
                answer = normal.value(answer)
            rec["answer"] = answer
            out.append(rec)
            continue
        until = step.get("until")
        end = time.time() + (until or {}).get("seconds", 30)
        do = fill(step["do"], seen)
        while True:
            answer, raw = request(do)
            if not until or holds(until, answer):
                break
            if time.time() > end:
                print("  %s step %d: never became %s; last was %s" % (story["name"], number, until, json.dumps(answer)[:300]))
                rec["answer_note"] = "until did not hold"
                break
            time.sleep(0.15)
        if step.get("id"):
            seen[step["id"]] = copy.deepcopy(raw) if raw is not None else answer.get("text")
            if isinstance(raw, dict) and isinstance(raw.get("metadata"), dict) and not keeps:
                seen[step["id"]]["metadata"].pop("managedFields", None)
        normal.learn(answer.get("body"))
        if not keeps and isinstance(raw, dict) and isinstance(raw.get("metadata"), dict) and raw["metadata"].get("uid") and raw["metadata"].get("resourceVersion"):
            m = raw["metadata"]
            bare = json.dumps({**raw, "metadata": {k: v for k, v in m.items() if k not in ("managedFields", "resourceVersion")}}, sort_keys=True)
            old = last.get(m["uid"])
            if old and old[0] == bare and old[1] != m["resourceVersion"] and m["resourceVersion"] not in normal.names.get("rv", {}):
                # written only because the field managers changed: counts as the same version
                normal.names["rv"][m["resourceVersion"]] = normal.names["rv"][old[1]]
                rec["managedFieldsOnly"] = True
            last[m["uid"]] = (bare, m["resourceVersion"])
        ct = answer["contentType"]
        answer = normal.value(answer)
        answer["contentType"] = ct
        if not keeps and "managedFields" in json.dumps(answer.get("body", {}).get("message", "") if isinstance(answer.get("body"), dict) else ""):
            # the message quotes the whole object with its managedFields
            rec["unstable"] = sorted(set(rec.get("unstable", []) + ["/body/message", "/body/details"]))
        rec["answer"] = answer
        out.append(rec)
    return {**{k: v for k, v in story.items() if k != "steps"}, "steps": out}


def dump(story, path):
    """One line per step part, so that a diff is readable and the file small."""
    with open(path, "w") as f:
        head = {k: v for k, v in story.items() if k != "steps"}
        f.write("{\n")
        for k, v in head.items():
            f.write(" %s: %s,\n" % (json.dumps(k), json.dumps(v)))
        f.write(' "steps": [\n')
        for i, s in enumerate(story["steps"]):
            f.write("  {")
            f.write(",\n   ".join("%s: %s" % (json.dumps(k), json.dumps(v, ensure_ascii=False)) for k, v in s.items()))
            f.write("}%s\n" % ("," if i + 1 < len(story["steps"]) else ""))
        f.write(" ]\n}\n")


def main():
    args = sys.argv[1:]
    if args[:1] != ["-o"] or len(args) < 2:
        sys.exit(__doc__)
    out, args = args[1], args[2:]
    os.makedirs(out, exist_ok=True)
    files = args or sorted(glob.glob(os.path.join(HERE, "../../crates/playground/tests/stories/*.json")))
    steps = 0
    for path in files:
        story = json.load(open(path))
        if bool(story.get("forgets")) != bool(os.environ.get("FORGETS")):
            continue
        t = time.time()
        try:
            story = play(story)
        except Exception as e:
            import traceback
            print("FAILED %s: %r" % (path, e)); traceback.print_exc()
            continue
        steps += len(story["steps"])
        dump(story, os.path.join(out, os.path.basename(path)))
        if time.time() - t > 8:
            print("  %s took %.1f s" % (story["name"], time.time() - t))
    print("%d stories, %d steps" % (len(files), steps))


if __name__ == "__main__":
    main()
