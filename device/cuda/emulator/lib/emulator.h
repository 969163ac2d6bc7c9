// What the parts of the emulated GPU share: a CUDA driver that runs kernels in threads of the host. doc.go of package emulator lists its files.
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

// settings.cc: the environment variables that docs/gpu.md lists, and texts.

struct Settings {
	int devices;         // that this process sees
	int number[8];       // the number of each of them among all devices of the host
	int multiprocessors; // of a device
	int blocks;          // most blocks that a multiprocessor holds
	int sharedBytes;     // most shared memory of a block
	int slowdown;        // of the device's clock
	int launchMicros;    // added to each launch
	int virtualMemory;   // 0: none; 1: no mappings that can only be read; 2: all
	int failDevice, failWith, failAfter; // which device is lost with which error after how many launches; failDevice -1: none
	int64_t deviceBytes, hostBytes;
	uint64_t seed;
	double timeout; // seconds
};
const Settings &settings();

// say writes a line to standard error, text returns a string. Both format like printf.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// memory.cc: the memory that kernels and copies may reach. Everything is safe for concurrent use.

// Device, Host and Managed memory was allocated. Registered is host memory that the process had already. Reserved are addresses without memory, Mapped such at
// which device memory of another process, or of this one, has been mapped.
enum class Kind { Device, Host, Registered, Reserved, Mapped, Managed };

constexpr uint64_t GRANULARITY = 2 << 20; // of memory that is mapped at reserved addresses

struct Allocation {
	uint64_t start, bytes;
	Kind kind;
	int device;
	uint64_t mapStart, mapBytes; // of its pages and of the unreachable ones around them
};

void initMemory();
// allocate returns 0 if there is no room.
uint64_t allocate(uint64_t bytes, Kind kind, int device);
// enlist makes host memory Registered.
CUresult enlist(uint64_t start, uint64_t bytes, int device);
// release ends the allocation that begins at start, if there is one of that kind, and makes its memory unreachable.
bool release(uint64_t start, Kind kind);
bool find(uint64_t address, Allocation *found);
// reserve returns the first of so many Reserved addresses, a multiple of GRANULARITY, or 0 if there are not so many.
uint64_t reserve(uint64_t bytes);
// mapAt maps a file, which is memory of the device, at a whole reservation; permit makes it reachable. unmapAt ends the mapping and keeps the reservation.
bool mapAt(uint64_t start, uint64_t bytes, int fd, int device);
bool unmapAt(uint64_t start, uint64_t bytes);
bool permit(uint64_t start, uint64_t bytes, bool write);
// charge adds to the bytes that a device uses, or returns false if it does not have so many.
bool charge(int device, int64_t bytes);
// within says whether all the bytes belong to one allocation.
bool within(uint64_t address, uint64_t bytes);
// describe says in words what an address is.
std::string describe(uint64_t address);
uint64_t usedBytes(int device);
// overrun returns a text about an allocation behind whose end bytes were written, or an empty text if there is none.
std::string overrun();
// zero is memset(to, 0, bytes). Many pages are given back to the system instead, which reads them as zero.
void zero(uint64_t to, uint64_t bytes);

// device.cc and driver_context.cc: devices, each with one context, its primary one.

struct Stream;

struct Device {
	int ordinal;
	std::mutex mu;
	int retained = 0;              // times that the context was retained. guarded by mu
	std::set<Stream *> streams;    // guarded by mu
	Stream *legacy = nullptr;      // the default stream. guarded by mu
	std::set<int> peers;           // devices whose memory it reaches. guarded by mu
	std::atomic<int> error{0};     // not 0: the device is lost
	std::atomic<int64_t> launches{0};
	std::atomic<int> failAfter{-1}, failWith{0}; // launches until it is lost, and with which error; failAfter below 0: it is not
	std::atomic<int> launchMicros{0};            // added to each launch
};
Device *device(int ordinal); // nullptr if there is none
Device *current();           // of the calling thread's current context, or nullptr
inline CUcontext contextOf(Device *d) { return (CUcontext)d; }
Device *deviceOf(CUcontext c); // nullptr if c is no context
// lose gives the device an error that stays until its context ends, if it has none yet, and says why.
void lose(Device *d, CUresult error, const std::string &why);

// stream.cc: streams and events. A stream is a queue, and a thread that does what is in it.

// Mark is a point in a stream. It has passed when the work enqueued before it has been done.
struct Mark {
	bool passed = false;
	double seconds = 0;
};

