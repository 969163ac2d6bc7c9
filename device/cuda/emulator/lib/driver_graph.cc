// Driver entries of graphs: capture, launch, and user objects, which are destroyed with their graph.
#include "driver.h"

namespace emulator {

static std::mutex capturesLock;
static std::vector<std::shared_ptr<Capture>> captures; // under way. guarded by capturesLock
static thread_local CUstreamCaptureMode threadMode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void releaseObject(UserObject *o, unsigned count)
{
	if (o->references.fetch_sub(count) == count) {
		o->destroy(o->pointer);
		delete o;
	}
}

Work::~Work()
{
	for (UserObject *o : objects)
		releaseObject(o, 1);
}

bool forbidden()
{
	if (threadMode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	bool broke = false;
	std::lock_guard<std::mutex> lock(capturesLock);
	for (auto &c : captures) {
		bool own = c->thread == std::this_thread::get_id();
		if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || (!own && (c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL || threadMode != CU_STREAM_CAPTURE_MODE_GLOBAL)))
			continue;
		c->invalid = true;
		broke = true;
	}
	return broke;
}

// An executable graph shares the work with the graph; replays keep it, too.
struct Exec {
	std::shared_ptr<Work> work;
	std::mutex mu;
	std::shared_ptr<Mark> last; // the end of the last replay. guarded by mu
};

} // namespace emulator

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	std::swap(*mode, threadMode);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	ON_STREAM(s, stream);
	auto c = s->capturing;
	*status = !c ? CU_STREAM_CAPTURE_STATUS_NONE : c->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

// The graph that is returned of a capture under way can only be given user objects.
EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **, size_t *)
{
	CUresult r = cuStreamIsCapturing(stream, status);
	if (r != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return r;
	auto c = streamOf(stream, &r)->capturing;
	if (id != nullptr)
		*id = c->id;
	if (graph != nullptr)
		*graph = (CUgraph)&c->work;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	static std::atomic<uint64_t> count{0};
	ON_STREAM(s, stream);
	if ((uintptr_t)stream <= 2)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; // the default stream
	if (s->capturing)
		return CUDA_ERROR_ILLEGAL_STATE;
	auto c = std::make_shared<Capture>();
	c->mode = mode;
	c->thread = std::this_thread::get_id();
	c->origin = s;
	c->streams = {s};
	c->id = ++count;
	s->capturing = c;
	std::lock_guard<std::mutex> lock(capturesLock);
	captures.push_back(c);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	ON_STREAM(s, stream);
	auto c = s->capturing;
	*graph = nullptr;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->origin != s)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	std::lock_guard<std::mutex> lock(capturesLock);
	for (size_t i = 0; i < captures.size(); i++)
		if (captures[i] == c) {
			captures.erase(captures.begin() + (long)i);
			break;
		}
	for (Stream *of : c->streams)
		of->capturing = nullptr;
	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*graph = (CUgraph) new std::shared_ptr<Work>(c->work);
	return CUDA_SUCCESS;
}

// A stream that waits for an event of a capture takes part in it.
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int)
{
	ON_STREAM(s, stream);
	Event *e = (Event *)event;
	if (auto c = e->captured.lock()) {
		std::lock_guard<std::mutex> lock(capturesLock);
		if (c->origin->capturing != c)
			return CUDA_ERROR_CAPTURED_EVENT;
		if (s->capturing == c)
			return CUDA_SUCCESS;
		if (s->capturing)
			return CUDA_ERROR_STREAM_CAPTURE_MERGE;
		s->capturing = c;
		c->streams.push_back(s);
		return CUDA_SUCCESS;
	}
	auto mark = markOf(e);
	if (s->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	return enqueue(s, [mark] { awaitMark(mark); });
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
	delete (std::shared_ptr<Work> *)graph;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (graph == nullptr || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	Exec *e = new Exec;
	e->work = *(std::shared_ptr<Work> *)graph;
	*exec = (CUgraphExec)e;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	delete (Exec *)exec;
	return CUDA_SUCCESS;
}

// Replays of one executable graph follow each other, whatever streams they are launched on.
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	ON_STREAM(s, stream);
	if (s->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; // on a GPU: a graph in the graph
	Exec *e = (Exec *)exec;
	std::lock_guard<std::mutex> lock(e->mu);
	auto before = e->last;
	auto end = e->last = std::make_shared<Mark>();
	auto work = e->work;
	return enqueue(s, [before, work, end] {
		awaitMark(before);
		for (auto &one : work->all)
			one();
		pass(end);
	});
}

EXPORT CUresult cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int count, unsigned int flags)
{
	if (count == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	*object = (CUuserObject) new UserObject{pointer, destroy, {count}};
	return CUDA_SUCCESS;
}

EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	releaseObject((UserObject *)object, count);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	UserObject *o = (UserObject *)object;
	if (count != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0)
		o->references++;
	(*(std::shared_ptr<Work> *)graph)->objects.push_back(o);
	return CUDA_SUCCESS;
}
