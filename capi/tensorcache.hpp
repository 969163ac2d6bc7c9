// tensorcache for C++17: the functions of tensorcache.h, which documents them, with handles that give themselves up and errors that are thrown. Needs
// nothing but that header and the library.
#ifndef TENSORCACHE_HPP
#define TENSORCACHE_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "tensorcache.h"

namespace tensorcache {

// A call that has failed. what() is the library's text.
class Error : public std::runtime_error {
public:
	Error(tc_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
	tc_status status() const noexcept { return status_; }

private:
	tc_status status_;
};

// Throws Error unless status is TC_OK.
inline void check(tc_status status)
{
	if (status != TC_OK)
		throw Error(status, tc_last_error());
}

// tc_config and tc_table, with the defaults set.
struct Config : tc_config {
	Config() { tc_config_default(this); }
};
struct Table : tc_table {
	Table() { tc_table_default(this); }
};

// TC_INT32 or TC_INT64.
template <class Id>
constexpr std::int32_t id_type()
{
	static_assert(std::is_integral_v<Id> && std::is_signed_v<Id> && (sizeof(Id) == 4 || sizeof(Id) == 8), "row numbers are int32 or int64");
	return sizeof(Id) == 4 ? TC_INT32 : TC_INT64;
}

namespace detail {

struct GiveUp {
	void operator()(char *text) const noexcept { tc_free(text); }
	void operator()(tc_batch *batch) const noexcept { tc_batch_destroy(batch); }
	void operator()(tc_cache *cache) const noexcept { tc_close(cache); }
};

// What is given up with the object that has it.
template <class T>
using Held = std::unique_ptr<T, GiveUp>;

// The text that a call gives through a char **.
template <class Call>
std::string text(Call call)
{
	char *json = nullptr;
	check(call(&json));
	return Held<char>(json).get();
}

} // namespace detail

// A batch that was enqueued. Destroying it neither waits nor stops the batch. Movable, not copyable.
class Batch {
public:
	Batch() = default;
	explicit Batch(tc_batch *batch) noexcept : batch_(batch) {}

	// Waits until the batch has ended. Throws what was wrong with it.
	void wait() const { check(tc_batch_wait(get())); }
	// Whether the batch has ended. Throws what was wrong with it.
	bool done() const
	{
		tc_status status = tc_batch_error(get());
		if (status == TC_PENDING)
			return false;
		check(status);
		return true;
	}
	tc_batch *get() const noexcept { return batch_.get(); }

private:
	detail::Held<tc_batch> batch_;
};

// A cache. Its methods may be called from any thread. Movable, not copyable. Destroying it waits for batches under way.
class Cache {
public:
	Cache(const tc_config &config, const tc_table *tables, std::int32_t count)
	{
		tc_cache *cache = nullptr;
		check(tc_open(&config, tables, count, &cache));
		cache_.reset(cache);
	}
	Cache(const tc_config &config, const tc_table &table) : Cache(config, &table, 1) {}
	explicit Cache(tc_cache *cache) noexcept : cache_(cache) {}

	// Attaches to the cache of another process.
	static Cache attach(const char *address, const tc_attach_config *config = nullptr)
	{
		tc_cache *cache = nullptr;
		check(tc_attach(address, config, &cache));
		return Cache(cache);
	}

	// Lets other processes attach, until the cache is closed. The config must have had shared set.
	void listen(const char *address, const tc_listen_config *config = nullptr) const { check(tc_listen(get(), address, config)); }

	// Closes the cache now. Later calls throw an Error of TC_ERROR_CLOSED.
	void close() { check(tc_close(cache_.release())); }
	tc_cache *get() const noexcept { return cache_.get(); }

