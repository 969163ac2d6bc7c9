/* The checks of the C library: check host|cuda NAME [ARGUMENT]. */
#include <unistd.h>

#include "check.h"

float *table_new(void)
{
	float *t = malloc((size_t)ROWS * ROW);
	CHECK(t != NULL);
	for (int i = 0; i < ROWS * COLUMNS; i++)
		t[i] = (float)i / 64;
	return t;
}

void *ids_new(int32_t id_type, int64_t n, int64_t rows, unsigned seed)
{
	void *ids = malloc((size_t)n * 8 + 8);
	CHECK(ids != NULL);
	for (int64_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		int64_t id = (seed >> 8) % rows;
		if (id_type == TC_INT32)
			((int32_t *)ids)[i] = (int32_t)id;
		else
			((int64_t *)ids)[i] = id;
	}
	return ids;
}

int64_t id_at(const void *ids, int32_t id_type, int64_t i)
{
	return id_type == TC_INT32 ? ((const int32_t *)ids)[i] : ((const int64_t *)ids)[i];
}

void config_new(tc_config *config)
{
	tc_config_default(config);
	config->gpu_memory = 1 << 19;
	config->backend = on_cuda ? TC_BACKEND_CUDA : TC_BACKEND_HOST;
	config->host_threads = -1;
}

void table_desc(tc_table *t, const float *table)
{
	tc_table_default(t);
	t->name = "numbers";
	t->data = table;
	t->rows = ROWS;
	t->row_bytes = ROW;
	t->dtype = TC_FLOAT32;
}

tc_cache *cache_new(const float *table)
{
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, table);
	t.capacity = ROWS + 100;
	tc_cache *cache;
	OK(tc_open(&config, &t, 1, &cache));
	return cache;
}

void same_rows(const float *table, const void *ids, int32_t id_type, int64_t n, const char *out, int64_t stride)
{
	for (int64_t i = 0; i < n; i++)
		if (memcmp(out + i * stride, table + id_at(ids, id_type, i) * COLUMNS, ROW) != 0)
			FAIL("row %lld at position %lld differs", (long long)id_at(ids, id_type, i), (long long)i);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 3);
	on_cuda = strcmp(argv[1], "cuda") == 0;
	const char *name = argv[2], *argument = argc > 3 ? argv[3] : "";
	CHECK(strcmp(tc_version(), TC_VERSION) == 0);
	device_begin();
	if (strcmp(name, "gathers") == 0)
		check_gathers();
	else if (strcmp(name, "pooled") == 0)
		check_pooled();
	else if (strcmp(name, "errors") == 0)
		check_errors();
	else if (strcmp(name, "changes") == 0)
		check_changes(argument);
	else if (strcmp(name, "openings") == 0)
		check_openings();
	else if (strcmp(name, "handles") == 0)
		check_handles();
	else if (strcmp(name, "files") == 0)
		check_files(argument);
	else if (strcmp(name, "pages") == 0)
		check_pages(argument);
	else if (strcmp(name, "models") == 0)
		check_models(argument);
	else if (strcmp(name, "adopt") == 0)
		check_adopt();
	else if (strcmp(name, "threads") == 0)
		check_threads();
	else if (strcmp(name, "growth") == 0)
		check_growth(atoi(argument));
	else if (strcmp(name, "calls") == 0)
		check_calls(atoi(argument));
	else if (strcmp(name, "fork") == 0)
		check_fork();
	else if (strcmp(name, "telemetry") == 0)
		check_telemetry();
	else if (strcmp(name, "graphs") == 0)
		check_graphs();
	else if (strcmp(name, "parts") == 0)
		check_parts();
	else if (strcmp(name, "device-source") == 0)
		check_device_source();
	else if (strcmp(name, "attach") == 0)
		check_attach(argument);
	else if (strcmp(name, "owner") == 0)
		check_owner(argument);
	else if (strcmp(name, "bench") == 0)
		bench(atoll(argument));
	else
		FAIL("no check %s", name);
	return 0;
}
