// Runs a model that python/examples/aoti.py exported, without Python: it reads rows of a table that this program opens.
//
//     T=$(python -c 'import torch; print(torch.__path__[0])')
//     c++ -std=c++20 aoti.cpp -I. -I$T/include -I$T/include/torch/csrc/api/include -L. -ltensorcache_torch -ltensorcache -L$T/lib -ltorch -ltorch_cpu -lc10 -Wl,-rpath,$T/lib
//     LD_LIBRARY_PATH=. ./a.out model.pt2 features.npy host 3 1 4
//
// with libtensorcache.so, libtensorcache_torch.so and their headers in the current folder. Instead of "host": "cuda", for a model that was exported on a GPU.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include "tensorcache.hpp"
#include "tensorcache_torch.h"

int main(int argc, char **argv)
try {
	if (argc < 5) {
		std::cerr << "usage: " << argv[0] << " MODEL.pt2 FEATURES.npy host|cuda ID…\n";
		return 2;
	}
	const bool cuda = argv[3] == std::string("cuda");
	tensorcache::Config config;
	config.gpu_memory = 1 << 20;
	config.backend = cuda ? TC_BACKEND_CUDA : TC_BACKEND_HOST;
	tensorcache::Table table;
	table.path = argv[2];
	tensorcache::Cache cache(config, table);

	// The model names the table as tensorcache.open has named it: after its file, without .npy.
	if (tensorcache_torch_register("features", cache.get(), 0) != TC_OK)
		throw std::runtime_error(tensorcache_torch_error());
	torch::inductor::AOTIModelPackageLoader model(argv[1]);

	std::vector<int64_t> ids;
	for (int i = 4; i < argc; i++)
		ids.push_back(std::atoll(argv[i]));
	torch::InferenceMode no_gradients;
	auto given = torch::tensor(ids).to(cuda ? torch::kCUDA : torch::kCPU);
	for (const auto &result : model.run({given}))
		std::cout << result.to(torch::kCPU, torch::kDouble).sum(-1) << "\n";
	tensorcache_torch_unregister("features", cache.get(), 0);
} catch (const std::exception &e) {
	std::cerr << e.what() << "\n";
	return 1;
}
