//go:build unix

package registry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

// BenchmarkDecode and BenchmarkEncode run every codec over the same tables. Beside GB/s by the clock (MB/s of Go's) they report
// cpu-GB/s, of rows, by the time that the process had of a processor, which other programs disturb less, and the ratio.
func BenchmarkDecode(b *testing.B) { benchmarkCodecs(b, true) }
func BenchmarkEncode(b *testing.B) { benchmarkCodecs(b, false) }

// speedRows are the lengths of the generated tables' rows.
var speedRows = []int{128, 512, 1024, 4096}

// speedFloats are the numbers of the generated tables: noise, a random walk with small steps, and zeros with ones at 5 %.
var speedFloats = sync.OnceValue(func() map[string][]float64 {
	r := rand.New(rand.NewPCG(7, 8))
	of := map[string][]float64{}
	at := 100.0
	for range 1 << 20 {
		at += r.NormFloat64() / 1024
		of["normal"], of["walk"] = append(of["normal"], r.NormFloat64()), append(of["walk"], at)
		one := 0.0
		if r.IntN(20) == 0 {
			one = 1
		}
		of["sparse"] = append(of["sparse"], one)
	}
	return of
})

// speedTable returns 4 MiB of elements.
func speedTable(data string, of dtype.Type) []byte {
	var table []byte
	for _, f := range speedFloats()[data][:4<<20/max(4, of.Size())] {
		switch of {
		case dtype.Float64:
			table = binary.LittleEndian.AppendUint64(table, math.Float64bits(f))
		case dtype.Float32:
			table = binary.LittleEndian.AppendUint32(table, math.Float32bits(float32(f)))
		default: // of bfloat16
			table = binary.LittleEndian.AppendUint16(table, uint16(math.Float32bits(float32(f))>>16))
		}
	}
	return table
}

func benchmarkCodecs(b *testing.B, decode bool) {
	families := concrete()
	bounded, err := Family("sleek-eb:0.001")
	if err != nil {
		b.Fatal(err)
	}
	families = append(families, bounded)
	tables := []struct {
		data string
		of   dtype.Type
	}{{"normal", dtype.Float32}, {"normal", dtype.BFloat16}, {"normal", dtype.Float64}, {"walk", dtype.Float32}, {"sparse", dtype.Float32}}
	for _, f := range families {
		for _, t := range tables {
			for _, rowBytes := range speedRows {
				b.Run(fmt.Sprintf("codec=%s/data=%s/type=%v/row=%d", f.Name, t.data, t.of, rowBytes), func(b *testing.B) {
					benchmarkCodec(b, f, decode, speedTable(t.data, t.of), rowBytes, t.of)
				})
			}
		}
		for _, file := range []string{"cora.npz", "pubmed_tx.npz", "reddit.npz", "ncf_user.npy"} {
			b.Run(fmt.Sprintf("codec=%s/data=%s/type=float32", f.Name, file), func(b *testing.B) {
				table, rowBytes := codectest.Table(b, file)
				table = table[:min(len(table), 4<<20)/rowBytes*rowBytes]
				benchmarkCodec(b, f, decode, table, rowBytes, dtype.Float32)
			})
		}
	}
}

func benchmarkCodec(b *testing.B, f codec.Family, decode bool, table []byte, rowBytes int, of dtype.Type) {
	c, err := f.Train(table[:min(len(table), 1<<20)/rowBytes*rowBytes], rowBytes, of)
	if errors.Is(err, codec.ErrDType) {
		b.Skip(err)
	} else if err != nil {
		b.Fatal(err)
	}
	var rows, stored [][]byte // those that shrink
	dst, row := make([]byte, c.EncodeBound()), make([]byte, rowBytes)
	total := 0
	for rest := table; len(rest) > 0; rest = rest[rowBytes:] {
		n, err := c.Encode(dst, rest[:rowBytes])
		if err != nil {
			total += rowBytes
			continue
		}
		rows, stored = append(rows, rest[:rowBytes]), append(stored, bytes.Clone(dst[:n]))
		total += n
	}
	if len(rows) < 64 {
		b.Skipf("%d of the rows shrink", len(rows))
	}
	runtime.GC()
	b.SetBytes(int64(rowBytes))
	b.ReportAllocs()
	b.ResetTimer()
	start, i := processorTime(b), 0
	for range b.N {
		if decode {
			_, err = c.Decode(row, stored[i])
		} else {
			_, err = c.Encode(dst, rows[i])
		}
		if err != nil {
			b.Fatal(err)
		}
		if i++; i == len(rows) {
			i = 0
		}
	}
	b.ReportMetric(float64(b.N)*float64(rowBytes)/float64(max(1, processorTime(b)-start)), "cpu-GB/s")
	b.ReportMetric(float64(len(table))/float64(total), "ratio")
}

// BenchmarkTrain trains every codec on 10,000 rows of 512 bytes, which is the sample of cachebench's default table, and picks one.
// It reports the milliseconds of processors that each takes.
func BenchmarkTrain(b *testing.B) {
	const rowBytes = 512
	table := speedTable("normal", dtype.Float32)
	sample := append(bytes.Clone(table), table...)[:10_000*rowBytes]
	run := func(name string, train func() error) {
		b.Run("codec="+name, func(b *testing.B) {
			start := processorTime(b)
			for range b.N {
				if err := train(); errors.Is(err, codec.ErrDType) {
					b.Skip(err)
				} else if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-start).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
		})
	}
	for _, f := range concrete() {
		run(f.Name, func() error {
			_, err := f.Train(sample, rowBytes, dtype.Float32)
			return err
		})
	}
	run(Auto, func() error {
		_, _, err := Pick(sample, rowBytes, dtype.Float32, Terms{})
		return err
	})
}

// processorTime returns what the process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
