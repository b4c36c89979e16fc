# make run   install into .venv and run V1.5's recipe here: raw Parquet to a report
# make test  formatting, lint, types and the tests of every push; LANES="fast" for one lane; vLLM
#            goes into .venv-vllm, 3.4 GB, for the lane "vllm"
# make test-all  the long tests, too
#
# Nothing outside this folder is written. Where the index has no CPU build of torch:
#   make run TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3.11
TORCH_INDEX ?=
RECIPE ?= recipes/v15_opg.yaml
LANES ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := $(VENV)/.installed
VLLM := .venv-vllm

# Where one lane is asked for that is not vllm, vLLM is not installed.
WITH_VLLM := $(if $(LANES),$(filter vllm,$(LANES)),vllm)

.PHONY: run test test-all install install-dev install-vllm clean
.DELETE_ON_ERROR:

run: install
	$(BIN)/pclr-ms run $(RECIPE)

test: install-dev $(if $(WITH_VLLM),install-vllm)
	HF_HUB_OFFLINE=1 PCLR_VLLM=$(abspath $(VLLM))/bin/python $(BIN)/python tests/run_lanes.py $(LANES)

# Resumable: what passed for this very tree is not run again.
test-all: install-dev install-vllm
	HF_HUB_OFFLINE=1 PCLR_VLLM=$(abspath $(VLLM))/bin/python $(BIN)/python tests/run_lanes.py --all

install: $(STAMPS)/package

install-dev: $(STAMPS)/package $(STAMPS)/dev

install-vllm: $(VLLM)/.installed

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11)' || \
	  { echo "CPython 3.11 is needed, and $(PYTHON) is not it: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS)
	touch $@

# The pins hold for what torch needs, too.
$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/venv
	$(PIP) install $(addprefix --extra-index-url ,$(TORCH_INDEX)) \
	  -c requirements/base.txt -r requirements/torch.txt
	touch $@

$(STAMPS)/base: requirements/base.txt $(STAMPS)/torch
	$(PIP) install -r requirements/base.txt
	touch $@

$(STAMPS)/package: setup.cfg pyproject.toml $(STAMPS)/base
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

$(STAMPS)/dev: requirements/dev.txt requirements/extras.txt $(STAMPS)/base
	$(PIP) install -r requirements/dev.txt -r requirements/extras.txt
	touch $@

# An environment of its own, as it brings another transformers; nothing but what is pinned.
$(VLLM)/.installed: requirements/torch.txt requirements/vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip --disable-pip-version-check install --no-deps \
	  $(addprefix --extra-index-url ,$(TORCH_INDEX)) -r requirements/torch.txt
	$(VLLM)/bin/python -m pip --disable-pip-version-check install --no-deps -r requirements/vllm.txt
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
