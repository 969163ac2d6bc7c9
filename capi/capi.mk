# The C library: build/libtensorcache.so, tensorcache.h, tensorcache.hpp and THIRD_PARTY_LICENSES, and the operators for torch: build/libtensorcache_torch.so and
# tensorcache_torch.h. Include it after cuda.mk.
#
# It has the CUDA backend in it, needs no CUDA toolkit to be built, and no driver to be loaded. It is compiled by zig's C compiler, which
# can link for an old glibc on a new system: zig is taken from the Python package index, once. Where that fails, $(CC) is used, and the library
# needs the glibc of this machine.
#
#   make capi                 build/libtensorcache.so, for this machine
#   make capi GOARCH=arm64    build/linux_arm64/libtensorcache.so

ZIG_VERSION := 0.17.1
CAPI_GLIBC  := 2.17

CAPI_OUT    := build$(if $(filter $(shell go env GOHOSTARCH),$(GOARCH)),,/linux_$(GOARCH))
CAPI_ZIG    := $(CURDIR)/build/zig-$(ZIG_VERSION)
CAPI_CC     := $(CAPI_ZIG)/cc-$(GOARCH)
CAPI_TARGET := $(if $(filter arm64,$(GOARCH)),aarch64,x86_64)-linux-gnu.$(CAPI_GLIBC)
# The stub of the driver, compiled likewise.
CAPI_CUDA   := $(CURDIR)/build/capi/$(CUDA_PLATFORM)-$(CUDA_STAMP)
# liburing's static library and headers, where this machine has them for the target: it needs next to nothing of glibc, so it fits every glibc.
CAPI_URING   = $(if $(filter $(shell go env GOHOSTARCH),$(GOARCH)),$(URING))
CAPI_URING_AT = $(CURDIR)/build/capi/uring
CAPI_ENV     = CGO_ENABLED=1 GOOS=linux GOARCH=$(GOARCH) CC=$(CAPI_CC) CGO_CFLAGS="-O2 -I$(CUDA_DIR)/include -I$(CAPI_URING_AT)" \
	CGO_LDFLAGS="-L$(CAPI_CUDA) -L$(CAPI_URING_AT) -lcuda -ldl -lpthread"
# netgo, osusergo: no function of glibc that loads other libraries.
CAPI_TAGS    = cuda,netgo,osusergo$(if $(CAPI_URING),$(comma)liburing)
CAPI_BUILD   = $(GO) build -trimpath -tags $(CAPI_TAGS) -buildmode=c-shared \
	-ldflags='-s -w -buildid= -extldflags "-Wl,--version-script=$(CURDIR)/capi/exports.map -Wl,-soname,libtensorcache.so"'

.PHONY: capi
capi: $(CAPI_CC) ## the C library, at build/libtensorcache.so
	@$(MAKE) --no-print-directory CC=$(CAPI_CC) CUDA_BUILD=$(CAPI_CUDA) $(CAPI_CUDA)/libcuda.a
	@mkdir -p $(CAPI_OUT)
	@# By themselves: the folders of the system that they come from have another glibc.
	@$(if $(CAPI_URING),mkdir -p $(CAPI_URING_AT) && cp -r /usr/include/liburing.h /usr/include/liburing $(shell gcc -print-file-name=liburing.a) $(CAPI_URING_AT)/)
	$(CAPI_ENV) $(CAPI_BUILD) -o $(CAPI_OUT)/libtensorcache.so.new ./capi
	@rm -f $(CAPI_OUT)/libtensorcache.so.h $(CAPI_OUT)/libtensorcache.h
	mv $(CAPI_OUT)/libtensorcache.so.new $(CAPI_OUT)/libtensorcache.so
	cp capi/tensorcache.h capi/tensorcache.hpp $(CAPI_OUT)/
	@# Of liburing, and of the Go modules in the library.
	$(CAPI_ENV) capi/licenses.sh $(CAPI_TAGS) ./capi >$(CAPI_OUT)/THIRD_PARTY_LICENSES.new
	mv $(CAPI_OUT)/THIRD_PARTY_LICENSES.new $(CAPI_OUT)/THIRD_PARTY_LICENSES
	@$(MAKE) --no-print-directory capi-torch

# A compiler for the target, which leaves out the system's folders that gorgonia.org/cu names: what is there is for another glibc. It leaves out library folders that
# are missing, too, of each of which zig warns.
$(CAPI_CC): capi/capi.mk
	@mkdir -p $(CAPI_ZIG)
	@if [ -x $(CAPI_ZIG)/ziglang/zig ] || python3 -m pip install -q --disable-pip-version-check --no-deps --target $(CAPI_ZIG) ziglang==$(ZIG_VERSION); then \
		compiler='$(CAPI_ZIG)/ziglang/zig cc -target $(CAPI_TARGET)'; \
	else \
		echo "capi: zig $(ZIG_VERSION) cannot be installed: the library will need this machine's glibc" >&2; compiler='$(CC)'; \
	fi; \
	printf '%s\n' '#!/bin/bash' 'args=()' \
		'for a in "$$@"; do case "$$a" in -I/usr/*|-I/opt/*|-L/usr/*|-L/opt/*) ;; -L?*) [ ! -d "$${a#-L}" ] || args+=("$$a") ;; *) args+=("$$a") ;; esac; done' \
		'case "$$*" in -print-prog-name=*) echo "$${1#*=}"; exit;; esac' \
		"exec $$compiler \"\$${args[@]}\"" >$@.new
	@chmod +x $@.new && mv $@.new $@

# The operators for torch, at build/libtensorcache_torch.so. It is compiled without torch and without Python (capi/torch/shim.h), and linked to a stand-in of libtorch.so, so
# that the loader looks its symbols up in what the program has loaded.
CAPI_TORCH   = $(CAPI_OUT)/capi-torch
TORCH_PARTS := operators tables reader
TORCH_FLAGS := -x c++ -std=c++17 -O2 -fPIC -fno-exceptions -fno-rtti -fvisibility=hidden -Wall -Wextra -Werror -Wno-parentheses -Icapi

.PHONY: capi-torch
capi-torch: $(CAPI_OUT)/libtensorcache_torch.so
$(CAPI_OUT)/libtensorcache_torch.so: $(TORCH_PARTS:%=$(CAPI_TORCH)/%.o)
	echo | $(CAPI_CC) -x c - -shared -Wl,-soname,libtorch.so -o $(CAPI_TORCH)/libtorch.so
	$(CAPI_CC) -shared -s -Wl,-soname,libtensorcache_torch.so -L$(CAPI_TORCH) -Wl,--no-as-needed -ltorch -ldl $^ -o $@
	cp capi/torch/tensorcache_torch.h $(CAPI_OUT)/

# Two steps: zig 0.17.1 does not link what it compiles as C++ for an old glibc.
$(CAPI_TORCH)/%.o: capi/torch/%.cc capi/torch/shim.h capi/torch/tables.h capi/torch/tensorcache_torch.h capi/tensorcache.h | $(CAPI_CC)
	@mkdir -p $(CAPI_TORCH)
	$(CAPI_CC) $(TORCH_FLAGS) -c $< -o $@

.PHONY: test-capi
test-capi: capi emulator $(CUDA_STUB) # the library of make capi, on the host and on the emulated GPU
	$(TEST_ENV) TENSORCACHE_LIBRARY=build/libtensorcache.so LD_LIBRARY_PATH=$(CURDIR)/$(EMULATOR) TENSORCACHE_REQUIRE_GPU=1 \
		$(GO) test -vet=off -short $(CUDA_TAGS),invariants -timeout 15m ./capi
