/* Every way to gather, and what becomes of wrong row numbers. */
#include "check.h"

enum { MOST = 3000, GAP = 36 };

/* Gathers n rows by one function and compares. how: 0 tc_gather, 1 tc_gather_host_ids, 2 tc_gather_host. */
static void gather(tc_cache *cache, const float *table, int how, int32_t id_type, int64_t n, int64_t stride, void *stream)
{
	int64_t distance = stride == 0 ? ROW : stride, bytes = n * distance;
	void *ids = ids_new(id_type, n, ROWS, (unsigned)(n + how));
	char *out = malloc((size_t)bytes + 1), *before = malloc((size_t)bytes + 1);
	memset(before, 0xa5, (size_t)bytes + 1);
	if (how == 2) {
		memcpy(out, before, (size_t)bytes);
		OK(tc_gather_host(cache, n % 2 == 0 ? 0 : -1, 0, ids, id_type, n, out, stride));
	} else {
		void *dev_out = device_alloc((size_t)bytes), *dev_ids = device_alloc((size_t)n * 8);
		device_put(dev_out, before, (size_t)bytes);
		device_put(dev_ids, ids, (size_t)n * (id_type == TC_INT32 ? 4 : 8));
		tc_batch *batch = NULL, **to = n % 3 == 0 ? NULL : &batch;
		if (how == 0)
			OK(tc_gather(cache, 0, 0, dev_ids, id_type, n, dev_out, stride, stream, to));
		else
			OK(tc_gather_host_ids(cache, 0, 0, ids, id_type, n, dev_out, stride, stream, to));
		if (to != NULL) {
			CHECK(batch != NULL);
			OK(tc_batch_wait(batch));
			OK(tc_batch_error(batch));
			tc_batch_destroy(batch);
		}
		stream_wait(stream);
		device_get(out, dev_out, (size_t)bytes);
		device_free(dev_out);
		device_free(dev_ids);
	}
	same_rows(table, ids, id_type, n, out, distance);
	for (int64_t i = 0; i < n; i++) /* what lies between rows */
		CHECK(memcmp(out + i * distance + ROW, before, (size_t)(distance - ROW)) == 0);
	free(ids);
	free(out);
	free(before);
}

static void out_of_range(tc_cache *cache, const float *table, void *stream)
{
	enum { N = 100 };
	int64_t *ids = ids_new(TC_INT64, N, ROWS, 7);
	ids[13] = ROWS;
	ids[70] = -1;
	char *out = malloc(N * ROW);
	memset(out, 0x77, N * ROW);
	REFUSED(TC_ERROR_ROWS, "row number (5000) at position 13 must be 0 to 4999", tc_gather_host(cache, -1, 0, ids, TC_INT64, N, out, 0));
	REFUSED(TC_ERROR_ROWS, "2 of 100 are out of range", tc_gather_host(cache, -1, 0, ids, TC_INT64, N, out, ROW + 4));
	for (int i = 0; i < N * ROW; i++)
		CHECK(out[i] == 0x77);
	void *dev_ids = device_alloc(N * 8), *dev_out = device_alloc(2 * N * (ROW + 4));
	device_put(dev_ids, ids, N * 8);
	REFUSED(TC_ERROR_ROWS, "position 13", tc_gather_host_ids(cache, 0, 0, ids, TC_INT64, N, dev_out, 0, stream, NULL));
	if (on_cuda) {
		OK(tc_check(cache, 1));
		tc_batch *batch;
		OK(tc_gather(cache, 0, 0, dev_ids, TC_INT64, N, dev_out, 0, stream, &batch));
		REFUSED(TC_ERROR_ROWS, "2 of 100", tc_batch_wait(batch));
		REFUSED(TC_ERROR_ROWS, "2 of 100", tc_batch_error(batch));
		tc_batch_destroy(batch);
		device_get(out, dev_out, N * ROW);
		float zeros[COLUMNS] = {0};
		CHECK(memcmp(out + 13 * ROW, zeros, ROW) == 0 && memcmp(out + 70 * ROW, zeros, ROW) == 0);
		CHECK(memcmp(out, table + ids[0] * COLUMNS, ROW) == 0 && memcmp(out + 99 * ROW, table + ids[99] * COLUMNS, ROW) == 0);
		REFUSED(TC_ERROR_ROWS, "2 of 100", tc_check(cache, 0));
		OK(tc_check(cache, 1));
		/* Nobody waits for these. */
		for (int i = 0; i < 3; i++)
			OK(tc_gather(cache, 0, 0, dev_ids, TC_INT64, N, dev_out, i * (ROW + 4), stream, NULL));
		stream_wait(stream);
		REFUSED(TC_ERROR_ROWS, "and 2 more such errors", tc_check(cache, 1));
		OK(tc_check(cache, 0));
	}
	device_free(dev_ids);
	device_free(dev_out);
	free(ids);
	free(out);
}

