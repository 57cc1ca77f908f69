# Two commands do everything on a machine with Python 3.11+ and make:
#   make run    set up and answer the main question for the official config
#   make test   set up and pass the tests, the linter and the type checker
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test test-long bench worlds notebooks clean

run: $(VENV)/.run
	$(BIN)/aisim-v41 estimate --gpu gb300 --tp 4 --engine sglang --decoder-replay both \
	    --prefill 8192 --decode 32x32768

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

test-long: $(VENV)/.dev
	$(BIN)/pytest -n 2 -m "long or not long"

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

worlds: $(VENV)/.dev
	$(BIN)/python -m benchmarks.fpm_worlds

notebooks: $(VENV)/.dev
	$(BIN)/python notebooks/run.py

clean:
	rm -rf $(VENV) dist build

$(VENV)/.run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@
