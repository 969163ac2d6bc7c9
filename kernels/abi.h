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

// OrderPageBits is log2 of the smallest page, in bytes, by which misses are grouped. OrderBuckets is the number of buckets of pages. With
// fewer buckets many threads count in the same one and wait for each other: 80 µs for 200,000 misses in 512 buckets on an H200.
#define ORDER_PAGE_BITS 16
#define ORDER_BUCKETS 16384

// StepWords is the number of 32-bit words of a row that one block of IBP's device metadata describes. QuadWords is the number that a lane
// decodes at a time.
#define STEP_WORDS 32
#define QUAD_WORDS 4

// LongRow is the row length, in bytes, from which a whole block decodes a row of IBP, in segments of SegmentQuads quads. Other coders decode
// such rows without a stage.
#define LONG_ROW 8192
#define SEGMENT_QUADS 256
#define MAX_SEGMENTS 256

// DecodeStages is the number of rows that a group of lanes has in shared memory while it decodes two of them. DecodeTickets is the shared
// memory, in bytes, that a thread has for tickets, and FindShared for the lookup of a row: see decode_pairs.cu and looked.h.
#define DECODE_STAGES 6
#define DECODE_TICKETS 32
#define FIND_SHARED 80

// TwoLanes is the number of lanes of a tile that decodes rows of at most 2 × TwoLanes quads, two a lane, and TwoStages the number of rows that
// it has in shared memory: see decode_two.cu.
#define TWO_LANES 10
#define TWO_STAGES 4

// CoderAhead is the number of rows that are being copied to shared memory for a tile while it decodes one, unless tuning.h has an
// ahead of its own.
#define CODER_AHEAD 2

// BuiltTickets is the shared memory, in bytes, of each thread that decodes rows put together in shared memory: see decode_built.h.
#define BUILT_TICKETS 48

// RankTable is the length, in words, of the table by which coder_rank_bytes.h decodes four digits at a time.
#define RANK_TABLE 272

// The units, in bytes, by which a row is written.
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

// Counters counts what happened to the rows of one batch. It lies in device memory and must be zero before the batch. The kernels that end
// the batch leave it zero.
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
	// Batch, in a published result, is the lower half of the batch's number. Before, it counts the blocks and kernels that have ended, of
	// those kernels that end the batch: see BatchEnd.
	u32 batch;
};
ABI_SIZE(Counters, 64);

// BatchEnd says how a batch ends. It has one or two last kernels, which may run at the same time. The last block of the one that ends last
// copies the counters and the batch's number to result, which is page-locked memory, and zeroes the counters. kernels is the number of last
// kernels. result is 0 for a kernel that is not one of them.
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

// Why an access was sampled: as one of a fraction of all accesses, because its key is one of a fraction of the keys, or as one of a
// fraction of the misses.
#define SAMPLED_ACCESS 1
#define SAMPLED_KEY 2
#define SAMPLED_MISS 4

// Sampling says which of a batch's accesses Lookup appends to a sample ring. An access is kept as
// SAMPLED_ACCESS iff the upper half of hash(access seed ^ position) is below AccessBelow, as SAMPLED_MISS iff it misses and that half is
// below MissBelow, and as SAMPLED_KEY iff that of hash(key seed ^ key) is below KeyBelow.
struct Sampling {
	// Ring is the address of the records, or 0 for no sampling. Head is the address of the number of records claimed so far. Both are in
	// device memory.
	u64 ring;
	u64 head;
	// AccessSeed is hash(seed ^ batch), and KeySeed hash(seed).
	u64 accessSeed;
	u64 keySeed;
	// Mask is the number of records of the ring, a power of two, minus 1.
	u32 mask;
	u32 accessBelow;
	u32 keyBelow;
	u32 missBelow;
};
ABI_SIZE(Sampling, 48);

