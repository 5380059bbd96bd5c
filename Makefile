# Every target sets up all it needs in .venv; only python3 (3.11 or newer) has to be there.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?=
RUN := .venv/bin/python -m
# Two workers with one torch thread each: the tests' tensors are too small for more. Each takes half
# of the files, so that what a file's tests share is made once, and then some of what the other has.
PYTEST := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(RUN) pytest -q -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help ready demo test test-all lint format bench docs clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

ready:
	@PYTHON='$(PYTHON)' scripts/setup.sh

demo: ready  ## check this machine, then train four agents for minutes and draw what they learnt
	.venv/bin/kalmanac doctor
	.venv/bin/kalmanac demo

test: ready  ## the tests
	$(PYTEST) $(ARGS)

test-all: ready  ## the tests, the slow ones too
	$(PYTEST) -m "not gpu" $(ARGS)

lint: ready  ## style, format, types, and which part may import which
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	.venv/bin/lint-imports

format: ready  ## rewrite the files in the common format
	$(RUN) ruff check --fix
	$(RUN) ruff format

bench: ready  ## speed of scans, encoders, updates and environments; a tracking task learned by each encoder
	.venv/bin/python benchmarks/scan.py $(ARGS)
	.venv/bin/python benchmarks/encoders.py
	.venv/bin/python benchmarks/update.py
	.venv/bin/python benchmarks/environments.py
	.venv/bin/python benchmarks/tracking.py

docs: ready  ## the pages as a site, in site/index.html
	@.venv/bin/python -c 'import material, mkdocstrings' 2>/dev/null || $(RUN) pip install -q -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

clean:  ## remove .venv and everything generated
	rm -rf .venv .venv.old build dist site .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
