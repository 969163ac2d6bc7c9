/*
 * tensorcache: rows of tensors that do not fit on a GPU. All rows lie compressed in host memory that GPUs read directly; the most used
 * rows also lie compressed in GPU memory. tc_gather returns rows that are bit-identical to the source.
 *
 *     tc_config config;
 *     tc_config_default(&config);
 *     config.gpu_memory = 10LL << 30;
 *     tc_table table;
 *     tc_table_default(&table);
 *     table.path = "features.npy";
 *     tc_cache *cache;
 *     if (tc_open(&config, &table, 1, &cache) != TC_OK) { fprintf(stderr, "%s\n", tc_last_error()); exit(1); }
 *     tc_gather(cache, 0, 0, ids, TC_INT64, n, out, 0, stream, NULL);   // ids and out in GPU memory, in the order of the stream
 *     tc_close(cache);
 *
 * Link with -ltensorcache. The library needs Linux and glibc 2.28. It needs no CUDA toolkit, and without a GPU driver it works on the
 * processors (TC_BACKEND_HOST).
 *
 * THREADS. Every function may be called from any thread at any time, also several at once on one handle, and also while another
 * thread closes the handle: then it returns TC_ERROR_CLOSED. No call creates a thread of its own. A call that does not wait for the device
 * (tc_gather, tc_batch_error) may be made while holding locks; none calls back into the program.
 *
 * HANDLES are opaque values, not addresses. Each is given up by one call, named at its type. A handle that was given up, or never was
 * one, is an error (TC_ERROR_CLOSED), never undefined behaviour. NULL may always be given up.
 *
 * MEMORY. The caller owns every buffer and structure that it passes, and may reuse it when the call returns, unless the function says
 * otherwise. Strings are UTF-8 and end with a zero byte. Text that a function returns through a char ** belongs to the caller, who frees it
 * with tc_free. Text returned as const char * belongs to the library.
 *
 * UNITS. Memory is in bytes, time in seconds. A row number counts from 0. Row numbers in host memory need no alignment; those in GPU memory
 * are aligned to their size. Elements are little-endian.
 *
 * ERRORS. A function that can fail returns a tc_status. tc_last_error has the text of the calling thread's last failure. After an error
 * nothing has changed and output is untouched, unless the function says otherwise. A null pointer, an index or a number out of range is
 * TC_ERROR_ARGUMENT or a more specific status, never a crash; an address that is not the memory it should be can crash, as in C.
 *
 * FORK. The library has threads, which a child of fork does not have. In such a child every function that returns a status returns
 * TC_ERROR_FORKED, and those that give up a handle do nothing. Load the library in the child itself (if the parent has not loaded it), or
 * start workers without fork (multiprocessing's "spawn"). A child that calls exec, and posix_spawn and system, are not affected.
 *
 * SIGNALS. The library keeps the handlers that are installed when it is loaded. Handlers that are installed later must have SA_ONSTACK
 * (Python's have), as they may run on the library's threads, whose stacks are small. It never takes SIGINT or SIGTERM. It installs handlers
 * of its own for SIGSEGV, SIGBUS, SIGFPE and SIGPIPE, which pass on to the handlers found at loading what does not stem from its own code,
 * and for SIGURG, which it uses within the process.
 *
 * UNLOADING. The library cannot be unloaded, as its threads cannot be ended: dlclose leaves it in memory.
 *
 * TELEMETRY. The environment variables of OpenTelemetry (OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT and so
 * on) say where traces and metrics go; none are made without them. TENSORCACHE_METRICS_ADDR=[HOST]:PORT lets Prometheus scrape /metrics
 * there, without HOST from this machine only. They are read by the first tc_open of the process.
 *
 * COMPATIBILITY. Functions keep their meaning within a major version. Structures begin with their size, which tc_*_default sets: a
 * program that was compiled with an older header works with a newer library, which takes the defaults for fields that the program does
 * not know. A newer header with an older library is refused if a field that the library does not know is not zero.
 */
#ifndef TENSORCACHE_H
#define TENSORCACHE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TC_VERSION_MAJOR 0
#define TC_VERSION_MINOR 2
#define TC_VERSION_PATCH 0
#define TC_VERSION "0.2.0"

#if defined(__GNUC__)
#define TC_API __attribute__((visibility("default")))
#else
#define TC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The outcome of a call. Numbers keep their meaning; later versions may add some. */
typedef enum tc_status {
	TC_OK = 0,
	TC_PENDING = 1,             /* not finished yet: no error */
	TC_ERROR_ARGUMENT = 2,      /* an argument or a field of a structure is out of range */
	TC_ERROR_CLOSED = 3,        /* the handle was given up or is none */
	TC_ERROR_TABLE = 4,         /* there is no table of that index */
	TC_ERROR_ROWS = 5,          /* row numbers out of range; the text has the first one and their count */
	TC_ERROR_BUDGET = 6,        /* gpu_memory does not hold a single row */
	TC_ERROR_OUT_OF_MEMORY = 7, /* of the host or of the device, or too little may be page-locked; the text says which */
	TC_ERROR_FILE = 8,          /* a file cannot be read or written, or is damaged */
	TC_ERROR_DEVICE = 9,        /* no usable GPU, or the GPU has failed */
	TC_ERROR_CAPTURE = 10,      /* the batch cannot be a part of the graph that the stream captures; the capture goes on */
	TC_ERROR_CORRUPT = 11,      /* a row does not decode: a fault of memory or of the library; the output is undefined */
	TC_ERROR_POLICY = 12,       /* the admission policy has failed; rows are served, but no others are admitted any more */
	TC_ERROR_CANCELLED = 13,    /* tc_opening_destroy or tc_opening_cancel came first */
	TC_ERROR_FORKED = 14,       /* this process is a child of fork: see FORK above */
	TC_ERROR_INTERNAL = 15,     /* a fault of the library: please report the text */
	TC_ERROR_OWNER = 16         /* of a cache of another process: there is no owner, it refuses, or one of its clients holds the change back */
} tc_status;

