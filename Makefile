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
# What was compiled once is read by every process that the tests start.
unexport PYTHONDONTWRITEBYTECODE
# The seed of a simulation replays its run in any process.
export PYTHONHASHSEED := 0

# The DynamoDB-compatible engine for the tests, one binary per platform.
DYNOXIDE_VERSION := 1.2.1
PLATFORM := $(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed -e s/x86_64/x64/ -e s/aarch64/arm64/)
DYNOXIDE := $(TOOLS)/node_modules/@dynoxide/$(PLATFORM)/dynoxide

# E2B's SDK for JavaScript, and Jupyter kernels for its code interpreter: for the tests alone.
E2B_JS_VERSION := 2.51.0
E2B_JS := $(TOOLS)/e2b-js/node_modules/e2b/package.json
# Those of a year ago, and of September 2025, before them.
E2B_OLDER := 2.7.0 2.2.7
E2B_JS_OLDER := 2.7.0 2.2.7
E2B_OLDER_TOOLS := $(E2B_OLDER:%=$(TOOLS)/e2b-%/installed) $(E2B_JS_OLDER:%=$(TOOLS)/e2b-js-%/node_modules/e2b/package.json)
KERNELS := $(TOOLS)/kernels
KERNEL_PACKAGES := pip==25.3 ipykernel==7.1.0 matplotlib==3.10.9 e2b-charts==1.0.0 bash_kernel==0.10.0

.DEFAULT_GOAL := help
.PHONY: help install more debian-tools serve demo dev test gameday test-e2b test-real-e2b test-aws test-image test-kubernetes test-cgroups check format torture mutants bench screenshots aws-snapshots clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(UV):
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# What was installed once stays: the stamp lists the extras, and nothing else is removed.
COMMA := ,
KEPT := $(shell cat $(VENV)/installed 2>/dev/null)
CHOSEN := $(sort parquet $(subst $(COMMA), ,$(EXTRAS)) $(KEPT))
install: $(VENV)/installed ## Make .venv with what `sandyard serve` needs (EXTRAS=aws,lambda,otel,ssh)
$(VENV)/installed: pyproject.toml clients/python/pyproject.toml uv.lock $(if $(filter-out $(KEPT),$(CHOSEN)),more) | $(UV)
	@echo "Installing into $(VENV); this takes some seconds."
	@$(UV) sync --quiet --frozen --no-dev --inexact $(addprefix --extra ,$(CHOSEN))
	@$(RUN)/python -m compileall -q src clients/python/src
	@echo $(CHOSEN) > $@

dev: $(VENV)/dev-installed ## Add what the tests and checks need
$(VENV)/dev-installed: pyproject.toml clients/python/pyproject.toml uv.lock | $(UV)
	@$(UV) sync --quiet --frozen --all-extras --group aws-cdk
	@touch $@ $(VENV)/installed

$(DYNOXIDE):
	@npm install --silent --no-save --no-fund --no-audit --prefix $(TOOLS) @dynoxide/$(PLATFORM)@$(DYNOXIDE_VERSION)

# In a folder of its own: an install there removes what others have installed.
$(E2B_JS):
	@npm install --silent --no-save --no-fund --no-audit --prefix $(TOOLS)/e2b-js e2b@$(E2B_JS_VERSION)

$(TOOLS)/e2b-%/installed: | $(UV)
	@$(UV) venv --quiet --clear --python $(PYTHON) $(@D)
	@$(UV) pip install --quiet --python $(@D)/bin/python e2b==$*
	@touch $@

$(TOOLS)/e2b-js-%/node_modules/e2b/package.json:
	@npm install --silent --no-save --no-fund --no-audit --prefix $(TOOLS)/e2b-js-$* e2b@$*

# By the system's Python: sandboxes see that one alone.
$(KERNELS)/with-pip: | $(UV) debian-tools
	@$(UV) venv --quiet --clear --python /usr/bin/python3 $(KERNELS)
	@$(UV) pip install --quiet --python $(KERNELS)/bin/python $(KERNEL_PACKAGES)
	@$(KERNELS)/bin/python -m bash_kernel.install --sys-prefix >/dev/null
	@touch $@

# The accessibility checks for the tests of the console.
AXE_VERSION := 4.14.0
AXE := $(TOOLS)/axe/node_modules/axe-core/axe.min.js
$(AXE):
	@npm install --silent --no-save --no-fund --no-audit --prefix $(TOOLS)/axe axe-core@$(AXE_VERSION)

