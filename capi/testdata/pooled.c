/* Rows added up in bags, between host memory and on the device, of several batches at once. */
#include "check.h"

enum { N = 400, BAGS = 50, GAP = 3 };

/* Where bag b of batch kind begins. Kind 0 has bags of 8; the others have offsets: bag b has b % 16 rows, and the last one the rest. */
static int64_t start(int kind, int64_t b)
{
	if (kind == 0)
		return b * 8;
	int64_t at = 0;
	for (int64_t i = 0; i < b; i++)
		at += i % 16;
	return b == BAGS ? N : at;
}

/* Compares the output of a batch. Bags are shorter than a run, whose rows are added one after the other. */
static void same_sums(const float *table, const tc_pooled *p, int kind, const void *ids, const float *weights, const char *out)
{
	for (int64_t b = 0; b < BAGS; b++) {
		const float *got = (const float *)(out + b * (p->out_stride == 0 ? ROW : p->out_stride));
		int64_t end = kind == 2 && b == BAGS - 1 ? start(1, BAGS - 1) + 1 : start(kind, b + 1);
		for (int64_t c = 0; c < COLUMNS; c++) {
			float want = 0;
			int64_t n = 0;
			for (int64_t i = start(kind, b); i < end; i++) {
				int64_t id = id_at(ids, p->id_type, i);
				if (p->has_padding && id == p->padding)
					continue;
				float x = table[id * COLUMNS + c];
				if (weights != NULL) {
					volatile float product = weights[i] * x;
					x = product;
				}
				if (p->mode == TC_POOL_MAX)
					want = n == 0 || x > want ? x : want;
				else
					want = n == 0 ? x : want + x;
				n++;
			}
			if (p->mode == TC_POOL_MEAN && n > 0)
				want /= (float)n;
			CHECK(got[c] == want);
		}
	}
}

static void *put(const void *from, size_t bytes)
{
	void *to = device_alloc(bytes);
	device_put(to, from, bytes);
	return to;
}

/* Three batches of one table, in host memory or in that of the device. */
static void three(tc_cache *cache, const float *table, int32_t mode, int32_t id_type, int64_t stride, int on_device, void *stream)
{
	tc_pooled batches[3];
	void *ids[3], *offsets[3] = {NULL}, *dev_ids[3], *dev_offsets[3] = {NULL}, *dev_weights = NULL, *dev_out[3];
	float weights[N];
	char *out[3];
	size_t id_bytes = id_type == TC_INT32 ? 4 : 8, out_bytes = (size_t)(BAGS * (stride == 0 ? ROW : stride));
	for (int i = 0; i < N; i++)
		weights[i] = (float)(i % 7) - 2.5f;
	if (on_device && mode == TC_POOL_SUM)
		dev_weights = put(weights, sizeof weights);
	for (int k = 0; k < 3; k++) {
		tc_pooled *p = &batches[k];
		tc_pooled_default(p);
		ids[k] = ids_new(id_type, N, ROWS, (unsigned)(k + mode));
		p->mode = mode;
		p->id_type = id_type;
		p->n = N;
		p->out_stride = stride;
		if (k == 0) {
			p->bag = 8;
		} else {
			p->offset_type = k == 1 ? TC_INT64 : TC_INT32;
			p->offset_count = k == 1 ? BAGS : BAGS + 1;
			p->last_offset = k == 2;
			offsets[k] = malloc(8 * (BAGS + 1));
			for (int64_t b = 0; b <= BAGS; b++) {
				int64_t at = b == BAGS ? start(1, BAGS - 1) + 1 : start(1, b);
				if (k == 1)
					((int64_t *)offsets[k])[b] = at;
				else
					((int32_t *)offsets[k])[b] = (int32_t)at;
			}
			p->has_padding = k == 2;
			p->padding = id_at(ids[k], id_type, 5);
		}
		out[k] = malloc(out_bytes);
		memset(out[k], 0xa5, out_bytes);
		p->ids = ids[k];
		p->offsets = offsets[k];
		p->weights = mode == TC_POOL_SUM && k != 1 ? weights : NULL;
		p->out = out[k];
		if (on_device) {
			p->ids = dev_ids[k] = put(ids[k], N * id_bytes);
			if (offsets[k] != NULL)
				p->offsets = dev_offsets[k] = put(offsets[k], 8 * (BAGS + 1));
			p->weights = p->weights == NULL ? NULL : dev_weights;
			p->out = dev_out[k] = put(out[k], out_bytes);
		}
	}
	if (on_device) {
		tc_batch *batch;
		OK(tc_gather_pooled(cache, 0, batches, 3, stream, &batch));
		OK(tc_batch_wait(batch));
		tc_batch_destroy(batch);
	} else {
		OK(tc_gather_pooled_host(cache, mode == 0 ? 0 : -1, batches, 3));
	}
	for (int k = 0; k < 3; k++) {
		if (on_device) {
			device_get(out[k], dev_out[k], out_bytes);
			device_free(dev_out[k]);
			device_free(dev_ids[k]);
			device_free(dev_offsets[k]);
		}
		same_sums(table, &batches[k], k, ids[k], batches[k].weights == NULL ? NULL : weights, out[k]);
		for (int64_t b = 0; b + 1 < BAGS && stride != 0; b++) /* what lies between bags */
			for (int64_t i = ROW; i < stride; i++)
				CHECK(out[k][b * stride + i] == (char)0xa5);
		free(ids[k]);
		free(offsets[k]);
		free(out[k]);
	}
	device_free(dev_weights);
}

