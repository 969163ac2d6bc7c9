// A CUDA driver whose devices are made of threads of the host: see doc.go of package emulator. This is what its parts share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace emulator {

// Settings are what environment variables say; docs/gpu.md lists them.
struct Settings {
	int devices;   // that this process sees
	int number[8]; // of each of them among all that there are
	int multiprocessors, blocks, sharedBytes, slowdown, launchMicros;
	int virtualMemory; // 0: none; 1: none that can be mapped to be read only; 2: all
	int failDevice, failWith, failAfter; // which device is lost with which error after how many launches; failDevice -1: none
	int64_t deviceBytes, hostBytes;
	uint64_t seed;
	double timeout; // seconds
};
const Settings &settings();

// say writes a line to standard error.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Memory.

enum class Kind { Device, Host, Registered, Reserved, Mapped, Managed };

constexpr uint64_t GRANULARITY = 2 << 20; // of memory that is mapped at reserved addresses

struct Allocation {
	uint64_t start, bytes;
	Kind kind;
	int device;
	uint64_t mapStart, mapBytes; // pages, the unreachable ones around it included
};

void initMemory();
// allocate returns 0 where there is no room.
uint64_t allocate(uint64_t bytes, Kind kind, int device);
CUresult enlist(uint64_t start, uint64_t bytes, int device); // registers host memory
// release returns what was at start, if that is of the kind, and makes it unreachable.
bool release(uint64_t start, Kind kind);
bool find(uint64_t address, Allocation *found);
// reserve returns addresses, multiples of GRANULARITY, at which nothing can be reached until memory is mapped there. 0: there are none.
uint64_t reserve(uint64_t bytes);
// mapAt makes a whole reservation show the device's memory that lies in a file, unreachable yet, and unmap takes it away.
bool mapAt(uint64_t start, uint64_t bytes, int fd, int device);
bool unmapAt(uint64_t start, uint64_t bytes);
// permit makes mapped memory reachable.
bool permit(uint64_t start, uint64_t bytes, bool write);
// charge adds to the bytes that a device uses, if it has so many.
bool charge(int device, int64_t bytes);
// within says whether all the bytes belong to one allocation.
bool within(uint64_t address, uint64_t bytes);
// describe says what an address is, for people.
std::string describe(uint64_t address);
uint64_t usedBytes(int device);
// overrun returns a text about an allocation the bytes behind which were written, or an empty one.
std::string overrun();
// zero is memset(to, 0, bytes), by fresh pages where there are many.
void zero(uint64_t to, uint64_t bytes);

// Devices and contexts: a device has one context, its primary one.

struct Stream;

struct Device {
	int ordinal;
	std::mutex mu;
	int retained = 0;              // guarded by mu
	std::set<Stream *> streams;    // guarded by mu
	Stream *legacy = nullptr;      // the default stream. guarded by mu
	std::set<int> peers;           // whose memory it reaches. guarded by mu
	std::atomic<int> error{0};     // sticky
	std::atomic<int64_t> launches{0};
	std::atomic<int> failAfter{-1}, failWith{0}; // launches until it fails
	std::atomic<int> launchMicros{0};
};
Device *device(int ordinal); // nullptr where there is none
Device *current();           // the calling thread's, or nullptr
inline CUcontext contextOf(Device *d) { return (CUcontext)d; }
Device *deviceOf(CUcontext c); // nullptr for what is no context
// lose makes an error sticky, and says why.
void lose(Device *d, CUresult error, const std::string &why);

// Streams run what is enqueued in a thread of their own.

struct Mark { // a point in a stream
	bool passed = false;
	double seconds = 0;
};

struct Event {
	unsigned flags;
	std::shared_ptr<Mark> mark; // guarded by the marks' lock
	std::weak_ptr<struct Capture> captured; // in which it was recorded last, if it was
};

// A graph is what was enqueued on streams while they captured it, in that order, which is one of the orders that its dependencies allow.

struct UserObject {
	void *pointer;
	void (*destroy)(void *);
	std::atomic<unsigned> references;
};
void releaseObject(UserObject *o, unsigned count);

struct Work {
	std::vector<std::function<void()>> all;
	std::vector<UserObject *> objects; // a reference each
	~Work();
};

struct Capture {
	std::shared_ptr<Work> work = std::make_shared<Work>();
	int mode;
	std::thread::id thread;
	std::atomic<bool> invalid{false};
	Stream *origin;
	std::vector<Stream *> streams; // that take part, the origin among them. guarded by capturesLock
	uint64_t id;
};
// forbidden makes the captures fail that a call of the kind that they forbid breaks, and says whether it broke any.
bool forbidden();

struct Stream {
	Device *device;
	int priority = 0;
	std::mutex mu;
	std::condition_variable changed;
	std::deque<std::function<void()>> queue; // guarded by mu
	bool busy = false, dying = false;        // guarded by mu
	std::shared_ptr<Capture> capturing; // changed by the thread that captures
	uint64_t number;
};

CUresult newStream(Device *d, int priority, Stream **made);
CUresult enqueue(Stream *s, std::function<void()> work);
// drain waits until all that was enqueued has been done.
void drain(Stream *s);
void drainDevice(Device *d);
void endStream(Stream *s);
Stream *streamOf(CUstream handle, CUresult *why); // nullptr: why says so
Stream *defaultStream(Device *d);
CUresult recordEvent(Event *e, Stream *s);
void setMark(Event *e, const std::shared_ptr<Mark> &m);
std::shared_ptr<Mark> markOf(Event *e);
void pass(const std::shared_ptr<Mark> &m);
bool hasPassed(const std::shared_ptr<Mark> &m);
void awaitMark(const std::shared_ptr<Mark> &m);
double now(); // seconds

// Modules.

struct Entry {
	std::string name;
	std::vector<unsigned> offsets, sizes; // of the parameters
	unsigned maxThreads = 1024, staticShared = 0, bytes = 0;
};

struct Module;
struct Function {
	Module *module;
	Entry entry;
	void *code;
	std::atomic<int> dynamicLimit{48 << 10};
};

struct Module {
	std::string name;
	void *library;
	bool reportsAccesses; // to shared memory: races.cc
	std::map<std::string, std::unique_ptr<Function>> functions;
};

CUresult loadModule(const char *text, std::string *log, Module **made);
int residentBlocks(const Function *f, unsigned threads, unsigned shared); // of a multiprocessor

// Launches.

struct Launch {
	Device *device;
	const Function *function;
	unsigned blocks, threads, shared;
	std::vector<uint64_t> arguments;
	std::shared_ptr<Mark> begun; // may be none
	uint64_t seed;
};
void runLaunch(const Launch &l);

// Faults: work is done under protection, where a fault of memory ends it.

struct Fault {
	CUresult error = CUDA_SUCCESS;
	std::string why;
};
void initFaults();
// protect runs work, and returns what went wrong in it.
Fault protect(const std::function<void()> &work);
// fault ends the work under way in the calling thread.
[[noreturn]] void fault(CUresult error, const std::string &why);
// running says what the calling thread runs, for people: the kernel, block and lane.
std::string running();
// stackOf says whose lane's stack an address is beyond.
bool beyondStack(uint64_t address);

} // namespace emulator

extern "C" {
void emulator_switch(void **from, void *to);
int emulator_protect(void **keep, void (*work)(void *), void *argument);
[[noreturn]] void emulator_recover(void *kept);
void emulator_begin();
void emulator_end();
}
