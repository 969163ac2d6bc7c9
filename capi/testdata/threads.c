/* Several threads at once, children of fork, and what is left after many openings and calls. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 8 };

static float *table;
static tc_cache *shared;
static atomic_int closing;
static atomic_long calls;

/* Whether the call was served; else the cache is being closed. */
static int was_served(tc_status status, int before)
{
	if (status == TC_ERROR_CLOSED && atomic_load(&closing))
		return 0;
	if (status != TC_OK)
		FAIL("%s: %s", tc_status_name(status), tc_last_error());
	CHECK(before != 2); /* nothing is served after tc_close has returned */
	return 1;
}

/* Gathers in all ways on a stream of its own, several at a time, and compares. */
static void *gather_many(void *seed)
{
	enum { N = 64, STRIDE = ROW + 4 };
	unsigned id = (unsigned)(uintptr_t)seed;
	device_begin();
	int32_t *ids = ids_new(TC_INT32, N, ROWS - 100, id);
	char *out = malloc(N * STRIDE);
	void *stream = stream_new(), *dev_ids = device_alloc(N * 4), *outs[3];
	for (int i = 0; i < 3; i++)
		outs[i] = device_alloc(N * STRIDE);
	device_put(dev_ids, ids, N * 4);
	for (unsigned i = 0;; i++) {
		int before = atomic_load(&closing);
		/* The row numbers may be changed when the call has returned. */
		int32_t *given = ids_new(TC_INT32, N, ROWS - 100, id + 100 * i), *kept = malloc(N * 4);
		memcpy(kept, given, N * 4);
		int served = was_served(tc_gather(shared, 0, 0, dev_ids, TC_INT32, N, outs[0], 0, stream, NULL), before) &&
			was_served(tc_gather(shared, 0, 0, dev_ids, TC_INT32, N, outs[1], STRIDE, stream, NULL), before) &&
			was_served(tc_gather_host_ids(shared, 0, 0, given, TC_INT32, N, outs[2], i % 2 ? 0 : STRIDE, stream, NULL), before);
		memset(given, 0xff, N * 4);
		stream_wait(stream);
		if (served) {
			device_get(out, outs[0], N * ROW);
			same_rows(table, ids, TC_INT32, N, out, ROW);
			device_get(out, outs[1], N * STRIDE);
			same_rows(table, ids, TC_INT32, N, out, STRIDE);
			device_get(out, outs[2], N * STRIDE);
			same_rows(table, kept, TC_INT32, N, out, i % 2 ? ROW : STRIDE);
			served = was_served(tc_gather_host(shared, -1, 0, kept, TC_INT32, N, out, STRIDE), before);
			if (served)
				same_rows(table, kept, TC_INT32, N, out, STRIDE);
		}
		free(given);
		free(kept);
		if (!served)
			break;
		/* Each thread has a text of its own. */
		char words[64];
		snprintf(words, sizeof words, "(%d)", 1000 + (int)id);
		tc_status status = tc_gather_host(shared, 0, 1000 + (int)id, ids, TC_INT32, N, out, 0);
		CHECK(status == TC_ERROR_CLOSED || (status == TC_ERROR_TABLE && strstr(tc_last_error(), words) != NULL));
		atomic_fetch_add(&calls, 4);
	}
	device_free(dev_ids);
	for (int i = 0; i < 3; i++)
		device_free(outs[i]);
	free(ids);
	free(out);
	return NULL;
}

void check_threads(void)
{
	table = table_new();
	shared = cache_new(table);
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, gather_many, (void *)(i + 1)) == 0);
	/* Rows that nobody gathers change meanwhile. */
	for (int i = 0; i < 30 || atomic_load(&calls) < 500; i++) {
		int64_t id = ROWS - 1 - i % 100;
		char *json;
		OK(tc_update(shared, 0, &id, TC_INT64, 1, table, 0));
		OK(tc_invalidate(shared, 0, &id, TC_INT64, 1));
		OK(tc_refresh(shared));
		OK(tc_stats_json(shared, 0, &json));
		tc_free(json);
	}
	atomic_store(&closing, 1);
	OK(tc_close(shared));
	atomic_store(&closing, 2);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	free(table);
}

