// Modules. The names and parameters of a module's kernels are read from its PTX. Their code is in a shared object beside this library, where they were
// compiled for the host; modules.txt names it by the hash of the PTX.
#include "emulator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <sstream>

namespace emulator {

static uint64_t hashOf(const char *text)
{
	uint64_t h = 0xcbf29ce484222325ull;
	for (; *text != 0; text++)
		h = (h ^ (uint8_t)*text) * 0x100000001b3ull;
	return h;
}

static std::string folder()
{
	Dl_info info;
	if (dladdr((void *)&folder, &info) == 0)
		return ".";
	std::string path = info.dli_fname;
	return path.substr(0, path.rfind('/'));
}

// moduleNames returns the names of the modules by the hashes of their PTX.
static const std::map<uint64_t, std::string> &moduleNames()
{
	static const std::map<uint64_t, std::string> names = [] {
		std::map<uint64_t, std::string> m;
		std::ifstream in(folder() + "/modules.txt");
		std::string hash, name;
		while (in >> hash >> name)
			m[strtoull(hash.c_str(), nullptr, 16)] = name;
		return m;
	}();
	return names;
}

static unsigned widthOf(const std::string &type)
{
	size_t digits = type.find_first_of("0123456789");
	return digits == std::string::npos ? 0 : (unsigned)atoi(type.c_str() + digits) / 8;
}

// numberAfter returns the number that follows a word in a text, or otherwise.
static unsigned numberAfter(const std::string &in, const char *word, unsigned otherwise)
{
	size_t at = in.find(word);
	return at == std::string::npos ? otherwise : (unsigned)strtoul(in.c_str() + at + strlen(word), nullptr, 10);
}

static void parseParameters(const std::string &list, Entry *e)
{
	std::stringstream in(list);
	std::string one;
	unsigned at = 0;
	while (std::getline(in, one, ',')) {
		if (one.find(".param") == std::string::npos)
			continue;
		unsigned align = numberAfter(one, ".align ", 0), bytes = 0;
		std::stringstream words(one);
		std::string word, type;
		while (words >> word)
			if (word[0] == '.' && word != ".param" && word != ".align" && word != ".ptr")
				type = word;
		bytes = widthOf(type);
		if (align == 0)
			align = std::max(bytes, 1u);
		size_t bracket = one.find('[');
		if (bracket != std::string::npos)
			bytes *= (unsigned)strtoul(one.c_str() + bracket + 1, nullptr, 10);
		at = (at + align - 1) / align * align;
		e->offsets.push_back(at);
		e->sizes.push_back(bytes);
		at += bytes;
	}
	e->bytes = at;
}

// entriesOf reads the kernels of a PTX text.
static std::vector<Entry> entriesOf(const std::string &ptx)
{
	// Variables in shared memory, by name: lines ".shared .align 4 .b8 name[bytes];"
	std::map<std::string, unsigned> shared;
	for (size_t at = 0; (at = ptx.find(".shared .align ", at)) != std::string::npos; at++) {
		std::string line = ptx.substr(at, ptx.find('\n', at) - at);
		size_t bracket = line.find('['), name = line.rfind(' ', bracket);
		if (bracket != std::string::npos)
			shared[line.substr(name + 1, bracket - name - 1)] = (unsigned)strtoul(line.c_str() + bracket + 1, nullptr, 10);
	}
	std::vector<Entry> all;
	for (size_t at = 0; (at = ptx.find(".entry ", at)) != std::string::npos;) {
		size_t open = ptx.find('(', at), close = ptx.find(')', open), body = ptx.find('{', close);
		size_t end = ptx.find(".entry ", body == std::string::npos ? at + 1 : body);
		if (open == std::string::npos || close == std::string::npos || body == std::string::npos)
			break;
		Entry e;
		e.name = ptx.substr(at + 7, open - at - 7);
		parseParameters(ptx.substr(open + 1, close - open - 1), &e);
		e.maxThreads = numberAfter(ptx.substr(close, body - close), ".maxntid ", 1024);
		std::string code = ptx.substr(body, end == std::string::npos ? end : end - body);
		for (auto &[name, bytes] : shared)
			if (code.find(name) != std::string::npos)
				e.staticShared = (e.staticShared + 15) / 16 * 16 + bytes;
		all.push_back(e);
		at = end == std::string::npos ? ptx.size() : end;
	}
	return all;
}

// library returns the shared object of that name. It is opened once and stays.
static void *library(const std::string &name, std::string *log)
{
	static std::mutex mu;
	static std::map<std::string, void *> open;
	std::lock_guard<std::mutex> lock(mu);
	void *&l = open[name];
	if (l == nullptr)
		l = dlopen((folder() + "/modules/" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
	if (l == nullptr)
		*log = dlerror();
	return l;
}

// tell returns the message for the log of a PTX that cannot be loaded: its first kernel's line, and why.
static std::string tell(const std::string &ptx, const std::string &why)
{
	size_t at = ptx.find(".entry ");
	if (at == std::string::npos)
		return why;
	size_t from = ptx.rfind('\n', at) + 1;
	return text("emulator, line %d: %s: \"%s\"", (int)std::count(ptx.begin(), ptx.begin() + (ptrdiff_t)at, '\n') + 1, why.c_str(),
		    ptx.substr(from, ptx.find('\n', at) - from).c_str());
}

CUresult loadModule(const char *image, std::string *log, Module **made)
{
	std::string ptx = image;
	auto known = moduleNames().find(hashOf(image));
	// Tests bring PTX of their own, whose kernels are all in one module here.
	std::string name = known != moduleNames().end() ? known->second : "tests", why;
	void *l = library(name, &why);
	if (l == nullptr) {
		*log = tell(ptx, why);
		return CUDA_ERROR_INVALID_PTX;
	}
	auto m = std::make_unique<Module>();
	m->name = name;
	m->library = l;
	m->reportsAccesses = dlsym(l, "emulatedReportsAccesses") != nullptr;
	for (Entry &e : entriesOf(ptx)) {
		void *code = dlsym(l, e.name.c_str());
		if (code == nullptr) {
			*log = tell(ptx, known != moduleNames().end() ? "the module was compiled for the emulator without this kernel"
								      : "no module of this PTX was compiled for the emulator");
			return CUDA_ERROR_INVALID_PTX;
		}
		auto f = std::make_unique<Function>();
		f->module = m.get();
		f->entry = e;
		f->code = code;
		m->functions[e.name] = std::move(f);
	}
	if (m->functions.empty()) {
		*log = "emulator: no kernel in the PTX";
		return CUDA_ERROR_INVALID_PTX;
	}
	*made = m.release();
	return CUDA_SUCCESS;
}

int residentBlocks(const Function *f, unsigned threads, unsigned shared)
{
	if (threads == 0 || threads > f->entry.maxThreads || (int)(shared + f->entry.staticShared) > settings().sharedBytes)
		return 0;
	unsigned one = shared + f->entry.staticShared + 1024, fit = (unsigned)(settings().sharedBytes + 1024) / one;
	return (int)std::min({(unsigned)settings().blocks, fit, 2048 / ((threads + 31) / 32 * 32)});
}

} // namespace emulator
