#!/bin/bash
# Stops what start.sh started, by the recorded process ids.
cd "$(dirname "$0")"
for n in manager apiserver etcd; do
  f=run/$n.pid; [ -f "$f" ] || continue
  p=$(cat "$f")
  if [ "$(readlink "/proc/$p/exe")" = "$(readlink -f bin/controlplane)" ]; then
    kill "$p"
    for i in $(seq 60); do kill -0 "$p" 2>/dev/null || break; [ $i = 20 ] && kill -9 "$p"; sleep 0.2; done
  fi
  rm -f "$f"
done
exit 0
