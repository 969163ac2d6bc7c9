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