/* Types of elements. They decide which codecs suit, and are reported by tc_table_get_info; rows are bytes to the cache. */
typedef enum tc_dtype {
	TC_FLOAT16 = 1,
	TC_BFLOAT16 = 2,
	TC_FLOAT32 = 3,
	TC_FLOAT64 = 4,
	TC_INT8 = 5,
	TC_INT16 = 6,
	TC_INT32 = 7,
	TC_INT64 = 8,
	TC_UINT8 = 9,
	TC_UINT16 = 10,
	TC_UINT32 = 11,
	TC_UINT64 = 12,
	TC_BOOL = 13,
	TC_FLOAT8_E4M3 = 14, /* float8_e4m3fn of torch: no infinities */
	TC_FLOAT8_E5M2 = 15,
	TC_FLOAT8_E8M0 = 16 /* float8_e8m0fnu: powers of two, the scales of blocks */
} tc_dtype;
/* Row numbers are TC_INT32 or TC_INT64. */

typedef enum tc_backend {
	TC_BACKEND_AUTO = 0, /* GPUs if there are usable ones, else the host */
	TC_BACKEND_HOST = 1, /* the processors; "GPU memory" is host memory then */
	TC_BACKEND_CUDA = 2  /* NVIDIA GPUs of compute capability 8.0 or higher; tc_open fails if there is none */
} tc_backend;

/* Where the rows of a table come from. */
typedef enum tc_memory {
	TC_MEMORY_COPY = 0,  /* host memory, copied */
	TC_MEMORY_ADOPT = 1, /* host memory that becomes the cache's own: no second copy of the table is made */
	TC_MEMORY_CUDA = 2   /* memory of a GPU, copied to the host */
} tc_memory;

/* Where what is longer than the slots of a resident table lies. */
typedef enum tc_buddy {
	TC_BUDDY_HOST = 0, /* page-locked host memory */
	TC_BUDDY_PEER = 1, /* memory of the other GPUs, within gpu_memory; tc_open fails with one GPU, or if there is no room */
	TC_BUDDY_AUTO = 2  /* TC_BUDDY_PEER with several GPUs, no tables that are cached, and enough room; else TC_BUDDY_HOST */
} tc_buddy;

typedef enum tc_log_level {
	TC_LOG_DEBUG = 1,
	TC_LOG_INFO = 2,
	TC_LOG_WARNING = 3,
	TC_LOG_ERROR = 4,
	TC_LOG_OFF = 5
} tc_log_level;

/* A cache of one or more tables. tc_close gives it up. */
typedef struct tc_cache tc_cache;
/* A cache that is being opened. tc_opening_destroy gives it up. */
typedef struct tc_opening tc_opening;
/* A batch of tc_gather. tc_batch_destroy gives it up. */
typedef struct tc_batch tc_batch;

/* A model whose tensors can be read: tc_model_open. tc_model_close gives it up. */
typedef struct tc_model tc_model;

/* Row numbers of one table in host memory, from which the cache learns which rows are used. */
typedef struct tc_training {
	int32_t table;   /* index of the table */
	int32_t id_type; /* TC_INT32 or TC_INT64 */
	const void *ids; /* in host memory */
	int64_t n;       /* number of row numbers, 0 to 2^31 - 1 */
} tc_training;

