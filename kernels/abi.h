// What Go and CUDA code share: constants and the layouts of structures in device memory and of launch arguments.
// internal/abi/abi.go is generated from this file: see gen. Only "#define NAME number", "struct Name { ... };" with members of the
// types below, and ABI_SIZE are understood.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define ABI_SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type)

// Location words, slabs and the hashmap.
#define MAX_SLABS 8
#define TAIL_SLACK 128
#define SLOT_ALIGN 16
#define NUM_REASONS 5
#define BUCKET_SLOTS 4
#define BUCKET_BYTES 64
#define MAX_PROBE 15
#define HINT_SHIFT 50
#define NO_HINT 7
#define SCAN_PART 4096

// OrderPageBits is log2 of the smallest page that misses are grouped by. There are so many buckets for pages: fewer, and
// counting them waits for itself (80 µs for 200,000 misses in 512 buckets on an H200).
#define ORDER_PAGE_BITS 16
#define ORDER_BUCKETS 16384

// StepWords is the 32-bit words of a row that one block of a codec's device metadata describes, and QuadWords those that
// a lane decodes at a time.
#define STEP_WORDS 32
#define QUAD_WORDS 4

// LongRow is the row length in bytes from which a whole block of threads decodes a row, in segments of so many quads.
#define LONG_ROW 8192
#define SEGMENT_QUADS 256
#define MAX_SEGMENTS 256

// DecodeStages is the rows that a group of lanes holds in shared memory, of which it decodes two at a time, and
// DecodeTickets the bytes of shared memory that each thread has for what it knows of the rows to come.
#define DECODE_STAGES 6
#define DECODE_TICKETS 32

// CoderAhead is the rows that a tile has on their way to shared memory while a coder decodes one.
#define CODER_AHEAD 2

// RankTable is the words of the table that decodes digits of rank planes four at a time: coder_rank_bytes.h.
#define RANK_TABLE 272

// How a row's bytes are stored: by units of so many bytes.
#define STORE_16 0
#define STORE_8 1
#define STORE_4 2
#define STORE_1 3

// Found is one hit or one miss of a batch.
struct Found {
	// Word is a hit's slab.Location, or a miss's row number.
	u64 word;
	// Position is the index in the batch.
	u32 position;
	// Reason is why a miss's row has no location.
	u32 reason;
};
ABI_SIZE(Found, 16);

// Counters is what a batch leaves behind, one per batch in device memory. It must be zero before the batch; the kernels
// that end it leave it so.
struct Counters {
	// Hits counts, while Serve runs, its blocks that have ended.
	u32 hits;
	u32 misses;
	// Reasons counts the misses by reason.
	u32 reasons[NUM_REASONS];
	// Corrupt counts the rows that did not decode; CorruptPosition is the batch index of one of them.
	u32 corrupt;
	u32 corruptPosition;
	// OutOfRange counts the row numbers outside the table. NotFirst is the complement of the first one's batch index.
	u32 outOfRange;
	u32 notFirst;
	// Share is the number of the share that the batch's misses are, 0 for none: see ShareArgs. ShareFetch clears it.
	u32 share;
	// HostBytes is the sum of the stored bytes of the missed rows.
	u64 hostBytes;
	// Peers counts the hits in slabs of other devices: see LookupArgs.
	u32 peers;
	// Batch, of a published result, is the lower half of the number of the batch whose counters these are. Until then it counts what has
	// ended of the kernels that end a batch: see BatchEnd.
	u32 batch;
};
ABI_SIZE(Counters, 64);

// BatchEnd is how a batch ends whose last kernels may run at once: of so many, the last block of the last one to end copies the
// counters to result, page-locked memory, with the batch's number, and zeroes them. Result 0: the kernel is not one of them.
struct BatchEnd {
	u64 result;
	u64 batch;
	u32 kernels;
	u32 reserved;
};
ABI_SIZE(BatchEnd, 24);

// HostTier is a table's host tier: see HostRows.
struct HostTier {
	u64 mem;
	i64 bytes;
	i64 stride;
	u64 compressed;
	u64 index;
};
ABI_SIZE(HostTier, 40);

// CodecParams is the number of 32-bit parameters that a codec gives its kernels.
#define CODEC_PARAMS 4

