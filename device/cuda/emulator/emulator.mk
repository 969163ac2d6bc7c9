# The emulated GPU: build/emulator/libcuda.so.1, which runs the kernels on the host's processors, and a shared object for each module that
# kernels/build.sh lists. Include it after cuda.mk.
#
# Copies of the sources are compiled, in build/emulator/src. A copy is renewed only if its source differs, so make can go by the ages of files even
# if the folder was built on another branch or copied from another clone.
EMULATOR     := build/emulator
EMULATOR_DIR := device/cuda/emulator
EMULATOR_SRC := $(EMULATOR)/src
EMULATOR_CXX  = $(CLANG) -x c++ -std=c++17 $(EMULATOR_DEBUG) -fPIC -fvisibility=hidden -Wall -Werror -ffile-prefix-map=$(EMULATOR_SRC)/=

# In kernels, shared variables are thread-local ones to the compiler, which calls the emulator for their addresses (-femulated-tls). Accesses that are not
# aligned trap.
EMULATOR_KERNEL = $(EMULATOR_CXX) -DEMULATED -I$(EMULATOR_SRC)/$(EMULATOR_DIR)/lib -I$(EMULATOR_SRC)/kernels -femulated-tls -fno-exceptions \
	-fno-strict-aliasing -fsanitize=alignment -fsanitize-trap=alignment -Wno-unknown-pragmas -Wno-pass-failed -MMD -MP

# Where EMULATOR_RACES is not empty, modules report their accesses, and races in shared memory are found (lib/races.cc). EMULATOR_ONLY is a regular
# expression for the lines of kernels/build.sh list (module, source, macros) whose modules are built.
# Lines of sources are in the objects where races are looked for, and for a debugger by EMULATOR_DEBUG=-g.
EMULATOR_RACES ?=
EMULATOR_DEBUG ?= $(if $(EMULATOR_RACES),-g1)
EMULATOR_ONLY  ?= .
EMULATOR_KERNEL += $(if $(EMULATOR_RACES),-fsanitize=thread -mllvm -tsan-instrument-func-entry-exit=false -mllvm -tsan-instrument-atomics=false \
	-mllvm -tsan-instrument-memintrinsics=false)