# What the TypeScript client is built with.
TYPESCRIPT := clients/typescript/node_modules/.package-lock.json
$(TYPESCRIPT): clients/typescript/package-lock.json
	@npm ci --silent --no-fund --no-audit --prefix clients/typescript

# What some tests and the sandboxes need from the system.
# gVisor's runsc of the release itself is too old.
BACKPORTS := bookworm-backports
DEBIAN_TOOLS := curl bubblewrap git openssl openssh-client openssh-server python3 python3-pip python3-venv zstd chromium prometheus systemd nginx-light docker-registry busybox-static default-jre-headless musl-tools
debian-tools:
	@for tool in curl bwrap git openssl ssh /usr/sbin/sshd /usr/bin/python3 /usr/bin/pip3 zstd chromium promtool systemd-analyze /usr/sbin/nginx docker-registry busybox java musl-gcc; do command -v $$tool >/dev/null || missing=1; done; \
	test -z "$$missing" || (apt-get update -qq && apt-get install -y -qq $(DEBIAN_TOOLS) >/dev/null)
	@command -v runsc >/dev/null || { \
	sed -n '/^URIs:.*debian$$/p' /etc/apt/sources.list.d/debian.sources | head -n 1 | \
	sed '1i Types: deb' | sed '$$a Suites: $(BACKPORTS)\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg' \
	>/etc/apt/sources.list.d/sandyard-backports.sources && \
	apt-get update -qq && apt-get install -y -qq -t $(BACKPORTS) runsc >/dev/null; }

serve: export DATA_DIR := $(DATA_DIR)
serve: install ## Serve everything on the embedded engine (HOST, PORT, DATA_DIR, EXTRAS)
	@exec $(RUN)/sandyard serve --host $(HOST) --port $(PORT) --data-dir "$$DATA_DIR"

demo: install ## Serve a site with live data, to look at in the console (HOST, PORT)
	@exec $(RUN)/sandyard demo --host $(HOST) --port $(PORT)

check: dev ## Format, lint, types and layers
	$(RUN)/ruff format --check
	$(RUN)/ruff check
	$(RUN)/mypy
	$(RUN)/lint-imports

format: dev ## Put the code in form
	$(RUN)/ruff format
	$(RUN)/ruff check --fix

# The checks run beside the tests, which are compiled first: each worker would do it for itself.
CHECKS := $(TOOLS)/checks.log
test: dev debian-tools $(DYNOXIDE) $(AXE) $(E2B_JS) $(TYPESCRIPT) $(E2B_OLDER_TOOLS) $(KERNELS)/with-pip ## Everything CI runs: the checks and all tests on the real engines
	@make --no-print-directory check >$(CHECKS) 2>&1 & checks=$$!; \
	$(RUN)/pytest --collect-only >/dev/null; \
	$(RUN)/python -m pytest -p tests.support.rerun_alone --numprocesses 4 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$checks || { cat $(CHECKS); echo "make check failed"; exit 1; }; exit $$tests

test-e2b: dev debian-tools $(E2B_JS) $(E2B_OLDER_TOOLS) $(KERNELS)/with-pip ## E2B's SDKs of today and of a year ago, all calls, and fifty sandboxes at once
	$(RUN)/pytest tests/e2e/e2b_api tests/unit/e2b_api -m "torture or not torture"

test-real-e2b: dev ## A preview at the real E2B, by a key of yours (E2B_API_KEY=…); it is never part of `make test`
	@test -n "$(E2B_API_KEY)" || { echo "Name a key: make test-real-e2b E2B_API_KEY=…" >&2; exit 1; }
	@E2B_API_KEY=$(E2B_API_KEY) $(RUN)/pytest -m real_e2b tests/e2e/previews/test_real_e2b.py

torture: dev $(DYNOXIDE) $(E2B_JS) $(E2B_OLDER_TOOLS) $(KERNELS)/with-pip ## Full matrices, a soak (SANDYARD_SOAK_SEC), a million simulated operations, a hundred thousand on each real engine (OPERATIONS, ON_ENGINES), and replicas as processes on DynamoDB (SANDYARD_TORTURE_SEED)
	$(RUN)/pytest -m torture --numprocesses 2
	$(RUN)/python -m tests.simulation --operations $(or $(OPERATIONS),1000000)
	for engine in sqlite postgresql dynamodb; do $(RUN)/python -m tests.simulation --engine $$engine --operations $(or $(ON_ENGINES),100000) || exit 1; done
	SANDYARD_TORTURE_OPERATIONS=$${SANDYARD_TORTURE_OPERATIONS:-5000} $(RUN)/pytest tests/faults/broker/test_exactly_once.py