/* Runs one batch whose memory is the host's, there or, copied, on the device. */
static void run(tc_cache *cache, tc_pooled *p, size_t out_bytes, int on_device, void *stream)
{
	if (!on_device) {
		OK(tc_gather_pooled_host(cache, -1, p, 1));
		return;
	}
	tc_pooled d = *p;
	void *offsets = p->offset_count == 0 ? NULL : put(p->offsets, 8 * (size_t)p->offset_count);
	d.ids = put(p->ids, 8 * (size_t)p->n);
	d.offsets = offsets;
	d.out = put(p->out, out_bytes);
	tc_batch *batch;
	OK(tc_gather_pooled(cache, 0, &d, 1, stream, &batch));
	OK(tc_batch_wait(batch));
	tc_batch_destroy(batch);
	device_get(p->out, d.out, out_bytes);
	device_free((void *)d.ids);
	device_free(offsets);
	device_free(d.out);
}

static uint16_t bfloat16(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, 4);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rows of 64 float8 values and two scales, converted to floats and added up. The rows are bytes of which the batch says what they are, or the table's type says it. */
static void float8(int parts, void *stream)
{
	enum { VALUES = 64, BLOCK = 32, STORED = VALUES + VALUES / BLOCK, COUNT = 60 };
	unsigned char *rows = malloc(ROWS * STORED);
	for (int64_t i = 0; i < ROWS; i++) {
		for (int c = 0; c < VALUES; c++)
			rows[i * STORED + c] = (unsigned char)(0x38 + (i + c) % 8); /* 1 + k / 8 */
		for (int k = 0; k < VALUES / BLOCK; k++)
			rows[i * STORED + VALUES + k] = (unsigned char)(127 + (i + k) % 3); /* 1, 2 or 4 */
	}
	tc_config config;
	config_new(&config);
	tc_table t;
	tc_table_default(&t);
	t.name = "float8";
	t.data = rows;
	t.rows = ROWS;
	t.row_bytes = STORED;
	t.dtype = TC_UINT8;
	if (parts) {
		t.dtype = 0;
		t.parts = "float8_e4m3fn*64,float8_e8m0fnu*2";
	}
	tc_cache *cache;
	OK(tc_open(&config, &t, 1, &cache));
	int64_t *ids = ids_new(TC_INT64, COUNT, ROWS, 7);
	float out[COUNT * VALUES];
	tc_pooled p;
	for (int i = 0; i < 8; i++) {
		int bag = 1 + i % 2, on_device = i / 2 % 2, half = i / 4;
		tc_pooled_default(&p);
		p.ids = ids;
		p.n = COUNT;
		p.bag = bag;
		p.out = out;
		p.float8_factor = 0.5f;
		p.output = half ? TC_BFLOAT16 : 0;
		if (!parts) {
			p.float8 = TC_FLOAT8_E4M3;
			p.float8_scales = TC_FLOAT8_E8M0;
			p.float8_block = BLOCK;
		}
		memset(out, 0xa5, sizeof out);
		run(cache, &p, sizeof out, on_device, stream);
		for (int64_t b = 0; b < COUNT / bag; b++)
			for (int64_t c = 0; c < VALUES; c++) {
				float want = 0;
				for (int64_t i = b * bag; i < (b + 1) * bag; i++)
					want += (1 + (float)((ids[i] + c) % 8) / 8) * (float)(1 << (ids[i] + c / BLOCK) % 3) / 2;
				if (half)
					CHECK(((uint16_t *)out)[b * VALUES + c] == bfloat16(want));
				else
					CHECK(out[b * VALUES + c] == want);
			}
	}
	p.output = 0;
	if (!parts) {
		p.float8_block = 48;
		REFUSED(TC_ERROR_ARGUMENT, "multiple of 49 bytes", tc_gather_pooled_host(cache, -1, &p, 1));
	} else {
		p.float8 = TC_FLOAT8_E4M3, p.float8_scales = TC_FLOAT8_E8M0, p.float8_block = 16;
		REFUSED(TC_ERROR_ARGUMENT, "values of float8_e4m3fn and then a scale", tc_gather_pooled_host(cache, -1, &p, 1));
	}
	p.float8_block = STORED + 1;
	REFUSED(TC_ERROR_ARGUMENT, "float8 (14, scales 16, block 67)", tc_gather_pooled_host(cache, -1, &p, 1));
	if (!parts) {
		p.float8_block = BLOCK, p.float8_scales = TC_FLOAT64;
		REFUSED(TC_ERROR_ARGUMENT, "scales (float64)", tc_gather_pooled_host(cache, -1, &p, 1));
	}
	p.float8 = 77;
	REFUSED(TC_ERROR_ARGUMENT, "float8 (77", tc_gather_pooled_host(cache, -1, &p, 1));
	OK(tc_close(cache));
	free(ids);
	free(rows);
}