/* Settings of a cache. tc_config_default sets all fields; 0, 0.0 and NULL are the defaults of every field but size. */
typedef struct tc_config {
	size_t size; /* sizeof(tc_config) */

	/* GPU memory, in bytes per device, for cached rows and what finds them. No default: must be positive. Not included are memory for
	 * batches under way (some 32 MiB) and, of a packed host tier, an index of 8 bytes a row. */
	int64_t gpu_memory;

	const char *codec; /* of all tables that name none: "auto" (default), "none", or a name of docs/codecs.md */

	int32_t backend;      /* tc_backend */
	int32_t devices;      /* number of GPUs, 1 to 8, default 1 */
	const int32_t *gpus;  /* ordinals of the GPUs, as many as devices; default: the first ones */

	/* What is cached from the start, and how that is decided. */
	const char *policy;           /* "freq" (default), "tinylfu", or another name of docs/admission.md that needs no graph */
	const tc_training *training;  /* batches that the policy learns from before the cache is filled; read until the opening has ended */
	int64_t training_batches;     /* number of elements of training */
	int32_t cold;                 /* not 0: begin with an empty cache */
	int32_t host_packed;          /* not 0: compressed rows lie back to back, which saves host memory. 0: at fixed distances: faster */
	const char *restore;          /* file of tc_snapshot, whose rows are cached first; a damaged one is ignored (statistics say why) */

	/* How the cache follows its use. 0: cached rows change only by tc_refresh. */
	double refresh_interval;  /* seconds between background cycles; 0: none */
	double refresh_churn;     /* largest share of the cache, 0 to 1, that one cycle replaces; default 0.25 */
	int64_t refresh_bytes;    /* most bytes that one cycle writes; default 256 MiB */
	double refresh_accesses;  /* share of all lookups, 0 to 1, from which the policy learns; default 1/8 with refresh_interval, else 0 */

	/* Host. */
	int32_t workers;       /* threads that load tables; default: all processors */
	int32_t host_threads;  /* threads that help each GPU with misses; default: half of the processors, at most 8; negative: none */
	int64_t overlay;       /* page-locked bytes for rows of tc_update; default 16 MiB */

	uint64_t seed;       /* selects the rows that codecs are trained on */
	const char *name;    /* of the cache, in telemetry and logs; default "cache" */
	int32_t log_level;   /* tc_log_level from which tc_logs_json has the cache's messages; default TC_LOG_WARNING */
	/* Not 0: equal rows of a table that is not host_packed have slots of their own. 0: they share slots, if a sample says that there are enough of them. */
	int32_t no_equal_rows;
	int64_t host_memory; /* most bytes of host memory for rows and index of tables of pages; what comes on top: docs/tiers.md, host_taken_bytes of tc_stats_json; default: no limit */
	int32_t shared;      /* not 0: other processes can attach, see tc_listen. Linux only, and not with TC_MEMORY_ADOPT */
	int32_t reserved;    /* 0 */
} tc_config;

/* A table: an array whose first axis numbers the rows. Either path or data is set. */
typedef struct tc_table {
	size_t size; /* sizeof(tc_table) */

	const char *name; /* for reports and errors; default: the array's name in its file, or "table 0" and so on */

	/* A file: .npy, .npz or .safetensors. "file.npz:array" names an array of several. Or files whose rows follow each other: one a line, or by a pattern, "part-*.npy", in
	 * the order of the names, numbers in them in the order of numbers. Or a directory of pages, of "cachebench pack", or a Valkey or Redis
	 * Cluster with the pages, "redis://HOST:PORT[,HOST:PORT…][/TABLE]", or rediss for TLS. User, password and certificates come from the environment
	 * (TENSORCACHE_CLUSTER_PASSWORD_FILE and others: docs/cluster.md). */
	const char *path;

	/* Or memory: rows x row_bytes bytes, back to back. The caller keeps it unchanged until the opening has ended. If it is of a mapped
	 * file that becomes shorter, the opening fails with TC_ERROR_FILE.
	 *
	 * TC_MEMORY_ADOPT: until tc_close has returned the memory is the cache's; nobody else may read, write, unmap or unlock it. It must
	 * begin at a page (4,096 bytes) and be anonymous or shared memory, for example of mmap, aligned_alloc or a pinned tensor, and
	 * row_bytes a multiple of 4. Rows keep their distance, so compression saves transfers, not memory. It cannot be used with
	 * host_packed. TC_MEMORY_CUDA: work that writes the memory must have ended. */
	const void *data;
	int64_t rows;      /* 0 to 2^50 - 2; 0 only with a capacity */
	int64_t row_bytes; /* 1 to 2^20 - 1 */
	int32_t dtype;     /* tc_dtype; with path: 0 for the type in the file, or another of the same length */
	int32_t memory;    /* tc_memory */
	int32_t gpu;       /* TC_MEMORY_CUDA: ordinal of the GPU that has the memory */
	int32_t restore;   /* TC_MEMORY_ADOPT, not 0: tc_close puts the rows back into the memory, with all updates. 0: it leaves what is there */

	int64_t capacity;  /* rows for which there is room, so that tc_update can append behind the last row; default: rows */
	const char *codec; /* default: the config's */

	/* Not 0: all rows lie in GPU memory, compressed, in slots of fixed length, and what longer rows have beyond lies where resident_buddy says.
	 * Nothing is admitted or evicted, and every lookup hits. Not for pages and TC_MEMORY_ADOPT. */
	int32_t resident;
	int32_t resident_target;   /* bytes of a slot, a multiple of 16; default: chosen by the expected time of a row within gpu_memory */
	double resident_overflow;  /* largest share of rows, 0 to 1, that may be longer than a slot that is chosen; default 0.3 */
	int32_t resident_max_target; /* bytes of the longest slots that tc_retarget can give the rows: GPU memory is taken for these; default: the first */
	int32_t resident_retarget;   /* not 0: the table moves to slots of another length by itself when more rows than resident_overflow are longer */
	int32_t resident_buddy;      /* tc_buddy */
	int32_t first_axis;          /* of a path that is a file, not 0: the first axis numbers the rows, as in NumPy, and the others are the row. 0: the last axis is the row */

	/* Rows of parts of different types, one behind the other, for the codec: "float8_e4m3fn*256,float8_e8m0fnu*8" are 256 values and 8 scales. The
	 * names are those of tc_dtype in NumPy and ml_dtypes, with the number of elements unless it is 1; together they fill the row. dtype must be 0 or TC_UINT8.
	 * What reads the table has bytes. Files of a structured dtype have their parts without this. */
	const char *parts;

	/* Of a path that is a directory of pages or a cluster. */
	const char *cold;         /* a cluster, as in path, that has the same pages as the directory: those that it lacks are read there */
	const char *cold_cache;   /* folder of this machine for pages that were read from the cluster */
	int64_t cold_cache_bytes; /* most bytes of them; default: 16 GiB */
	const char *log;          /* folder of updated rows; default: delta in the directory, of a cluster alone memory, of as many bytes as config.overlay */
	int32_t durable;          /* not 0: tc_update returns when the rows are on the drive. 0: a machine that fails may lose the latest, a process that ends does not */
	int32_t reserved2;        /* 0 */
} tc_table;