// RowCodec is a codec's device metadata and what else its kernels need to decode a row: see coder.h.
struct RowCodec {
	u64 meta;
	// MetaBytes is the length of the metadata if a kernel copies them to shared memory, and 0 if it reads them in place.
	u32 metaBytes;
	u32 rowBytes;
	// Quads is the number of 16-byte pieces of a row.
	u32 quads;
	// Store is one of the STORE constants: the units by which rows are written.
	u32 store;
	u32 params[CODEC_PARAMS];
	// Scratch is the shared memory, in bytes, that coding a row takes beside the row.
	u32 scratch;
	u32 reserved;
};
ABI_SIZE(RowCodec, 48);

// What a sampled access was kept for: a share of all accesses, or every access to a share of the keys.
#define SAMPLED_ACCESS 1
#define SAMPLED_KEY 2

// Sampling says which of a batch's accesses Lookup appends to a sample ring, and to which. An access is kept as
// SAMPLED_ACCESS iff the upper half of hash(access seed ^ position) is below AccessBelow, and as SAMPLED_KEY iff that of
// hash(key seed ^ key) is below KeyBelow.
struct Sampling {
	// Ring is the records' page-locked memory, 0 for no sampling; Head, in device memory, how many were claimed so far.
	u64 ring;
	u64 head;
	// AccessSeed is hash(seed ^ batch), and KeySeed hash(seed).
	u64 accessSeed;
	u64 keySeed;
	// Mask is the records of the ring - 1, a power of two - 1.
	u32 mask;
	u32 accessBelow;
	u32 keyBelow;
	u32 reserved;
};
ABI_SIZE(Sampling, 48);

// SampleRecord is an access in a sample ring, written with one 16-byte store. Lap is its turn around the ring, from 1 on;
// Check has what it was kept for in bits 1:0, and above them the upper bits of hash(key ^ lap), so that a reader knows a
// record that is written by half.
struct SampleRecord {
	u64 key;
	u32 lap;
	u32 check;
};
ABI_SIZE(SampleRecord, 16);

// PageArgs are the buckets, by pages of the host tier, that misses are counted in: so many counts, starts and, at last, a word.
struct PageArgs {
	u64 buckets;
	i64 stride;
	u64 index;
	u32 shift;
	u32 reserved;
};
ABI_SIZE(PageArgs, 32);

// Added to LookupArgs.Table if row numbers are int32, not int64. Keys take the table's lower 8 bits only.
#define INT32_ROWS 0x100

// LookupArgs are the rows of a batch. Table is the table's number, 0 to 255, and may have INT32_ROWS. Peers has a bit for each slab of another device.
struct LookupArgs {
	u64 map;
	u64 rows;
	u64 found;
	u64 counters;
	u64 out;
	u64 rejected;
	u64 oversize;
	i64 limit;
	u32 count;
	u32 buckets;
	u16 table;
	u16 peers;
	u32 rowBytes;
	Sampling samples;
};
ABI_SIZE(LookupArgs, 128);

// SplitArgs are rows to be looked up and split. Pages has buckets where the misses are to be counted for Order.
struct SplitArgs {
	LookupArgs lookup;
	PageArgs pages;
};
ABI_SIZE(SplitArgs, 160);

struct OrderArgs {
	u64 found;
	u64 counters;
	u64 ordered;
	PageArgs pages;
	u32 count;
	u32 reserved;
};
ABI_SIZE(OrderArgs, 64);

struct DecodeArgs {
	u64 found;
	u64 counters;
	u64 out;
	u64 slabs[MAX_SLABS];
	RowCodec codec;
	// Count is the length of the list, at least the hits.
	u32 count;
	// StageBytes is the shared memory of one row.
	u32 stageBytes;
	BatchEnd end;
};
ABI_SIZE(DecodeArgs, 168);

// FindArgs are rows to be looked up and, where they hit, decoded; decode has no list.
struct FindArgs {
	LookupArgs lookup;
	DecodeArgs decode;
};
ABI_SIZE(FindArgs, 296);

struct FetchArgs {
	// Misses is the first miss, and Step the distance to the next in bytes: negative where they lie at a list's back.
	u64 misses;
	i64 step;
	u64 counters;
	u64 out;
	HostTier tier;
	RowCodec codec;
	// Ahead is how many bytes of a compressed row in place are read before its length is known.
	u32 ahead;
	// StageBytes is the shared memory of one row.
	u32 stageBytes;
	BatchEnd end;
};
ABI_SIZE(FetchArgs, 152);

