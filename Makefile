# Everything works from a bare clone: each target makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Some virtual machines promise matrix units (AMX) they cannot run.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.DEFAULT_GOAL := help
.PHONY: help demo test check slow bench docs serve clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

demo: $(VENV)/.core  ## see one word's vectors in different contexts, and write a vectors file
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev  ## run the ordinary tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: $(VENV)/.dev  ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(VENV)/.dev  ## run the slow tests (minutes)
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/.dev  ## run the benchmarks and write their results to benchmarks/results
	$(BIN)/python benchmarks/startup.py --save
	$(BIN)/python benchmarks/memory.py small --save
	$(BIN)/python benchmarks/memory.py original --save
	$(BIN)/python benchmarks/memory.py files --save

docs: $(VENV)/.docs  ## build the documentation into site; a broken link is an error
	$(BIN)/zensical build --clean --strict

serve: $(VENV)/.docs  ## serve the documentation on this machine, and follow changes
	$(BIN)/zensical serve --dev-addr 127.0.0.1:8000

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build site
