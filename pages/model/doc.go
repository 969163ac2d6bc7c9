// Package model stores the tensors of a model, or of any .safetensors files, in a directory of compressed tables ([Pack]), and reads them back bit for bit ([Open],
// [Unpack]). It also has the same for one tensor in memory ([Compress], [Decompress]).
//
// Terms:
//   - A packed model is a directory with a manifest, model.json, and a few tables of package pages. The manifest has the headers of the files, byte for byte, and
//     says where each tensor lies. docs/format/model.md has the format.
//   - A table holds tensors of one element type, one after the other, cut into rows of 8 KiB. A longer or shorter last axis that many tensors share has a table of
//     its own if rows of that length take fewer bytes. Tensors of equal bytes, such as tied weights, are stored once.
//   - A delta is a packed model that has a base: its tensors are stored as the exclusive or with the tensors of the same name, type and shape in the base, where there
//     are such. A base may be a delta itself. The hash of a model covers names, types, shapes and contents of all tensors, not how they are stored: a delta
//     names that of its base, and another base is an error.
//
// A [Model] is safe for concurrent use.
package model