// ServeArgs are a batch whose rows are looked up and written by one kernel. Lookup's found is not used.
struct ServeArgs {
	LookupArgs lookup;
	u64 slabs[MAX_SLABS];
	HostTier tier;
	RowCodec codec;
	u32 ahead;
	u32 stageBytes;
	// A warp takes warpRows rows, part of them at a time, at most 32.
	u32 warpRows;
	u32 part;
	u64 result;
	u64 batch;
};
ABI_SIZE(ServeArgs, 312);

// A share is a batch whose misses the host's processors and the GPU fetch together: see package transfer. There is room for so
// many pieces and units.
#define SHARE_PIECES 2048
#define SHARE_UNITS 8192

// ShareTimes is how a share went: its misses, how many of them came through the host, and of those meant for the host how
// many the GPU took over; and nanoseconds from the opening to the end of the GPU's own part, of the host's part, and of all.
struct ShareTimes {
	u32 stamp;
	u32 tier;
	u32 misses;
	u32 staged;
	u32 taken;
	u32 gaveUp;
	u64 ownNanos;
	u64 hostNanos;
	u64 nanos;
	u64 reserved1[10];
};
ABI_SIZE(ShareTimes, 128);

// ShareHost is what both sides write in page-locked memory during a share, by 128 bytes a writer.
struct ShareHost {
	// Opened is the number of the share that was opened last, Pieces how many of its pieces the host may gather, Tier whose
	// rows they are. Written by the GPU, Opened last.
	u32 opened;
	u32 pieces;
	u32 tier;
	u32 reserved1[29];
	// Closed is the number of the share that ended last, Retired how many ShareFetches have ended. Low is the lowest unit of the
	// host's pieces that the GPU has taken itself. Written by the GPU.
	u32 closed;
	u32 retired;
	u32 low;
	u32 reserved2[29];
	// Claimed has in bits 11:0 how many pieces the host has begun of the share whose number is in bits 31:12. Written by the host.
	u32 claimed;
	u32 reserved3[31];
	// Times of the share before last or the last one, complete if Stamp is Closed. Written by the GPU.
	ShareTimes times;
	// Listed is, for each piece, the number of the share whose list is complete there. Written by the GPU.
	u32 listed[SHARE_PIECES];
};
ABI_SIZE(ShareHost, 8704);

// ShareDevice is a device's side of its shares, in its memory.
struct ShareDevice {
	// Owner is 1 while a share is open, Number that of the last one.
	u32 owner;
	u32 number;
	// Arrived has in bits 11:0 how many pieces have arrived of the share whose number is in bits 31:12. Quiet is the number of the
	// last share after which the host has finished. Written by the host's copy stream.
	u32 arrived;
	u32 quiet;
	u32 pieces;
	// Listed is how many of the pieces blocks have begun to list. Back is where the GPU's own part begins by now, Next the next unit
	// of the host's part, in units.
	u32 listed;
	u32 back;
	u32 next;
	u32 exited;
	u32 retired;
	u32 gaveUp;
	u32 staged;
	u32 stolen;
	u32 reserved;
	u64 began;
	u64 ownEnd;
	u64 hostEnd;
	// Taken has the number of the share in which a unit was taken last.
	u32 taken[SHARE_UNITS];
};
ABI_SIZE(ShareDevice, 32848);

// ShareArgs say how a batch's misses are shared. Unit and Piece are in rows, Piece being a multiple of Unit; Slot is the bytes
// that the host moves of each row, a multiple of 16. Fraction, of 65536, of the misses are the host's, no more than MaxPieces
// pieces, and none of a batch with fewer than Least misses. Own blocks begin with the GPU's own part, the others with the
// host's. After TimeoutNanos without an arrival the GPU fetches all itself.
struct ShareArgs {
	u64 host;
	u64 device;
	u64 list;
	u64 stage;
	u32 tier;
	u32 unit;
	u32 piece;
	u32 slot;
	u32 fraction;
	u32 maxPieces;
	u32 least;
	u32 own;
	u64 timeoutNanos;
};
ABI_SIZE(ShareArgs, 72);

struct ShareOpenArgs {
	u64 counters;
	ShareArgs share;
};
ABI_SIZE(ShareOpenArgs, 80);

struct ShareFetchArgs {
	FetchArgs fetch;
	ShareArgs share;
};
ABI_SIZE(ShareFetchArgs, 224);