// SampleRecord is an access in a sample ring, written with one 16-byte store. Lap counts the rounds of the ring, from 1 on. Check has the
// SAMPLED bits in bits 2:0 and the upper bits of hash(key ^ lap) above them, so that a reader recognizes a half-written record.
struct SampleRecord {
	u64 key;
	u32 lap;
	u32 check;
};
ABI_SIZE(SampleRecord, 16);

// PageArgs are the buckets of pages of the host tier in which misses are counted. The memory has OrderBuckets counts, as many starts, and one
// word: see order.h.
struct PageArgs {
	u64 buckets;
	i64 stride;
	u64 index;
	u32 shift;
	u32 reserved;
};
ABI_SIZE(PageArgs, 32);

// Int32Rows is added to LookupArgs.Table if row numbers are int32, not int64. Keys take the lower 8 bits of the table only.
#define INT32_ROWS 0x100

// LookupArgs are the rows of a batch to be looked up. Table is the table's number, 0 to 255, and may have INT32_ROWS. Peers has a bit for each
// slab that lies on another device.
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

// SplitArgs are rows to be looked up and split into hits and misses. Pages has buckets if misses are to be counted for Order.
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
	// Count is the length of the list: at least the number of hits.
	u32 count;
	// StageBytes is the shared memory of one row.
	u32 stageBytes;
	// Ahead is how many rows are being copied for a tile while it decodes one: 0, or what the kernel is compiled for. Only for kernels of coders.
	u32 ahead;
	u32 reserved;
	BatchEnd end;
};
ABI_SIZE(DecodeArgs, 176);

struct FetchArgs {
	// Misses is the address of the first miss, and Step the distance to the next, in bytes: negative for misses at the back of a list.
	u64 misses;
	i64 step;
	u64 counters;
	u64 out;
	HostTier tier;
	RowCodec codec;
	// Ahead is the number of bytes of a compressed row in place that are read before the row's length is known.
	u32 ahead;
	// StageBytes is the shared memory of one row.
	u32 stageBytes;
	BatchEnd end;
};
ABI_SIZE(FetchArgs, 152);

// FindArgs are rows to be looked up and, if they hit, decoded, else fetched. decode.found is not used.
struct FindArgs {
	LookupArgs lookup;
	DecodeArgs decode;
	FetchArgs fetch;
	// Decoders is how many blocks look rows up and decode hits. The others fetch the misses when those are done.
	u32 decoders;
	u32 reserved;
};
ABI_SIZE(FindArgs, 464);

// ServeArgs are a batch whose rows are looked up and written by one kernel. Lookup's found is not used.
struct ServeArgs {
	LookupArgs lookup;
	u64 slabs[MAX_SLABS];
	HostTier tier;
	RowCodec codec;
	u32 ahead;
	u32 stageBytes;
	// A warp serves warpRows rows, in parts of part rows, at most 32.
	u32 warpRows;
	u32 part;
	u64 result;
	u64 batch;
};
ABI_SIZE(ServeArgs, 312);

// A share is a batch whose misses the host's processors and the GPU fetch together: see package transfer. It has at most so many pieces
// and units.
#define SHARE_PIECES 2048
#define SHARE_UNITS 8192

// ShareTimes is the outcome of a share: the misses; staged, those that the host gathered; taken, those of the host's part that the GPU took
// over; and the nanoseconds from the opening to the end of the GPU's own part, of the host's part, and of the share.
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

// ShareHost is the part of a share in page-locked memory, which both sides write. Each writer has 128-byte lines of its own.
struct ShareHost {
	// Opened is the number of the share that was opened last, Pieces the number of its pieces that the host may gather, and Tier the host
	// tier of its rows. Written by the GPU, Opened last.
	u32 opened;
	u32 pieces;
	u32 tier;
	u32 reserved1[29];
	// Closed is the number of the share that ended last, Retired the number of ShareFetches that have ended, and Low the lowest unit of the
	// host's part that the GPU has taken over. Written by the GPU.
	u32 closed;
	u32 retired;
	u32 low;
	u32 reserved2[29];
	// Claimed has in bits 11:0 the number of pieces that the host has begun, and in bits 31:12 the share's number. Written by the host.
	u32 claimed;
	u32 reserved3[31];
	// Times is that of the last share or of the one before. It is complete if its Stamp equals Closed. Written by the GPU.
	ShareTimes times;
	// Listed has, for each piece, the number of the last share that has listed the piece completely. Written by the GPU.
	u32 listed[SHARE_PIECES];
};
ABI_SIZE(ShareHost, 8704);