EMULATOR_SOURCES := $(wildcard kernels/*.cu kernels/*.h $(EMULATOR_DIR)/lib/* device/cuda/internal/driver/include/*)
EMULATOR_LIB     := $(patsubst $(EMULATOR_DIR)/lib/%.cc,$(EMULATOR)/lib/%.o,$(filter-out %/accesses.cc,$(wildcard $(EMULATOR_DIR)/lib/*.cc))) $(EMULATOR)/lib/fiber.o
EMULATOR_EACH    := $(EMULATOR)/lib/dynamic.o $(if $(EMULATOR_RACES),$(EMULATOR)/lib/accesses.o) # linked to each module

# Optimizing takes two thirds of the build. Only what the tests of cache and serve run most is optimized: kernels without a codec, of rows as they are and of the two
# forms of IBP; not sums and resident tables. Where races are looked for, everything is.
# The flags of each module, and those of all, are files that the objects depend on. If a module's flags have changed, its source may be another file, so the
# list of its sources (.d) is removed.
.PHONY: emulator
emulator: # build/emulator/libcuda.so.1 and its modules
	@mkdir -p $(EMULATOR)/lib $(EMULATOR)/modules $(sort $(dir $(EMULATOR_SOURCES:%=$(EMULATOR_SRC)/%)))
	@set -e; renew() { cmp -s $$1.new $$1 && rm $$1.new || mv $$1.new $$1; }; \
	for f in $(EMULATOR_SOURCES); do cmp -s $$f $(EMULATOR_SRC)/$$f || cp $$f $(EMULATOR_SRC)/$$f; done; \
	(cd $(EMULATOR_SRC) && find * -type f) | while read -r f; do [ -e $$f ] || rm $(EMULATOR_SRC)/$$f; done; \
	{ echo '$(EMULATOR_KERNEL)'; $(CLANG) --version; } >$(EMULATOR)/flags.new; renew $(EMULATOR)/flags; \
	{ kernels/build.sh list; echo tests ../$(EMULATOR_DIR)/lib/tests; } | grep -E '$(EMULATOR_ONLY)' | \
	while read -r module source macros; do \
		case $$module in pooled* | buddy*) o=-O0 ;; *_raw | *_ibp4x* | *_ibp8x*) o=-O2 ;; *_*) o=-O0 ;; *) o=-O2 ;; esac; \
		macros="$$macros $(if $(EMULATOR_RACES),-O2,$$o)"; \
		echo "$$source $$macros" >$(EMULATOR)/modules/$$module.flags.new; \
		cmp -s $(EMULATOR)/modules/$$module.flags.new $(EMULATOR)/modules/$$module.flags || rm -f $(EMULATOR)/modules/$$module.d; \
		renew $(EMULATOR)/modules/$$module.flags; \
		printf 'EMULATOR_MODULES += %s\n$$(EMULATOR)/modules/%s.o: $$(EMULATOR_SRC)/kernels/%s.cu $$(EMULATOR)/modules/%s.flags\n\t@echo emulator: %s; $$(EMULATOR_KERNEL) %s -c -o $$@ $$<\n' \
			"$$module" "$$module" "$$source" "$$module" "$$module" "$$macros"; \
	done >$(EMULATOR)/modules.mk.new; renew $(EMULATOR)/modules.mk; \
	go run ./kernels/gen/pack kernels/ptx >$(EMULATOR)/modules.txt.new && renew $(EMULATOR)/modules.txt
	@$(MAKE) --no-print-directory -j2 emulator-built

-include $(EMULATOR)/modules.mk $(wildcard $(EMULATOR)/modules/*.d $(EMULATOR)/lib/*.d)

.PHONY: emulator-built
emulator-built: $(EMULATOR_MODULES:%=$(EMULATOR)/modules/%.so)
	@:

$(EMULATOR_LIB) $(EMULATOR_EACH) $(EMULATOR_MODULES:%=$(EMULATOR)/modules/%.o): $(EMULATOR)/flags

$(EMULATOR)/lib/%.o: $(EMULATOR_SRC)/$(EMULATOR_DIR)/lib/%.cc
	@$(EMULATOR_CXX) -O2 -MMD -MP -Wextra -I$(EMULATOR_SRC)/device/cuda/internal/driver/include -c -o $@ $<

$(EMULATOR)/lib/%.o: $(EMULATOR_SRC)/$(EMULATOR_DIR)/lib/%.S
	@$(CLANG) -c -o $@ $<

$(EMULATOR)/libcuda.so.1: $(EMULATOR_LIB)
	@$(CLANG) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -o $@ $^ -lstdc++ -lpthread -ldl

$(EMULATOR)/modules/%.so: $(EMULATOR)/modules/%.o $(EMULATOR_EACH) | $(EMULATOR)/libcuda.so.1
	@$(CLANG) -shared -Wl,-z,defs -o $@ $^ $(EMULATOR)/libcuda.so.1
.SECONDARY: $(EMULATOR_EACH)

# These packages' tests run on the host and on the GPU, in turn, and hold one against the other.
EMULATED_PACKAGES ?= ./device/cuda/... ./kernels ./transfer
EMULATED_FLAGS    ?= -short
# Packages of which only the tests named EMULATED_NAMES need a GPU.
EMULATED_BESIDE   ?= ./cache ./serve ./cmd/tensorcached ./cmd/cachebench ./bench/rates
EMULATED_NAMES    ?= GPU|Cuda|CUDA|Enqueue
EMULATED_TEST      = $(TEST_ENV) LD_LIBRARY_PATH=$(CURDIR)/$(EMULATOR) TENSORCACHE_REQUIRE_GPU=1 \
	$(GO) test -vet=off $(CUDA_TAGS),invariants -timeout 15m $(EMULATED_FLAGS)

# The emulated GPU keeps about one processor busy, so all tests are run by two commands at the same time. Named packages are run by one.
.PHONY: test-emulated emulated-packages emulated-beside
test-emulated: emulator $(CUDA_STUB) # the GPU's tests on the emulated GPU
	@$(MAKE) --no-print-directory -j2 --output-sync emulated-packages $(if $(filter file,$(origin EMULATED_PACKAGES)),emulated-beside)

emulated-packages:
	$(EMULATED_TEST) -p 1 $(EMULATED_PACKAGES)

emulated-beside:
	$(EMULATED_TEST) -run '$(EMULATED_NAMES)' $(EMULATED_BESIDE)
	cd lab && $(EMULATED_TEST) -run '$(EMULATED_NAMES)' ./drive

# Races in shared memory, as compute-sanitizer's racecheck finds them, and asynchronous copies that are read before they are waited for: docs/gpu.md. RACES_ONLY and
# RACES_TESTS narrow the modules and the tests of package kernels. Rows are sound: of a damaged list two lanes may write one element of a row that is refused.
RACES_ONLY  ?= .
RACES_TESTS ?= .
.PHONY: emulator-races test-races
emulator-races:
	@$(MAKE) --no-print-directory emulator EMULATOR=build/emulator-races EMULATOR_RACES=1 'EMULATOR_ONLY=$(RACES_ONLY)'

test-races: emulator-races $(CUDA_STUB) # races in shared memory, on the emulated GPU
	@$(MAKE) --no-print-directory emulated-packages EMULATOR=build/emulator-races EMULATED_PACKAGES=./device/cuda/emulator EMULATED_FLAGS='-count=1 -run FindsRaces'
	@$(MAKE) --no-print-directory emulated-packages EMULATOR=build/emulator-races EMULATED_PACKAGES=./kernels EMULATED_FLAGS='-short -count=1 -run "$(RACES_TESTS)" -skip Corrupt'
