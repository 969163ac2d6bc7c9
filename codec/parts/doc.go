// Package parts implements the codec for rows of parts of different types ([dtype.RowOf]), such as float8 values and then their scales.
//
// The elements of each part are cut into byte planes. Training finds the frequent symbols of each plane, which are as many of its leading bits as
// pays; digits of fixed length name them, in two levels, and the other bits are stored as they are. Format: docs/format/parts.md.
package parts
