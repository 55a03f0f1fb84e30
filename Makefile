# make demo   set up, migrate an example repository, show the diff, run the result
# make test   set up, run all tests, ruff and mypy
#
# The smoke checks run the real torch and torch_npu. torch_npu does not live with a CUDA build of torch, which
# is what pip takes on x86-64 Linux; name PyTorch's index of CPU wheels there (see README):
#   make test TORCH_INDEX=<the CPU index that pytorch.org's "Get started" page shows>
# Without a torch that fits, everything but the smoke checks works, and their tests are skipped.

PYTHON ?= python3
VENV   ?= .venv
TORCH_INDEX ?=

BIN   := $(VENV)/bin
TORCH := torch==2.13.0
NPU   := torch-npu==2.13.0 numpy pyyaml
INDEX := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)

.PHONY: install demo test check docs clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "npu-migrate needs Python 3.10 or newer; name one with PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@$(BIN)/python -c 'import sys; sys.exit(not sys.platform.startswith("linux"))' \
	  && { $(BIN)/python -m pip install --quiet --disable-pip-version-check $(INDEX) '$(TORCH)' \
	       && $(BIN)/python -m pip install --quiet --disable-pip-version-check $(NPU); } \
	  || echo 'torch and torch_npu were not installed: the smoke checks will be skipped'
	@$(BIN)/python -m migrator.emulator --doctor || echo 'the smoke checks will be skipped for the reason above'
	touch $@

demo: install
	@sh fixtures/demo.sh $(BIN)

test: install
	$(BIN)/python -m pytest
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: install
	$(BIN)/python -m migrator.catalogue > docs/rules.md

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
