# All that is needed is git, make and Python >= 3.11; everything else goes into .venv, from the lock files.
SHELL := /bin/sh
# Tests start hundreds of processes: each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help install run demo test test-all guides net faults mutants test-containers test-chart release release-check check audit docs format trace house bench bench-peers bench-all lock clean

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The first Python that is new enough, unless PYTHON=… names one.
PYTHONS := python3 python3.13 python3.12 python3.11 python3.14
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 11

run: $(VENV)/.runtime ## the whole forwarder in one process, data in .forwarder; Ctrl-C stops it
	@exec $(BIN)/forwarder up

demo: $(VENV)/.client ## a short guided tour, by the Python client; ends by itself
	@exec $(BIN)/python clients/python/examples/demo.py

install: $(VENV)/.development ## .venv with all that is needed to develop

check: $(VENV)/.development ## format, lint, types, layers, private names, published contracts, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.private_names
	$(BIN)/python -m tools.contracts check
	$(BIN)/python -m tools.reference check

audit: $(VENV)/.audit ## known vulnerabilities of what is locked to run, where they can be looked up
	@$(BIN)/python -m tools.audit

# Not --quiet: it would let warnings pass.
docs: $(VENV)/.docs ## the docs as a site in site/, strict: a dead link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

format: $(VENV)/.development ## put the sources into their one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Two cores are what there is at the least. Half of the time a test waits for what happens elsewhere: so twice as many processes.
# They share one Kafka and one PostgreSQL.
PROCESSES := 4
PYTEST := $(BIN)/python -m pytest --numprocesses=$(PROCESSES)

test: $(VENV)/.development ## what shows every guarantee, on every backend that can be had; ARGS='-k worker' selects, PROCESSES=6 is for more cores
	$(TRIED_AGAIN) $(PYTEST) -m 'not slow' --durations=30 $(ARGS)

test-all: $(VENV)/.development ## the slow suites and the long forms too: fuzzing of the HTTP contract, state machines, three brokers, guides' programs, compose
	FORWARDER_TEST_PROFILE=full $(PYTEST) --durations=30 $(ARGS)

guides: $(VENV)/.development ## the guides followed as printed, one after the other in one deployment: curl, Python, TypeScript, Java, Go; wants npm's registry
	$(BIN)/python -m pytest --numprocesses=0 tests/journey/guides/test_in_sequence.py $(ARGS)

net: $(VENV)/.development ## random histories of the whole deployment in simulated time, and whether they find each mend taken back; HOURS=1 runs long, BACKEND=postgres on PostgreSQL
	$(BIN)/python -m tests.net $(if $(HOURS),histories --hours $(HOURS) --first $$(date +%s)) $(if $(BACKEND),--backend $(BACKEND)) $(ARGS)

faults: $(VENV)/.development ## the fault suite at length, into docs/explanation/reliability.md; SEED=7 repeats its faults, ARGS='-k kafka' selects; COUNT=1000000 ARGS='-k everything' is a night of everything at once
	FORWARDER_TEST_REQUIRE=real $(BIN)/python -m pytest tests/fault --faults=long $(if $(SEED),--faults-seed=$(SEED)) $(if $(COUNT),--faults-count=$(COUNT)) $(if $(MINUTES),--faults-minutes=$(MINUTES)) $(ARGS)

mutants: $(VENV)/.development ## mutation testing of the modules that carry the guarantees; installs cosmic-ray; takes hours. ARGS='--only lease'
	@$(PIP) install 'cosmic-ray>=8.7,<9'
	$(BIN)/python -m tools.mutants $(ARGS)

test-containers: $(VENV)/.development ## the composition in containers, killed and replaced under load; wants Docker with Compose and openssl, takes minutes
	$(BIN)/python -m pytest tests/containers -s $(ARGS)

test-chart: $(VENV)/.development ## the Helm chart, rendered and judged; builds helm and kubeconform by Go where they are not installed
	$(BIN)/python -m pytest tests/containers/test_chart.py $(ARGS)

release-check: $(VENV)/.development ## the distributions built, installed in new environments and tried there; wants a package index
	$(BIN)/python -m tools.release check

