#!/bin/bash
# Makes the server lose its watch history: waits for a compaction of etcd (up.sh must have been given --flag
# kube-apiserver=--etcd-compaction-interval=2s), then restarts kube-apiserver, so that its watch caches are empty.
set -e
cd "$(dirname "$0")"
FOLDER=${FOLDER:-/tmp/muster-recorder-$UID}
sleep 8
BINARY=$(CI=true ../controlplane/build 1.37)
"$BINARY" stop --folder "$FOLDER" kube-apiserver
exec "$BINARY" start --folder "$FOLDER" kube-apiserver
