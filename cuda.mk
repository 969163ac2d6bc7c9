# The CUDA build and the GPU's evidence. Include it in the top Makefile, whose folder is the module's root. GPU tests run
# where there is a GPU; elsewhere "make gpu-bundle" packs them for a host that has one and no Go.
include device/cuda/internal/driver/cuda.mk
include device/cuda/emulator/emulator.mk

# Kernels are compiled by this clang and no other, so that the committed PTX can be checked.
CLANG         ?= clang-19
CLANG_VERSION := 19.1.7
GPU_BUNDLE    := build/gpu
# Packages that a record of GPU tests must cover, and their names there.
GPU_PACKAGES  := kernels transfer cache serve device/cuda bench/drive cmd/tensorcached
GPU_COVERED    = $(subst /,_,$(GPU_PACKAGES)) python capi
GPU_COMMIT     = github.com/tensorcache/tensorcache/internal/version.commit=$$(git describe --always --dirty --abbrev=12)
GPU_RECORD    := docs/results/gpu-test.json
GPU_OWED      := docs/results/gpu-owed.json

# Empty, "make gpu-figures" takes figures that lack cases, and docs/performance.md has to say why.
GPU_WHOLE     ?= --whole
GPU_RESULTS   ?= $(GPU_BUNDLE)/results
GPU_BAGS       = $(firstword $(foreach r,$(GPU_RESULTS),$(wildcard $(r)/python-bags.json)))
# Real tables that codecs are tried on, of $(DATA).
GPU_DATA      := cora.npz reddit.npz ncf_user.npy wikitext2_tokens.npy

.PHONY: cuda-stub cuda-env kernels check-kernels gpu-bundle gpu-pack gpu-test gpu-bench gpu-collect gpu-figures gpu-docs check-gpu-record gpu-owed
cuda-stub: $(CUDA_STUB)

cuda-env: $(CUDA_STUB) ## prints the cgo variables that a program of your own needs for -tags cuda
	@test -n "$(CUDA_STUB)" || { echo "cuda-env: needs a C compiler and linux/amd64 or linux/arm64" >&2; exit 1; }
	@echo 'export $(CUDA_CGO)'

# SHARE=8 compiles one of eight modules, and compares those.
SHARE ?= 1
kernels: # of the sources the PTX and the ABI constants, of the list of codecs the tables in Go
	@$(CLANG) --version | grep -q 'version $(CLANG_VERSION)' || { echo "kernels: $(CLANG) must be version $(CLANG_VERSION)"; exit 1; }
	cd kernels && go run ./gen && go run ./gen/codecs go && ./build.sh $(CLANG) $(SHARE)

check-kernels: kernels # says whether the committed PTX is what the sources compile to
	git diff --exit-code -- kernels/ptx internal/abi/abi.go kernels/coderlist.go kernels/entries_cuda.go codec/registry/families.go

# Machine code of the kernels for builds made afterwards: one processor takes about ten minutes for each compute capability. Code for 8.0 serves 8.6 and 8.9,
# too. ptxas is NVIDIA's, from the Python package index; code of its version runs with every driver from CUDA 12.0 on.
PTXAS_VERSION := 12.9.86
PTXAS         := build/ptxas-$(PTXAS_VERSION)/nvidia/cuda_nvcc/bin/ptxas
CUBINS        ?= 80 90 100 120
CUBIN_STAMP   := kernels/cubin/.ptxas

$(PTXAS):
	python3 -m pip install -q --disable-pip-version-check --no-deps --target build/ptxas-$(PTXAS_VERSION) nvidia-cuda-nvcc-cu12==$(PTXAS_VERSION)
	@chmod +x $@ && touch $@

.PHONY: cubins
cubins: $(PTXAS) ## machine code of the kernels, for make wheel and make build to put in: no GPU then compiles them when they are first used
	@grep -qx '$(PTXAS_VERSION)' $(CUBIN_STAMP) 2>/dev/null || rm -rf kernels/cubin/sm_*
	@echo '$(PTXAS_VERSION)' >$(CUBIN_STAMP)
	go run ./kernels/gen/cubins $(PTXAS) kernels/ptx kernels/cubin $(CUBINS)

