# The CUDA build. Include it in the top Makefile, whose folder is the module's root.
include device/cuda/internal/driver/cuda.mk
include device/cuda/emulator/emulator.mk

# Kernels are compiled by this clang and no other, so that the committed PTX can be checked.
CLANG         ?= clang-19
CLANG_VERSION := 19.1.7
GPU_COMMIT     = github.com/tensorcache/tensorcache/internal/version.commit=$$(git describe --always --dirty --abbrev=12)

.PHONY: cuda-stub cuda-env kernels check-kernels
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
