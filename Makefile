# Everything runs inside .venv, built here and rebuilt when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
HOME_DIR ?=
JOBS ?= 2

.PHONY: run test test-all test-long bench bench-search lint format types clean

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hmp_node needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "Could not make .venv. On Debian or Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: .venv/ready
	@$(BIN)/hmp-node $(if $(HOME_DIR),--home $(HOME_DIR)) run

test: .venv/ready lint types
	$(BIN)/pytest -n $(JOBS) -m "not slow and not long"

test-all: .venv/ready
	$(BIN)/pytest -n $(JOBS) -m "not long"

test-long: .venv/ready
	TEST_REPORTS=docs/reports $(BIN)/pytest -m long -s

bench: .venv/ready
	@$(BIN)/python -m tests.bench

bench-search: .venv/ready
	@$(BIN)/python -m tests.bench.search_quality

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: .venv/ready
	$(BIN)/mypy

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache dist