/* Rows as bfloat16, and bags of several features that share one array of row numbers and one of offsets, in one call. */
static void converted_and_keyed(tc_cache *cache, const float *table, void *stream)
{
	enum { FEATURES = 3, EACH = 10 };
	int64_t *ids = ids_new(TC_INT64, N, ROWS, 3), offsets[FEATURES * EACH + 1];
	uint16_t *rows = malloc(N * COLUMNS * 2);
	void *dev_ids = put(ids, 8 * N), *dev_rows = device_alloc(N * COLUMNS * 2);
	tc_batch *batch;
	OK(tc_gather_as(cache, 0, 0, dev_ids, TC_INT64, N, TC_BFLOAT16, dev_rows, stream, &batch));
	OK(tc_batch_wait(batch));
	tc_batch_destroy(batch);
	device_get(rows, dev_rows, N * COLUMNS * 2);
	for (int64_t i = 0; i < N; i++)
		for (int64_t c = 0; c < COLUMNS; c++)
			CHECK(rows[i * COLUMNS + c] == bfloat16(table[ids[i] * COLUMNS + c]));
	device_free(dev_rows);
	free(rows);

	for (int64_t b = 0; b <= FEATURES * EACH; b++)
		offsets[b] = b * (b - 1) / 4; /* up to 217 */
	void *dev_offsets = put(offsets, sizeof offsets);
	for (int on_device = 0; on_device < 2; on_device++) {
		tc_pooled batches[FEATURES];
		float *out[FEATURES], *dev_out[FEATURES];
		for (int k = 0; k < FEATURES; k++) {
			tc_pooled *p = &batches[k];
			tc_pooled_default(p);
			out[k] = malloc(EACH * ROW);
			dev_out[k] = device_alloc(EACH * ROW);
			p->n = N;
			p->ids = on_device ? dev_ids : ids;
			p->offsets = on_device ? dev_offsets : offsets;
			p->offset_count = FEATURES * EACH + 1;
			p->first_bag = k * EACH;
			p->bags = EACH;
			p->out = on_device ? dev_out[k] : out[k];
		}
		if (on_device) {
			OK(tc_gather_pooled(cache, 0, batches, FEATURES, stream, &batch));
			OK(tc_batch_wait(batch));
			tc_batch_destroy(batch);
		} else {
			OK(tc_gather_pooled_host(cache, -1, batches, FEATURES));
		}
		for (int k = 0; k < FEATURES; k++) {
			if (on_device)
				device_get(out[k], dev_out[k], EACH * ROW);
			for (int64_t b = 0; b < EACH; b++)
				for (int64_t c = 0; c < COLUMNS; c++) { /* bags are shorter than a run */
					float want = 0;
					for (int64_t i = offsets[k * EACH + b]; i < offsets[k * EACH + b + 1]; i++)
						want = i == offsets[k * EACH + b] ? table[ids[i] * COLUMNS + c] : want + table[ids[i] * COLUMNS + c];
					CHECK(out[k][b * COLUMNS + c] == want);
				}
			free(out[k]);
			device_free(dev_out[k]);
		}
		batches[1].first_bag = 21;
		if (!on_device)
			REFUSED(TC_ERROR_ARGUMENT, "bags (10 from 21 on) must be some of those that 31 offsets have ends for",
				tc_gather_pooled_host(cache, -1, batches, FEATURES));
	}
	device_free(dev_offsets);
	device_free(dev_ids);
	free(ids);
}

