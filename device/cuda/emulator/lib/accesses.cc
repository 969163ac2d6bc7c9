// Linked to modules that are built with EMULATOR_RACES: the functions that the compiler calls before each access to memory
// (-fsanitize=thread). They are hidden, because a program under Go's race detector has functions of these names.
#define HIDDEN extern "C" __attribute__((visibility("hidden")))

// A module that exports this reports its accesses.
extern "C" {
__attribute__((visibility("default"))) extern const char emulatedReportsAccesses = 1;
}

extern "C" void emulatedAccess(const void *p, unsigned bytes, int write, const void *code);

#define ACCESS(bytes)                                                                                                              \
	HIDDEN void __tsan_read##bytes(void *p) { emulatedAccess(p, bytes, 0, __builtin_return_address(0)); }                      \
	HIDDEN void __tsan_write##bytes(void *p) { emulatedAccess(p, bytes, 1, __builtin_return_address(0)); }                     \
	HIDDEN void __tsan_unaligned_read##bytes(void *p) { emulatedAccess(p, bytes, 0, __builtin_return_address(0)); }            \
	HIDDEN void __tsan_unaligned_write##bytes(void *p) { emulatedAccess(p, bytes, 1, __builtin_return_address(0)); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

HIDDEN void __tsan_init() {}
