package kernels

import "github.com/tensorcache/tensorcache/device"

// rowNumbers are the row numbers of a batch that the host can address: the elements of one of the two slices.
type rowNumbers struct {
	int64s []int64
	int32s []int32
}

func (k *Lookup) rowNumbers() rowNumbers { return rowNumbersOf(k.Rows, k.Int32) }

func rowNumbersOf(b device.Buffer, narrow bool) rowNumbers {
	if narrow {
		return rowNumbers{int32s: view[int32](b)}
	}
	return rowNumbers{int64s: view[int64](b)}
}

func (r rowNumbers) len() int { return len(r.int64s) + len(r.int32s) }

func (r rowNumbers) at(i int) int64 {
	if r.int32s != nil {
		return int64(r.int32s[i])
	}
	return r.int64s[i]
}

// numRows returns the number of rows in the batch.
func (k *Lookup) numRows() int {
	if k.Int32 {
		return int(k.Rows.Size() / 4)
	}
	return int(k.Rows.Size() / 8)
}
