// Package buddy has the format of resident tables: tables whose rows all lie in device memory, each in a slot of fixed length, with
// the rest of a longer row at a fixed place of buddy memory (Choukse et al., Buddy Compression, ISCA 2020). There is no hashmap: the
// row number says where a row lies. The package also chooses the length of the slots. It holds no memory and launches nothing; its types
// are values, safe for concurrent use.
//
// Terms: the target is the length of a slot; the overflow of a row is what its stored form has beyond the target; buddy memory is
// page-locked host memory, or memory of another device. docs/format/buddy.md describes the bytes.
package buddy
