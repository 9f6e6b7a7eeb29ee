# Everything works from a bare clone: each target makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Some virtual machines promise matrix units (AMX) they cannot run.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.DEFAULT_GOAL := help
.PHONY: help demo test check matrix slow fuzz bench course docs serve site site-test page demo-site page-test lock audit soak faults clean

# What torch's CUDA build brings; a CPU build has none of it.
NOT_LOCKED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc \
	nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse \
	nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

# Locked versions with hashes; torch is there already, since its CPU and CUDA builds differ.
$(VENV)/.dev: $(VENV)/.core requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements.lock
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@touch $@

demo: START := $(shell date +%s)
demo: $(VENV)/.core  ## see words in several senses: similarities, a map, a vectors file
	$(BIN)/python examples/demo.py
	@echo "$$(( $$(date +%s) - $(START) )) seconds in all, with whatever had to be installed"

test: $(VENV)/.dev  ## run the ordinary tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: $(VENV)/.dev  ## lint, formatting, types, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typical_use.py
	$(BIN)/basedpyright --pythonpath $(BIN)/python tests/typical_use.py
	$(BIN)/python tools/typed.py
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions .github/actions/*/action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --quiet --offline .github

matrix: $(VENV)/.dev  ## try the lowest and newest versions, each in an environment of its own (many minutes)
	$(BIN)/python -m pip install --quiet uv
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.versions --save
	$(BIN)/python -m benchmarks.fill_pages

slow: $(VENV)/.dev  ## run the slow tests (minutes)
	$(BIN)/python -m pytest -m slow

fuzz: SECONDS ?= 600
fuzz: $(VENV)/.dev  ## damage files of every format for SECONDS and read them
	PYTHONPATH=src:.:tests/support OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.runner --seconds $(SECONDS) --save
	$(BIN)/python -m benchmarks.reliability.table

bench: $(VENV)/.dev  ## run the benchmarks and write their results to benchmarks/results
	$(BIN)/python -m benchmarks.speed.startup --save
	$(BIN)/python -m benchmarks.speed.memory small --save
	$(BIN)/python -m benchmarks.speed.memory original --save
	$(BIN)/python -m benchmarks.speed.memory files --save
	$(BIN)/python -m benchmarks.speed.side_by_side small --save
	$(BIN)/python -m benchmarks.speed.side_by_side --model small-en --precision float32 --precision bfloat16 --precision int8 --save
	$(BIN)/python -m benchmarks.speed.curves small-en --save
	$(BIN)/python -m benchmarks.fill_pages

SECONDS ?= 600
soak: $(VENV)/.dev  ## run 200 clients with faults against the server (SECONDS=600)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.server.soak --seconds $(SECONDS)

faults: $(VENV)/.dev  ## break downloads; kill, stop and starve every verb that writes (KILLS=600; Linux, best as root)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reliability.downloads --downloads 1000 --save
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reliability.faults --kills $(or $(KILLS),600) --save

course: $(VENV)/.dev  ## run the chapters of the course, and write their notebooks and pages (ONLY=03)
	OMP_NUM_THREADS=1 $(BIN)/python tools/course.py --only "$(ONLY)"

docs: $(VENV)/.docs  ## build the documentation in both languages into site; a broken link is an error
	$(BIN)/zensical build --clean --strict
	$(BIN)/zensical build --clean --strict --config-file mkdocs.zh.yml

serve: CONFIG ?= mkdocs.yml
serve: $(VENV)/.docs  ## serve one language of the documentation, and follow changes (CONFIG=mkdocs.zh.yml)
	$(BIN)/zensical serve --dev-addr 127.0.0.1:8000 --config-file $(CONFIG)

site: docs  ## build the documentation, and the live demo with both embedded models, into site
	rm -rf site/demo
	$(BIN)/elmokit site site/demo --model small-en --model small-zh

site-test: $(VENV)/.docs page/node_modules/.package-lock.json  ## read the documentation in Chromium (installs it)
	command -v chromium || { apt-get update --quiet && apt-get install --yes --no-install-recommends \
		chromium fonts-dejavu-core fonts-wqy-microhei; }
	$(BIN)/python -m pytest -m 'slow or not slow' tests/test_site.py tests/test_docs_browser.py

page: page/node_modules/.package-lock.json  ## test and build the page, for `elmokit serve` and `elmokit site` (needs Node.js)
	npm --prefix page test
	npm --prefix page run build
	python3 tools/page_runtime.py --write

demo-site: $(VENV)/.dev  ## write the page without a server, with both embedded models, into demo-site
	$(BIN)/elmokit site demo-site --model small-en --model small-zh

page/node_modules/.package-lock.json: page/package-lock.json
	npm --prefix page ci
	@touch $@

page-test: $(VENV)/.dev page/node_modules/.package-lock.json  ## use the page in Chromium (installs it)
	command -v chromium || { apt-get update --quiet && apt-get install --yes --no-install-recommends \
		chromium fonts-dejavu-core fonts-wqy-microhei; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow or not slow' tests/server/test_page_files.py tests/server/test_static_site.py \
		tests/server/test_page_browser.py tests/server/test_static_site_browser.py

lock: $(VENV)/.core  ## resolve all requirements again, and write their versions and hashes
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --group docs --group browser --universal --generate-hashes --upgrade \
		--python-version 3.11 --constraint constraints.txt --no-annotate --no-header $(addprefix --no-emit-package ,$(NOT_LOCKED)) \
		--output-file requirements.lock > /dev/null

audit: $(VENV)/.dev page/node_modules/.package-lock.json  ## known vulnerabilities and licences of all dependencies
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement requirements.lock
	npm --prefix page audit
	$(BIN)/python tools/licences.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build site demo-site page/node_modules