// ShareDevice is the part of a share in the device's memory.
struct ShareDevice {
	// Owner is 1 while a share is open, Number that of the last one.
	u32 owner;
	u32 number;
	// Arrived has in bits 11:0 the number of pieces that have arrived, and in bits 31:12 the share's number. Quiet is the number of the last
	// share with which the host has finished. Written by the host's copy stream.
	u32 arrived;
	u32 quiet;
	u32 pieces;
	// Listed is the number of pieces that blocks have begun to list. Back is the unit that the GPU took last of its own part, and Next the
	// next unit of the host's part.
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
	// Taken has, for each unit, the number of the share in which the unit was taken last.
	u32 taken[SHARE_UNITS];
};
ABI_SIZE(ShareDevice, 32848);

// Tiles read several rows of up to SHARE_ROW bytes at once; of longer ones, a warp reads one.
#define SHARE_ROW 768

// SHARE_HEAD is the shared memory, in bytes, that a block of ShareFetch has for the unit that it takes.
#define SHARE_HEAD 128

// ShareArgs say how a batch's misses are shared. Unit and Piece are in rows; Piece is a multiple of Unit. Slot is the number of bytes of each
// row that the host gathers, a multiple of 16. The host's part is Fraction / 65536 of the misses, at most MaxPieces pieces. A batch with
// fewer than Least misses is not shared. Own blocks begin with the GPU's own part, the others with the host's. After TimeoutNanos
// without an arrival the GPU fetches the rest itself.
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

// BuildWant is what an entry asks for in a round if its home bucket has no slot for it.
struct BuildWant {
	// From is the bucket that gets the hint, and To the bucket that gives a slot; all ones for none.
	u32 from;
	u32 to;
	u32 hint;
	u32 reserved;
};
ABI_SIZE(BuildWant, 16);

// BuildArgs are entries of which a hashmap is built. Starts and ends have 32 bits for each bucket, and sums for each SCAN_PART buckets. Sorted
// is as large as the entries. Claims has 64 bits for each bucket. Failed counts entries that do not fit, reserved keys, and keys given
// twice.
struct BuildArgs {
	u64 map;
	u64 entries;
	u64 sorted;
	u64 starts;
	u64 ends;
	u64 sums;
	u64 failed;
	// Pending has two lists of room entries each, which rounds use in turns. An entry is its index in sorted. Lengths has the length of each
	// round's list, and wants the BuildWants of this round.
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

// EncodeTotals are sums over a table's rows as Encode stores them: the rows that stay raw, the stored bytes, and the bytes of slots.
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
	// Bits, unless 0, has a bit for each row of the table, which is set if the row shrinks. Lengths, unless 0, receives each row's stored
	// length in 32 bits, 0 if the row does not shrink.
	u64 bits;
	u64 lengths;
	u64 totals;
	// Scratch has rowBytes bytes for each block that encodes long rows.
	u64 scratch;
	u32 count;
	// RowBytes is the shared memory or, for long rows, the scratch memory that one row takes, in bytes.
	u32 rowBytes;
	RowCodec codec;
};
ABI_SIZE(EncodeArgs, 112);

// SampleArgs is a training sample: rows of rowWords words back to back. Plane b of word w has a bit for each row and begins at word
// (w × 32 + b) × planeWords of planes. words is the number of words that have planes; those beyond rowWords are zeros.
struct SampleArgs {
	u64 rows;
	u64 planes;
	// Alive is scratch memory of planeWords words for each chunk. Results receives, for each chunk, a mask and a bitval of 64 bits each.
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

// SampleBytesArgs are a sample's rows whose stored bytes are summed for each of up to MAX_MASKS masks. Masks has, for each, a mask and a bitval
// of words words, which are zeros beyond the row's chunks. Sums has 64 bits for each.
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
	u64 hot;
	u64 places;
};
ABI_SIZE(GatherArgs, 48);