struct Event {
	unsigned flags;
	std::shared_ptr<Mark> mark; // guarded by the marks' lock
	std::weak_ptr<struct Capture> captured; // the capture in which it was recorded last, if it was recorded in one
};

// driver_graph.cc: graphs. A graph is the list of what was enqueued on streams while they captured it. Replays keep that order, which is one of those that the graph's
// dependencies allow.

struct UserObject {
	void *pointer;
	void (*destroy)(void *);
	std::atomic<unsigned> references;
};
void releaseObject(UserObject *o, unsigned count);

struct Work {
	std::vector<std::function<void()>> all;
	std::vector<UserObject *> objects; // Work holds a reference to each
	~Work();
};

struct Capture {
	std::shared_ptr<Work> work = std::make_shared<Work>();
	int mode;
	std::thread::id thread;
	std::atomic<bool> invalid{false};
	Stream *origin;
	std::vector<Stream *> streams; // that are being captured, the origin among them. guarded by capturesLock
	uint64_t id;
};
// forbidden is called by entries that a capture may forbid, such as cuMemAlloc. It makes the captures that forbid them invalid, and says whether there was one.
bool forbidden();

struct Stream {
	Device *device;
	int priority = 0;
	std::mutex mu;
	std::condition_variable changed;
	std::deque<std::function<void()>> queue; // guarded by mu
	bool busy = false, dying = false;        // guarded by mu
	std::shared_ptr<Capture> capturing; // the capture under way, or none. changed by the thread that captures
	uint64_t number;
};

CUresult newStream(Device *d, int priority, Stream **made);
CUresult enqueue(Stream *s, std::function<void()> work);
// drain waits until all that was enqueued has been done, drainDevice does so for all streams of a device.
void drain(Stream *s);
void drainDevice(Device *d);
// endStream returns at once; the stream ends when its queue is empty.
void endStream(Stream *s);
Stream *streamOf(CUstream handle, CUresult *why); // nullptr for an error, which is *why
Stream *defaultStream(Device *d);
CUresult recordEvent(Event *e, Stream *s);
void setMark(Event *e, const std::shared_ptr<Mark> &m);
std::shared_ptr<Mark> markOf(Event *e);
void pass(const std::shared_ptr<Mark> &m);
bool hasPassed(const std::shared_ptr<Mark> &m);
void awaitMark(const std::shared_ptr<Mark> &m);
double now(); // in seconds, of a clock that never goes back

// module.cc: modules and their kernels.

// Entry is what the PTX says of a kernel.
struct Entry {
	std::string name;
	std::vector<unsigned> offsets, sizes; // of the parameters, in bytes
	unsigned bytes = 0;                   // of all parameters
	unsigned maxThreads = 1024, staticShared = 0;
};

struct Module;
struct Function {
	Module *module;
	Entry entry;
	void *code;
	std::atomic<int> dynamicLimit{48 << 10}; // most bytes of dynamic shared memory
};

struct Module {
	std::string name;
	void *library;
	bool reportsAccesses; // to shared memory: races.cc
	std::map<std::string, std::unique_ptr<Function>> functions;
};

CUresult loadModule(const char *text, std::string *log, Module **made);
// residentBlocks is how many blocks of that shape a multiprocessor holds at once; 0: the shape is refused.
int residentBlocks(const Function *f, unsigned threads, unsigned shared);

// schedule.cc: launches.

struct Launch {
	Device *device;
	const Function *function;
	unsigned blocks, threads, shared;
	std::vector<uint64_t> arguments;
	std::shared_ptr<Mark> begun; // passes when the last block begins; may be none
	uint64_t seed;
};
void runLaunch(const Launch &l);

// fault.cc: kernels and copies are run such that a fault of memory ends them, and not the process.

struct Fault {
	CUresult error = CUDA_SUCCESS;
	std::string why;
};
void initFaults();
// protect runs work, and returns what went wrong in it.
Fault protect(const std::function<void()> &work);
// fault ends the work that protect runs in the calling thread.
[[noreturn]] void fault(CUresult error, const std::string &why);
// running says in words what the calling thread runs: the kernel, block and lane.
std::string running();
// beyondStack says whether an address lies in the page below a lane's stack.
bool beyondStack(uint64_t address);

} // namespace emulator

// fiber.S
extern "C" {
void emulator_switch(void **from, void *to);
int emulator_protect(void **keep, void (*work)(void *), void *argument);
[[noreturn]] void emulator_recover(void *kept);
void emulator_begin();
void emulator_end();
}