/* How far an opening is. */
typedef struct tc_progress {
	size_t size;    /* sizeof(tc_progress) */
	int32_t table;  /* index of the table that is read, or was read last */
	int32_t tables; /* number of tables */
	int64_t rows;   /* rows of that table that have been read */
	int64_t of;     /* its number of rows; 0 before it is known */
	int32_t filled; /* not 0: all tables are read and encoded, and the cache is being filled */
	int32_t reserved;
} tc_progress;

/* What a table is. */
typedef struct tc_table_info {
	size_t size; /* sizeof(tc_table_info) */
	int64_t rows;
	int64_t capacity;
	int64_t row_bytes;
	int64_t columns;   /* row_bytes / size of an element */
	int32_t dtype;     /* tc_dtype; TC_UINT8 for rows of parts */
	int32_t axes;      /* of the array: 2, or as many as a file has with tc_table.first_axis, at most 8 */
	char name[256];    /* cut after 255 bytes */
	char codec[64];    /* the codec in use */
	int64_t shape[8];  /* lengths of the axes: rows and columns, or those of the file */
	char parts[256];   /* of rows of parts, as in tc_table; else "". Cut after 255 bytes */
} tc_table_info;

/* What a device is. */
typedef struct tc_device_info {
	size_t size; /* sizeof(tc_device_info) */
	int32_t backend; /* TC_BACKEND_HOST or TC_BACKEND_CUDA */
	int32_t gpu;     /* ordinal of the GPU, as the CUDA driver counts them, -1 if the process does not see it; the device's index on the host */
	char name[256];
} tc_device_info;

/* ---- the library ---- */

/* The version of the library, such as "0.2.0". Compare it with TC_VERSION. It never fails, not even in a child of fork. */
TC_API const char *tc_version(void);

/* The text of this thread's last call that failed, "" if none has. It is valid until the thread's next call that fails. It never fails. */
TC_API const char *tc_last_error(void);

/* The name of a status, such as "TC_ERROR_ROWS", or "unknown status". It never fails. */
TC_API const char *tc_status_name(tc_status status);

/* The number of usable GPUs. TC_ERROR_DEVICE if there is none: the text says why (no driver, too old, no device). *count is set to 0
 * then. */
TC_API tc_status tc_gpu_count(int32_t *count);

/* Frees text that the library has returned through a char **. NULL is ignored. */
TC_API void tc_free(void *text);

/* Messages of all caches since the last call, oldest first: an array of {"time": seconds since 1970, "level": tc_log_level, "message":
 * text, "cache": name, "attributes": {…}}, the last only if it has any. The last 1,000 are kept. "[]" if there is none. */
TC_API tc_status tc_logs_json(char **json);

/* ---- opening ---- */

/* tc_config_default(tc_config *), tc_table_default(tc_table *) and the like set size, and all other fields to 0. They do nothing with NULL. They are compiled into the
 * program, whose structures may be shorter than those of a newer library. */
#define TC_DEFAULT(name)                                \
	static inline void name##_default(name *structure)  \
	{                                                   \
		if (structure != NULL) {                        \
			memset((void *)structure, 0, sizeof(name)); \
			structure->size = sizeof(name);             \
		}                                               \
	}

TC_DEFAULT(tc_config)
TC_DEFAULT(tc_table)

/* Opens a cache of count tables, 1 to 256: reads and encodes every row, learns from the training batches, and fills the cache. It returns
 * when the cache serves, which can take minutes. tables has elements of tables[0].size bytes. */
TC_API tc_status tc_open(const tc_config *config, const tc_table *tables, int32_t count, tc_cache **cache);

