/* What is out of range is refused, with a text that has the value, and nothing happens. */
#include "check.h"

static float *table;

/* Opens with one thing changed. */
#define REFUSES(status, words, change)                                  \
	do {                                                                \
		tc_config config;                                               \
		config_new(&config);                                            \
		tc_table t;                                                     \
		table_desc(&t, table);                                          \
		change;                                                         \
		tc_cache *cache = (tc_cache *)1;                                \
		REFUSED(status, words, tc_open(&config, &t, 1, &cache));        \
		CHECK(cache == NULL);                                           \
		tc_opening *opening;                                            \
		tc_status begun = tc_open_begin(&config, &t, 1, &opening);      \
		if (begun == TC_OK) {                                           \
			REFUSED(status, words, tc_opening_wait(opening, -1, &cache)); \
			tc_opening_destroy(opening);                                \
		} else                                                          \
			CHECK(begun == status && opening == NULL);                  \
	} while (0)

static void of_opening(void)
{
	REFUSES(TC_ERROR_ARGUMENT, "gpu_memory (0)", config.gpu_memory = 0);
	REFUSES(TC_ERROR_ARGUMENT, "gpu_memory (-5)", config.gpu_memory = -5);
	REFUSES(TC_ERROR_BUDGET, "", config.gpu_memory = 100);
	REFUSES(TC_ERROR_ARGUMENT, "gzip", config.codec = "gzip");
	REFUSES(TC_ERROR_ARGUMENT, "backend (9)", config.backend = 9);
	REFUSES(TC_ERROR_ARGUMENT, "devices (17)", config.devices = 17);
	REFUSES(TC_ERROR_ARGUMENT, "best", config.policy = "best");
	REFUSES(TC_ERROR_ARGUMENT, "needs no graph", config.policy = "static-degree");
	REFUSES(TC_ERROR_ARGUMENT, "training_batches (3)", config.training_batches = 3);
	tc_training training = {1, TC_INT64, table, 3};
	REFUSES(TC_ERROR_ARGUMENT, "table (1)", (config.training = &training, config.training_batches = 1));
	training.table = 0, training.id_type = TC_FLOAT32;
	REFUSES(TC_ERROR_ARGUMENT, "id_type (3)", (config.training = &training, config.training_batches = 1));
	training.id_type = TC_INT64, training.n = -1;
	REFUSES(TC_ERROR_ARGUMENT, "n (-1)", (config.training = &training, config.training_batches = 1));
	int64_t outside[2] = {0, ROWS};
	training.n = 2, training.ids = outside;
	REFUSES(TC_ERROR_ROWS, "5000", (config.training = &training, config.training_batches = 1));
	REFUSES(TC_ERROR_ARGUMENT, "refresh_interval (-1", config.refresh_interval = -1);
	REFUSES(TC_ERROR_ARGUMENT, "refresh_interval (NaN", config.refresh_interval = 0.0 / 0.0);
	REFUSES(TC_ERROR_ARGUMENT, "(2)", config.refresh_churn = 2);
	REFUSES(TC_ERROR_ARGUMENT, "log_level (77)", config.log_level = 77);
	REFUSES(TC_ERROR_ARGUMENT, "tc_config.size (0)", config.size = 0);
	REFUSES(TC_ERROR_ARGUMENT, "tc_table.size (7)", t.size = 7);
	REFUSES(TC_ERROR_ARGUMENT, "rows (-1)", t.rows = -1);
	REFUSES(TC_ERROR_ARGUMENT, "rows (2251799813685248)", t.rows = 1LL << 51);
	REFUSES(TC_ERROR_ARGUMENT, "", t.rows = 0);
	REFUSES(TC_ERROR_ARGUMENT, "row_bytes (0)", t.row_bytes = 0);
	REFUSES(TC_ERROR_ARGUMENT, "row_bytes (1048576)", t.row_bytes = 1 << 20);
	REFUSES(TC_ERROR_ARGUMENT, "row_bytes (239)", t.row_bytes = ROW - 1);
	REFUSES(TC_ERROR_ARGUMENT, "dtype (0)", t.dtype = 0);
	REFUSES(TC_ERROR_ARGUMENT, "dtype (17)", t.dtype = 17);
	REFUSES(TC_ERROR_ARGUMENT, "memory (3)", t.memory = 3);
	REFUSES(TC_ERROR_ARGUMENT, "must be set", t.data = NULL);
	REFUSES(TC_ERROR_ARGUMENT, "must not both be set", t.path = "x.npy");
	REFUSES(TC_ERROR_ARGUMENT, "capacity (-1)", t.capacity = -1);
	REFUSES(TC_ERROR_ARGUMENT, "zip9", t.codec = "zip9");
	REFUSES(TC_ERROR_FILE, "no/such/file.npy", (t.data = NULL, t.path = "no/such/file.npy"));
	REFUSES(TC_ERROR_FILE, "passwd", (t.data = NULL, t.path = "/etc/passwd"));
	REFUSES(TC_ERROR_ARGUMENT, "page", (t.memory = TC_MEMORY_ADOPT, t.data = table + 1));
	if (!on_cuda) {
		REFUSES(TC_ERROR_DEVICE, "cuda: ", config.backend = TC_BACKEND_CUDA);
		REFUSES(TC_ERROR_DEVICE, "cuda: ", t.memory = TC_MEMORY_CUDA);
	}
	else {
		int32_t gpu = 99;
		REFUSES(TC_ERROR_DEVICE, "gpus (99)", config.gpus = &gpu);
		gpu = -1;
		REFUSES(TC_ERROR_DEVICE, "gpus (-1)", config.gpus = &gpu);
		REFUSES(TC_ERROR_DEVICE, "devices (8)", config.devices = 8);
	}
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, table);
	tc_cache *cache;
	tc_attach_config attach;
	tc_attach_config_default(&attach);
	REFUSED(TC_ERROR_OWNER, "no such file", tc_attach("unix:/nonexistent/socket", &attach, &cache));
	REFUSED(TC_ERROR_OWNER, "must be unix:PATH", tc_attach("tcp:localhost", NULL, &cache));
	attach.wait = -1;
	REFUSED(TC_ERROR_ARGUMENT, "wait (-1", tc_attach("unix:/nonexistent/socket", &attach, &cache));
	attach.wait = 0, attach.scratch = 5;
	REFUSED(TC_ERROR_ARGUMENT, "config.scratch (5) must be at least 1048576", tc_attach("unix:/nonexistent/socket", &attach, &cache));
	attach.scratch = 0, attach.timeout = 0.01;
	REFUSED(TC_ERROR_ARGUMENT, "config.timeout (0.01 s) must be 0.1 to 1e9, or 0 for 10", tc_attach("unix:/nonexistent/socket", &attach, &cache));
	attach.timeout = 0, attach.size = 3;
	REFUSED(TC_ERROR_ARGUMENT, "tc_attach_config.size (3)", tc_attach("unix:/nonexistent/socket", &attach, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_attach(NULL, NULL, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_attach("unix:/nonexistent/socket", NULL, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "count (0)", tc_open(&config, &t, 0, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "count (257)", tc_open(&config, &t, 257, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_open(NULL, &t, 1, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_open(&config, NULL, 1, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_open(&config, &t, 1, NULL));
	tc_config_default(NULL);
	tc_table_default(NULL);
}

/* Programs of older and newer headers. */
static void of_versions(void)
{
	struct {
		tc_config config;
		int64_t later[2];
	} newer;
	memset(&newer, 0, sizeof newer);
	config_new(&newer.config);
	newer.config.size = sizeof newer;
	tc_table t;
	table_desc(&t, table);
	tc_cache *cache;
	OK(tc_open(&newer.config, &t, 1, &cache));
	OK(tc_close(cache));
	newer.later[1] = 1;
	REFUSED(TC_ERROR_ARGUMENT, "does not know", tc_open(&newer.config, &t, 1, &cache));
	newer.config.size = offsetof(tc_config, seed); /* an older one has no seed */
	newer.config.seed = 5;
	newer.config.host_memory = -1;
	OK(tc_open(&newer.config, &t, 1, &cache));
	struct {
		tc_table_info info;
		int64_t later;
	} info;
	memset(&info, 0xff, sizeof info);
	info.info.size = sizeof info;
	OK(tc_table_get_info(cache, 0, &info.info));
	CHECK(info.info.size == sizeof info && info.info.rows == ROWS && info.later == 0);
	memset(&info, 0xff, sizeof info);
	info.info.size = offsetof(tc_table_info, row_bytes);
	OK(tc_table_get_info(cache, 0, &info.info));
	CHECK(info.info.rows == ROWS && info.info.row_bytes == -1);
	info.info.size = 0;
	REFUSED(TC_ERROR_ARGUMENT, "size (0)", tc_table_get_info(cache, 0, &info.info));
	OK(tc_close(cache));
}

static void of_calls(void)
{
	tc_cache *cache = cache_new(table);
	int64_t ids[4] = {0, 1, 2, 3};
	char out[4 * ROW];
	char *json = (char *)1;
	int32_t count;
	REFUSED(TC_ERROR_TABLE, "(1)", tc_gather_host(cache, 0, 1, ids, TC_INT64, 4, out, 0));
	REFUSED(TC_ERROR_TABLE, "(-1)", tc_gather_host(cache, 0, -1, ids, TC_INT64, 4, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "device (1)", tc_gather_host(cache, 1, 0, ids, TC_INT64, 4, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "device (-2)", tc_gather_host(cache, -2, 0, ids, TC_INT64, 4, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "id_type (3)", tc_gather_host(cache, 0, 0, ids, TC_FLOAT32, 4, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "n (-1)", tc_gather_host(cache, 0, 0, ids, TC_INT64, -1, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "n (2147483648)", tc_gather_host(cache, 0, 0, ids, TC_INT64, 1LL << 31, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "row_stride (239)", tc_gather_host(cache, 0, 0, ids, TC_INT64, 4, out, ROW - 1));
	REFUSED(TC_ERROR_ARGUMENT, "2^63", tc_gather_host(cache, 0, 0, ids, TC_INT64, 1 << 30, out, 1LL << 40));
	REFUSED(TC_ERROR_ARGUMENT, "row_stride (-240)", tc_gather_host(cache, 0, 0, ids, TC_INT64, 4, out, -ROW));
	REFUSED(TC_ERROR_ARGUMENT, "ids (NULL)", tc_gather_host(cache, 0, 0, NULL, TC_INT64, 4, out, 0));
	REFUSED(TC_ERROR_ARGUMENT, "out (NULL)", tc_gather_host(cache, 0, 0, ids, TC_INT64, 4, NULL, 0));
	REFUSED(TC_ERROR_ARGUMENT, "ids (NULL)", tc_gather(cache, 0, 0, NULL, TC_INT64, 4, out, 0, NULL, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "out (NULL)", tc_gather(cache, 0, 0, ids, TC_INT64, 4, NULL, 0, NULL, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "", tc_gather(cache, 0, 0, ids, TC_INT64, 4, out, 0, (void *)2, NULL)); /* the per-thread stream, or any on the host */
	REFUSED(TC_ERROR_ARGUMENT, "stream (0x2)", tc_gather(cache, 0, 0, ids, TC_INT64, 4, out, ROW + 4, (void *)2, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "stream (0x2)", tc_gather_host_ids(cache, 0, 0, ids, TC_INT64, 4, out, 0, (void *)2, NULL));
	if (on_cuda)
		REFUSED(TC_ERROR_ARGUMENT, "device (-1)", tc_gather(cache, -1, 0, ids, TC_INT64, 4, out, 0, NULL, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_update(cache, 0, ids, TC_INT64, 4, NULL, 0));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_invalidate(cache, 0, NULL, TC_INT64, 4));
	REFUSED(TC_ERROR_TABLE, "(3)", tc_stats_json(cache, 3, &json));
	CHECK(json == NULL);
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_stats_json(cache, 0, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_snapshot(cache, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_table_count(cache, NULL));
	tc_device_info info;
	info.size = sizeof info;
	REFUSED(TC_ERROR_ARGUMENT, "device (4)", tc_device_get_info(cache, 4, &info));
	REFUSED(TC_ERROR_ARGUMENT, "NULL", tc_plan_json(NULL, &json));
	if (!on_cuda)
		REFUSED(TC_ERROR_DEVICE, "cuda: ", tc_gpu_count(&count));
	else
		OK(tc_gpu_count(&count));
	CHECK(count == (on_cuda ? count : 0));
	OK(tc_close(cache));
	tc_free(NULL);
	CHECK(strcmp(tc_status_name(TC_ERROR_ROWS), "TC_ERROR_ROWS") == 0 && strcmp(tc_status_name(99), "unknown status") == 0);
	CHECK(strcmp(tc_status_name((tc_status)-1), "unknown status") == 0 && strcmp(tc_status_name(TC_ERROR_INTERNAL), "TC_ERROR_INTERNAL") == 0);
}

void check_errors(void)
{
	table = table_new();
	of_opening();
	of_versions();
	of_calls();
	free(table);
}