mutants: dev debian-tools $(DYNOXIDE) ## Show that the tests still catch known bugs: each is put into a copy of the source (MUTANTS="replace-leaks …")
	$(RUN)/python -m tests.mutants $(MUTANTS)

gameday: dev debian-tools $(DYNOXIDE) ## Hold every short game day on every engine that it applies to (SCENARIOS="task-killed …")
	$(RUN)/python -m tests.support.commands.gamedays $(SCENARIOS)

test-cgroups: dev debian-tools ## Limits of sandboxes by control groups (CGROUP_ROOT=a delegated folder below /sys/fs/cgroup)
	@test -d "$(CGROUP_ROOT)" || { echo "Name a delegated control group: make test-cgroups CGROUP_ROOT=/sys/fs/cgroup/…" >&2; exit 1; }
	SANDYARD_TEST_CGROUP_ROOT=$(CGROUP_ROOT) $(RUN)/pytest -m cgroups

bench: dev $(DYNOXIDE) ## Measure; prints one table of ratios (wrk and nginx are installed if they are missing)
	@for tool in wrk /usr/sbin/nginx; do command -v $$tool >/dev/null || missing=1; done; \
	test -z "$$missing" || (apt-get update -qq && apt-get install -y -qq wrk nginx-light >/dev/null) || true
	$(RUN)/python -m benchmarks

screenshots: dev ## Take pictures of every screen of the console (PICTURES=folder)
	$(RUN)/python -m tests.support.commands.screenshots $(or $(PICTURES),./screenshots)

# An AWS on this machine that refuses types that it does not know; it needs Python 3.12 or newer.
MINISTACK := $(TOOLS)/ministack
MINISTACK_VERSION := 1.5.33
MINISTACK_PYTHON ?= $(shell for each in python3.12 python3.13 python3.14 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo "$$each" && break; done)
$(MINISTACK)/installed: | $(UV)
	@test -n "$(MINISTACK_PYTHON)" || { \
	echo "make test-aws needs Python 3.12 or newer beside the one that runs Sandyard: install one (apt-get install" >&2; \
	echo "python3.12, pyenv install 3.12), or name it by MINISTACK_PYTHON=/path/to/python3.12." >&2; exit 1; }
	@$(UV) venv --quiet --clear --python "$(MINISTACK_PYTHON)" $(MINISTACK)
	@$(UV) pip install --quiet --python $(MINISTACK)/bin/python ministack==$(MINISTACK_VERSION)
	@touch $@

test-kubernetes: dev debian-tools ## The contract tests of sandboxes and previews in a cluster of yours (KUBECONFIG=file, see docs/kubernetes.md)
	@test -n "$(KUBECONFIG)" -a -n "$$KUBERNETES_AGENT_IMAGE" || { echo "Name a cluster for tests and our image: make test-kubernetes KUBECONFIG=… KUBERNETES_AGENT_IMAGE=…" >&2; exit 1; }
	KUBECONFIG=$(KUBECONFIG) KUBERNETES_IMAGE=$${KUBERNETES_IMAGE:-python:3.13-bookworm} $(RUN)/python -m tests.support.commands.in_cluster $(TESTS)

test-image: dev debian-tools ## Build the image without Docker, start it, probe it and look through it (root, Debian)
	@for tool in buildah mmdebstrap nsenter setpriv; do command -v $$tool >/dev/null || missing=1; done; \
	test -z "$$missing" || (apt-get update -qq && apt-get install -y -qq buildah mmdebstrap util-linux >/dev/null)
	$(RUN)/pytest -m image tests/deploy/test_image.py

test-aws: dev $(MINISTACK)/installed ## Deploy the templates of deploy/aws into ministack, read them back, and follow the CDK's types
	$(RUN)/pytest -m aws tests/deploy/aws
	$(RUN)/mypy --config-file deploy/aws/mypy.ini deploy/aws

aws-snapshots: dev ## Write the templates of deploy/aws anew, after a change that is meant
	$(RUN)/python -m tests.deploy.aws.templates

clean: ## Remove what was installed and made (not DATA_DIR)
	rm -rf $(VENV) $(TOOLS) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