// StoreArgs are 64-bit words to be stored in memory that other kernels read. words has pairs of an index and a value. Indices are distinct;
// those from limit on are ignored.
struct StoreArgs {
	u64 target;
	u64 words;
	i64 limit;
	u32 count;
	u32 reserved;
};
ABI_SIZE(StoreArgs, 32);

// ScatterItem is a row to be copied: bytes bytes from offset from of the stage, a multiple of 16, to the slot at offset to.
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

// ReplayView is what batches of captured graphs read of one table on one device: the hashmap, the slabs, the host tier and the table's length.
struct ReplayView {
	u64 map;
	u64 rejected;
	u64 oversize;
	i64 limit;
	u64 slabs[MAX_SLABS];
	HostTier tier;
	u32 buckets;
	u32 peers;
};
ABI_SIZE(ReplayView, 144);

// ReplayViews are the views of one table on one device, in turns: the one that replays read is element version % REPLAY_TURNS. An element is
// written again only when every replay that may read it has ended.
#define REPLAY_TURNS 8
struct ReplayViews {
	u64 version;
	u64 reserved;
	ReplayView views[REPLAY_TURNS];
};
ABI_SIZE(ReplayViews, 1168);

// ReplayCounts are sums over the replays of a captured batch: what Counters counts. First is of the last replay with row numbers outside the
// table: the lowest 33 bits of its number, then 31 bits with the complement of the first such row's batch index.
struct ReplayCounts {
	u64 peers;
	u64 hostBytes;
	u64 reasons[NUM_REASONS];
	u64 corrupt;
	u64 outOfRange;
	u64 first;
	u32 corruptPosition;
	u32 reserved;
};
ABI_SIZE(ReplayCounts, 88);

// ReplayState is the device memory of a captured batch. Begun counts the blocks that have begun, and ended those that have ended, of all
// replays, which follow each other and have as many blocks each. Of replays that a board has, announced is
// the number of the last one announced, hits what they had hit together by the end of the last, and others the misses and row numbers out of range.
struct ReplayState {
	u64 begun;
	u64 ended;
	ReplayCounts counts;
	u64 announced;
	u64 hits;
	u64 others;
};
ABI_SIZE(ReplayState, 128);

// ReplayArgs are a batch in a captured graph. Views is the address of the table's ReplayViews, and blocks the number of blocks of a replay.
// Serve has what does not change from replay to replay; its counters, result and batch are not used.
struct ReplayArgs {
	u64 state;
	u64 views;
	u32 blocks;
	u32 reserved;
	ServeArgs serve;
};
ABI_SIZE(ReplayArgs, 336);

// BoardCapture is the place of a captured batch on the board of a client of a shared cache: see package board. Copies has two times what the
// replays have counted, 16 words each: replays, hits, hits in slabs of other devices, stored bytes of misses, and misses by reason. The lowest bit
// of ended says which one is valid.
struct BoardCapture {
	u64 begun;
	u64 ended;
	u64 table;
	u64 reserved[13];
	u64 copies[32];
};
ABI_SIZE(BoardCapture, 384);

// ReplayBoardArgs are a captured batch's state and its place on a board. A replay has there the number from, plus its own from 1 on. A replay
// looks up rows rows.
struct ReplayBoardArgs {
	u64 state;
	u64 place;
	u64 from;
	u32 rows;
	u32 reserved;
};
ABI_SIZE(ReplayBoardArgs, 32);

// ReplayLookArgs are states of captured batches, one behind the other, and where in page-locked memory their copies go.
struct ReplayLookArgs {
	u64 states;
	u64 copies;
	u32 count;
	u32 reserved;
};
ABI_SIZE(ReplayLookArgs, 24);