/* A gather that passes through memory of the GPU in parts goes on in smaller ones where there is little room. */
void check_parts(void)
{
	enum { N = 220000, STRIDE = ROW + 4, MiB = 1 << 20 };
	if (!emulated()) /* others use a real GPU, too */
		return;
	float *table = table_new();
	tc_cache *cache = cache_new(table);
	void *stream = stream_apart();
	int32_t *ids = ids_new(TC_INT32, N, ROWS, 3);
	char *out = calloc(N, STRIDE);
	void *dev_ids = device_alloc(4 * N), *dev_out = device_alloc((size_t)N * STRIDE);
	device_put(dev_ids, ids, 4 * N);
	void *filler = device_fill(8 * MiB);
	OK(tc_gather(cache, 0, 0, dev_ids, TC_INT32, N, dev_out, STRIDE, stream, NULL));
	stream_wait(stream);
	device_get(out, dev_out, (size_t)N * STRIDE);
	same_rows(table, ids, TC_INT32, N, out, STRIDE);
	OK(tc_check(cache, 1));
	device_free(filler);
	OK(tc_close(cache));
	device_free(dev_ids);
	device_free(dev_out);
	free(ids);
	free(out);
	free(table);
}

void check_gathers(void)
{
	float *table = table_new();
	tc_cache *cache = cache_new(table);
	void *streams[] = {NULL, stream_new()};
	static const int64_t counts[] = {0, 1, 2, 33, 1000, MOST};
	for (unsigned s = 0; s < sizeof streams / sizeof *streams; s++)
		for (int how = 0; how < 3; how++)
			for (int32_t id_type = TC_INT32; id_type <= TC_INT64; id_type++)
				for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
					for (int64_t stride = 0; stride <= ROW + GAP; stride += ROW + GAP)
						gather(cache, table, how, id_type, counts[i], stride, streams[s]);
	/* Row numbers and rows at any address of the host. */
	char *memory = malloc(9 * 8 + 1), *rows = malloc(8 * ROW + 1);
	int64_t ids[8];
	for (int i = 0; i < 8; i++)
		ids[i] = i * 7;
	memcpy(memory + 1, ids, sizeof ids);
	OK(tc_gather_host(cache, 0, 0, memory + 1, TC_INT64, 8, rows + 1, 0));
	same_rows(table, ids, TC_INT64, 8, rows + 1, ROW);
	out_of_range(cache, table, streams[1]);
	/* Gathers of no rows need no memory. */
	OK(tc_gather_host(cache, -1, 0, NULL, TC_INT64, 0, NULL, 0));
	OK(tc_gather(cache, 0, 0, NULL, TC_INT64, 0, NULL, 0, NULL, NULL));
	OK(tc_gather_host_ids(cache, 0, 0, NULL, TC_INT32, 0, NULL, ROW + 4, NULL, NULL));
	OK(tc_close(cache));
	free(memory);
	free(rows);
	free(table);
}
