/*
 * Opens a cache of a table in memory, gathers rows, and compares them with the table.
 *
 *     cc example.c -ltensorcache && ./a.out [host|cuda]
 *
 * With "cuda" it would take GPU memory for ids and out; this example keeps to host memory, which works on every backend.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorcache.h"

enum { ROWS = 10000, COLUMNS = 64, BATCH = 1000 };

#define TRY(call)                                                                                     \
	do {                                                                                              \
		tc_status status = (call);                                                                    \
		if (status != TC_OK) {                                                                        \
			fprintf(stderr, "%s: %s: %s\n", #call, tc_status_name(status), tc_last_error());          \
			exit(1);                                                                                  \
		}                                                                                             \
	} while (0)

int main(int argc, char **argv)
{
	float *features = malloc(sizeof(float) * ROWS * COLUMNS);
	for (int i = 0; i < ROWS * COLUMNS; i++)
		features[i] = (float)(i % 1000) / 16;

	tc_config config;
	tc_config_default(&config);
	config.gpu_memory = 1 << 20;
	config.backend = argc > 1 && strcmp(argv[1], "cuda") == 0 ? TC_BACKEND_CUDA : TC_BACKEND_HOST;
	tc_table table;
	tc_table_default(&table);
	table.name = "features";
	table.data = features;
	table.rows = ROWS;
	table.row_bytes = sizeof(float) * COLUMNS;
	table.dtype = TC_FLOAT32;
	tc_cache *cache;
	TRY(tc_open(&config, &table, 1, &cache));

	int32_t ids[BATCH];
	for (int i = 0; i < BATCH; i++)
		ids[i] = rand() % ROWS;
	float *out = malloc(sizeof(float) * BATCH * COLUMNS);
	TRY(tc_gather_host(cache, 0, 0, ids, TC_INT32, BATCH, out, 0));
	for (int i = 0; i < BATCH; i++)
		if (memcmp(out + i * COLUMNS, features + (size_t)ids[i] * COLUMNS, sizeof(float) * COLUMNS) != 0) {
			fprintf(stderr, "row %d differs\n", ids[i]);
			return 1;
		}

	char *json;
	TRY(tc_stats_json(cache, 0, &json));
	printf("%d rows gathered with version %s: %s\n", BATCH, tc_version(), json);
	tc_free(json);
	TRY(tc_close(cache));
	free(features);
	free(out);
	return 0;
}
