# Two commands are enough: `make demo` and `make test`. The environment is made when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all test-slow test-gpu check format bench cards docs docs-serve notebooks clean

demo: $(VENV)/.core
	@$(BIN)/fedblade compare --methods fedavg,fedetf,fedblade --threshold 90

# Every package in a few minutes: what to run while one works.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not thorough and not slow"

# Everything that must pass before a change lands.
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m slow

# On a machine with a CUDA GPU. The line "GPU tests" at the end is for benchmarks/README.md.
test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.core
	$(BIN)/fedblade bench

# The pages of the methods, which are part of the repository.
cards: $(VENV)/.dev
	$(BIN)/python docs/build_methods.py

# The site, in build/site/index.html; a broken link ends it.
docs: cards
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo $(CURDIR)/build/site/index.html

docs-serve: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

# Runs the scripts in docs/notebooks and stores them as notebooks with their outputs.
notebooks: $(VENV)/.dev
	$(BIN)/python docs/build_notebooks.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.core