	// tc_gather: ids and out are the GPU's memory, in the order of the stream.
	template <class Id>
	void gather(std::int32_t table, const Id *ids, std::int64_t n, void *out, void *stream = nullptr, std::int64_t row_stride = 0, std::int32_t device = 0) const
	{
		check(tc_gather(get(), device, table, ids, id_type<Id>(), n, out, row_stride, stream, nullptr));
	}
	// tc_gather, with a batch to wait for.
	template <class Id>
	Batch gather_batch(std::int32_t table, const Id *ids, std::int64_t n, void *out, void *stream = nullptr, std::int64_t row_stride = 0,
		std::int32_t device = 0) const
	{
		tc_batch *batch;
		check(tc_gather(get(), device, table, ids, id_type<Id>(), n, out, row_stride, stream, &batch));
		return Batch(batch);
	}
	// tc_gather_host: ids and out are the host's memory.
	template <class Id>
	void gather_host(std::int32_t table, const Id *ids, std::int64_t n, void *out, std::int64_t row_stride = 0, std::int32_t device = -1) const
	{
		check(tc_gather_host(get(), device, table, ids, id_type<Id>(), n, out, row_stride));
	}
	// tc_gather_as: rows with elements of another type.
	template <class Id>
	void gather_as(std::int32_t table, const Id *ids, std::int64_t n, std::int32_t output, void *out, void *stream = nullptr, std::int32_t device = 0) const
	{
		check(tc_gather_as(get(), device, table, ids, id_type<Id>(), n, output, out, stream, nullptr));
	}
	// tc_gather_pooled: rows added up in bags, of several batches, and a batch of all to wait for.
	Batch gather_pooled(const tc_pooled *batches, std::int32_t count, void *stream = nullptr, std::int32_t device = 0) const
	{
		tc_batch *batch;
		check(tc_gather_pooled(get(), device, batches, count, stream, &batch));
		return Batch(batch);
	}
	// tc_gather_pooled_host: all memory is the host's.
	void gather_pooled_host(const tc_pooled *batches, std::int32_t count, std::int32_t device = -1) const
	{
		check(tc_gather_pooled_host(get(), device, batches, count));
	}
	// tc_check: throws what was wrong with batches that have ended since the last call.
	void check_batches(bool wait = false) const { check(tc_check(get(), wait)); }

	template <class Id>
	void update(std::int32_t table, const Id *ids, std::int64_t n, const void *rows, std::int64_t row_stride = 0) const
	{
		check(tc_update(get(), table, ids, id_type<Id>(), n, rows, row_stride));
	}
	template <class Id>
	void invalidate(std::int32_t table, const Id *ids, std::int64_t n) const
	{
		check(tc_invalidate(get(), table, ids, id_type<Id>(), n));
	}
	template <class Id>
	void prefetch(std::int32_t table, const Id *ids, std::int64_t n) const
	{
		check(tc_prefetch(get(), table, ids, id_type<Id>(), n));
	}
	void refresh() const { check(tc_refresh(get())); }
	// tc_retarget: target 0 is chosen.
	void retarget(std::int32_t table, std::int64_t target = 0) const { check(tc_retarget(get(), table, target)); }
	void merge_updates(std::int32_t table) const { check(tc_merge_updates(get(), table)); }
	void set_gpu_memory(std::int64_t bytes) const { check(tc_set_gpu_memory(get(), bytes)); }
	void snapshot(const std::string &path) const { check(tc_snapshot(get(), path.c_str())); }

	tc_table_info table_info(std::int32_t table) const
	{
		tc_table_info info{};
		info.size = sizeof info;
		check(tc_table_get_info(get(), table, &info));
		return info;
	}
	std::string stats_json(std::int32_t table = -1) const
	{
		return detail::text([&](char **json) { return tc_stats_json(get(), table, json); });
	}
	template <class Id>
	std::string explain_json(std::int32_t table, const Id *ids, std::int64_t n) const
	{
		return detail::text([&](char **json) { return tc_explain_json(get(), table, ids, id_type<Id>(), n, json); });
	}

private:
	detail::Held<tc_cache> cache_;
};

} // namespace tensorcache

#endif