/* How to attach to the cache of another process. Set it by tc_attach_config_default. */
typedef struct tc_attach_config {
	size_t size;
	const char *name;     /* what the owner calls this process; default: the name of the program */
	double wait;          /* seconds for which to try to reach an owner that is not there yet; default 0: once */
	int32_t lanes;        /* most reads at a time on one device, of which the owner may allow fewer; default: twice the processors */
	int32_t workers;      /* threads of each read on the host backend; default: all processors */
	int32_t host_threads; /* as in tc_config */
	int32_t log_level;    /* as in tc_config */
	int64_t scratch;      /* most bytes of each GPU's memory that this process allocates for its reads, at least 1 MiB: the owner refuses more than it allows;
	                       * default: what it allows */
	double timeout;       /* seconds for which tc_attach, and each request to the owner later, waits for an owner that gives no sign of life: because it is stopped,
	                       * or has no file descriptors left. They then return TC_ERROR_OWNER with a text that names the owner. What an owner is at work on takes
	                       * as long as that, also while it waits for a drive. At least 0.1; default 10 */
} tc_attach_config;

TC_DEFAULT(tc_attach_config)

/* Attaches to the cache that another process serves at "unix:PATH": tensorcached, or one that has called tc_listen. The result is used and closed like a cache of
 * tc_open. Reads run in this process, on the memory of the owner; changes are made by the owner. If the owner ends, reads go on with the rows as
 * they are, changes return TC_ERROR_OWNER, and the cache attaches by itself to the next owner at the address. Graphs that have captured a read
 * before that go on with the rows of the owner that has ended, and tc_batch_wait and tc_check(cache, 1) return TC_ERROR_OWNER for them. Linux only. config may be NULL. */
TC_API tc_status tc_attach(const char *address, const tc_attach_config *config, tc_cache **cache);

/* Whom to let attach to a cache. Set it by tc_listen_config_default; 0 is the default of every field but size. */
typedef struct tc_listen_config {
	size_t size;
	int32_t max_clients;   /* most processes that are attached at a time, 1 to 1024; default 64 */
	int32_t max_lanes;     /* most reads that one of them runs at a time on one device, 1 to 1024; default 64 */
	int64_t max_scratch;   /* most bytes of each GPU's memory that one of them may allocate for its reads, at least 1 MiB; default: no limit */
	double stopped_after;  /* seconds for which one may hold back changes of the cache before they fail, at least 0.1; default 10 */
	int32_t evict_stopped; /* not 0: one that does is killed then */
	int32_t reserved;      /* 0 */
} tc_listen_config;

TC_DEFAULT(tc_listen_config)

/* Lets other processes of the same user attach, by tc_attach, to a cache that was opened with tc_config.shared: this process becomes its owner, as
 * tensorcached is of its cache. address is "unix:PATH"; a socket that an ended process has left there is replaced. A cache has one address, until tc_close. The
 * processes that are attached then read on, with the rows as they are. config may be NULL. */
TC_API tc_status tc_listen(tc_cache *cache, const char *address, const tc_listen_config *config);

/* Says what a table is: opens it and closes it again. codec is "" if it is not chosen yet. */
TC_API tc_status tc_table_describe(const tc_table *table, tc_table_info *info);

/* Begins tc_open and returns. Structures and texts may be reused at once; memory of tables and of training row numbers must stay
 * until the opening has ended: until tc_opening_wait has returned something else than TC_PENDING, or tc_opening_destroy has returned. */
TC_API tc_status tc_open_begin(const tc_config *config, const tc_table *tables, int32_t count, tc_opening **opening);

/* Waits at most that many seconds (negative: without limit; 0: not at all) for the opening to end. TC_PENDING: it has not ended. TC_OK:
 * *cache is the cache, which is handed over once; a second call returns TC_ERROR_CLOSED. Else: why it failed. */
TC_API tc_status tc_opening_wait(tc_opening *opening, double seconds, tc_cache **cache);

/* How far the opening is. progress->size must be set. */
TC_API tc_status tc_opening_progress(tc_opening *opening, tc_progress *progress);

/* Asks the opening to end soon with TC_ERROR_CANCELLED, unless it has ended. It does not wait. */
TC_API tc_status tc_opening_cancel(tc_opening *opening);

/* Cancels the opening if it has not ended, waits for its end, and closes its cache unless tc_opening_wait has handed that over. */
TC_API void tc_opening_destroy(tc_opening *opening);

/* Waits for batches and calls under way and frees all memory. The handle is given up at once: calls that begin later return
 * TC_ERROR_CLOSED. Graphs that a batch is a part of must not be launched any more. */
TC_API tc_status tc_close(tc_cache *cache);

/* ---- what a cache is ---- */

TC_API tc_status tc_table_count(tc_cache *cache, int32_t *count);
TC_API tc_status tc_device_count(tc_cache *cache, int32_t *count);
/* info->size must be set. rows grows with tc_update. */
TC_API tc_status tc_table_get_info(tc_cache *cache, int32_t table, tc_table_info *info);
TC_API tc_status tc_device_get_info(tc_cache *cache, int32_t device, tc_device_info *info);

/* ---- gathering ---- */

