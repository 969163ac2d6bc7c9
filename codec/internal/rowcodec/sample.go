package rowcodec

import (
	"fmt"
	"iter"

	"github.com/tensorcache/tensorcache/slab"
)

// CheckRow returns an error unless a table may have rows of rowBytes.
func CheckRow(codec string, rowBytes int) error {
	if rowBytes < 1 || rowBytes > slab.MaxRowBytes {
		return fmt.Errorf("%s: row (%d bytes) must be 1 to %d", codec, rowBytes, slab.MaxRowBytes)
	}
	return nil
}

// CheckSample returns an error unless the sample is one or more rows of rowBytes, back to back.
func CheckSample(codec string, sample []byte, rowBytes int) error {
	if err := CheckRow(codec, rowBytes); err != nil {
		return err
	}
	if len(sample) == 0 {
		return fmt.Errorf("%s: sample (0 rows) must have at least one row", codec)
	}
	if len(sample)%rowBytes != 0 {
		return fmt.Errorf("%s: sample (%d bytes) must be a multiple of the row (%d bytes)", codec, len(sample), rowBytes)
	}
	return nil
}

// spreadElements bounds the elements that SpreadRows yields. Counting more changes no codec's choice and takes longer.
const spreadElements = 1 << 20

// SpreadRows yields the whole elements of rows at even distances over a sample: of all rows, or of as many as have
// 2^20 elements together.
func SpreadRows(sample []byte, rowBytes, elementBytes int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rows, perRow := len(sample)/rowBytes, rowBytes/elementBytes
		if perRow == 0 {
			return
		}
		take := max(1, min(rows, spreadElements/perRow))
		for i := range take {
			if !yield(sample[i*rows/take*rowBytes:][:perRow*elementBytes]) {
				return
			}
		}
	}
}
