# Every target sets up its own virtual environment the first time. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ARGS   ?=
SCHEDULES ?= 1000
SEED   ?= 0
RUNS   ?= runs/reproduce

.DEFAULT_GOAL := help
.PHONY: help demo demo-lora test test-adapters test-browser test-docs test-ray docs notebooks screenshots dist sbom lint bench rivals evidence simulate campaign clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */make \1\t/' | expand -t 20

demo: $(READY)  ## train 9 peers on real data, compare, certify, and write a report
	$(BIN)/securedfl train --dataset digits --peers 9 --rounds 20 --methods local,fedavg,secured,shares --seed 0 $(ARGS)

demo-lora: $(READY)  ## fine-tune a small GPT with LoRA between 9 peer processes, beside pooled fine-tuning
	$(BIN)/python examples/lora/demo.py $(ARGS)

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

test-adapters: $(VENV)-adapters/.ready $(VENV)-flower/.ready  ## test against real transformers, Lightning, accelerate, Flower
	$(VENV)-adapters/bin/python -m pytest tests/adapters/libraries --ignore tests/adapters/libraries/test_flower.py -W default $(ARGS)
	$(VENV)-flower/bin/python -m pytest tests/adapters/libraries/test_flower.py -W default $(ARGS)

test-ray: $(VENV)-ray/.ready  ## test the engine ray on clusters of this machine: one, two and three nodes, killed workers and nodes
	$(VENV)-ray/bin/python -m pytest -n 0 tests/learning/on_ray -W default $(ARGS)

test-docs: $(READY)  ## run what is slow of README and docs: real peers, trainings as they stand there
	SECUREDFL_DOCS=all $(BIN)/python -m pytest -n 2 tests/test_docs_snippets.py $(ARGS)

docs: $(VENV)-docs/.ready  ## make the site in build/site; a warning or a dead link inside it is an error
	$(VENV)-docs/bin/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "build/site/index.html"

notebooks: $(VENV)-docs/.ready  ## run the notebooks again and store what they print and draw
	$(VENV)-docs/bin/python docs/run_notebooks.py

dist: $(VENV)-docs/.ready  ## make wheel and source distribution in dist/, and check them
	rm -rf dist build/lib
	$(VENV)-docs/bin/python -m build --no-isolation --outdir dist .
	$(VENV)-docs/bin/python -m twine check --strict dist/*

sbom: $(VENV)-sbom/.ready $(VENV)-site/.ready  ## list what a site installs, as CycloneDX, in build/sbom.json
	mkdir -p build
	$(VENV)-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --validate --output-file build/sbom.json $(VENV)-site/bin/python

test-browser: $(VENV)/.browser  ## test reports and the live page in headless Chromium (apt-get install chromium)
	$(BIN)/python -m pytest -n 0 tests/browser $(ARGS)

screenshots: $(VENV)/.browser  ## make the pictures of pages in docs/pictures; after `make docs`, of the site in build/
	$(BIN)/python -m tests.browser.screenshots docs/pictures
	test ! -e build/site/start.html || $(BIN)/python -m tests.browser.screenshots --site build/site

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## measure speed and memory, as ratios within one run
	for script in benchmarks/*.py; do echo; echo "== $$script"; $(BIN)/python $$script || exit 1; done

rivals: $(READY)  ## run rival systems beside ours, each in its own environment: ARGS="--smoke", ARGS="--write", ARGS="--consortium --smoke"
	$(BIN)/python benchmarks/rivals/run.py $(ARGS)

evidence: $(READY)  ## keep what finished runs gave, without their models, and make the tables of docs/results again: RUNS=runs/reproduce
	$(BIN)/python docs/keep_runs.py $(RUNS)

simulate: $(READY)  ## run a federation through random faults in a simulated world: SCHEDULES=100000 SEED=0
	$(BIN)/python -m tests.network.world --schedules $(SCHEDULES) --seed $(SEED) $(ARGS)

campaign: $(READY)  ## kill, stop, cut and fill the disks of real processes: ARGS="--schedules 60 --seed 0"
	$(BIN)/python -m tests.network.campaign $(ARGS)

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV)-adapters $(VENV)-flower $(VENV)-ray $(VENV)-docs $(VENV)-sbom $(VENV)-site .venv-rivals build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[learn,data,dp,tensorboard,dev]'
	touch $@

$(VENV)/.browser: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	touch $@

$(VENV)-adapters/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-adapters/bin/python || $(PYTHON) -m venv $(VENV)-adapters
	$(VENV)-adapters/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)-adapters/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[accelerate,lightning,transformers,dev]'
	touch $@

$(VENV)-ray/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-ray/bin/python || $(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray,dev]'
	touch $@

# Flower asks for other versions than constraints.txt has, and its adapter needs no PyTorch
$(VENV)-flower/.ready: pyproject.toml tests/adapters/flower-constraints.txt
	test -x $(VENV)-flower/bin/python || $(PYTHON) -m venv $(VENV)-flower
	$(VENV)-flower/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/adapters/flower-constraints.txt --editable '.[flower]' hypothesis pytest safetensors
	touch $@

# apart from the tests, which do without it
$(VENV)-docs/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-docs/bin/python || $(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[learn,data,dp,docs]'
	touch $@

# what a site has, and nothing for tests
$(VENV)-site/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-site/bin/python || $(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)-site/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt '.[learn,data,dp]'
	$(VENV)-site/bin/python -m pip uninstall --quiet --yes pip
	touch $@

$(VENV)-sbom/.ready: constraints.txt
	test -x $(VENV)-sbom/bin/python || $(PYTHON) -m venv $(VENV)-sbom
	$(VENV)-sbom/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt cyclonedx-bom
	touch $@