release: $(VENV)/.development ## what would be uploaded, into dist/: wheels, sources and the npm package; HOME_URL=https://… is where the sources are published
	@test -n "$(HOME_URL)" || { echo "Say where the sources are published: make release HOME_URL=https://git.example.com/forwarder" >&2; exit 1; }
	$(BIN)/python -m tools.release build --home "$(HOME_URL)"
	cd clients/typescript && npm ci --no-audit --no-fund && npm pack --pack-destination ../../dist
	@ls -l dist

trace: $(VENV)/.development ## the files that one POST, one delivery and one page pass, as the running code shows them
	$(BIN)/python -m tools.trace_message

house: $(VENV)/.development ## lines and files of each room of the package, and what makes code hard to follow
	@$(BIN)/python -m tools.house

bench: $(VENV)/.development ## how fast it is, against a naive flow; ARGS='--all --write' measures all, into docs/explanation/performance.md
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(VENV)/.development ## beside the same flow written by hand in Go, where its sources are: GO=DIR (../shared/tools); BENTO=FILE: its binary takes part too
	$(BIN)/python -m bench --peers --rounds 5 $(if $(GO),--go $(GO)) $(if $(BENTO),--bento $(BENTO)) $(ARGS)

bench-all: $(VENV)/.development ## everything that is measured, one after the other: well over an hour, 20 GB of disk while it runs
	$(BIN)/python -m bench --all $(ARGS)
	$(BIN)/python -m bench.due
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.pages --rows 10000 --rows 1000000 --rows 10000000

# The stamps: an environment is made anew only when its lock changed. The development set contains the runtime set.
$(VENV)/.runtime: requirements.lock | $(VENV)/.created
	@echo "Installing what the forwarder needs into $(VENV) (once)"
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-index --no-build-isolation --editable .
	@touch $@

$(VENV)/.development: requirements-dev.lock $(VENV)/.client
	@echo "Installing what development needs into $(VENV) (once)"
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@touch $@

$(VENV)/.docs: requirements-docs.lock | $(VENV)/.created
	@echo "Installing what the docs need into $(VENV) (once)"
	@$(PIP) install --require-hashes --requirement requirements-docs.lock
	@touch $@

$(VENV)/.audit: requirements-audit.lock | $(VENV)/.created
	@echo "Installing what an audit needs into $(VENV) (once)"
	@$(PIP) install --require-hashes --requirement requirements-audit.lock
	@touch $@

$(VENV)/.client: clients/python/pyproject.toml pms-kit/pyproject.toml $(VENV)/.runtime
	@$(PIP) install --no-deps --no-index --no-build-isolation --editable clients/python --editable pms-kit
	@touch $@

$(VENV)/.created:
	@python=; \
	for candidate in $(or $(PYTHON),$(PYTHONS)); do \
	  if $$candidate $(NEW_ENOUGH) 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Python 3.11 or newer is needed, and none was found (looked for: $(or $(PYTHON),$(PYTHONS)))." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.13 …" >&2; exit 1; \
	fi; \
	$$python -m venv --clear $(VENV) || { \
	  echo "This Python cannot make environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
	}
	@touch $@

# The lock files name versions and hashes, never a host. UPGRADE=--upgrade takes everything to its newest version.
UV_VERSION := 0.9
LOCK := UV_CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-config $(UPGRADE)

lock: | $(VENV)/.created ## pin what pyproject.toml asks for
	@$(PIP) install 'uv>=$(UV_VERSION)'
	$(LOCK) --extra console --extra otel --group build pyproject.toml --output-file requirements.lock
	$(LOCK) --extra console --extra otel --group build --group dev --constraint requirements.lock pyproject.toml --output-file requirements-dev.lock
	$(LOCK) --group docs --constraint requirements-dev.lock --output-file requirements-docs.lock
	$(LOCK) --group audit --constraint requirements-dev.lock --output-file requirements-audit.lock
	$(LOCK) --group client --output-file tests/support/contracts/openapi_client/requirements.lock
	$(LOCK) examples/consumers/faststream/requirements.in --output-file examples/consumers/faststream/requirements.txt

clean: ## remove the environment and every cache; the data in .forwarder stays
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
