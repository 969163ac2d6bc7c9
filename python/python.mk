# The Python package: its wheel, and its tests. Include it after capi/capi.mk.
#
#   make wheel                dist/tensorcache-*-py3-none-manylinux_*.whl, for this machine
#   make wheel GOARCH=arm64   the same for ARM64, cross-compiled
#   make test-python          its tests, in a virtual environment at build/venv: with torch if that is installed there
#   make test-torch-oldest    those of torch, with the oldest release that the extension in C++ serves: a download of gigabytes, once

PYTHON       ?= python3
VENV         := build/venv
VENV_PYTHON   = $(abspath $(VENV))/bin/python
WHEEL_STAGE  := build/wheel
WHEEL_ARCH    = $(if $(filter arm64,$(GOARCH)),aarch64,x86_64)
WHEEL_PLAT    = manylinux_$(subst .,_,$(CAPI_GLIBC))_$(WHEEL_ARCH)
CUBINS_MADE   = $(wildcard kernels/cubin/sm_*)
PIP           = $(VENV_PYTHON) -m pip --disable-pip-version-check -q

# The environment is made anew when the requirements change; torch in it stays.
$(VENV)/.requirements: python/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -r python/requirements.txt
	@cp python/requirements.txt $@

$(VENV)/.requirements-test: python/requirements-test.txt $(VENV)/.requirements
	$(PIP) install -r python/requirements-test.txt
	@cp python/requirements-test.txt $@

.PHONY: wheel test-python venv-torch
wheel: capi $(VENV)/.requirements ## the Python wheel, at dist/
	rm -rf $(WHEEL_STAGE) dist/tensorcache-*$(WHEEL_ARCH).whl && mkdir -p $(WHEEL_STAGE) dist
	cp -r python/tensorcache python/pyproject.toml python/setup.py python/README.md LICENSE $(CAPI_OUT)/THIRD_PARTY_LICENSES $(WHEEL_STAGE)/
	cp $(CAPI_OUT)/libtensorcache.so $(CAPI_OUT)/libtensorcache_torch.so $(WHEEL_STAGE)/tensorcache/
	$(PIP) wheel --no-deps --no-build-isolation --config-settings=--build-option=--plat-name=$(WHEEL_PLAT) $(if $(WHEEL_BUILD),--config-settings=--build-option=--build-number=$(WHEEL_BUILD)) --wheel-dir dist $(WHEEL_STAGE)
	@# auditwheel reads which glibc the library needs: it must be no newer than the tag says.
	@$(VENV_PYTHON) -m auditwheel show dist/tensorcache-*$(WHEEL_ARCH).whl | tr '\n' ' ' | grep -q 'constrains the platform tag to.*$(WHEEL_PLAT)\|is consistent with.*$(WHEEL_PLAT)' || \
		{ $(VENV_PYTHON) -m auditwheel show dist/tensorcache-*$(WHEEL_ARCH).whl; echo "wheel: not $(WHEEL_PLAT)" >&2; exit 1; }
	@# docs/python.md says how large the wheel of x86-64 is, without machine code of the kernels and with all of it (make cubins): within a tenth.
	@[ $(WHEEL_ARCH) != x86_64 ] || [ -z "$(filter 0 $(words $(CUBINS)),$(words $(CUBINS_MADE)))" ] || du -b dist/tensorcache-*$(WHEEL_ARCH).whl | awk -v said="$$(sed -n 's/.*`dist\/tensorcache-\*.whl` (\([0-9]*\) MB, \([0-9]*\) MB with .*/\$(if $(CUBINS_MADE),2,1)/p' docs/python.md)" \
		'{ printf "%.1f MB %s\n", $$1 / 1e6, $$2; if (said == "" || $$1 / 1e6 > said * 1.1 || $$1 / 1e6 < said * 0.9) { print "wheel: docs/python.md must say how large it is, not \"" said "\" MB" >"/dev/stderr"; exit 1 } }'

# What is tested is the wheel, installed: on the host backend, then on the emulated GPU, or the real one.
test-python: wheel service $(VENV)/.requirements-test $(if $(wildcard /dev/nvidia0),,emulator) ## tests of the Python package; those of torch skip without it (make venv-torch)
	$(PIP) install --force-reinstall --no-deps dist/tensorcache-*$(WHEEL_ARCH).whl
	cd python && $(VENV_PYTHON) -m mypy
	@# Not in python/, where the package would be imported from, without its library.
	cd python/tests && TENSORCACHED=$(CURDIR)/build/tensorcached $(VENV_PYTHON) -m pytest -rs -k 'not cuda'
	cd python/tests && LD_LIBRARY_PATH=$(if $(wildcard /dev/nvidia0),,$(CURDIR)/$(EMULATOR)) TENSORCACHED=$(CURDIR)/build/tensorcached TENSORCACHE_REQUIRE_GPU=1 $(VENV_PYTHON) -m pytest -k cuda

venv-torch: $(VENV)/.requirements # torch and torch-geometric for the tests: a download of gigabytes, once
	@# Without bytecode, which takes a processor minutes for all: Python writes that of what it imports.
	$(PIP) install --no-compile -r python/requirements-torch.txt

TORCH_OLDEST := 2.10.0
OLDEST_VENV  := build/venv-torch-$(TORCH_OLDEST)
OLDEST_PYTHON = $(abspath $(OLDEST_VENV))/bin/python

$(OLDEST_VENV)/.made: python/requirements.txt
	$(PYTHON) -m venv $(OLDEST_VENV)
	$(OLDEST_PYTHON) -m pip --disable-pip-version-check -q install --no-compile torch==$(TORCH_OLDEST) $(shell grep -E '^(numpy|pytest)=' python/requirements.txt)
	@touch $@

.PHONY: test-torch-oldest
test-torch-oldest: wheel $(OLDEST_VENV)/.made # the tests with torch, on the host
	$(OLDEST_PYTHON) -m pip --disable-pip-version-check -q install --force-reinstall --no-deps dist/tensorcache-*$(WHEEL_ARCH).whl
	cd python/tests && $(OLDEST_PYTHON) -m pytest -rs -k 'not cuda' test_torch.py test_tracers.py test_embedding_bag.py test_nn.py test_examples.py
