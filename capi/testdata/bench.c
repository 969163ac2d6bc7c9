/* check cuda bench ROWS: what calls of tc_gather cost on GPU 0, and the rates of its forms. Prints a line of JSON for each. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <time.h>

#include "check.h"

enum { WIDE = 512 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void bench(int64_t rows)
{
	device_begin();
	char *table = mmap(NULL, (size_t)rows * WIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(table != MAP_FAILED);
	uint32_t x = 1;
	for (int64_t i = 0; i < rows * WIDE / 4; i++) {
		x = x * 1664525u + 1013904223u;
		((float *)table)[i] = (float)((int32_t)x >> 8) / (1 << 20);
	}
	static const char *const codecs[] = {"none", "ibp4"};
	for (int c = 0; c < 2; c++) {
		tc_config config;
		config_new(&config);
		config.gpu_memory = rows * (WIDE + 64) + (64 << 20);
		config.codec = codecs[c];
		tc_table t;
		table_desc(&t, (float *)table);
		t.rows = rows;
		t.row_bytes = WIDE;
		tc_cache *cache;
		double begun = now();
		OK(tc_open(&config, &t, 1, &cache));
		printf("{\"codec\":\"%s\",\"what\":\"open\",\"seconds\":%.2f}\n", codecs[c], now() - begun);
		static const int64_t counts[] = {1, 1024, 200000};
		for (int k = 0; k < 3; k++) {
			int64_t n = counts[k];
			int64_t *ids = ids_new(TC_INT64, n, rows, 5);
			void *stream = stream_new(), *dev_ids = device_alloc((size_t)n * 8), *out = device_alloc((size_t)n * (WIDE + 64));
			char *host = malloc((size_t)n * WIDE);
			device_put(dev_ids, ids, (size_t)n * 8);
			for (int how = 0; how < 4; how++) {
				static const char *const names[] = {"tc_gather", "tc_gather with a stride", "tc_gather_host_ids", "tc_gather_host"};
				enum { BURST = 16, ROUNDS = 40 };
				double calls = 0, all = 1e9;
				for (int r = -3; r < ROUNDS; r++) {
					double a = now();
					for (int i = 0; i < BURST; i++)
						if (how == 3)
							OK(tc_gather_host(cache, 0, 0, ids, TC_INT64, n, host, 0));
						else if (how == 2)
							OK(tc_gather_host_ids(cache, 0, 0, ids, TC_INT64, n, out, 0, stream, NULL));
						else
							OK(tc_gather(cache, 0, 0, dev_ids, TC_INT64, n, out, how ? WIDE + 64 : 0, stream, NULL));
					double b = now();
					stream_wait(stream);
					double e = now();
					if (r >= 0) {
						calls += (b - a) / BURST;
						if ((e - a) / BURST < all)
							all = (e - a) / BURST;
					}
				}
				printf("{\"codec\":\"%s\",\"what\":\"%s\",\"rows\":%lld,\"call_us\":%.2f,\"batch_us\":%.2f,\"output_gbs\":%.1f}\n", codecs[c], names[how],
					(long long)n, calls / ROUNDS * 1e6, all * 1e6, (double)n * WIDE / all / 1e9);
				fflush(stdout);
			}
			OK(tc_check(cache, 1));
			device_free(dev_ids);
			device_free(out);
			free(ids);
			free(host);
		}
		char *json;
		OK(tc_stats_json(cache, 0, &json));
		printf("%s\n", json);
		tc_free(json);
		OK(tc_close(cache));
	}
}