/*
 * Writes row ids[i] of the table to out + i x row_stride, for 0 <= i < n. Row numbers may repeat. row_stride is in bytes; 0 means the
 * length of a row, and less than that is an error. Bytes between rows stay as they are.
 *
 * device is the index of the cache's device, 0 if it has one; ids and out are memory of that GPU, or page-locked host memory that the GPU
 * addresses. stream is a CUstream (cudaStream_t, torch.cuda.current_stream().cuda_stream) of the GPU's primary context; NULL and 1 are
 * the legacy default stream; the per-thread default stream, 2, is an error.
 *
 * The batch runs in the order of the stream: after what was enqueued before and before what is enqueued later. The call does not wait for
 * the GPU, except that the first batches of a size allocate memory, and that it waits for another batch if more are under way than twice
 * the number of processors. ids and out must not overlap, and must stay allocated, and ids unchanged, until the batch has run. (torch:
 * record_stream, if stream is not the current one.)
 *
 * Row numbers are checked on the GPU: rows of those out of range are zeros. Who wants to know passes batch, or calls tc_check.
 * batch may be NULL; else *batch is a handle for tc_batch_wait, NULL after an error.
 *
 * On a stream that captures a graph the batch becomes a part of the graph: each replay reads the row numbers that are in ids then, and
 * returns the rows as they are then. Replays must not overlap. Rows of 8 KiB and more are
 * TC_ERROR_CAPTURE, but of resident tables.
 *
 * With TC_BACKEND_HOST ids and out are host memory, stream must be NULL, and the call is tc_gather_host.
 */
TC_API tc_status tc_gather(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, void *out,
	int64_t row_stride, void *stream, tc_batch **batch);

/* tc_gather for row numbers in any host memory. They are checked and copied before the call returns: for numbers out of range it returns
 * TC_ERROR_ROWS, and nothing is written. A stream that captures is TC_ERROR_CAPTURE, as replays would repeat these row numbers. */
TC_API tc_status tc_gather_host_ids(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, void *out,
	int64_t row_stride, void *stream, tc_batch **batch);

/* Gathers between host memory of any kind, on any backend, and returns when out is written. device -1: the devices take turns. */
TC_API tc_status tc_gather_host(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, void *out,
	int64_t row_stride);

/* What is made of the rows of a bag. */
typedef enum tc_pool_mode {
	TC_POOL_SUM = 0,
	TC_POOL_MEAN = 1, /* the sum divided by the number of rows */
	TC_POOL_MAX = 2   /* of each element; a NaN in the first row stays, others are passed over */
} tc_pool_mode;

/* Row numbers in bags, whose rows are added up: a batch of one table. Set it by tc_pooled_default. All memory is the host's or the GPU's, as
 * the function says. */
typedef struct tc_pooled {
	size_t size;          /* sizeof(tc_pooled) */
	int32_t table;        /* its elements are TC_FLOAT32, TC_FLOAT16, TC_BFLOAT16 or float8; or its rows are float8 values and their scales as parts */
	int32_t id_type;      /* TC_INT32 or TC_INT64 */
	const void *ids;      /* n row numbers */
	int64_t n;
	int32_t mode;         /* tc_pool_mode */
	int32_t output;       /* type of the output's elements: TC_FLOAT32, TC_FLOAT16 or TC_BFLOAT16; default 0: the table's, of float8 TC_FLOAT32 */
	int64_t bag;          /* rows of each bag, n being a multiple of it; or 0: offsets say */
	const void *offsets;  /* offset_count positions of ids at which bags begin: 0 at first, none less than the one before, none above n */
	int64_t offset_count;
	int32_t offset_type;  /* TC_INT32 or TC_INT64 */
	int32_t last_offset;  /* not 0: the last offset is the end of the last bag, and there are offset_count - 1 bags. 0: that bag ends at n */
	const float *weights; /* n factors for the rows, only with TC_POOL_SUM; or NULL */
	int64_t padding;      /* a row that is left out wherever it occurs, if has_padding is not 0 */
	int32_t has_padding;
	int32_t reserved;
	void *out;            /* a row of output for each bag; zeros for a bag without rows */
	int64_t out_stride;   /* bytes from one bag's output to the next one's; default 0: back to back. Bytes between them stay as they are */
	/* What the bytes of a row are if they are float8 values: all values, then a scale for each float8_block of them. An element is value x scale x
	 * factor. float8 0: as the table's type says; TC_FLOAT8_E4M3 and TC_FLOAT8_E5M2 are values without scales, and parts such as
	 * "float8_e4m3fn*64,float8_e8m0fnu*2" are values and their scales. */
	int32_t float8;        /* TC_FLOAT8_E4M3 or TC_FLOAT8_E5M2; the table's type is that, or TC_UINT8 */
	int32_t float8_scales; /* TC_FLOAT8_E8M0 or TC_FLOAT32; 0 without scales */
	int64_t float8_block;  /* a multiple of 8; 0: there are no scales */
	float float8_factor;   /* default 0 is 1 */
	int32_t reserved2;
	/* If bags is not 0: of the bags that offsets describe, those that begin at offset first_bag and at the bags - 1 behind it; the last one ends at the
	 * next. ids and weights are those of all bags, and out is that of the chosen ones. So batches of several tables share one array of row numbers
	 * and one of offsets, as TorchRec's KeyedJaggedTensor has them. */
	int64_t first_bag;
	int64_t bags;
} tc_pooled;

