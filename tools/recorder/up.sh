#!/bin/bash
# Starts a real control plane with empty data for record.py, without other writers: no service accounts, three
# controllers, and the parts of the scheduling API that the recordings use. More flags go to `controlplane up`.
set -e
cd "$(dirname "$0")"
BINARY=$(CI=true ../controlplane/build 1.37)
exec "$BINARY" up --folder "${FOLDER:-/tmp/muster-recorder-$UID}" --profile stock --gates GenericWorkload=true \
  --flag kube-apiserver=--runtime-config=scheduling.k8s.io/v1beta1=true \
  --flag kube-apiserver=--disable-admission-plugins=ServiceAccount \
  --flag kube-apiserver=--authorization-mode=AlwaysAllow \
  --flag kube-controller-manager=--controllers=garbage-collector-controller,namespace-controller,podgroup-protection-controller \
  "$@"
