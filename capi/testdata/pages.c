/* Tables of pages: a directory of "cachebench pack", with the rows of table_new. */
#include "check.h"

enum { PAGED_ROWS = 5000, BATCH = 700 };

static tc_cache *pages_open(const char *dir, int durable)
{
	tc_config config;
	config_new(&config);
	config.gpu_memory = 1 << 18;
	config.host_memory = 1 << 19; /* most rows have no place in memory */
	tc_table t;
	tc_table_default(&t);
	t.path = dir;
	t.durable = durable;
	tc_cache *cache;
	OK(tc_open(&config, &t, 1, &cache));
	return cache;
}

static void reads(tc_cache *cache, const float *table, unsigned seed)
{
	int64_t *ids = ids_new(TC_INT64, BATCH, PAGED_ROWS, seed);
	char *out = malloc((size_t)BATCH * ROW), *device_out = device_alloc((size_t)BATCH * ROW);
	OK(tc_gather_host(cache, 0, 0, ids, TC_INT64, BATCH, out, 0));
	same_rows(table, ids, TC_INT64, BATCH, out, ROW);
	OK(tc_prefetch(cache, 0, ids, TC_INT64, BATCH));
	void *device_ids = device_alloc(BATCH * 8), *stream = stream_new();
	device_put(device_ids, ids, BATCH * 8);
	tc_batch *batch;
	OK(tc_gather(cache, 0, 0, device_ids, TC_INT64, BATCH, device_out, 0, stream, &batch));
	stream_wait(stream);
	OK(tc_batch_wait(batch));
	tc_batch_destroy(batch);
	device_get(out, device_out, (size_t)BATCH * ROW);
	same_rows(table, ids, TC_INT64, BATCH, out, ROW);
	device_free(device_out);
	device_free(device_ids);
	free(ids);
	free(out);
}

static int64_t stat_of(tc_cache *cache, const char *key)
{
	char *json;
	OK(tc_stats_json(cache, 0, &json));
	const char *at = strstr(json, key);
	if (at == NULL)
		FAIL("%s lacks %s", json, key);
	int64_t n = strtoll(at + strlen(key), NULL, 10);
	tc_free(json);
	return n;
}

void check_pages(const char *dir)
{
	float *table = table_new();
	tc_table t;
	tc_table_default(&t);
	t.path = dir;
	tc_table_info info;
	info.size = sizeof info;
	OK(tc_table_describe(&t, &info));
	CHECK(info.rows == PAGED_ROWS && info.row_bytes == ROW && info.columns == COLUMNS && info.dtype == TC_FLOAT32);

	tc_cache *cache = pages_open(dir, 1);
	reads(cache, table, 1);
	CHECK(stat_of(cache, "\"absent_rows\":") > 0);
	int64_t changed[2] = {17, 4321};
	float rows[2 * COLUMNS];
	for (int c = 0; c < 2 * COLUMNS; c++)
		rows[c] = -3.0f * (float)c;
	OK(tc_update(cache, 0, changed, TC_INT64, 2, rows, 0));
	for (int i = 0; i < 2; i++)
		memcpy(table + changed[i] * COLUMNS, rows + i * COLUMNS, ROW);
	reads(cache, table, 2);
	/* The directory has one log of updates, and one process writes to it. */
	tc_config config;
	config_new(&config);
	config.host_memory = 1 << 19;
	tc_cache *second;
	t.durable = 1;
	REFUSED(TC_ERROR_FILE, "delta", tc_open(&config, &t, 1, &second));
	OK(tc_close(cache));

	/* The updates are there when the table is opened again, from the log and, after the merge, from the pages. */
	cache = pages_open(dir, 0);
	float row[COLUMNS];
	OK(tc_gather_host(cache, 0, 0, changed + 1, TC_INT64, 1, row, 0));
	CHECK(memcmp(row, table + changed[1] * COLUMNS, ROW) == 0);
	reads(cache, table, 3);
	OK(tc_merge_updates(cache, 0));
	REFUSED(TC_ERROR_TABLE, "1", tc_merge_updates(cache, 1));
	OK(tc_close(cache));
	cache = pages_open(dir, 0);
	OK(tc_gather_host(cache, 0, 0, changed, TC_INT64, 1, row, 0));
	CHECK(memcmp(row, table + changed[0] * COLUMNS, ROW) == 0);
	CHECK(stat_of(cache, "\"log\":{\"rows\":") == 0);
	reads(cache, table, 4);
	OK(tc_close(cache));

	/* What says where pages are must fit. */
	t.cold = "localhost:6379";
	REFUSED(TC_ERROR_ARGUMENT, "cold (localhost:6379) must be the address of a cluster", tc_open(&config, &t, 1, &second));
	t.cold = NULL;
	t.cold_cache = dir;
	REFUSED(TC_ERROR_ARGUMENT, "must be of a table in a cluster", tc_open(&config, &t, 1, &second));
	t.cold_cache = NULL;
	t.path = "redis://localhost:1/numbers";
	REFUSED(TC_ERROR_ARGUMENT, "must have a folder for its log", tc_open(&config, &t, 1, &second));
	t.path = NULL;
	t.data = table;
	t.rows = ROWS;
	t.row_bytes = ROW;
	REFUSED(TC_ERROR_ARGUMENT, "without a path", tc_open(&config, &t, 1, &second));
	free(table);
}
