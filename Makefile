# make run   install into .venv and run V1.5's recipe here: raw Parquet to a report
# make test  formatting, lint, types and the tests of every push; LANES="fast" for one lane; vLLM
#            goes into .venv-vllm, 3.4 GB, for the lane "vllm"
# make test-all  the long tests, too; the second pair of MindSpore and MindFormers goes into
#            .venv-mindspore-2-9, 3.3 GB
#
# make drill COUNT=1000  disturb runs in every way that docs/reliability.md names, so often each
#            (100 if left out); resumable, the log is build/drill/log.jsonl. `make drill TABLE=1`
#            writes the table of the log into that page.
#
# Nothing outside this folder is written. Where the index has no CPU build of torch:
#   make run TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3.11
TORCH_INDEX ?=
RECIPE ?= recipes/v15_opg.yaml
LANES ?=
COUNT ?= 100
TABLE ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := $(VENV)/.installed
VLLM := .venv-vllm
SECOND := .venv-mindspore-2-9
PAIR := requirements/mindspore_2_7.txt
# The same versions with the SHA-256 of every file of theirs on PyPI: `make hashes` writes them.
HASHED := requirements/hashed
WITH_HASHES := --no-deps --require-hashes
LISTS := base dev extras mindspore_2_7 mindspore_2_9 vllm

BASE := $(STAMPS)/base-$(basename $(notdir $(PAIR)))

# Where one lane is asked for that is not vllm, vLLM is not installed.
WITH_VLLM := $(if $(LANES),$(filter vllm,$(LANES)),vllm)

.PHONY: run test test-all drill hashes install install-dev install-vllm install-second clean
.DELETE_ON_ERROR:

run: install
	$(BIN)/pclr-ms run $(RECIPE)

test: install-dev $(if $(WITH_VLLM),install-vllm)
	HF_HUB_OFFLINE=1 PCLR_VLLM=$(abspath $(VLLM))/bin/python $(BIN)/python tests/run_lanes.py $(LANES)

# Resumable: what passed for this very tree is not run again.
test-all: install-dev install-vllm install-second
	HF_HUB_OFFLINE=1 PCLR_VLLM=$(abspath $(VLLM))/bin/python \
	  PCLR_SECOND=$(abspath $(SECOND))/bin/python $(BIN)/python tests/run_lanes.py --all

drill: install-dev
	HF_HUB_OFFLINE=1 $(BIN)/python tests/drill $(if $(TABLE),--table,$(COUNT))

install: $(STAMPS)/package

install-dev: $(STAMPS)/package $(STAMPS)/dev

install-vllm: $(VLLM)/.installed

install-second: $(SECOND)/.installed

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

# A stamp per pair: another pair replaces the installed one.
$(BASE): $(HASHED)/base.txt $(HASHED)/$(notdir $(PAIR)) $(STAMPS)/torch
	$(PIP) install $(WITH_HASHES) -r $(HASHED)/base.txt -r $(HASHED)/$(notdir $(PAIR))
	$(PIP) check
	rm -f $(STAMPS)/base-*
	touch $@

$(STAMPS)/package: setup.cfg pyproject.toml $(BASE)
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

$(STAMPS)/dev: $(HASHED)/dev.txt $(HASHED)/extras.txt $(BASE)
	$(PIP) install $(WITH_HASHES) -r $(HASHED)/dev.txt -r $(HASHED)/extras.txt
	$(PIP) check
	touch $@

# An environment of its own, as it brings another transformers; nothing but what is pinned.
$(VLLM)/.installed: requirements/torch.txt $(HASHED)/vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip --disable-pip-version-check install --no-deps \
	  $(addprefix --extra-index-url ,$(TORCH_INDEX)) -r requirements/torch.txt
	$(VLLM)/bin/python -m pip --disable-pip-version-check install $(WITH_HASHES) \
	  -r $(HASHED)/vllm.txt
	touch $@

# The second pair of MindSpore and MindFormers, in an environment of its own.
$(SECOND)/.installed: setup.cfg requirements/torch.txt $(HASHED)/base.txt $(HASHED)/mindspore_2_9.txt
	$(PYTHON) -m venv $(SECOND)
	$(SECOND)/bin/python -m pip --disable-pip-version-check install \
	  $(addprefix --extra-index-url ,$(TORCH_INDEX)) -c requirements/base.txt -r requirements/torch.txt
	$(SECOND)/bin/python -m pip --disable-pip-version-check install $(WITH_HASHES) \
	  -r $(HASHED)/base.txt -r $(HASHED)/mindspore_2_9.txt
	$(SECOND)/bin/python -m pip --disable-pip-version-check install --no-deps --no-build-isolation -e .
	touch $@

# After a change of a version. torch has no hashes: TORCH_INDEX may serve another build of it.
hashes: $(STAMPS)/dev
	mkdir -p $(HASHED)
	for list in $(LISTS); do $(BIN)/uv pip compile --quiet --no-deps --generate-hashes \
	  --python-version 3.11.7 --no-header --no-annotate requirements/$$list.txt \
	  -o $(HASHED)/$$list.txt || exit 1; done

clean:
	rm -rf $(VENV) $(VLLM) $(SECOND) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
