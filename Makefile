# Everything works from a bare clone: each target makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Some virtual machines promise matrix units (AMX) they cannot run.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.DEFAULT_GOAL := help
.PHONY: help demo test check slow bench docs serve page page-test clean

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

demo: START := $(shell date +%s)
demo: $(VENV)/.core  ## see words in several senses: similarities, a map, a vectors file
	$(BIN)/python examples/demo.py
	@echo "$$(( $$(date +%s) - $(START) )) seconds in all, with whatever had to be installed"

test: $(VENV)/.dev  ## run the ordinary tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: $(VENV)/.dev  ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(VENV)/.dev  ## run the slow tests (minutes)
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/.dev  ## run the benchmarks and write their results to benchmarks/results
	$(BIN)/python -m benchmarks.speed.startup --save
	$(BIN)/python -m benchmarks.speed.memory small --save
	$(BIN)/python -m benchmarks.speed.memory original --save
	$(BIN)/python -m benchmarks.speed.memory files --save
	$(BIN)/python -m benchmarks.speed.side_by_side small --save
	$(BIN)/python -m benchmarks.speed.curves small --save
	$(BIN)/python -m benchmarks.fill_pages

docs: $(VENV)/.docs  ## build the documentation into site; a broken link is an error
	$(BIN)/zensical build --clean --strict

serve: $(VENV)/.docs  ## serve the documentation on this machine, and follow changes
	$(BIN)/zensical serve --dev-addr 127.0.0.1:8000

page: page/node_modules/.package-lock.json  ## test and build the page of `elmokit serve` (needs Node.js)
	npm --prefix page test
	npm --prefix page run build

page/node_modules/.package-lock.json: page/package-lock.json
	npm --prefix page ci
	@touch $@

page-test: $(VENV)/.dev page/node_modules/.package-lock.json  ## use the page in Chromium (installs it)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	command -v chromium || { apt-get update --quiet && apt-get install --yes --no-install-recommends \
		chromium fonts-dejavu-core fonts-wqy-microhei; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow or not slow' tests/server/test_page_files.py tests/server/test_page_browser.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build site page/node_modules
