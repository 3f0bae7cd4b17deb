# Everything that a check or a demonstration needs, from a fresh clone. `make` lists the targets.
#
#   make test PYTHON=python3.13 VENV=.venvs/3.13      another interpreter, beside the first

# The first interpreter that is new enough, unless one is named.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif

# Tests begin processes by the hundred, and none of them shall compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-wire lint format format-check types layers mutants bench completions pins clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.runtime ## run the support desk: scripted model, real loop; MODEL=PREFIX:NAME asks a real one
	$(BIN)/remit demo $(if $(MODEL),--model $(MODEL)) $(if $(BASE_URL),--base-url $(BASE_URL))

test: $(VENV)/.dev $(VENV)/.node ## run the tests; ARGS="-k slots" picks some
	$(RUN) -m pytest $(or $(ARGS),--numprocesses=auto --dist=worksteal)

test-wire: $(VENV)/.dev ## recorded exchanges through the codecs; REMIT_WIRE_DIR=FOLDER for others than ../shared/wire
	$(RUN) -m pytest tests/test_wire_recordings.py -rs $(ARGS)

lint: $(VENV)/.dev ## ruff, all rules but the excused ones
	$(BIN)/ruff check .

format: $(VENV)/.dev ## rewrite the code in the house format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

format-check: $(VENV)/.dev ## fail where `make format` would change something
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## pyright, strict
	$(BIN)/pyright --pythonpath $(RUN)

layers: $(VENV)/.dev ## inner layers import nothing from outer ones
	$(BIN)/lint-imports --no-cache

mutants: $(VENV)/.dev $(VENV)/.node ## every promise has a sabotage, and a test that notices it
	$(RUN) scripts/mutants.py $(ARGS)

bench: $(VENV)/.runtime ## timings: to be compared, not to be passed
	$(RUN) benchmarks/loop.py $(ARGS)
	$(RUN) benchmarks/render.py
	$(RUN) benchmarks/cli.py
	$(RUN) benchmarks/wire.py
	$(RUN) benchmarks/durable.py

completions: $(VENV)/.dev ## write the completion scripts anew, from the command line as it is
	$(RUN) scripts/completions.py

pins: ## resolve requirements/*.txt anew
	$(MAKE) --no-print-directory VENV=.venvs/pins .venvs/pins/.created
	PYTHON=.venvs/pins/bin/python bash requirements/compile.sh

clean: ## remove environments, caches and builds
	rm -rf .venv .venvs build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find src tests scripts examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Environments. A stamp is written last, so that an interrupted installation is begun again.

$(VENV)/.created:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "remit needs Python 3.11 or newer; found: $$($(or $(PYTHON),python3) --version 2>&1)" >&2; \
		echo "Install one and name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt pyproject.toml | $(VENV)/.created
	$(INSTALL) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

# Mock servers that were written for node. The script leaves the stamp: where node or its registry cannot be
# reached, the tests that need them say so, and the next call tries again.
$(VENV)/.node: requirements/node.txt scripts/node_packages.py $(VENV)/.dev
	$(RUN) scripts/node_packages.py $@
