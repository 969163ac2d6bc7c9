/* Gathers in captured graphs, and tables from memory of the GPU. */
#include "check.h"

enum { N = 200 };

static void replay(tc_cache *cache, const float *table, int64_t stride)
{
	int64_t distance = stride == 0 ? ROW : stride;
	void *stream = stream_new();
	int32_t *ids = ids_new(TC_INT32, N, ROWS, 1);
	char *out = calloc(N, (size_t)distance);
	void *dev_ids = device_alloc(N * 4), *dev_out = device_alloc((size_t)(N * distance));
	device_put(dev_out, out, (size_t)(N * distance));
	device_put(dev_ids, ids, N * 4);
	graph_begin(stream);
	REFUSED(TC_ERROR_CAPTURE, "host memory", tc_gather_host_ids(cache, 0, 0, ids, TC_INT32, N, dev_out, stride, stream, NULL));
	tc_batch *batch;
	OK(tc_gather(cache, 0, 0, dev_ids, TC_INT32, N, dev_out, stride, stream, &batch));
	void *graph = graph_end(stream);
	for (unsigned seed = 2; seed < 6; seed++) {
		free(ids);
		ids = ids_new(TC_INT32, N, ROWS, seed);
		if (seed == 5)
			ids[17] = -5;
		device_put(dev_ids, ids, N * 4);
		graph_launch(graph, stream);
		stream_wait(stream);
		device_get(out, dev_out, (size_t)(N * distance));
		if (seed < 5) {
			OK(tc_batch_wait(batch));
			same_rows(table, ids, TC_INT32, N, out, distance);
		} else {
			REFUSED(TC_ERROR_ROWS, "1 of 200", tc_batch_wait(batch));
			OK(tc_batch_wait(batch));
			REFUSED(TC_ERROR_ROWS, "1 of 200", tc_check(cache, 1));
		}
	}
	graph_destroy(graph);
	tc_batch_destroy(batch);
	device_free(dev_ids);
	device_free(dev_out);
	free(ids);
	free(out);
}

void check_graphs(void)
{
	CHECK(on_cuda);
	float *table = table_new();
	tc_cache *cache = cache_new(table);
	for (int i = 0; i < 3; i++) {
		replay(cache, table, 0);
		replay(cache, table, ROW + 20);
	}
	OK(tc_close(cache));
	free(table);
}

void check_device_source(void)
{
	CHECK(on_cuda);
	float *table = table_new();
	void *source = device_alloc((size_t)ROWS * ROW);
	device_put(source, table, (size_t)ROWS * ROW);
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, source);
	t.memory = TC_MEMORY_CUDA;
	for (int host = 0; host < 2; host++) {
		config.backend = host ? TC_BACKEND_HOST : TC_BACKEND_CUDA;
		config.host_packed = host;
		tc_cache *cache;
		OK(tc_open(&config, &t, 1, &cache));
		int64_t *ids = ids_new(TC_INT64, N, ROWS, 5);
		char *out = malloc(N * ROW);
		OK(tc_gather_host(cache, 0, 0, ids, TC_INT64, N, out, 0));
		same_rows(table, ids, TC_INT64, N, out, ROW);
		OK(tc_close(cache));
		free(ids);
		free(out);
	}
	t.gpu = 99;
	tc_cache *cache;
	REFUSED(TC_ERROR_DEVICE, "GPU (99)", tc_open(&config, &t, 1, &cache));
	device_free(source);
	free(table);
}
