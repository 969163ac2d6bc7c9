/* Updates, invalidation, refresh, snapshots, statistics and explanations. */
#define _GNU_SOURCE
#include "check.h"

/* The JSON that a call gives must have this text. */
#define JSON_HAS(words, call_, json_)                                     \
	do {                                                                  \
		OK(call_);                                                        \
		if (strstr(json_, words) == NULL)                                 \
			FAIL("%s: %s lacks %s", #call_, json_, words);                \
		tc_free(json_);                                                   \
	} while (0)

static void same_row(tc_cache *cache, int64_t row, const float *want)
{
	float got[COLUMNS];
	OK(tc_gather_host(cache, 0, 0, &row, TC_INT64, 1, got, 0));
	if (memcmp(got, want, ROW) != 0)
		FAIL("row %lld is not the updated one", (long long)row);
}

static void updates(tc_cache *cache)
{
	enum { N = 3, STRIDE = ROW + 8 };
	int32_t ids[N] = {7, 4999, 7};
	char rows[N * STRIDE];
	memset(rows, 0, sizeof rows);
	for (int i = 0; i < N; i++)
		for (int c = 0; c < COLUMNS; c++)
			((float *)(rows + i * STRIDE))[c] = -1.5f * (float)i - (float)c;
	OK(tc_update(cache, 0, ids, TC_INT32, N, rows, STRIDE));
	same_row(cache, 7, (float *)(rows + 2 * STRIDE)); /* the last one counts */
	same_row(cache, 4999, (float *)(rows + STRIDE));
	/* Appended rows: with one left out an error, which changes nothing. */
	int64_t gap[2] = {3, ROWS + 1};
	REFUSED(TC_ERROR_ROWS, "row number (5001) must be at most 5000", tc_update(cache, 0, gap, TC_INT64, 2, rows, STRIDE));
	int64_t more[3] = {ROWS + 1, 3, ROWS};
	OK(tc_update(cache, 0, more, TC_INT64, 3, rows, STRIDE));
	tc_table_info info;
	info.size = sizeof info;
	OK(tc_table_get_info(cache, 0, &info));
	CHECK(info.rows == ROWS + 2 && info.capacity == ROWS + 100 && info.row_bytes == ROW && info.columns == COLUMNS);
	CHECK(info.dtype == TC_FLOAT32 && strcmp(info.name, "numbers") == 0 && info.codec[0] != 0);
	same_row(cache, ROWS, (float *)(rows + 2 * STRIDE));
	same_row(cache, ROWS + 1, (float *)rows);
	same_row(cache, 3, (float *)(rows + STRIDE));
	int64_t beyond[2] = {0, ROWS + 100};
	REFUSED(TC_ERROR_ROWS, "5100", tc_update(cache, 0, beyond, TC_INT64, 2, rows, 0));
	OK(tc_update(cache, 0, NULL, TC_INT64, 0, NULL, 0));
}

static void commands(void)
{
	char *json;
	JSON_HAS("\"answers\":[{\"target_hit\":0.5,\"reached\":true,\"policy\":\"freq\"", tc_plan_json("{\"vertices\": 3000, \"batches\": 5, \"train_batches\": 5, \"target_hit\": \"50%\", "
		"\"gpu_memory\": \"1GB\", \"policy\": \"freq\", \"codec\": [\"none\", \"ibp4\"], \"device\": \"host\"}", &json), json);
	JSON_HAS("\"verified_rows\":", tc_bench_json("{\"vertices\": 3000, \"batches\": 5, \"train_batches\": 5, \"device\": \"host\", \"verify\": true}", &json),
		json);
	REFUSED(TC_ERROR_ARGUMENT, "vertexes", tc_bench_json("{\"vertexes\": 3000}", &json));
	REFUSED(TC_ERROR_ARGUMENT, "config_json", tc_bench_json("{\"vertices\": 30", &json));
	REFUSED(TC_ERROR_ARGUMENT, "nothing after", tc_bench_json("{} {}", &json));
	REFUSED(TC_ERROR_ARGUMENT, "tensorcache: batches (-7)", tc_bench_json("{\"batches\": -7}", &json));
	REFUSED(TC_ERROR_ARGUMENT, "target_hit (\"high\")", tc_plan_json("{\"target_hit\": \"high\"}", &json));
	REFUSED(TC_ERROR_ARGUMENT, "gpu_memory (\"much\")", tc_plan_json("{\"gpu_memory\": \"much\"}", &json));
	CHECK(json == NULL);
}

/* What rows have beyond their slots lies where tc_table.resident_buddy says. GPUs are as many as there are: with one, peers are refused. */
static void buddies(tc_config *config, tc_table *t, const float *table)
{
	tc_cache *cache;
	char *json;
	config->gpu_memory = 4 << 20;
	t->resident_target = 64;
	t->resident_buddy = TC_BUDDY_PEER;
	REFUSED(TC_ERROR_ARGUMENT, "resident_buddy (peer) needs at least 2 devices, there is 1", tc_open(config, t, 1, &cache));
	t->resident_buddy = 3;
	REFUSED(TC_ERROR_ARGUMENT, "resident_buddy (3) must be one of tc_buddy", tc_open(config, t, 1, &cache));
	for (int32_t of = TC_BUDDY_HOST; of <= TC_BUDDY_AUTO && config->backend == TC_BACKEND_HOST; of++) {
		config->devices = 2;
		t->resident_buddy = of;
		OK(tc_open(config, t, 1, &cache));
		OK(tc_stats_json(cache, 0, &json));
		CHECK(strstr(json, "\"peer_bytes\":") != NULL && (strstr(json, "\"peer_bytes\":0,") != NULL) == (of == TC_BUDDY_HOST));
		tc_free(json);
		enum { N = 100 };
		int64_t *ids = ids_new(TC_INT64, N, ROWS, 6);
		static char out[N * ROW];
		OK(tc_gather_host(cache, 1, 0, ids, TC_INT64, N, out, 0));
		same_rows(table, ids, TC_INT64, N, out, ROW);
		free(ids);
		OK(tc_close(cache));
	}
}

/* A resident table reads and updates as a cached one. */
static void resident(const float *table)
{
	tc_config config;
	config_new(&config);
	config.gpu_memory = 4 << 20;
	tc_table t;
	table_desc(&t, table);
	t.resident = 1;
	t.resident_target = 64;
	t.resident_max_target = 96;
	t.codec = "ibp4";
	tc_cache *cache;
	OK(tc_open(&config, &t, 1, &cache));
	enum { N = 1000 };
	int64_t *ids = ids_new(TC_INT64, N, ROWS, 5);
	static char out[N * ROW];
	OK(tc_gather_host(cache, 0, 0, ids, TC_INT64, N, out, 0));
	same_rows(table, ids, TC_INT64, N, out, ROW);
	char *json;
	int64_t id = 4; /* not the one that is updated below, which is in the overlay for a while */
	JSON_HAS("\"cached\":true,\"tier\":\"resident\"", tc_explain_json(cache, 0, &id, TC_INT64, 1, &json), json);
	float row[COLUMNS];
	for (int c = 0; c < COLUMNS; c++)
		row[c] = 0.25f * (float)c;
	OK(tc_update(cache, 0, ids, TC_INT64, 1, row, 0));
	same_row(cache, ids[0], row);
	JSON_HAS("\"resident\":{\"target_bytes\":64,\"overflow_rows\":", tc_stats_json(cache, 0, &json), json);
	/* In slots of another length the rows are the same. */
	OK(tc_retarget(cache, 0, 96));
	JSON_HAS("\"resident\":{\"target_bytes\":96,", tc_stats_json(cache, 0, &json), json);
	JSON_HAS("\"max_target_bytes\":96,\"past_max_overflow\":", tc_stats_json(cache, 0, &json), json);
	OK(tc_gather_host(cache, 0, 0, ids + 1, TC_INT64, N - 1, out, 0));
	for (int i = 1; i < N; i++)
		CHECK(ids[i] == ids[0] || memcmp(out + (size_t)(i - 1) * ROW, table + ids[i] * COLUMNS, ROW) == 0);
	same_row(cache, ids[0], row);
	REFUSED(TC_ERROR_BUDGET, "target (112 B) must be at most 96 B, for which device memory was taken (resident_max_target)", tc_retarget(cache, 0, 112));
	REFUSED(TC_ERROR_ARGUMENT, "target (24 B) must be a multiple of 16, or 0", tc_retarget(cache, 0, 24));
	REFUSED(TC_ERROR_TABLE, "", tc_retarget(cache, 1, 64));
	free(ids);
	OK(tc_close(cache));
	config.gpu_memory = 100000;
	REFUSED(TC_ERROR_BUDGET, "must be at least", tc_open(&config, &t, 1, &cache));
	t.resident_target = 24;
	REFUSED(TC_ERROR_ARGUMENT, "target (24 B) must be a multiple of 16", tc_open(&config, &t, 1, &cache));
	t.resident = 0;
	REFUSED(TC_ERROR_ARGUMENT, "resident_target (24)", tc_open(&config, &t, 1, &cache));
	t.resident_target = t.resident_max_target = 0;
	t.resident_retarget = 1;
	REFUSED(TC_ERROR_ARGUMENT, "resident_retarget (1) and resident_buddy (0) must be 0 unless resident is set", tc_open(&config, &t, 1, &cache));
	t.resident = 1;
	t.resident_max_target = 24;
	REFUSED(TC_ERROR_ARGUMENT, "resident_max_target (24 B) must be a multiple of 16", tc_open(&config, &t, 1, &cache));
	t.resident_max_target = t.resident_retarget = 0;
	buddies(&config, &t, table);
}

void check_changes(const char *folder)
{
	if (!on_cuda)
		commands();
	float *table = table_new();
	tc_cache *cache = cache_new(table);
	updates(cache);
	int64_t id = 11;
	char *json;
	OK(tc_invalidate(cache, 0, &id, TC_INT64, 1));
	JSON_HAS("\"reason\":\"invalidated\"", tc_explain_json(cache, 0, &id, TC_INT64, 1, &json), json);
	id = 7;
	JSON_HAS("\"row\":7,", tc_explain_json(cache, 0, &id, TC_INT64, 1, &json), json);
	OK(tc_explain_json(cache, 0, NULL, TC_INT64, 0, &json));
	CHECK(strcmp(json, "[]") == 0);
	tc_free(json);
	OK(tc_prefetch(cache, 0, &id, TC_INT64, 1));
	int32_t wrong = -3;
	REFUSED(TC_ERROR_ROWS, "row number (-3)", tc_prefetch(cache, 0, &wrong, TC_INT32, 1));
	REFUSED(TC_ERROR_ROWS, "-3", tc_invalidate(cache, 0, &wrong, TC_INT32, 1));
	REFUSED(TC_ERROR_ROWS, "-3", tc_explain_json(cache, 0, &wrong, TC_INT32, 1, &json));
	CHECK(json == NULL);
	static const int64_t extremes[] = {ROWS + 102, -1, INT64_MIN, INT64_MAX, 1LL << 62, 1LL << 32, 1LL << 50};
	for (unsigned i = 0; i < sizeof extremes / sizeof *extremes; i++) {
		int64_t ids[40] = {0};
		ids[i * 6] = extremes[i];
		REFUSED(TC_ERROR_ROWS, "1 of 40", tc_prefetch(cache, 0, ids, TC_INT64, 40));
		int32_t narrow[40] = {0};
		narrow[i * 6] = i % 2 ? INT32_MIN : INT32_MAX;
		REFUSED(TC_ERROR_ROWS, "1 of 40", tc_prefetch(cache, 0, narrow, TC_INT32, 40));
	}
	OK(tc_refresh(cache));
	OK(tc_set_gpu_memory(cache, 1 << 18));
	REFUSED(TC_ERROR_BUDGET, "", tc_set_gpu_memory(cache, 1));
	JSON_HAS("\"misses_by_reason\":{\"cold\":", tc_stats_json(cache, 0, &json), json);
	JSON_HAS("\"gpu_memory\":262144,", tc_stats_json(cache, -1, &json), json);
	JSON_HAS("\"codec\":[", tc_stats_json(cache, -1, &json), json);
	tc_device_info device;
	device.size = sizeof device;
	OK(tc_device_get_info(cache, 0, &device));
	CHECK(device.backend == (on_cuda ? TC_BACKEND_CUDA : TC_BACKEND_HOST) && device.name[0] != 0);
	int32_t count = 0;
	OK(tc_table_count(cache, &count));
	CHECK(count == 1);
	OK(tc_device_count(cache, &count));
	CHECK(count == 1);
	REFUSED(TC_ERROR_ARGUMENT, "must be resident", tc_retarget(cache, 0, 64));
	REFUSED(TC_ERROR_CLOSED, "", tc_retarget(NULL, 0, 64));
	/* A snapshot, and a cache that begins with it. */
	char path[4096];
	snprintf(path, sizeof path, "%s/cached.snapshot", folder);
	OK(tc_snapshot(cache, path));
	OK(tc_close(cache));
	tc_config config;
	config_new(&config);
	config.restore = path;
	config.cold = 1;
	config.name = "restored";
	config.log_level = TC_LOG_INFO;
	tc_table t;
	table_desc(&t, table);
	t.capacity = ROWS + 100;
	OK(tc_open(&config, &t, 1, &cache));
	OK(tc_stats_json(cache, 0, &json));
	CHECK(strstr(json, "\"restored_rows\":0,") == NULL && strstr(json, "\"errors\":{}") != NULL);
	tc_free(json);
	JSON_HAS("\"message\":\"loaded\",\"cache\":\"restored\"", tc_logs_json(&json), json);
	OK(tc_logs_json(&json));
	CHECK(strcmp(json, "[]") == 0);
	tc_free(json);
	OK(tc_close(cache));
	if (!on_cuda)
		resident(table);
	OK(tc_open(&config, &t, 1, &cache));
	snprintf(path, sizeof path, "%s/nowhere/x", folder);
	REFUSED(TC_ERROR_FILE, "nowhere", tc_snapshot(cache, path));
	OK(tc_close(cache));
	free(table);
}

/* The variables that the program has set when it opens its first cache count. Metrics go to stderr, where the Go test looks for them. */
void check_telemetry(void)
{
	float *table = table_new();
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, table);
	tc_cache *cache;
	setenv("TENSORCACHE_METRICS_ADDR", "nowhere:at:all", 1);
	REFUSED(TC_ERROR_ARGUMENT, "nowhere:at:all", tc_open(&config, &t, 1, &cache));
	unsetenv("TENSORCACHE_METRICS_ADDR");
	setenv("OTEL_METRICS_EXPORTER", "console", 1);
	setenv("OTEL_TRACES_EXPORTER", "console", 1);
	setenv("OTEL_SERVICE_NAME", "checked", 1);
	config.name = "watched";
	OK(tc_open(&config, &t, 1, &cache));
	int64_t id = 5;
	float out[COLUMNS];
	OK(tc_gather_host(cache, 0, 0, &id, TC_INT64, 1, out, 0));
	OK(tc_close(cache));
	free(table);
}
