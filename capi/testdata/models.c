/* Models: tensors that are packed, opened and read, and single tensors as bytes. */
#include "check.h"

static void blobs(const float *values, int64_t n)
{
	tc_tensor t = {.data = (void *)values, .bytes = 4 * n, .dtype = TC_FLOAT32, .axes = 2, .shape = {n / 100, 100}, .note = 7};
	void *blob;
	int64_t bytes;
	OK(tc_compress(&t, "rank", &blob, &bytes));
	CHECK(bytes > 0 && bytes < 4 * n);
	tc_tensor back;
	memset(&back, 0, sizeof back);
	OK(tc_decompress(blob, bytes, &back));
	CHECK(back.bytes == t.bytes && back.dtype == TC_FLOAT32 && back.axes == 2 && back.shape[0] == n / 100 && back.shape[1] == 100 && back.note == 7);
	back.data = malloc((size_t)back.bytes);
	OK(tc_decompress(blob, bytes, &back));
	CHECK(memcmp(back.data, values, (size_t)back.bytes) == 0);
	back.bytes--;
	REFUSED(TC_ERROR_ARGUMENT, "must be the", tc_decompress(blob, bytes, &back));
	back.bytes++;
	REFUSED(TC_ERROR_ARGUMENT, "not a compressed tensor", tc_decompress(blob, bytes - 1, &back));
	REFUSED(TC_ERROR_ARGUMENT, "not a compressed tensor", tc_decompress(NULL, 0, &back));
	((char *)blob)[bytes / 2] ^= 1;
	REFUSED(TC_ERROR_ARGUMENT, "not a compressed tensor", tc_decompress(blob, bytes, &back));
	tc_free(blob);
	free(back.data);
	t.axes = 65;
	REFUSED(TC_ERROR_ARGUMENT, "axes (65)", tc_compress(&t, "rank", &blob, &bytes));
	t.axes = 1;
	REFUSED(TC_ERROR_ARGUMENT, "must be the", tc_compress(&t, "rank", &blob, &bytes));
	t.axes = 2;
	REFUSED(TC_ERROR_ARGUMENT, "unknown codec", tc_compress(&t, "nope", &blob, &bytes));
}

void check_models(const char *dir)
{
	enum { N = 20000 };
	float *values = malloc(sizeof(float) * N);
	for (int i = 0; i < N; i++)
		values[i] = (float)(i % 977) / 64;
	blobs(values, N);

	const char *header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[200,100],\"data_offsets\":[8,80008]},\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}";
	int64_t number = 42;
	tc_model_part parts[2] = {{.bytes = 4 * N, .memory = values}, {.bytes = 8, .memory = &number}};
	OK(tc_model_save(dir, header, parts, 2, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "must be the 2 tensors", tc_model_save(dir, header, parts, 1, NULL));
	REFUSED(TC_ERROR_ARGUMENT, "config_json", tc_model_save(dir, header, parts, 2, "{\"colour\":1}"));
	REFUSED(TC_ERROR_ARGUMENT, "header", tc_model_save(dir, "{", parts, 2, NULL));
	tc_model *model;
	REFUSED(TC_ERROR_FILE, "no such file", tc_model_open("/nowhere/x.tc", &model));
	CHECK(model == NULL);
	OK(tc_model_open(dir, &model));
	char *json;
	OK(tc_model_json(model, &json));
	CHECK(strstr(json, "\"name\":\"w\"") != NULL && strstr(json, "\"shape\":[200,100]") != NULL && strstr(json, "\"hash\"") != NULL);
	tc_free(json);
	float *back = calloc(N, sizeof(float));
	int64_t got = 0;
	tc_model_part reads[3] = {{.tensor = 1, .bytes = 8, .memory = &got}, {.tensor = 0, .at = 4000, .bytes = 4 * N - 4000, .memory = back + 1000}, {.tensor = 0, .bytes = 4000, .memory = back}};
	OK(tc_model_read(model, reads, 3));
	CHECK(got == 42 && memcmp(back, values, sizeof(float) * N) == 0);
	reads[0].tensor = 2;
	REFUSED(TC_ERROR_FILE, "tensor (2)", tc_model_read(model, reads, 1));
	reads[0].memory = NULL;
	REFUSED(TC_ERROR_ARGUMENT, "part 0", tc_model_read(model, reads, 1));
	tc_model_close(model);
	tc_model_close(NULL);
	WANT(TC_ERROR_CLOSED, tc_model_read(model, reads, 0));
	free(back);
	free(values);
}