static inline void tc_pooled_default(tc_pooled *pooled)
{
	if (pooled != NULL) {
		memset((void *)pooled, 0, sizeof *pooled);
		pooled->size = sizeof *pooled;
		pooled->id_type = TC_INT64;
		pooled->offset_type = TC_INT64;
	}
}

/* Adds up rows in bags for count batches, of one table or of several, which share launches on GPUs where their rows have one type and codec. Sums are taken in float32, in an order that
 * is the same on every machine, and rounded to nearest even: docs/design.md, Pooling. batches has elements of batches[0].size bytes.
 * bag = 1 converts rows to another type of elements.
 *
 * All memory of the batches is that of the GPU. They run in the order of the stream, as with tc_gather, and the call does not wait for the GPU.
 * Row numbers and offsets are checked there: a row out of range is left out, and outputs are undefined after bad offsets; tc_batch_wait and
 * tc_check report both. batch is a handle for all batches together, or NULL. With TC_BACKEND_HOST the call is tc_gather_pooled_host. */
TC_API tc_status tc_gather_pooled(tc_cache *cache, int32_t device, const tc_pooled *batches, int32_t count, void *stream, tc_batch **batch);

/* tc_gather_pooled between host memory of any kind, on any backend. It returns when everything is written. If an argument of any batch is out of
 * range, nothing is written. device -1: the devices take turns. */
TC_API tc_status tc_gather_pooled_host(tc_cache *cache, int32_t device, const tc_pooled *batches, int32_t count);

/* tc_gather with elements of another type, TC_FLOAT32, TC_FLOAT16 or TC_BFLOAT16: of float32, float16, bfloat16 and float8 rows, rounded to nearest even. What is
 * too large becomes an infinity, and every NaN the same one. Rows of out lie back to back. It is tc_gather_pooled with bags of one row. */
static inline tc_status tc_gather_as(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, int32_t output,
	void *out, void *stream, tc_batch **batch)
{
	tc_pooled one;
	tc_pooled_default(&one);
	one.table = table, one.ids = ids, one.id_type = id_type, one.n = n, one.bag = 1, one.output = output, one.out = out;
	return tc_gather_pooled(cache, device, &one, 1, stream, batch);
}

/* Waits for the batch. TC_OK, TC_ERROR_ROWS (their rows are zeros, the others are right), TC_ERROR_CORRUPT or TC_ERROR_DEVICE. Of a batch
 * in a graph it waits for the replays that have begun, and returns what was wrong with those since the last call. */
TC_API tc_status tc_batch_wait(tc_batch *batch);

/* tc_batch_wait without waiting for the batch: TC_PENDING if it, or a replay of it, still runs. Of a batch in a graph a kernel of one block
 * asks the GPU, which takes microseconds unless other work fills the GPU. */
TC_API tc_status tc_batch_error(tc_batch *batch);

/* Gives the handle up. It does not wait, and does not stop the batch, which tc_check then reports. */
TC_API void tc_batch_destroy(tc_batch *batch);

/* What was wrong with finished batches, of tc_gather and of replays, since the last call: TC_ERROR_ROWS with the table and the count, or
 * TC_OK. Batches that tc_batch_wait has reported are counted too. wait not 0: it first waits for all batches under way. With wait 0 what was
 * wrong with a replay is returned some milliseconds after its end. */
TC_API tc_status tc_check(tc_cache *cache, int32_t wait);

/* ---- changing ---- */

/* Replaces row ids[i] by the bytes at rows + i x row_stride, all in host memory; row_stride 0 means the length of a row. If a row number
 * occurs twice, the last one counts. tc_gather calls that begin after the return see the new rows, those under way either version, never
 * a mixture. Row numbers up to the table's capacity append rows. These must follow the last row without a gap, in any order within a call:
 * otherwise TC_ERROR_ROWS, and nothing changes. It may wait until batches under way have ended. */
TC_API tc_status tc_update(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n, const void *rows,
	int64_t row_stride);

/* Withdraws rows from GPU memory, until a refresh caches them again. ids are in host memory. */
TC_API tc_status tc_invalidate(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n);

/* Writes the updated rows of a table of pages into its page files, or into its cluster, and removes them from its log. Reads and updates go on meanwhile. A cache does
 * so by itself when the log has grown: call it before the directory is copied. Of a directory with a cluster behind it only versions that were replaced are removed from
 * the log. Other tables have nothing to merge. */
TC_API tc_status tc_merge_updates(tc_cache *cache, int32_t table);

/* Begins to read those rows, of a table of pages, that are in no GPU memory and not in host memory, and returns: batches that look them up soon find them
 * in host memory. ids are in host memory. For other tables it only checks its arguments. */
TC_API tc_status tc_prefetch(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n);

/* Runs one refresh cycle, which replaces cached rows by rows that are used more, and returns when those are served. Gathers go on
 * meanwhile. */
TC_API tc_status tc_refresh(tc_cache *cache);