gpu-bundle: $(CUDA_STUB)
	@test -n "$(CUDA_STUB)" || { echo "gpu-bundle: needs a C compiler and linux/amd64 or linux/arm64"; exit 1; }
	rm -rf $(GPU_BUNDLE) && mkdir -p $(GPU_BUNDLE)
	for p in $(GPU_PACKAGES); do \
		$(CUDA_ENV) go test -c -trimpath $(CUDA_TAGS) -ldflags='-s -w' -o $(GPU_BUNDLE)/$$(echo $$p | tr / _).test ./$$p || exit 1; \
	done
	$(CUDA_ENV) go build -trimpath $(COMMAND_TAGS) -ldflags="-s -w -X $(GPU_COMMIT)" -o $(GPU_BUNDLE)/ ./cmd/cachebench ./cmd/tensorcached ./bench/gpu/gpurecord
	go run ./bench/gpu/gpurecord sources > $(GPU_BUNDLE)/sources.json
	cp bench/gpu/run.sh $(GPU_BUNDLE)/run.sh
	$(MAKE) --no-print-directory gpu-python gpu-capi
	mkdir $(GPU_BUNDLE)/data && for f in $(GPU_DATA); do [ ! -e $(DATA)/$$f ] || cp $(DATA)/$$f $(GPU_BUNDLE)/data/; done
	@du -sm $(GPU_BUNDLE)

# Rewrites a wheel without compression, so that gpu-pack finds what its library has in common with the other binaries.
define STORED
import os, sys, zipfile
path = sys.argv[1]
with zipfile.ZipFile(path) as old, zipfile.ZipFile(path + "~", "w") as new:
    for entry in old.infolist():
        data = old.read(entry)
        entry.compress_type = zipfile.ZIP_STORED
        new.writestr(entry, data)
os.replace(path + "~", path)
endef
export STORED

# The Python package, its tests and what runs them. Without a network the bundle is made without it.
.PHONY: gpu-python
gpu-python:
	@rm -rf $(GPU_BUNDLE)/python && mkdir $(GPU_BUNDLE)/python && \
	{ $(MAKE) --no-print-directory wheel && $(PIP) download -d $(GPU_BUNDLE)/python pytest iniconfig pluggy packaging pygments -c python/requirements.txt --no-deps && \
	  cp dist/tensorcache-*$(WHEEL_ARCH).whl $(GPU_BUNDLE)/python/ && python3 -c "$$STORED" $(GPU_BUNDLE)/python/tensorcache-*.whl && cp -r python/tests python/examples python/benchmarks $(GPU_BUNDLE)/python/ && \
	  mkdir -p $(GPU_BUNDLE)/bench/workload && cp -r bench/workload/testdata $(GPU_BUNDLE)/bench/workload/ && \
	  git describe --always --dirty --abbrev=12 >$(GPU_BUNDLE)/python/commit; } || \
	{ rm -r $(GPU_BUNDLE)/python; echo "gpu-bundle: no Python package in it"; }

