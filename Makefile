# The menu. `make` alone shows it.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help setup up test test-all lint fmt dist bench bench-cluster controlplane-up controlplane-down

help: ## Show this menu
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: # Finds or installs what the other targets need in addition to Rust.
	@CARGO="$(CARGO)" tools/setup

up: setup ## Start a cluster in this terminal with a demo, kubectl works on it (flags: make up ARGS="--demo deadlock")
	@test -e "$${CARGO_TARGET_DIR:-target}/lab/muster-lab" || \
	echo "make up: the first build takes about four minutes on two cores; then the demo starts"
	$(CARGO) run --locked --profile lab --package muster-lab -- up $(ARGS)

test: setup ## Lint and test: what every change has to pass; includes the set-up
	@CARGO="$(CARGO)" tools/test short

test-all: setup ## All tests, on all versions and seeds (PART=3/6: one part; PART=3-: from there on)
	@CARGO="$(CARGO)" tools/test all $(PART)

lint: setup ## Format check and clippy, warnings are errors
	@CARGO="$(CARGO)" tools/lint

dist: setup ## Build the static, stripped program for clusters, and print its path
	@CARGO="$(CARGO)" tools/dist

fmt: ## Format all code (needs rustfmt: rustup component add rustfmt)
	$(CARGO) fmt --all

LAB = $(CARGO) run --release --locked --package muster-lab --
MUSTER = $(CARGO) build --release --locked --package muster --package muster-lab

bench: setup ## Measure the engine against a naive algorithm, the API server, a large playground, and the scheduler as a process
	$(MUSTER)
	$(LAB) bench engine
	$(LAB) bench server
	$(LAB) bench playground
	$(LAB) bench controllers
	$(LAB) bench runtime

bench-cluster: setup ## Measure Muster against kube-scheduler on a real control plane (flags: make bench-cluster ARGS="--only plain"; needs Go)
	$(MUSTER)
	@controlplane=$$(CI=true tools/controlplane/build) && $(LAB) bench cluster --controlplane "$$controlplane" $(ARGS)

# A real control plane, outside of the tree.
VERSION ?= 1.37
PROFILE ?= gates
FOLDER ?= /tmp/muster-controlplane-$(shell id -u)

controlplane-up: ## Start a real Kubernetes on loopback (VERSION=1.36 PROFILE=stock ARGS="--with kube-scheduler"; needs Go)
	@binary=$$(CI=true tools/controlplane/build $(VERSION)) && "$$binary" up --folder "$(FOLDER)" --profile $(PROFILE) $(ARGS)

controlplane-down: ## Stop it and remove what it wrote
	@test -e "$(FOLDER)/etcd.cmd" || { echo "there is no control plane in $(FOLDER)" >&2; exit 1; }
	@"$$(head -n 1 "$(FOLDER)/etcd.cmd")" down --folder "$(FOLDER)"
