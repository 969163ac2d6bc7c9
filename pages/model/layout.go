package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
)

const (
	// flatRow is the length of the rows that tensors are cut into: GPUs decode such rows fastest of all codecs, and they have little beside their elements.
	flatRow = 8 << 10
	// A last axis of leastRow to mostRow bytes may have a table of its own, if tensors with such an axis take a tableShare of the bytes of their type, and smallType at
	// least. There are at most mostOwn of these a type.
	leastRow, mostRow = 512, 64 << 10
	tableShare        = 20
	smallType         = 1 << 20
	mostOwn           = 3
	// Rows of their own length must take a hundredth less than rows of flatRow.
	ownSaving = 100
	// They are compared on tryPlaces parts of tryBytes of the tensors.
	tryPlaces, tryBytes = 8, 128 << 10
	// A tensor of wholeRows rows or more begins at a row, so that it can be decoded in place. Others begin at multiples of alignTensor.
	wholeRows   = 16
	alignTensor = 16
)

// layout is where tensors are to lie.
type layout struct {
	tables []table
	parts  [][]int    // by table: the tensors, as they lie
	of     []tensorOf // by tensor of the model
}

// kind is what the tensors of a table have in common.
type kind struct {
	of       dtype.Type
	delta    bool
	rowBytes int
}

// rowOf returns the bytes of a tensor's last axis, 0 if it has fewer than two axes.
func rowOf(t *Tensor) int64 {
	if len(t.Shape) < 2 {
		return 0
	}
	return int64(t.Shape[len(t.Shape)-1]) * int64(t.element().Size())
}

// lay decides where the tensors of a source lie. sums are their hashes, and below those of the tensors that they are stored as differences from, zero for none. read reads what
// is stored of a tensor.
func lay(src *Model, sums, below []Hash, read func(tensor int, at int64, into []byte) error) (*layout, error) {
	l := &layout{of: make([]tensorOf, len(src.tensors))}
	type contents struct {
		sum, below Hash
		kind       kind
	}
	first := map[contents]int{} // the tensor of these contents that is stored
	groups := map[kind][]int{}  // of kinds without a row length
	var kinds []kind
	same := map[int]int{}
	for i := range src.tensors {
		t := &src.tensors[i]
		l.of[i].SHA256 = sums[i]
		if t.Bytes() == 0 {
			continue
		}
		k := kind{of: t.element(), delta: below[i] != Hash{}}
		c := contents{sums[i], below[i], k}
		if j, known := first[c]; known {
			same[i] = j
			continue
		}
		first[c] = i
		if groups[k] == nil {
			kinds = append(kinds, k)
		}
		groups[k] = append(groups[k], i)
	}
	for _, k := range kinds {
		group := groups[k]
		rows, err := ownRows(src, group, k, read)
		if err != nil {
			return nil, err
		}
		for _, rowBytes := range append(rows, 0) {
			var in []int
			for _, i := range group {
				own := int64(0)
				if r := rowOf(&src.tensors[i]); slices.Contains(rows, int(r)) {
					own = r
				}
				if own == int64(rowBytes) {
					in = append(in, i)
				}
			}
			if len(in) > 0 {
				k.rowBytes = cmp.Or(rowBytes, flatRow)
				l.add(src, in, k)
			}
		}
	}
	for i, j := range same {
		l.of[i].Table, l.of[i].At = l.of[j].Table, l.of[j].At
	}
	return l, nil
}

// add lays tensors one after the other into a new table.
func (l *layout) add(src *Model, in []int, k kind) {
	at, row := int64(0), int64(k.rowBytes)
	for _, i := range in {
		n := src.tensors[i].Bytes()
		align := int64(alignTensor)
		if n >= wholeRows*row || row%alignTensor != 0 {
			align = row
		}
		at = (at + align - 1) / align * align
		l.of[i].Table, l.of[i].At = len(l.tables), at
		at += n
	}
	l.tables = append(l.tables, table{DType: k.of.String(), RowBytes: k.rowBytes, Rows: (at + row - 1) / row, Delta: k.delta})
	l.parts = append(l.parts, in)
}

// ownRows returns the row lengths that take fewer bytes than rows of flatRow.
func ownRows(src *Model, in []int, k kind, read func(tensor int, at int64, into []byte) error) (rows []int, err error) {
	bytes, all := map[int64]int64{}, int64(0)
	for _, i := range in {
		t := &src.tensors[i]
		all += t.Bytes()
		if r := rowOf(t); r >= leastRow && r <= mostRow && r != flatRow {
			bytes[r] += t.Bytes()
		}
	}
	var lengths []int64
	for r, n := range bytes {
		if n >= max(smallType, all/tableShare) {
			lengths = append(lengths, r)
		}
	}
	slices.SortFunc(lengths, func(a, b int64) int { return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b)) })
	for _, r := range lengths[:min(mostOwn, len(lengths))] {
		var with []int
		for _, i := range in {
			if rowOf(&src.tensors[i]) == r {
				with = append(with, i)
			}
		}
		sample, err := sampleOf(src, with, r, read)
		if err != nil {
			return nil, err
		}
		own, err := savedBy(sample, int(r), k.of)
		if err != nil {
			return nil, err
		}
		flat, err := savedBy(sample[:len(sample)/flatRow*flatRow], flatRow, k.of)
		if err != nil {
			return nil, err
		}
		if own > flat*(1+1./ownSaving) {
			rows = append(rows, int(r))
		}
	}
	return rows, nil
}

// savedBy returns raw ÷ stored bytes of rows.
func savedBy(sample []byte, rowBytes int, of dtype.Type) (float64, error) {
	if len(sample) < rowBytes {
		return 0, nil
	}
	_, saved, err := registry.Smallest(sample[:len(sample)/rowBytes*rowBytes], rowBytes, of)
	return saved, err
}

// sampleOf returns rows from places spread over tensors with rows of so many bytes.
func sampleOf(src *Model, in []int, rowBytes int64, read func(tensor int, at int64, into []byte) error) ([]byte, error) {
	var starts []int64 // row at which each tensor begins, then all
	rows := int64(0)
	for _, i := range in {
		starts = append(starts, rows)
		rows += src.tensors[i].Bytes() / rowBytes
	}
	each := min(tryBytes/rowBytes, rows/tryPlaces)
	var sample []byte
	for p := range int64(tryPlaces) {
		row := p * rows / tryPlaces
		k, exact := slices.BinarySearch(starts, row)
		if !exact {
			k--
		}
		n := min(each, src.tensors[in[k]].Bytes()/rowBytes-(row-starts[k]))
		part := make([]byte, n*rowBytes)
		if err := read(in[k], (row-starts[k])*rowBytes, part); err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
		sample = append(sample, part...)
	}
	return sample, nil
}
