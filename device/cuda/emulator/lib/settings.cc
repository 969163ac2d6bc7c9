#include "emulator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace emulator {

static int64_t number(const char *name, int64_t otherwise, int64_t least, int64_t most)
{
	const char *value = getenv(name);
	if (value == nullptr || *value == 0)
		return otherwise;
	char *end;
	int64_t n = strtoll(value, &end, 10);
	if (*end != 0 || n < least || n > most) {
		say("%s (%s) must be %lld to %lld", name, value, (long long)least, (long long)most);
		_exit(2);
	}
	return n;
}

// see sets which devices the process sees: those that CUDA_VISIBLE_DEVICES lists, up to the first that is no device, or all.
static void see(Settings &s)
{
	int all = s.devices;
	for (int i = 0; i < all; i++)
		s.number[i] = i;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	if (visible == nullptr)
		return;
	s.devices = 0;
	for (char *end; s.devices < all; visible = end + 1) {
		long n = strtol(visible, &end, 10);
		if (end == visible || n < 0 || n >= all)
			return;
		s.number[s.devices++] = (int)n;
		if (*end != ',')
			return;
	}
}

// readFailure reads TENSORCACHE_EMULATOR_FAIL: "device:error:launches".
static void readFailure(Settings &s)
{
	s.failDevice = -1;
	const char *fail = getenv("TENSORCACHE_EMULATOR_FAIL");
	if (fail == nullptr || *fail == 0)
		return;
	char rest;
	if (sscanf(fail, "%d:%d:%d%c", &s.failDevice, &s.failWith, &s.failAfter, &rest) != 3 || s.failDevice < 0 || s.failDevice >= 8 ||
	    s.failWith <= 0 || s.failAfter < 0) {
		say("TENSORCACHE_EMULATOR_FAIL (%s) must be device:error:launches, with a device of 0 to 7, an error above 0 and launches from 0 on", fail);
		_exit(2);
	}
}

static Settings read()
{
	Settings s;
	s.devices = (int)number("TENSORCACHE_EMULATOR_DEVICES", 1, 1, 8);
	see(s);
	s.multiprocessors = (int)number("TENSORCACHE_EMULATOR_MULTIPROCESSORS", 4, 1, 256);
	s.blocks = (int)number("TENSORCACHE_EMULATOR_BLOCKS", 2, 1, 32);
	s.sharedBytes = (int)number("TENSORCACHE_EMULATOR_SHARED", 227 << 10, 48 << 10, 227 << 10);
	s.slowdown = (int)number("TENSORCACHE_EMULATOR_SLOWDOWN", 20, 1, 1000000);
	s.virtualMemory = (int)number("TENSORCACHE_EMULATOR_VIRTUAL_MEMORY", 2, 0, 2);
	readFailure(s);
	s.launchMicros = (int)number("TENSORCACHE_EMULATOR_LAUNCH_MICROS", 0, 0, 10000000);
	s.deviceBytes = number("TENSORCACHE_EMULATOR_MEMORY", 8ll << 30, 1 << 20, 1ll << 36);
	s.hostBytes = number("TENSORCACHE_EMULATOR_HOST_MEMORY", 8ll << 30, 1 << 20, 1ll << 36);
	s.seed = (uint64_t)number("TENSORCACHE_EMULATOR_SEED", 1, 0, INT64_MAX);
	s.timeout = (double)number("TENSORCACHE_EMULATOR_TIMEOUT", 60, 1, 100000);
	return s;
}

const Settings &settings()
{
	static const Settings s = read();
	return s;
}

static std::string format(const char *f, va_list args)
{
	va_list again;
	va_copy(again, args);
	std::string s((size_t)vsnprintf(nullptr, 0, f, again), ' ');
	va_end(again);
	vsnprintf(s.data(), s.size() + 1, f, args);
	return s;
}

std::string text(const char *f, ...)
{
	va_list args;
	va_start(args, f);
	std::string s = format(f, args);
	va_end(args);
	return s;
}

void say(const char *f, ...)
{
	va_list args;
	va_start(args, f);
	std::string s = "emulator: " + format(f, args) + "\n";
	va_end(args);
	if (write(2, s.data(), s.size()) < 0)
		abort();
}

} // namespace emulator
