// Package parts implements the codec for rows of parts of different types ([dtype.RowOf]), such as float8 values and then their scales.
//
// The elements of each part are cut into byte planes. Training gives each plane a Huffman code of its own for as many of its leading bits as
// pays; the other bits are stored as they are. All planes share one stream of codes, so that further parts cost no bytes of their own. Format:
// docs/format/parts.md.
package parts