# The C library, the program that checks it, and the test that runs this.
.PHONY: gpu-capi
gpu-capi: capi $(CUDA_STUB)
	@rm -rf $(GPU_BUNDLE)/capi && mkdir -p $(GPU_BUNDLE)/capi && cp $(CAPI_OUT)/libtensorcache.so $(GPU_BUNDLE)/capi/
	$(CAPI_CC) -O1 -Icapi -I$(CUDA_DIR)/include -o $(GPU_BUNDLE)/capi/check $(filter-out %/load.c,$(wildcard capi/testdata/*.c)) \
		-L$(GPU_BUNDLE)/capi -ltensorcache -ldl -lpthread -Wl,-rpath,'$$ORIGIN'
	$(CUDA_ENV) go test -c -trimpath $(CUDA_TAGS) -ldflags='-s -w' -o $(GPU_BUNDLE)/capi/capi.test ./capi

# The bundle in one file, for a host that it has to travel to: the binaries share most of what is in them, which a window over all of
# them finds. Python's tarfile unpacks it where there is no xz.
gpu-pack: gpu-bundle
	tar -C $(dir $(GPU_BUNDLE)) --sort=name --owner=0 --group=0 -cf - $(notdir $(GPU_BUNDLE)) | xz -T1 --lzma2=preset=6,dict=512MiB >$(GPU_BUNDLE).tar.xz
	@du -m $(GPU_BUNDLE).tar.xz

gpu-test: gpu-bundle # runs the bundle here and keeps its record
	cd $(GPU_BUNDLE) && { ./run.sh test; ./run.sh python; ./run.sh sanitize; grep -q '"gpus":1}' results/machine.json || ./run.sh pair; true; }
	$(MAKE) --no-print-directory gpu-collect

gpu-bench: gpu-bundle
	cd $(GPU_BUNDLE) && ./run.sh bench
	$(MAKE) --no-print-directory gpu-figures

# Merges the figures of such folders into docs/results/gpu-bench.json. Nothing is replaced by less than a whole run.
gpu-figures:
	go run ./cmd/cachebench gpu-bench $(foreach r,$(GPU_RESULTS),$(patsubst %,--from %,$(wildcard $(r)/bench-*.json))) $(GPU_WHOLE) --json >build/gpu-bench.json
	cp build/gpu-bench.json docs/results/gpu-bench.json
	$(MAKE) --no-print-directory gpu-docs

# Keeps what ./run.sh bench drive tiers has measured, for docs/tiers.md.
.PHONY: gpu-drive
gpu-drive:
	cp $(foreach r,$(GPU_RESULTS),$(wildcard $(r)/drive-*.json $(r)/tiers-*.json)) docs/results/

# Keeps what ./run.sh python has measured of summed bags beside torch, the first of several such folders, for docs/performance.md.
.PHONY: gpu-bags
gpu-bags:
	@test -n "$(GPU_BAGS)" || { echo "gpu-bags: no python-bags.json in $(GPU_RESULTS)" >&2; exit 1; }
	cp $(GPU_BAGS) docs/results/embedding-bag.json
	$(MAKE) --no-print-directory gpu-docs

# Makes the record of the folders of results that one bundle left on one machine or several. A record with failures or gaps stays in
# build/gpu-test.json.
gpu-collect:
	@mkdir -p build $(dir $(GPU_RECORD))
	go run ./bench/gpu/gpurecord collect -packages "$(GPU_COVERED)" -out build/gpu-test.json $(GPU_RESULTS)
	cp build/gpu-test.json $(GPU_RECORD) && rm -f $(GPU_OWED)

# Renews what is made from the committed figures: docs/results/gpu-bench.md, training-loop.md and their plots, the marked blocks of docs/performance.md and
# README.md, and the codecs' rates in codec/gpurates.go.
gpu-docs:
	go test ./cmd/cachebench -run '^TestGPUBench_Rates$$' -update
	go test ./bench/report -run '^(TestGPUDocs|TestTrainingLoop_Docs)$$' -update
	go test ./cmd/cachebench -run '^TestDemo_README$$' -update

check-gpu-record: # says whether the committed record is of the committed code, or what is owed
	go run ./bench/gpu/gpurecord check -packages "$(GPU_COVERED)" -owed $(GPU_OWED) $(GPU_RECORD)

# Where there is no GPU: notes that the code has changed since the record. make gpu-owed WHY="what changed"
gpu-owed:
	go run ./bench/gpu/gpurecord owe -owed $(GPU_OWED) -added "$$(git diff --name-only --diff-filter=A $$(git log -1 --format=%h -- $(GPU_RECORD)) | tr '\n' ' ')" $(GPU_RECORD) "$(WHY)"
