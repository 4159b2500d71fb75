# The menu. `make` alone shows it.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help setup up test lint fmt bench controlplane-up controlplane-down

help: ## Show this menu
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: # Finds or installs what the other targets need beyond Rust itself.
	@CARGO="$(CARGO)" tools/setup

up: setup ## Start a cluster in this terminal with a demo, kubectl works on it (flags: make up ARGS="--demo deadlock")
	$(CARGO) run --release --locked --package muster -- up $(ARGS)

test: setup lint ## Check and test everything; does its own set-up
	@tools/kubectl/build >/dev/null
	$(CARGO) test --workspace --locked

lint: setup ## Format check and clippy, warnings are errors
	@CARGO="$(CARGO)" tools/lint

fmt: ## Format all code (needs rustfmt: rustup component add rustfmt)
	$(CARGO) fmt --all

bench: setup ## Measure the engine beside the naive way, the API server, a large playground, and the scheduler as a process
	$(CARGO) run --release --locked --package muster -- bench engine
	$(CARGO) run --release --locked --package muster -- bench server
	$(CARGO) run --release --locked --package muster -- bench playground
	$(CARGO) run --release --locked --package muster -- bench runtime

# A real control plane, outside of the tree.
VERSION ?= 1.37
PROFILE ?= gates
FOLDER ?= /tmp/muster-controlplane-$(shell id -u)

controlplane-up: ## Start a real Kubernetes on loopback (VERSION=1.36 PROFILE=stock ARGS="--with kube-scheduler"; needs Go)
	@binary=$$(CI=true tools/controlplane/build $(VERSION)) && "$$binary" up --folder "$(FOLDER)" --profile $(PROFILE) $(ARGS)

controlplane-down: ## Stop it and remove what it wrote
	@binary=$$(tools/controlplane/build --built | head -n 1) && "$${binary:?no control plane is built}" down --folder "$(FOLDER)"
