#!/bin/bash
# Stops what up.sh started, and removes its folder.
set -e
cd "$(dirname "$0")"
BINARY=$(CI=true ../controlplane/build 1.37)
exec "$BINARY" down --folder "${FOLDER:-/tmp/muster-recorder-$UID}"
