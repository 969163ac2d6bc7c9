// Faults of memory in kernels and copies end the work, and the device gets an error, as on a GPU. Signals in threads that do no such work go to
// the handlers that were there before, which are Go's.
#include "emulator.h"

#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

namespace emulator {

// Protected is the work that a thread does under protection.
struct Protected {
	void *kept;
	Fault fault;
	const std::function<void()> *work;
};

static thread_local Protected *doing __attribute__((tls_model("initial-exec")));
static struct sigaction before[NSIG];

// The handler of the signal returns to this function, not to the access that faulted. Outside the handler, anything may be called.
static void recover()
{
	Protected *p = doing;
	emulator_recover(p->kept);
}

static void handle(int signal, siginfo_t *info, void *context)
{
	Protected *p = doing;
	if (p == nullptr) {
		struct sigaction &old = before[signal];
		if (old.sa_flags & SA_SIGINFO)
			old.sa_sigaction(signal, info, context);
		else if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN) {
			sigaction(signal, &old, nullptr);
			raise(signal);
		} else
			old.sa_handler(signal);
		return;
	}
	ucontext_t *u = (ucontext_t *)context;
	uint64_t address = (uint64_t)info->si_addr, pc = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
	bool write = u->uc_mcontext.gregs[REG_ERR] & 2, known = info->si_code > 0 && info->si_code != SI_KERNEL;
	// The thread is in a kernel or a copy, which hold no lock: text may be made here.
	std::string why;
	if (signal == SIGILL) {
		p->fault.error = CUDA_ERROR_MISALIGNED_ADDRESS;
		why = text("access that is not aligned, or another undefined operation, at code address %#llx", (unsigned long long)pc);
	} else if (!known) {
		p->fault.error = CUDA_ERROR_MISALIGNED_ADDRESS;
		why = text("access of 16 bytes that is not aligned, or of an address that cannot be, at code address %#llx", (unsigned long long)pc);
	} else if (beyondStack(address)) {
		p->fault.error = (CUresult)714;
		why = "a lane's stack is too small";
	} else {
		p->fault.error = CUDA_ERROR_ILLEGAL_ADDRESS;
		why = text("%s of %#llx, %s, at code address %#llx", write ? "write" : "read", (unsigned long long)address, describe(address).c_str(),
			   (unsigned long long)pc);
	}
	p->fault.why = running() + ": " + why;
	u->uc_mcontext.gregs[REG_RSP] = ((int64_t)p->kept - 4096) & ~15ll;
	u->uc_mcontext.gregs[REG_RSP] -= 8;
	u->uc_mcontext.gregs[REG_RIP] = (int64_t)&recover;
}

void initFaults()
{
	struct sigaction action = {};
	action.sa_sigaction = handle;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigfillset(&action.sa_mask);
	for (int signal : {SIGSEGV, SIGBUS, SIGILL})
		sigaction(signal, &action, &before[signal]);
}

// An alternate stack for signals: lanes' stacks are short.
static void needSignalStack()
{
	static thread_local bool have;
	if (have)
		return;
	constexpr size_t bytes = 256 << 10;
	stack_t s = {};
	s.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s.ss_size = bytes;
	have = s.ss_sp != MAP_FAILED && sigaltstack(&s, nullptr) == 0;
}

Fault protect(const std::function<void()> &work)
{
	needSignalStack();
	Protected p;
	p.work = &work;
	doing = &p;
	emulator_protect(&p.kept, [](void *argument) { (*((Protected *)argument)->work)(); }, &p);
	doing = nullptr;
	return p.fault;
}

void fault(CUresult error, const std::string &why)
{
	Protected *p = doing;
	p->fault.error = error;
	p->fault.why = running() + ": " + why;
	emulator_recover(p->kept);
}

} // namespace emulator