static long resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f != NULL && fscanf(f, "%*d %ld", &pages) == 1);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int count_of(const char *folder)
{
	int n = 0;
	DIR *d = opendir(folder);
	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* Opens and closes a small cache that some batches pass through. */
static void once(void)
{
	tc_config config;
	config_new(&config);
	config.codec = "ibp4";
	config.overlay = 1 << 16;
	tc_table t;
	table_desc(&t, table);
	t.rows = 200;
	tc_cache *cache;
	OK(tc_open(&config, &t, 1, &cache));
	int64_t id = 9;
	void *ids = device_alloc(8), *out = device_alloc(ROW + 4);
	device_put(ids, &id, 8);
	OK(tc_gather(cache, 0, 0, ids, TC_INT64, 1, out, 0, NULL, NULL));
	OK(tc_gather_host_ids(cache, 0, 0, &id, TC_INT64, 1, out, ROW + 4, NULL, NULL));
	tc_opening *opening;
	OK(tc_open_begin(&config, &t, 1, &opening));
	tc_opening_destroy(opening);
	OK(tc_close(cache));
	device_free(ids);
	device_free(out);
}

/* What is leaked grows in every round; in one of them the runtime and the driver may take memory and threads that they keep. An opening for a GPU
   unpacks kernels, some 20 MiB that the garbage collector frees: so there are more openings, and as much more may be left. */
void check_growth(int opens)
{
	long most = 8 << 10;
	if (on_cuda)
		opens *= 4, most *= 4;
	table = table_new();
	for (int i = 0; i < opens / 4; i++)
		once();
	long grown = 0;
	int threads = 0, files = 0;
	for (int round = 0; round < 3; round++) {
		long memory = resident();
		threads = count_of("/proc/self/task"), files = count_of("/proc/self/fd");
		for (int i = 0; i < opens; i++)
			once();
		grown = resident() - memory;
		threads = count_of("/proc/self/task") - threads, files = count_of("/proc/self/fd") - files;
		if (grown <= most && threads <= 8 && files <= 2) {
			free(table);
			return;
		}
	}
	FAIL("%d openings, for the third time: %ld KiB, %d threads and %d files more", opens, grown, threads, files);
}

static int calls_each;

static void *call_many(void *unused)
{
	(void)unused;
	device_begin();
	int32_t id = 5;
	float out[COLUMNS];
	void *dev_ids = device_alloc(8), *dev_out = device_alloc(ROW), *stream = stream_new();
	device_put(dev_ids, &id, 4);
	for (int i = 0; i < calls_each; i++) {
		tc_batch *batch;
		if (i % 4 == 0)
			OK(tc_gather_host(shared, 0, 0, &id, TC_INT32, 1, out, 0));
		else
			OK(tc_gather(shared, 0, 0, dev_ids, TC_INT32, 1, dev_out, 0, stream, i % 2 ? &batch : NULL));
		if (i % 4 != 0 && i % 2)
			tc_batch_destroy(batch);
	}
	stream_wait(stream);
	device_free(dev_ids);
	device_free(dev_out);
	return NULL;
}

/*
 * Calls from 8 threads leak neither memory nor threads: in one of five rounds, not counting the first, memory and threads stay as they are.
 * A single round may take more of both: the runtime of Go starts a thread when others are held up, and keeps it.
 */
void check_calls(int all)
{
	table = table_new();
	shared = cache_new(table);
	calls_each = all / THREADS;
	long memory, grown = 0;
	int tasks, started = 0;
	for (int round = 0; round < 6; round++) {
		memory = resident();
		tasks = count_of("/proc/self/task");
		pthread_t threads[THREADS];
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&threads[i], NULL, call_many, NULL) == 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		OK(tc_check(shared, 1));
		grown = resident() - memory;
		started = count_of("/proc/self/task") - tasks;
		printf("round %d: %d calls from %d threads: %ld KiB more memory, %d threads of the library, %d of them new\n", round, all, THREADS, grown, tasks + started, started);
		if (round > 0 && grown <= 8 << 10 && started <= 8)
			break;
	}
	if (grown > 8 << 10)
		FAIL("%d calls: %ld KiB more memory in each round", all, grown);
	if (started > 8)
		FAIL("%d calls: %d more threads in each round", all, started);
	OK(tc_close(shared));
	free(table);
}

void check_fork(void)
{
	table = table_new();
	tc_cache *cache = cache_new(table);
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, table);
	tc_opening *opening;
	OK(tc_open_begin(&config, &t, 1, &opening));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(120); /* a call that enters the runtime of Go hangs */
		int64_t id = 1;
		int32_t n;
		char *json;
		tc_cache *other;
		tc_batch *batch;
		float out[COLUMNS];
		const char *words = "open it in this process, or start workers by spawn";
		REFUSED(TC_ERROR_FORKED, words, tc_gather_host(cache, 0, 0, &id, TC_INT64, 1, out, 0));
		REFUSED(TC_ERROR_FORKED, words, tc_gather(cache, 0, 0, &id, TC_INT64, 1, out, 0, NULL, &batch));
		REFUSED(TC_ERROR_FORKED, words, tc_gather_host_ids(cache, 0, 0, &id, TC_INT64, 1, out, 0, NULL, &batch));
		REFUSED(TC_ERROR_FORKED, words, tc_open(&config, &t, 1, &other));
		REFUSED(TC_ERROR_FORKED, words, tc_open_begin(&config, &t, 1, &opening));
		REFUSED(TC_ERROR_FORKED, words, tc_opening_wait(opening, 0, &other));
		REFUSED(TC_ERROR_FORKED, words, tc_opening_cancel(opening));
		REFUSED(TC_ERROR_FORKED, words, tc_stats_json(cache, 0, &json));
		REFUSED(TC_ERROR_FORKED, words, tc_logs_json(&json));
		REFUSED(TC_ERROR_FORKED, words, tc_plan_json("{}", &json));
		REFUSED(TC_ERROR_FORKED, words, tc_update(cache, 0, &id, TC_INT64, 1, table, 0));
		REFUSED(TC_ERROR_FORKED, words, tc_refresh(cache));
		REFUSED(TC_ERROR_FORKED, words, tc_check(cache, 0));
		REFUSED(TC_ERROR_FORKED, words, tc_gpu_count(&n));
		REFUSED(TC_ERROR_FORKED, words, tc_batch_wait((tc_batch *)3));
		REFUSED(TC_ERROR_FORKED, words, tc_close(cache));
		tc_opening_destroy(opening);
		tc_batch_destroy((tc_batch *)3);
		CHECK(strcmp(tc_version(), TC_VERSION) == 0);
		_exit(0);
	}
	int how;
	CHECK(waitpid(child, &how, 0) == child);
	if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
		FAIL("child of fork: status %#x", how);
	int64_t id = 1;
	float out[COLUMNS];
	OK(tc_gather_host(cache, 0, 0, &id, TC_INT64, 1, out, 0));
	CHECK(memcmp(out, table + COLUMNS, ROW) == 0);
	CHECK(system("true") == 0);
	tc_opening_destroy(opening);
	OK(tc_close(cache));
	free(table);
}
