# Sandyard's commands; `make help` lists them.
HOST ?= 127.0.0.1
PORT ?= 8080
DATA_DIR ?= ./data
EXTRAS ?=
PYTHON ?= python3

UV_VERSION := 0.13.7
TOOLS := .tools
UV := $(TOOLS)/bin/uv
VENV := .venv
RUN := $(VENV)/bin
export UV_COMPILE_BYTECODE := 1
export UV_PYTHON := $(PYTHON)
export UV_PYTHON_DOWNLOADS := never

# The DynamoDB-compatible engine for the tests, one binary per platform.
DYNOXIDE_VERSION := 1.2.1
PLATFORM := $(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed -e s/x86_64/x64/ -e s/aarch64/arm64/)
DYNOXIDE := $(TOOLS)/node_modules/@dynoxide/$(PLATFORM)/dynoxide

.DEFAULT_GOAL := help
.PHONY: help install more debian-tools serve dev test check format torture bench clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(UV):
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# What was installed once stays: the stamp lists the extras, and nothing else is removed.
COMMA := ,
KEPT := $(shell cat $(VENV)/installed 2>/dev/null)
CHOSEN := $(sort parquet $(subst $(COMMA), ,$(EXTRAS)) $(KEPT))
install: $(VENV)/installed ## Make .venv with what `sandyard serve` needs (EXTRAS=e2b,aws,lambda)
$(VENV)/installed: pyproject.toml uv.lock $(if $(filter-out $(KEPT),$(CHOSEN)),more) | $(UV)
	@echo "Installing into $(VENV); this takes some seconds."
	@$(UV) sync --quiet --frozen --no-dev --inexact $(addprefix --extra ,$(CHOSEN))
	@$(RUN)/python -m compileall -q src
	@echo $(CHOSEN) > $@

dev: $(VENV)/dev-installed ## Add what the tests and checks need
$(VENV)/dev-installed: pyproject.toml uv.lock | $(UV)
	@$(UV) sync --quiet --frozen --all-extras
	@touch $@ $(VENV)/installed

$(DYNOXIDE):
	@npm install --silent --no-save --no-fund --no-audit --prefix $(TOOLS) @dynoxide/$(PLATFORM)@$(DYNOXIDE_VERSION)

# What some tests and the sandboxes need from the system.
DEBIAN_TOOLS := curl bubblewrap git openssl python3 zstd chromium
debian-tools:
	@for tool in curl bwrap git openssl /usr/bin/python3 zstd chromium; do command -v $$tool >/dev/null || missing=1; done; \
	test -z "$$missing" || (apt-get update -qq && apt-get install -y -qq $(DEBIAN_TOOLS) >/dev/null)

serve: export DATA_DIR := $(DATA_DIR)
serve: install ## Serve everything on the embedded engine (HOST, PORT, DATA_DIR)
	@exec $(RUN)/sandyard serve --host $(HOST) --port $(PORT) --data-dir "$$DATA_DIR"

check: dev ## Format, lint, types and layers
	$(RUN)/ruff format --check
	$(RUN)/ruff check
	$(RUN)/mypy
	$(RUN)/lint-imports

format: dev ## Put the code in form
	$(RUN)/ruff format
	$(RUN)/ruff check --fix

test: check debian-tools $(DYNOXIDE) ## Everything CI runs: the checks and all tests on the real engines
	$(RUN)/pytest --numprocesses 4 --dist loadfile

torture: dev $(DYNOXIDE) ## Full matrices, and the randomised fault run on DynamoDB ten times as long (SANDYARD_TORTURE_SEED)
	$(RUN)/pytest -m torture --numprocesses 2
	SANDYARD_TORTURE_OPERATIONS=$${SANDYARD_TORTURE_OPERATIONS:-22000} $(RUN)/pytest tests/faults/broker/test_exactly_once.py

bench: dev $(DYNOXIDE) ## Measure; prints one table of ratios (wrk is installed if it is missing)
	@command -v wrk >/dev/null || (apt-get update -qq && apt-get install -y -qq wrk >/dev/null) || true
	$(RUN)/python -m benchmarks

clean: ## Remove what was installed and made (not DATA_DIR)
	rm -rf $(VENV) $(TOOLS) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
