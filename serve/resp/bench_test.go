package resp

import (
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
)

// BenchmarkRows replies with rows of 512 bytes, without a socket: straight to the replies, and by a copy, as rows of several tables are.
func BenchmarkRows(b *testing.B) {
	table, err := cache.FromBytes("users", dtype.Int32, rowsOf(100_000, 128), 512)
	if err != nil {
		b.Fatal(err)
	}
	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 5 << 20, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := New(Options{Cache: c})
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 16, 100} {
		for _, way := range []string{"direct", "copied"} {
			b.Run(fmt.Sprintf("rows=%d/%s", rows, way), func(b *testing.B) {
				one := newConn(s, &recorded{})
				entries := make([]entry, rows)
				b.ReportAllocs()
				for i := range b.N {
					for j := range entries {
						entries[j] = entry{0, int64((i*rows + j) * 7919 % 100_000)}
					}
					one.out = one.out[:0]
					one.gather.part = partBytes
					if way == "direct" {
						one.direct(entries)
						continue
					}
					one.gather.read(entries, func(row []byte, err error) { one.bulk(row) })
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/row")
			})
		}
	}
}
