# The menu. `make` alone shows it.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help setup up test lint fmt bench bench-cluster

help: ## Show this menu
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

bench-cluster: setup ## Measure Muster beside kube-scheduler on a real control plane (flags: make bench-cluster ARGS="--only plain")
	@controlplane=$$(tools/controlplane/build) && \
	$(CARGO) run --release --locked --package muster -- bench cluster --controlplane "$$controlplane" $(ARGS)
