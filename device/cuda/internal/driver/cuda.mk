# The CUDA build: make's variables for -tags cuda. It needs a C compiler and no CUDA toolkit. Include it in the top
# Makefile, whose folder is the module's root.
#
#   go build $(CUDA_TAGS) with $(CUDA_ENV) in the environment, after the target $(CUDA_STUB)
#
# Where there is no C compiler, or the target is no linux/amd64 or linux/arm64, all of these are empty and the build is
# pure Go. To cross-compile: make GOARCH=arm64 CC=aarch64-linux-gnu-gcc.

ifeq ($(origin CC),default)
CC := gcc
endif
GOOS   ?= $(shell go env GOOS)
GOARCH ?= $(shell go env GOARCH)

CUDA_DIR      := $(CURDIR)/device/cuda/internal/driver
CUDA_PLATFORM := $(GOOS)_$(GOARCH)

ifneq ($(filter linux_amd64 linux_arm64,$(CUDA_PLATFORM)),)
ifneq ($(shell command -v $(CC) 2>/dev/null),)
# Go does not see when headers or archives outside a package change, so the folder's name says what they were.
CUDA_STAMP := $(firstword $(shell cat $(CUDA_DIR)/include/*.h $(CUDA_DIR)/stub/*.[cSh] | cksum))
CUDA_BUILD := $(CURDIR)/build/cuda/$(CUDA_PLATFORM)-$(CUDA_STAMP)
CUDA_STUB  := $(CUDA_BUILD)/libcuda.a
CUDA_TAGS  := -tags cuda
CUDA_CGO   := CGO_CFLAGS="-g -O2 -I$(CUDA_DIR)/include" CGO_LDFLAGS="-L$(CUDA_BUILD) -lcuda -ldl -lpthread"
CUDA_ENV   := CGO_ENABLED=1 CC=$(CC) GOOS=$(GOOS) GOARCH=$(GOARCH) $(CUDA_CGO)
endif
endif

ifneq ($(CUDA_STUB),)
CUDA_CFLAGS := -O2 -fPIC -Wall -Wextra -I$(CUDA_DIR)/include

$(CUDA_BUILD)/loader.o: $(CUDA_DIR)/stub/loader.c $(CUDA_DIR)/stub/symbols.h $(wildcard $(CUDA_DIR)/include/*.h)
	@mkdir -p $(@D)
	$(CC) $(CUDA_CFLAGS) -c -o $@ $<

$(CUDA_BUILD)/stubs.o: $(CUDA_DIR)/stub/stubs.S $(CUDA_DIR)/stub/symbols.h
	@mkdir -p $(@D)
	$(CC) $(CUDA_CFLAGS) -c -o $@ $<

# ar belongs to the compiler: a cross compiler names its own.
$(CUDA_STUB): $(CUDA_BUILD)/loader.o $(CUDA_BUILD)/stubs.o
	rm -f $@
	"$$($(CC) -print-prog-name=ar)" rcs $@ $^
endif
