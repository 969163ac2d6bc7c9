/* Two processes and one cache: this program as the owner, by tc_listen, and as a client, by tc_attach. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { N = 500 };

/* The owner: listens, says so, replaces row 2 when it is asked to, and ends with its input. */
void check_owner(const char *address)
{
	float *table = table_new();
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, table);
	tc_cache *cache, *other;
	OK(tc_open(&config, &t, 1, &cache));
	REFUSED(TC_ERROR_ARGUMENT, "must be opened with config.shared", tc_listen(cache, address, NULL));
	OK(tc_close(cache));

	config.shared = 1;
	OK(tc_open(&config, &t, 1, &cache));
	tc_listen_config to;
	tc_listen_config_default(&to);
	to.max_lanes = 2;
	REFUSED(TC_ERROR_ARGUMENT, "must be unix:PATH", tc_listen(cache, "tcp:localhost", &to));
	to.max_clients = 1025;
	REFUSED(TC_ERROR_ARGUMENT, "max_clients (1025)", tc_listen(cache, address, &to));
	to.max_clients = 1;
	to.stopped_after = 0.01;
	REFUSED(TC_ERROR_ARGUMENT, "stopped_after (0.01 s)", tc_listen(cache, address, &to));
	to.stopped_after = 0;
	to.max_scratch = 5;
	REFUSED(TC_ERROR_ARGUMENT, "max_scratch (5)", tc_listen(cache, address, &to));
	to.max_scratch = 64 << 20;
	to.size = 3;
	REFUSED(TC_ERROR_ARGUMENT, "tc_listen_config.size (3)", tc_listen(cache, address, &to));
	to.size = sizeof to;
	OK(tc_listen(cache, address, &to));
	REFUSED(TC_ERROR_ARGUMENT, "must be the cache's only one", tc_listen(cache, address, &to));
	OK(tc_open(&config, &t, 1, &other));
	REFUSED(TC_ERROR_ARGUMENT, "must not be in use", tc_listen(other, address, NULL));
	OK(tc_close(other));
	CHECK(write(1, "r", 1) == 1);
	char c;
	while (read(0, &c, 1) == 1) {
		int64_t id = 2;
		OK(tc_update(cache, 0, &id, TC_INT64, 1, table, 0));
		CHECK(write(1, "u", 1) == 1);
	}
	OK(tc_close(cache));
	REFUSED(TC_ERROR_CLOSED, "closed", tc_listen(cache, address, NULL));
	free(table);
}

void check_attach(const char *address)
{
	int in[2], out[2];
	CHECK(pipe(in) == 0 && pipe(out) == 0);
	pid_t owner = fork();
	CHECK(owner >= 0);
	if (owner == 0) {
		CHECK(dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1);
		close(in[1]);
		close(out[0]);
		execl("/proc/self/exe", "check", on_cuda ? "cuda" : "host", "owner", address, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	char c;
	CHECK(read(out[0], &c, 1) == 1 && c == 'r');

	tc_attach_config config;
	tc_attach_config_default(&config);
	config.name = "client";
	config.wait = 1;
	config.lanes = 3;
	tc_cache *cache, *second;
	REFUSED(TC_ERROR_OWNER, "lanes (3) must be 1 to 2", tc_attach(address, &config, &cache));
	config.lanes = 0;
	config.scratch = 65 << 20;
	REFUSED(TC_ERROR_OWNER, "scratch (68157440 B a device) must be at most 67108864", tc_attach(address, &config, &cache));
	config.scratch = 64 << 20;
	OK(tc_attach(address, &config, &cache));
	REFUSED(TC_ERROR_OWNER, "clients (2) must be at most 1", tc_attach(address, &config, &second));
	REFUSED(TC_ERROR_ARGUMENT, "shared", tc_listen(cache, address, NULL));
	int32_t count;
	OK(tc_table_count(cache, &count));
	CHECK(count == 1);
	tc_table_info info;
	info.size = sizeof info;
	OK(tc_table_get_info(cache, 0, &info));
	CHECK(info.rows == ROWS && info.row_bytes == ROW && info.dtype == TC_FLOAT32 && strcmp(info.name, "numbers") == 0);

	float *table = table_new();
	int64_t *ids = ids_new(TC_INT64, N, ROWS, 5);
	char *rows = malloc(N * ROW);
	void *stream = stream_new(), *device_ids = device_alloc(N * 8), *device_rows = device_alloc(N * ROW);
	OK(tc_gather_host(cache, 0, 0, ids, TC_INT64, N, rows, 0));
	same_rows(table, ids, TC_INT64, N, rows, ROW);
	memset(rows, 0, N * ROW);
	device_put(device_ids, ids, N * 8);
	tc_batch *batch;
	OK(tc_gather(cache, 0, 0, device_ids, TC_INT64, N, device_rows, 0, stream, &batch));
	OK(tc_batch_wait(batch));
	tc_batch_destroy(batch);
	device_get(rows, device_rows, N * ROW);
	same_rows(table, ids, TC_INT64, N, rows, ROW);

	/* What one of the processes changes, the other reads. */
	int64_t id = 1;
	OK(tc_update(cache, 0, &id, TC_INT64, 1, table + 4 * COLUMNS, 0));
	OK(tc_gather_host(cache, 0, 0, &id, TC_INT64, 1, rows, 0));
	CHECK(memcmp(rows, table + 4 * COLUMNS, ROW) == 0);
	CHECK(write(in[1], "u", 1) == 1 && read(out[0], &c, 1) == 1 && c == 'u');
	id = 2;
	OK(tc_gather_host(cache, 0, 0, &id, TC_INT64, 1, rows, 0));
	CHECK(memcmp(rows, table, ROW) == 0);
	OK(tc_refresh(cache));
	char *json;
	OK(tc_stats_json(cache, -1, &json));
	CHECK(strstr(json, "\"lookups\":1002") != NULL && strstr(json, "\"machine\":") != NULL);
	tc_free(json);

	/* Killed: reads go on, changes do not. */
	CHECK(kill(owner, SIGKILL) == 0 && waitpid(owner, NULL, 0) == owner);
	OK(tc_gather_host(cache, 0, 0, &id, TC_INT64, 1, rows, 0));
	CHECK(memcmp(rows, table, ROW) == 0);
	WANT(TC_ERROR_OWNER, tc_update(cache, 0, &id, TC_INT64, 1, table, 0));
	OK(tc_close(cache));
	close(in[1]);
	close(out[0]);
	device_free(device_ids);
	device_free(device_rows);
	free(rows);
	free(ids);
	free(table);
}
