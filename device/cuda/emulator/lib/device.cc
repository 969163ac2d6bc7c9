// The devices, how they are lost, and what tests do to them.
#include "emulator.h"

namespace emulator {

static Device *devices()
{
	static Device *all = [] {
		initMemory();
		initFaults();
		Device *d = new Device[8];
		for (int i = 0; i < 8; i++) {
			d[i].ordinal = i;
			d[i].launchMicros = settings().launchMicros;
		}
		if (int failing = settings().failDevice; failing >= 0)
			d[failing].failWith = settings().failWith, d[failing].failAfter = settings().failAfter;
		return d;
	}();
	return all;
}

Device *device(int ordinal) { return ordinal >= 0 && ordinal < settings().devices ? devices() + ordinal : nullptr; }

Device *deviceOf(CUcontext c)
{
	for (int i = 0; i < settings().devices; i++)
		if ((CUcontext)(devices() + i) == c)
			return devices() + i;
	return nullptr;
}

void lose(Device *d, CUresult error, const std::string &why)
{
	int none = 0;
	if (d->error.compare_exchange_strong(none, error))
		say("device %d is lost (error %d): %s", d->ordinal, (int)error, why.c_str());
}

} // namespace emulator

using namespace emulator;

// For tests: the device fails with the error at the launch after so many, or, where that is below 0, at once.
EXPORT void tensorcache_emulator_fail(int ordinal, int error, int launches)
{
	Device *d = device(ordinal);
	if (d == nullptr)
		return;
	if (launches < 0) {
		lose(d, (CUresult)error, "asked to by a test");
		return;
	}
	d->failWith = error;
	d->failAfter = launches;
}

// For tests: each launch of the device takes so many microseconds longer.
EXPORT void tensorcache_emulator_slow(int ordinal, int micros)
{
	if (Device *d = device(ordinal))
		d->launchMicros = micros;
}