// BuildWant is what an entry that its home has no slot for wants in a round.
struct BuildWant {
	// From is the bucket that is to have the hint, to the one that is to give a slot; all ones for none.
	u32 from;
	u32 to;
	u32 hint;
	u32 reserved;
};
ABI_SIZE(BuildWant, 16);

// BuildArgs are entries that a hashmap is built of. Starts and ends have 32 bits for each bucket, sums for each part of
// SCAN_PART of them; sorted is as large as the entries; claims has 64 bits for each bucket; failed counts entries that do
// not fit, those whose keys are reserved, and keys given twice.
struct BuildArgs {
	u64 map;
	u64 entries;
	u64 sorted;
	u64 starts;
	u64 ends;
	u64 sums;
	u64 failed;
	// Pending has two lists of room entries, as their indices in sorted order, for rounds in turn, and lengths the length of
	// each round's; wants is what this round's want.
	u64 pending;
	u64 lengths;
	u64 wants;
	u64 claims;
	u32 room;
	u32 round;
	u32 count;
	u32 buckets;
	u32 parts;
	u32 reserved;
};
ABI_SIZE(BuildArgs, 112);

// EncodeTotals adds up a table's rows as Encode stores them: how many stay raw, their bytes, and the bytes of their slots.
struct EncodeTotals {
	u64 rawRows;
	u64 storedBytes;
	u64 slotBytes;
};
ABI_SIZE(EncodeTotals, 24);

// EncodeArgs are rows to be encoded in their places: rows first to first + count - 1 of a table.
struct EncodeArgs {
	u64 rows;
	i64 stride;
	u64 first;
	// Bits, unless 0, has a bit for each row of the table, to be set where the row shrinks; lengths, unless 0, receives each
	// row's stored length in 32 bits, 0 where it does not shrink.
	u64 bits;
	u64 lengths;
	u64 totals;
	// Scratch is memory of rowBytes for each block that encodes long rows.
	u64 scratch;
	u32 count;
	// RowBytes is the shared memory, or the scratch memory, that one row takes.
	u32 rowBytes;
	RowCodec codec;
};
ABI_SIZE(EncodeArgs, 112);

// SampleArgs is a training sample: rows of rowWords words back to back. Plane b of word w has a bit a row, at
// (w × 32 + b) × planeWords; words counts the planes' words, zeros beyond the row's.
struct SampleArgs {
	u64 rows;
	u64 planes;
	// Alive is scratch memory of planeWords words a chunk. Results receives a mask and a bitval of 64 bits each a chunk.
	u64 alive;
	u64 results;
	u32 count;
	u32 rowWords;
	u32 words;
	u32 planeWords;
	u32 chunkWords;
	u32 reserved;
};
ABI_SIZE(SampleArgs, 56);

// SampleBytesArgs are a sample's rows whose stored bytes are to be summed, once for each of up to MAX_MASKS masks. Masks
// has a mask of words and a bitval of words for each, zeros beyond the row's chunks; sums has 64 bits for each.
#define MAX_MASKS 8
struct SampleBytesArgs {
	u64 rows;
	u64 masks;
	u64 sums;
	u32 count;
	u32 rowBytes;
	u32 rowWords;
	u32 words;
	u32 chunkWords;
	u32 numMasks;
};
ABI_SIZE(SampleBytesArgs, 48);

// GatherArgs are rows to be copied as they are: see Gather.
struct GatherArgs {
	u64 mem;
	u64 rows;
	u64 out;
	u32 count;
	u32 rowBytes;
};
ABI_SIZE(GatherArgs, 32);

// StoreArgs are words of 64 bits to be stored in memory that other kernels read: pairs of an index and a value, the
// indices distinct and below limit.
struct StoreArgs {
	u64 target;
	u64 words;
	i64 limit;
	u32 count;
	u32 reserved;
};
ABI_SIZE(StoreArgs, 32);

// ScatterItem is a row to be copied: bytes at from, a multiple of 16, go to the slot at to.
struct ScatterItem {
	u64 to;
	u32 from;
	u32 bytes;
};
ABI_SIZE(ScatterItem, 16);

// ScatterArgs are rows in page-locked memory and the slab they go to.
struct ScatterArgs {
	u64 slab;
	u64 stage;
	u64 items;
	u32 count;
	u32 reserved;
};
ABI_SIZE(ScatterArgs, 32);
