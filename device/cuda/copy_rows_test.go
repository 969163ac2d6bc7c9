//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestStream_CopyRows: rows come to lie apart, what is between them stays, and sizes that do not fit are refused.
func TestStream_CopyRows(t *testing.T) {
	const row, stride, rows = 12, 20, 7
	d := gputest.Open(t)
	src, err := d.Alloc(row*rows, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(src)
	dst, err := d.Alloc(stride*(rows-1)+row, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(dst)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	from, want := make([]byte, src.Size()), bytes.Repeat([]byte{0xa5}, int(dst.Size()))
	for i := range from {
		from[i] = byte(i + 1)
	}
	for i := range rows {
		copy(want[i*stride:], from[i*row:][:row])
	}
	copier := s.(device.RowCopier)
	if err := errors.Join(s.Copy(src, device.HostBuffer(from)), s.Fill(dst, 0xa5), copier.CopyRows(dst, stride, src, row), s.Synchronize()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, dst.Size())
	if err := device.Download(d, got, dst); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
	for _, bad := range []error{
		copier.CopyRows(dst.Slice(0, dst.Size()-1), stride, src, row), copier.CopyRows(dst, row-1, src, row), copier.CopyRows(dst, stride, src, 0),
		copier.CopyRows(dst, stride, src.Slice(0, row*rows-1), row),
	} {
		if bad == nil {
			t.Error("sizes that do not fit were accepted")
		}
	}
	if err := copier.CopyRows(dst.Slice(0, 0), stride, src.Slice(0, 0), row); err != nil {
		t.Errorf("no rows: %v", err)
	}
}
