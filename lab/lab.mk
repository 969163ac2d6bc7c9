# What measures GPUs, and the record of GPU tests: module lab. Include it in the top Makefile, after cuda.mk. GPU tests run where there is a GPU; elsewhere
# "make gpu-bundle" packs them for a host that has one and no Go.
GPU_BUNDLE    := build/gpu
# Packages that a record of GPU tests must cover, and their names there.
GPU_PACKAGES  := kernels transfer cache serve device/cuda cmd/tensorcached
GPU_COVERED    = $(subst /,_,$(GPU_PACKAGES)) python capi
# Packages of lab whose tests need a GPU, too.
LAB_PACKAGES  := drive
LAB            = $(GO) -C lab run .
GPU_RECORD    := docs/results/gpu-test.json
GPU_OWED      := docs/results/gpu-owed.json

# Empty, "make gpu-figures" takes figures that lack cases, and docs/performance.md has to say why.
GPU_WHOLE     ?= --whole
GPU_RESULTS   ?= $(GPU_BUNDLE)/results
GPU_BAGS       = $(firstword $(foreach r,$(GPU_RESULTS),$(wildcard $(r)/python-bags.json)))
# Real tables that codecs are tried on, of $(DATA).
GPU_DATA      := cora.npz reddit.npz ncf_user.npy wikitext2_tokens.npy

.PHONY: gpu-bundle gpu-pack gpu-test gpu-bench gpu-collect gpu-figures gpu-docs check-gpu-record gpu-owed

gpu-bundle: $(CUDA_STUB)
	@test -n "$(CUDA_STUB)" || { echo "gpu-bundle: needs a C compiler and linux/amd64 or linux/arm64"; exit 1; }
	rm -rf $(GPU_BUNDLE) && mkdir -p $(GPU_BUNDLE)
	for p in $(GPU_PACKAGES); do \
		$(CUDA_ENV) go test -c -trimpath $(CUDA_TAGS) -ldflags='-s -w' -o $(GPU_BUNDLE)/$$(echo $$p | tr / _).test ./$$p || exit 1; \
	done
	for p in $(LAB_PACKAGES); do \
		$(CUDA_ENV) go -C lab test -c -trimpath $(CUDA_TAGS) -ldflags='-s -w' -o ../$(GPU_BUNDLE)/lab_$$p.test ./$$p || exit 1; \
	done
	$(CUDA_ENV) go build -trimpath $(COMMAND_TAGS) -ldflags="-s -w -X $(GPU_COMMIT)" -o $(GPU_BUNDLE)/ ./cmd/cachebench ./cmd/tensorcached
	$(CUDA_ENV) go -C lab build -trimpath $(COMMAND_TAGS) -ldflags="-s -w -X $(GPU_COMMIT)" -o ../$(GPU_BUNDLE)/lab/lab .
	CGO_ENABLED=0 GOOS=$(GOOS) GOARCH=$(GOARCH) go build -trimpath -ldflags='-s -w' -o $(GPU_BUNDLE)/ cmd/test2json
	$(LAB) sources --root $(CURDIR) >$(GPU_BUNDLE)/sources.json
	cp lab/run.sh $(GPU_BUNDLE)/run.sh
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
	  cp dist/tensorcache-*$(WHEEL_ARCH).whl $(GPU_BUNDLE)/python/ && python3 -c "$$STORED" $(GPU_BUNDLE)/python/tensorcache-*.whl && cp -r python/tests python/examples $(GPU_BUNDLE)/python/ && cp -r lab/python $(GPU_BUNDLE)/lab/ && \
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
gpu-pack: gpu-bundle ## the tests and benchmarks for a GPU machine without Go, in one file: build/gpu.tar.xz (docs/gpu.md)
	tar -C $(dir $(GPU_BUNDLE)) --sort=name --owner=0 --group=0 -cf - $(notdir $(GPU_BUNDLE)) | xz -T1 --lzma2=preset=6,dict=512MiB >$(GPU_BUNDLE).tar.xz
	@du -m $(GPU_BUNDLE).tar.xz

gpu-test: gpu-bundle # runs the bundle here and keeps its record
	cd $(GPU_BUNDLE) && { ./run.sh test; ./run.sh python; ./run.sh sanitize; grep -q '"gpus":1}' results/machine.json || ./run.sh pair; true; }
	$(MAKE) --no-print-directory gpu-collect

gpu-bench: gpu-bundle ## measures the GPU of this machine, and renews the figures
	cd $(GPU_BUNDLE) && ./run.sh bench
	$(MAKE) --no-print-directory gpu-figures

# Merges the figures of such folders into docs/results/gpu-bench.json. Nothing is replaced by less than a whole run.
gpu-figures:
	$(LAB) bench $(foreach f,$(foreach r,$(GPU_RESULTS),$(wildcard $(r)/bench-*.json)),--from $(abspath $f)) $(GPU_WHOLE) --out $(CURDIR)/docs/results/gpu-bench.json >/dev/null
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
	$(LAB) collect --packages "$(GPU_COVERED)" --out $(CURDIR)/build/gpu-test.json $(abspath $(GPU_RESULTS))
	cp build/gpu-test.json $(GPU_RECORD) && rm -f $(GPU_OWED)

# Renews what is made from the committed figures: docs/results/gpu-bench.md, training-loop.md and their plots, the marked blocks of docs/performance.md and
# README.md, and the codecs' rates in codec/gpurates.go.
gpu-docs:
	$(GO) -C lab test ./gpu -run '^(TestCodecRates|TestGPUDocs|TestTrainingLoop_Docs)$$' -update
	$(GO) test -tags long ./cmd/cachebench -run '^TestLong_DemoREADME$$' -update

check-gpu-record: # says whether the committed record is of the committed code, or what is owed
	@$(LAB) check --root $(CURDIR) --packages "$(GPU_COVERED)" --owed $(CURDIR)/$(GPU_OWED) $(CURDIR)/$(GPU_RECORD)

# Where there is no GPU: notes that the code has changed since the record. make gpu-owed WHY="what changed"
gpu-owed:
	$(LAB) owe --root $(CURDIR) --owed $(CURDIR)/$(GPU_OWED) "$(WHY)"
