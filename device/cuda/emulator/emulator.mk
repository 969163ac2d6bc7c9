# The emulated GPU: a libcuda.so.1 that runs the kernels on the host's processors. Include it after cuda.mk. It has the modules that
# kernels/build.sh lists, each a shared object of its own.
EMULATOR     := $(CURDIR)/build/emulator
EMULATOR_DIR := device/cuda/emulator
EMULATOR_CXX  = $(CLANG) -x c++ -std=c++17 -O2 -g1 -fPIC -fvisibility=hidden -Wall -Werror

# Kernels: shared variables are thread-local ones, whose addresses the emulator gives (-femulated-tls); accesses that are not aligned trap.
EMULATOR_KERNEL = $(EMULATOR_CXX) -DEMULATED -I$(EMULATOR_DIR)/lib -Ikernels -femulated-tls -fno-exceptions -fno-strict-aliasing \
	-fsanitize=alignment -fsanitize-trap=alignment -Wno-unknown-pragmas -Wno-pass-failed -MMD -MP

EMULATOR_LIB := $(patsubst $(EMULATOR_DIR)/lib/%.cc,$(EMULATOR)/lib/%.o,$(wildcard $(EMULATOR_DIR)/lib/*.cc)) $(EMULATOR)/lib/fiber.o

.PHONY: emulator
emulator: # build/emulator/libcuda.so.1 and its modules
	@mkdir -p $(EMULATOR)/lib $(EMULATOR)/modules
	@{ kernels/build.sh list; echo tests ../$(EMULATOR_DIR)/lib/tests; } | \
	while read -r module source macros; do \
		printf 'EMULATOR_MODULES += %s\n$$(EMULATOR)/modules/%s.o: kernels/%s.cu\n\t@echo emulator: %s; $$(EMULATOR_KERNEL) %s -c -o $$@ $$<\n' \
			"$$module" "$$module" "$$source" "$$module" "$$macros"; \
	done >$(EMULATOR)/modules.mk.new
	@cmp -s $(EMULATOR)/modules.mk.new $(EMULATOR)/modules.mk || mv $(EMULATOR)/modules.mk.new $(EMULATOR)/modules.mk
	@$(MAKE) --no-print-directory -j2 emulator-built

-include $(EMULATOR)/modules.mk $(wildcard $(EMULATOR)/modules/*.d $(EMULATOR)/lib/*.d)

.PHONY: emulator-built
emulator-built: $(EMULATOR)/modules.txt $(EMULATOR_MODULES:%=$(EMULATOR)/modules/%.so)

$(EMULATOR)/modules.txt: $(wildcard kernels/ptx/*.zst)
	go run ./$(EMULATOR_DIR)/modules kernels/ptx >$@.new && mv $@.new $@

$(EMULATOR)/lib/%.o: $(EMULATOR_DIR)/lib/%.cc
	@$(EMULATOR_CXX) -MMD -MP -Wextra -Idevice/cuda/driver/include -c -o $@ $<

$(EMULATOR)/lib/%.o: $(EMULATOR_DIR)/lib/%.S
	@$(CLANG) -c -o $@ $<

$(EMULATOR)/libcuda.so.1: $(EMULATOR_LIB)
	@$(CLANG) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -o $@ $^ -lstdc++ -lpthread -ldl

$(EMULATOR)/modules/%.so: $(EMULATOR)/modules/%.o $(EMULATOR)/lib/dynamic.o | $(EMULATOR)/libcuda.so.1
	@$(CLANG) -shared -Wl,-z,defs -o $@ $^ $(EMULATOR)/libcuda.so.1
.SECONDARY: $(EMULATOR)/lib/dynamic.o

EMULATED_PACKAGES ?= ./device/cuda/... ./kernels ./transfer
EMULATED_FLAGS    ?= -short
# Tests of packages that others do without a GPU, by name.
EMULATED_BESIDE   ?= ./cache
EMULATED_NAMES    ?= GPU|Cuda|CUDA|GatherDevice
EMULATED_TEST      = $(CUDA_ENV) LD_LIBRARY_PATH=$(EMULATOR) TENSORCACHE_REQUIRE_GPU=1 \
	$(GO) test -vet=off $(CUDA_TAGS),invariants -timeout 15m $(EMULATED_FLAGS)

.PHONY: test-emulated
test-emulated: emulator $(CUDA_STUB) # the GPU's tests on the emulated GPU
	$(EMULATED_TEST) $(EMULATED_PACKAGES)
	@if [ "$(origin EMULATED_PACKAGES)" = file ]; then set -x; $(EMULATED_TEST) -run '$(EMULATED_NAMES)' $(EMULATED_BESIDE); fi
