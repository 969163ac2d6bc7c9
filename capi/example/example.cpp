// Opens a cache of a table in memory, gathers rows, compares them with the table, and shows what becomes of a mistake.
//
//     c++ -std=c++17 example.cpp -ltensorcache && ./a.out [host|cuda]
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "tensorcache.hpp"

int main(int argc, char **argv)
try {
	constexpr std::int64_t rows = 10000, columns = 64;
	std::vector<float> features(rows * columns);
	std::iota(features.begin(), features.end(), 0.0f);

	tensorcache::Config config;
	config.gpu_memory = 1 << 20;
	config.backend = argc > 1 && std::strcmp(argv[1], "cuda") == 0 ? TC_BACKEND_CUDA : TC_BACKEND_HOST;
	tensorcache::Table table;
	table.name = "features";
	table.data = features.data();
	table.rows = rows;
	table.row_bytes = columns * sizeof(float);
	table.dtype = TC_FLOAT32;
	tensorcache::Cache cache(config, table);

	std::vector<std::int64_t> ids{1, 9999, 42, 42};
	std::vector<float> out(ids.size() * columns);
	cache.gather_host(0, ids.data(), ids.size(), out.data());
	for (std::size_t i = 0; i < ids.size(); i++)
		if (std::memcmp(&out[i * columns], &features[ids[i] * columns], table.row_bytes) != 0) {
			std::fprintf(stderr, "row %lld differs\n", (long long)ids[i]);
			return 1;
		}
	std::printf("%s\n", cache.stats_json(0).c_str());

	ids[2] = rows;
	try {
		cache.gather_host(0, ids.data(), ids.size(), out.data());
	} catch (const tensorcache::Error &e) {
		std::printf("%s: %s\n", tc_status_name(e.status()), e.what());
	}
} catch (const tensorcache::Error &e) {
	std::fprintf(stderr, "%s: %s\n", tc_status_name(e.status()), e.what());
	return 1;
}
