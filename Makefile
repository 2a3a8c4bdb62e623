# Two commands matter to a user: `make up` and `make test`. Everything else serves them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# uv installs faster; plain pip does the same from the same lock where uv is absent.
UV     := $(shell command -v uv 2>/dev/null)
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install up test test-fast soak mutants check bench docs lock clean

install: $(VENV)/.installed
up: install
	@$(BIN)/butlers up

# The npm programs come first, so that the tests need no network; without npm their tests fail, unless BUTLERS_SKIP_NPM=1.
test: $(VENV)/.installed-dev check
	@scripts/install_test_programs.sh
	@PYTHONPATH=tests $(BIN)/python -m support.npm
	@$(BIN)/python -m pytest -n auto --dist worksteal -q

# For daily work: the unit tests and a few of each other tier, without the npm programs.
FAST := tests/unit tests/integration/tools/test_state.py tests/integration/switchboard/test_ingest.py \
  tests/integration/sessions/test_answers.py tests/integration/messenger/test_tools.py \
  tests/integration/queue/test_queue.py tests/e2e/test_message.py
test-fast: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q $(FAST)

# Before a release: storms of 1,000 messages at their real pace, and property tests with all examples.
soak: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -n 2 -q -m "soak or hypothesis" --hypothesis-profile deep

# Before a release: each mutation of our promises has to be noticed by its test.
mutants: $(VENV)/.installed-dev
	@$(BIN)/python scripts/run_mutants.py

docs: $(VENV)/.installed-dev
	@$(BIN)/python scripts/write_docs.py

check: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && PYTHONPATH=src $(BIN)/lint-imports --no-logo \
	  || { echo "repeat with: make check" >&2; exit 1; }

bench: $(VENV)/.installed-dev
	@$(BIN)/python -m benchmarks

# `pip install -r requirements.lock` with hashes, no dependency resolution, then the project itself
# by a .pth file: nothing is built, nothing outside the lock is fetched.
define install_lock
	@test -x $(BIN)/python || $(if $(UV),$(UV) venv -q --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))
	@$(if $(UV),$(UV) pip install -q --python $(BIN)/python --compile-bytecode --no-deps --require-hashes -r $(1),$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $(1))
	@$(BIN)/python scripts/link_project.py
	@touch $@
endef

$(VENV)/.installed: requirements.lock scripts/link_project.py
	$(call install_lock,requirements.lock)

$(VENV)/.installed-dev: requirements.lock requirements-dev.lock scripts/link_project.py
	$(call install_lock,requirements-dev.lock)
	@touch $(VENV)/.installed

# Needs uv. Hashes, no index address, markers for every supported Python.
lock:
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --extra dev pyproject.toml -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
