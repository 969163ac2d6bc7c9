/*
 * load LIBRARY: a program that loads the library by hand, and what becomes of its signals, of children that were forked before, and of dlclose.
 * load LIBRARY die SIGNAL: the library is loaded, and the signal, for which there is no handler, ends the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const char *(*call_last_error)(void);
static const char *(*version)(void);
static tc_status (*open_)(const tc_config *, const tc_table *, int32_t, tc_cache **);
static tc_status (*gather_host)(tc_cache *, int32_t, int32_t, const void *, int32_t, int64_t, void *, int64_t);
static tc_status (*close_)(tc_cache *);

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	if (library == NULL)
		FAIL("%s", dlerror());
	*(void **)&call_last_error = dlsym(library, "tc_last_error");
	*(void **)&version = dlsym(library, "tc_version");
	*(void **)&open_ = dlsym(library, "tc_open");
	*(void **)&gather_host = dlsym(library, "tc_gather_host");
	*(void **)&close_ = dlsym(library, "tc_close");
	CHECK(close_ != NULL && dlsym(library, "tcgo_open") == NULL && dlsym(library, "cuInit") == NULL);
	return library;
}

static char numbers[1000 * 64];

/* Opens, gathers, compares. */
static void use(int rounds)
{
	tc_config config;
	tc_config_default(&config);
	config.gpu_memory = 1 << 18;
	config.backend = TC_BACKEND_HOST;
	tc_table t;
	tc_table_default(&t);
	t.data = numbers;
	t.rows = 1000;
	t.row_bytes = 64;
	t.dtype = TC_UINT8;
	tc_cache *cache;
	if (open_(&config, &t, 1, &cache) != TC_OK)
		FAIL("%s", call_last_error());
	for (int i = 0; i < rounds; i++) {
		int64_t id = i % 1000;
		char out[64];
		CHECK(gather_host(cache, 0, 0, &id, TC_INT64, 1, out, 0) == TC_OK);
		CHECK(memcmp(out, numbers + id * 64, 64) == 0);
	}
	CHECK(close_(cache) == TC_OK);
}

static volatile sig_atomic_t got[NSIG];
static sigjmp_buf after_fault;
static _Thread_local int faulting;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	got[signal]++;
	if (signal == SIGSEGV) {
		if (!faulting)
			_exit(99);
		siglongjmp(after_fault, 1);
	}
}

static void install(int signal, int flags)
{
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_sigaction = handler;
	a.sa_flags = SA_SIGINFO | flags;
	CHECK(sigaction(signal, &a, NULL) == 0);
}

static void fault(void)
{
	faulting = 1;
	if (sigsetjmp(after_fault, 1) == 0)
		*(volatile int *)8 = 1;
	faulting = 0;
}

static void *busy(void *stop)
{
	while (!*(volatile int *)stop)
		use(100);
	return NULL;
}

/* Signals of all kinds arrive at the program's handlers, while the library works in another thread. */
static void signals(void)
{
	volatile int stop = 0;
	pthread_t thread;
	memset((void *)got, 0, sizeof got);
	CHECK(pthread_create(&thread, NULL, busy, (void *)&stop) == 0);
	for (int i = 0; i < 20; i++) {
		raise(SIGINT);
		kill(getpid(), SIGTERM);
		fault();
		use(1);
	}
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(got[SIGINT] == 20 && got[SIGTERM] > 0 && got[SIGSEGV] == 20);
	struct sigaction now;
	CHECK(sigaction(SIGINT, NULL, &now) == 0 && now.sa_sigaction == handler);
	CHECK(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_sigaction == handler);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	for (size_t i = 0; i < sizeof numbers; i++)
		numbers[i] = (char)(i * 31 / 7);
	if (argc == 4) {
		signal(atoi(argv[3]), SIG_DFL); /* a shell has its background jobs ignore interrupts */
		load(argv[1]);
		use(1);
		raise(atoi(argv[3]));
		return 77;
	}
	/* A child that was forked before the library was loaded may load it. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(120);
		load(argv[1]);
		use(10);
		_exit(0);
	}
	int how;
	CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);

	/* Handlers set before loading, and set again after it. */
	install(SIGINT, 0);
	install(SIGTERM, 0);
	install(SIGSEGV, 0);
	void *library = load(argv[1]);
	signals();
	install(SIGINT, SA_ONSTACK);
	install(SIGTERM, SA_ONSTACK);
	install(SIGSEGV, SA_ONSTACK);
	signals();

	/* The library stays. */
	CHECK(dlclose(library) == 0);
	use(10);
	CHECK(strcmp(version(), TC_VERSION) == 0);
	void *still = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
	CHECK(still != NULL && dlsym(still, "tc_version") == (void *)version);
	return 0;
}