/* Moves a resident table to slots of target bytes, a multiple of 16, or, if target is 0, of the length, or lengths by range of rows, that tc_open would choose for the rows
 * as they are now. Row lengths limit it. It returns when all rows have moved; gathers go on meanwhile, and tc_update of the table waits some
 * milliseconds at a time. The GPU memory stays the same: a target that is longer than it was taken for (tc_table.resident_max_target) is
 * TC_ERROR_BUDGET. TC_ERROR_CLOSED: the cache was closed meanwhile. The rows of an attached cache are moved by the owner. */
TC_API tc_status tc_retarget(tc_cache *cache, int32_t table, int64_t target);

/* Sets gpu_memory. It returns once rows have given way. TC_ERROR_BUDGET and TC_ERROR_OUT_OF_MEMORY change nothing. */
TC_API tc_status tc_set_gpu_memory(tc_cache *cache, int64_t bytes);

/* Writes the numbers of the cached rows, 8 bytes each, to a file for tc_config.restore. The file is replaced as a whole. */
TC_API tc_status tc_snapshot(tc_cache *cache, const char *path);

/* ---- knowing ---- */

/* Statistics since the opening: an object with "hits", "misses", "rows_cached", "codec", "compression_ratio" and "misses_by_reason"
 * (name: count) of table table, or of all tables together if table is -1 ("codec" is a list then), "tables" (an object of each),
 * "devices", memory, and changes. docs/c.md lists the keys. */
TC_API tc_status tc_stats_json(tc_cache *cache, int32_t table, char **json);

/* Where rows lie, or why they are not cached: an array of {"row", "cached", "reason", "device", "stored_bytes", "policy": {…}, …}. ids
 * are in host memory. */
TC_API tc_status tc_explain_json(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n, char **json);

/* What the commands plan and run of cachebench print with --json, as one object. config_json is an object whose keys are the flags of the
 * command, with underscores for dashes, as in --config files: {"features": "features.npy", "ids": "ids.npy", "target_hit": "90%"}. With
 * "report": true the result is {"report": what they print without --json}. Both can take minutes. */
TC_API tc_status tc_plan_json(const char *config_json, char **json);
TC_API tc_status tc_bench_json(const char *config_json, char **json);

/* ---- models and single tensors ---- */

/* A part of a tensor of a model, and the host memory that it is read to or comes from. */
typedef struct tc_model_part {
	int64_t tensor; /* index in "tensors" of tc_model_json */
	int64_t at;     /* first byte in the tensor */
	int64_t bytes;  /* length of the part */
	void *memory;   /* bytes of them; may be NULL if there are none */
} tc_model_part;

/* A tensor in host memory: elements in C order. */
typedef struct tc_tensor {
	void *data;        /* bytes of them; may be NULL if there are none */
	int64_t bytes;     /* length of data: that of the shape's elements */
	int32_t dtype;     /* tc_dtype */
	int32_t axes;      /* 0 to 64 */
	int64_t shape[64]; /* of each axis */
	int32_t note;      /* 0 to 255: goes with the compressed tensor, for the program's own use */
	int32_t reserved;  /* 0 */
} tc_tensor;

/* Opens a model: a directory that `cachebench pack` made of .safetensors files, or a .safetensors file, or a folder with such files. */
TC_API tc_status tc_model_open(const char *path, tc_model **model);

/* Gives a model up. Reads of it that are under way end first. NULL is ignored. */
TC_API void tc_model_close(tc_model *model);

/* What a model has: {"tensors": [{"name", "dtype", "shape", "bytes", "file"}, …], "named": {name: index of the tensor}, "files": [{"name", "metadata"}, …],
 * "hash", "base"}. dtype is the name in .safetensors files. Of a packed model without a base "folders" are the directories of its tables, which tc_open takes, too, and
 * "places" say where each tensor lies in their rows: {"table", "at": first byte, "row_bytes"}. */
TC_API tc_status tc_model_json(tc_model *model, char **json);

/* Reads parts of tensors to host memory, whole pages at a time, by all processors. The memory of parts must not overlap. */
TC_API tc_status tc_model_read(tc_model *model, const tc_model_part *parts, int32_t count);

/* Packs tensors in host memory into a directory, as `cachebench pack` does with a .safetensors file. header is the JSON text that such a file begins with, and part i
 * is the tensor that is number i in it. config_json may be NULL, or is an object with "name", that of the file, and "codec", "base" and "keep_base_every", as the flags of
 * the command. */
TC_API tc_status tc_model_save(const char *path, const char *header, const tc_model_part *parts, int32_t count, const char *config_json);

/* Compresses a tensor into bytes that describe themselves, at *blob, of length *bytes. The caller frees them with tc_free. codec is "auto", "none", "smallest" or a name of
 * docs/codecs.md; a type that it does not serve is compressed in another way. Only codecs with a bound in their name lose anything. */
TC_API tc_status tc_compress(const tc_tensor *tensor, const char *codec, void **blob, int64_t *bytes);

/* Decompresses what tc_compress made. If tensor->data is NULL, the other fields are set and nothing is written: bytes says how much memory it takes. Otherwise data must have
 * that many bytes. Anything else than such bytes is TC_ERROR_ARGUMENT. */
TC_API tc_status tc_decompress(const void *blob, int64_t bytes, tc_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif
