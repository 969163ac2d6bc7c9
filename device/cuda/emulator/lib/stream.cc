// Streams and events. A stream is a queue, and a thread that does what is in it.
#include "emulator.h"

#include <csignal>
#include <ctime>

namespace emulator {

double now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static std::mutex streamsLock;
static std::set<Stream *> streams; // guarded by streamsLock

static void work(Stream *s)
{
	std::unique_lock<std::mutex> lock(s->mu);
	for (;;) {
		s->changed.wait(lock, [&] { return !s->queue.empty() || s->dying; });
		if (s->queue.empty())
			break;
		auto next = std::move(s->queue.front());
		s->queue.pop_front();
		s->busy = true;
		lock.unlock();
		next();
		next = nullptr;
		lock.lock();
		s->busy = false;
		s->changed.notify_all();
	}
	lock.unlock();
	{
		std::lock_guard<std::mutex> of(s->device->mu);
		s->device->streams.erase(s);
	}
	delete s;
}

CUresult newStream(Device *d, int priority, Stream **made)
{
	static std::atomic<uint64_t> count{0};
	Stream *s = new Stream;
	s->device = d;
	s->priority = priority;
	s->number = count++;
	// The thread gets no signals but its own faults: Go does not know it.
	sigset_t all, old;
	sigfillset(&all);
	for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT})
		sigdelset(&all, signal);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	std::thread(work, s).detach();
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
	{
		std::lock_guard<std::mutex> lock(d->mu);
		d->streams.insert(s);
	}
	std::lock_guard<std::mutex> lock(streamsLock);
	streams.insert(s);
	*made = s;
	return CUDA_SUCCESS;
}

CUresult enqueue(Stream *s, std::function<void()> next)
{
	if (auto c = s->capturing) {
		if (c->invalid)
			return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		c->work->all.push_back(std::move(next));
		return CUDA_SUCCESS;
	}
	std::lock_guard<std::mutex> lock(s->mu);
	s->queue.push_back(std::move(next));
	s->changed.notify_all();
	return CUDA_SUCCESS;
}

void drain(Stream *s)
{
	auto end = std::make_shared<Mark>();
	enqueue(s, [end] { pass(end); });
	awaitMark(end);
}

void drainDevice(Device *d)
{
	std::vector<std::shared_ptr<Mark>> ends;
	{
		std::lock_guard<std::mutex> lock(d->mu);
		for (Stream *s : d->streams) {
			ends.push_back(std::make_shared<Mark>());
			auto end = ends.back();
			std::lock_guard<std::mutex> of(s->mu);
			if (s->queue.empty() && !s->busy) {
				ends.pop_back();
				continue;
			}
			s->queue.push_back([end] { pass(end); });
			s->changed.notify_all();
		}
	}
	for (auto &end : ends)
		awaitMark(end);
}

void endStream(Stream *s)
{
	{
		std::lock_guard<std::mutex> lock(streamsLock);
		streams.erase(s);
	}
	std::lock_guard<std::mutex> lock(s->mu);
	s->dying = true;
	s->changed.notify_all();
}

Stream *defaultStream(Device *d)
{
	{
		std::lock_guard<std::mutex> lock(d->mu);
		if (d->legacy != nullptr)
			return d->legacy;
	}
	Stream *s;
	newStream(d, 0, &s);
	std::lock_guard<std::mutex> lock(d->mu);
	if (d->legacy == nullptr)
		d->legacy = s;
	return d->legacy;
}

Stream *streamOf(CUstream handle, CUresult *why)
{
	Device *d = current();
	*why = d == nullptr ? CUDA_ERROR_INVALID_CONTEXT : (CUresult)d->error.load();
	if (*why != CUDA_SUCCESS)
		return nullptr;
	if ((uintptr_t)handle <= 2)
		return defaultStream(d);
	std::lock_guard<std::mutex> lock(streamsLock);
	if (streams.count((Stream *)handle) == 0) {
		*why = CUDA_ERROR_INVALID_HANDLE;
		return nullptr;
	}
	return (Stream *)handle;
}

// Marks.

static std::mutex marksLock;
static std::condition_variable passed;

void pass(const std::shared_ptr<Mark> &m)
{
	std::lock_guard<std::mutex> lock(marksLock);
	if (!m->passed)
		m->seconds = now();
	m->passed = true;
	passed.notify_all();
}

bool hasPassed(const std::shared_ptr<Mark> &m)
{
	std::lock_guard<std::mutex> lock(marksLock);
	return m == nullptr || m->passed;
}

void awaitMark(const std::shared_ptr<Mark> &m)
{
	std::unique_lock<std::mutex> lock(marksLock);
	passed.wait(lock, [&] { return m == nullptr || m->passed; });
}

std::shared_ptr<Mark> markOf(Event *e)
{
	std::lock_guard<std::mutex> lock(marksLock);
	return e->mark;
}

void setMark(Event *e, const std::shared_ptr<Mark> &m)
{
	std::lock_guard<std::mutex> lock(marksLock);
	e->mark = m;
}

CUresult recordEvent(Event *e, Stream *s)
{
	if (s->capturing) { // the work of a graph is in one order, so there is nothing to record
		e->captured = s->capturing;
		return s->capturing->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
	}
	auto m = std::make_shared<Mark>();
	setMark(e, m);
	e->captured.reset();
	return enqueue(s, [m] { pass(m); });
}

} // namespace emulator