void check_pooled(void)
{
	float *table = table_new();
	tc_cache *cache = cache_new(table);
	void *stream = stream_new();
	float8(0, stream);
	float8(1, stream);
	converted_and_keyed(cache, table, stream);
	for (int32_t mode = TC_POOL_SUM; mode <= TC_POOL_MAX; mode++)
		for (int32_t id_type = TC_INT32; id_type <= TC_INT64; id_type++)
			for (int on_device = 0; on_device < 2; on_device++)
				three(cache, table, mode, id_type, on_device ? 0 : ROW + 4 * GAP, on_device, stream);

	/* Every kind of wrong argument, and nothing is written. */
	tc_pooled p;
	int64_t ids[4] = {1, 2, 3, 4}, offsets[3] = {0, 3, 2};
	float out[3 * COLUMNS], weights[4] = {0};
	memset(out, 0xa5, sizeof out);
#define WRONG(status, words, set)                                             \
	do {                                                                      \
		tc_pooled_default(&p);                                                \
		p.ids = ids;                                                          \
		p.n = 4;                                                              \
		p.bag = 2;                                                            \
		p.out = out;                                                          \
		set;                                                                  \
		REFUSED(status, words, tc_gather_pooled_host(cache, -1, &p, 1));      \
	} while (0)
	WRONG(TC_ERROR_ARGUMENT, "mode (3)", p.mode = 3);
	WRONG(TC_ERROR_ARGUMENT, "bag (-1)", p.bag = -1);
	WRONG(TC_ERROR_ARGUMENT, "whole bags of 3", p.bag = 3);
	WRONG(TC_ERROR_ARGUMENT, "output type (int32)", p.output = TC_INT32);
	WRONG(TC_ERROR_ARGUMENT, "output (99)", p.output = 99);
	WRONG(TC_ERROR_ARGUMENT, "out (NULL)", p.out = NULL);
	WRONG(TC_ERROR_ARGUMENT, "ids (NULL)", p.ids = NULL);
	WRONG(TC_ERROR_ARGUMENT, "out_stride (8)", p.out_stride = 8);
	WRONG(TC_ERROR_ARGUMENT, "weights must come with sum", (p.weights = weights, p.mode = TC_POOL_MEAN));
	WRONG(TC_ERROR_ARGUMENT, "offsets (NULL)", (p.bag = 0, p.offset_count = 2));
	WRONG(TC_ERROR_ARGUMENT, "offset_count (-1)", (p.bag = 0, p.offset_count = -1));
	WRONG(TC_ERROR_ARGUMENT, "offset (2) at position 2", (p.bag = 0, p.offsets = offsets, p.offset_count = 3));
	WRONG(TC_ERROR_ARGUMENT, "first_bag and bags (0, -1)", p.bags = -1);
	WRONG(TC_ERROR_ARGUMENT, "padding row (5000)", (p.has_padding = 1, p.padding = ROWS));
	WRONG(TC_ERROR_ARGUMENT, "tc_pooled.size", p.size = 0);
	WRONG(TC_ERROR_TABLE, "table", p.table = 1);
	ids[2] = ROWS;
	WRONG(TC_ERROR_ROWS, "row number (5000) at position 2", p.bag = 2);
	for (unsigned i = 0; i < 3 * COLUMNS; i++)
		CHECK(((unsigned char *)out)[4 * i] == 0xa5);
	REFUSED(TC_ERROR_ARGUMENT, "count (-1)", tc_gather_pooled_host(cache, -1, &p, -1));
	OK(tc_gather_pooled_host(cache, -1, NULL, 0));
	REFUSED(TC_ERROR_ARGUMENT, "device (99)", tc_gather_pooled_host(cache, 99, NULL, 0));
	REFUSED(TC_ERROR_ARGUMENT, "device (99)", tc_gather_pooled(cache, 99, NULL, 0, NULL, NULL));
	OK(tc_close(cache));
	free(table);
}
