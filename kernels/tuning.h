// What is tuned by hand, coder by coder, and the measurement that is the reason. gen/codecs reads the TUNED lines; nothing includes this file. A coder without any has
// the generic kernels only: a tile or warp decodes a row, hits and misses are found by one launch and read by others, and rows of other devices are read as local ones are.
// docs/notebook has the measurements in full: hits.md, odd-rows.md, pooled.md, two-gpus.md. GB/s and shares of a plain gather are those of H100 and H200.
//
//	// TUNED coders: words
//
// A word is a kernel that the coders have beside or in place of the generic ones, or a number by which theirs are launched. type coder in coders.go has them all.

// Pairs: a lane decodes the same quad of two rows at a time, so that it has the quad's metadata in registers (decode_pairs.cu); long rows are encoded and fetched by blocks;
// and lookup and decoding are one launch, which has 0.74 instead of 0.69 of a plain gather with 200,000 rows of 512 bytes (ibp4). With other coders it has 0.76 to 1.05 times the
// speed of two launches.
//
// TUNED raw ibp4x3 ibp4x5 ibp8x4 ibp8x6: pairs

// Single: the kernel that adds up rows of more than 32 quads also has a form for one batch that is in no graph, whose arguments are the launch's own. The other coders use the form
// for several tables and graphs there. It matters for large batches, which of such rows are one launch only without a codec. Not measured apart.
//
// TUNED raw: single

// Two: rows of 17 to 20 quads by ten lanes with two quads each (decode_two.cu), three rows a warp: 0.91 instead of 0.70 of a plain gather at 300 bytes. Rows without a codec
// are copied, which takes no such kernel.
//
// TUNED ibp4x3 ibp4x5 ibp8x4 ibp8x6: two

// Fixed: tables none of whose bits move when a chunk is packed have no moves to read, which takes 40 registers less for two quads, and leaves room for four blocks a multiprocessor
// instead of three. Such tables have metadata of the fewest steps. At 264 bytes they have 1.13 of a plain gather, others of ibp4 0.94.
//
// TUNED ibp4x3 ibp8x4: fixed

// Shifts: rows that are added up whose bits move by at most so many distances, one in float32 rows and two in bfloat16 rows. Shifting a chunk by each distance takes half the
// instructions of the steps of expansion (expand.h).
//
// TUNED ibp4x3: shifts=1
// TUNED ibp4x5: shifts=2

// Bytes: symbols that are bytes, in the form that tables of floats are trained to, by tiles that advance in step: 0.89 instead of 0.60 of a plain gather at 512 bytes (float32). Find
// is one launch, and rows are added up as they are decoded (pooled_bytes.cu): 1.02 to 1.42 times as fast as rows first with float32. Quads: 16-byte pieces that a lane decodes.
//
// TUNED rank2: bytes=RankBytes quads=2
// TUNED rank4: bytes=RankBytes quads=4
// TUNED rankb2: bytes=RankBytes quads=2
// TUNED rankb4: bytes=RankBytes quads=4

// Bits: the same for symbols of other lengths, which tables of float16 have: 0.82 of a plain gather at 512 bytes.
//
// TUNED rankb2 rankb4: bits=RankBits

// Built: rows are put together in shared memory before they are written (decode_built.h): 0.85 instead of 0.78 at 512 bytes of zeros and ones, and more since it spills no registers.
// Fill: blocks have fewer warps where shared memory then has room for more of them.
//
// TUNED sparse1 sparse2 sparse4 sparse8: built=SparseHits quads=4 fill

// Eight quads a lane: rows of 1,024 bytes have 0.76 of a plain gather by 8 lanes and 0.66 by 16 (float32). With blocks of which fewer warps fit a multiprocessor they have 0.58.
//
// TUNED zipnn1 zipnn2 zipnn4 zipnn8: quads=8 fill

// Rows of 2,112 bytes by 16 lanes instead of 32 (wide): 0.98 instead of 0.89. One row prefetched instead of two (ahead): 0.67 instead of 0.57 at 264 bytes.
//
// TUNED parts: quads=4 ahead=1 wide=4096 fill

// One row prefetched instead of two is 1 to 4 % faster; with the other coders slower.
//
// TUNED sleek16 sleek32 sleek64: ahead=1

// Alone: rows from so many bytes on are not prefetched, which leaves shared memory for more warps. At 4,096 bytes: rank 0.80 instead of 0.61 (bfloat16), zipnn 0.95 instead of 0.90, ibpc 1.06
// instead of 0.83, sparse 1.73 instead of 1.71, ndzip 0.89 instead of 0.62; sleek at 1,024 bytes 0.98 instead of 0.95. Shorter rows are slower without.
//
// TUNED zipnn1 zipnn2 zipnn4 zipnn8: alone=512
// TUNED sleek16 sleek32 sleek64: alone=1024
// TUNED rank2 rank4 rankb2 rankb4: alone=1040
// TUNED ibpc2 ibpc4 ibpc8 sparse1 sparse2 sparse4 sparse8: alone=2048
// TUNED ndzip16 ndzip32 ndzip64: alone=4096

// Peers: lists with rows of other devices are read through the first-level cache: 396 instead of 250 GB/s. Tables of sleek and ndzip have no such kernel: with several
// devices nobody uses them.
//
// TUNED raw ibp4x3 ibp4x5 ibp8x4 ibp8x6 ibpc2 ibpc4 ibpc8 rank2 rank4 rank8 rankb2 rankb4: peers
// TUNED zipnn1 zipnn2 zipnn4 zipnn8 sparse1 sparse2 sparse4 sparse8 parts: peers
