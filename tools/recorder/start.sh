#!/bin/bash
# Starts etcd, kube-apiserver and kube-controller-manager on loopback, with empty data.
# Everything they write goes to run/ (removed at the next start).
set -e
cd "$(dirname "$0")"
./stop.sh
rm -rf run; mkdir -p run/certs
ETCD=23790 PEER=23800 API=26443
openssl genrsa -out run/sa.key 2048 2>/dev/null
openssl rsa -in run/sa.key -pubout -out run/sa.pub 2>/dev/null
# The token exists only in run/, and opens only this scratch server.
TOKEN=$(openssl rand -hex 16)
echo "$TOKEN,admin,admin,system:masters" > run/tokens.csv
printf %s "$TOKEN" > run/token
cat > run/kubeconfig <<K
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:$API", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: "$TOKEN"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
K
B=bin/controlplane
start() { name=$1; shift; printf '%q ' "$@" > "run/$name.cmd"; setsid "$B" "$@" > "run/$name.log" 2>&1 < /dev/null & echo $! > "run/$name.pid"; }
start etcd etcd run/etcd http://127.0.0.1:$ETCD http://127.0.0.1:$PEER
start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:$ETCD \
  --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=$API --cert-dir=run/certs \
  --token-auth-file=run/tokens.csv --authorization-mode=AlwaysAllow \
  --service-account-issuer=https://127.0.0.1 --service-account-key-file=run/sa.pub --service-account-signing-key-file=run/sa.key \
  --service-cluster-ip-range=10.0.0.0/24 --endpoint-reconciler-type=none \
  --disable-admission-plugins=ServiceAccount \
  --feature-gates="${GATES:-GenericWorkload=true}" --runtime-config=scheduling.k8s.io/v1beta1=true $API_FLAGS
for i in $(seq 240); do
  [ "$(curl -sk -H "Authorization: Bearer $TOKEN" https://127.0.0.1:$API/readyz)" = ok ] && break
  kill -0 "$(cat run/apiserver.pid)" || { tail -5 run/apiserver.log; exit 1; }
  sleep 0.5
done
start manager kube-controller-manager --kubeconfig=run/kubeconfig --leader-elect=false --secure-port=0 \
  --feature-gates="${GATES:-GenericWorkload=true}" \
  --controllers="${CONTROLLERS:-garbage-collector-controller,namespace-controller,podgroup-protection-controller}"
echo "https://127.0.0.1:$API ready; token in run/token"
