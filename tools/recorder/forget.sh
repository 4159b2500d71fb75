#!/bin/bash
# Makes the server forget its history: waits for a compaction of etcd (start.sh must have run with
# API_FLAGS=--etcd-compaction-interval=2s), then restarts kube-apiserver, so that its watch caches start anew.
set -e
cd "$(dirname "$0")"
sleep 8
P=$(cat run/apiserver.pid)
[ "$(readlink "/proc/$P/exe")" = "$(readlink -f bin/controlplane)" ]
kill "$P"
for i in $(seq 100); do kill -0 "$P" 2>/dev/null || break; [ $i = 50 ] && kill -9 "$P"; sleep 0.2; done
eval "exec setsid bin/controlplane $(cat run/apiserver.cmd)" >> run/apiserver.log 2>&1 < /dev/null &
echo $! > run/apiserver.pid
for i in $(seq 240); do
  [ "$(curl -sk -H "Authorization: Bearer $(cat run/token)" https://127.0.0.1:26443/readyz)" = ok ] && exit 0
  sleep 0.5
done
exit 1
