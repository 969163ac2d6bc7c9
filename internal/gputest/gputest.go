// Package gputest opens GPUs for tests, and makes rows for them. A test that needs a GPU skips, with the reason, on machines
// without one; if the environment variable TENSORCACHE_REQUIRE_GPU is 1, it fails instead.
package gputest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
)

// Require skips or fails the test if there is no usable GPU.
func Require(t testing.TB) {
	t.Helper()
	err := cuda.Usable()
	if err == nil {
		return
	}
	if os.Getenv("TENSORCACHE_REQUIRE_GPU") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Open returns a GPU, closed when the test ends.
func Open(t testing.TB) device.Device {
	t.Helper()
	Require(t)
	devices, err := cuda.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := devices[0].Close(); err != nil {
			t.Error(err)
		}
	})
	return devices[0]
}

// RequireGPUs skips the test if there are fewer than n usable GPUs, or they cannot all read each other's memory. Otherwise it
// logs n, which the record of GPU tests takes from the log.
func RequireGPUs(t testing.TB, n int) {
	t.Helper()
	Require(t)
	gpus, err := cuda.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(gpus) < n {
		t.Skipf("needs %d GPUs, there are %d", n, len(gpus))
	}
	for _, g := range gpus[:n] {
		for other := range n {
			if other != g.Index && !slices.Contains(g.Peers, other) {
				t.Skipf("the first %d GPUs cannot all read each other's memory", n)
			}
		}
	}
	t.Logf("gpus: %d", n)
}

// OpenIfAny is Open for tests that also do something without a GPU. If there is none, it returns nil and the reason.
func OpenIfAny(t testing.TB) (device.Device, error) {
	t.Helper()
	if err := cuda.Usable(); err != nil && os.Getenv("TENSORCACHE_REQUIRE_GPU") != "1" {
		return nil, err
	}
	return Open(t), nil
}

// FloatRows returns rows of a float type: most of them walk, so that neighbours are alike, with exponents that every codec
// can do something with; some are of few non-zero words, and some are noise.
func FloatRows(of dtype.Type, n, rowBytes int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 11))
	word := of.Size()
	exponent := map[dtype.Type]int{dtype.Float16: 5, dtype.BFloat16: 8, dtype.Float32: 8, dtype.Float64: 11}[of]
	mantissa := 8*word - 1 - exponent
	var b [8]byte
	data := make([]byte, 0, n*rowBytes+8)
	for i := range n {
		kind, shift := (i+int(seed))%5, r.IntN(8*word)
		x := uint64(1<<(exponent-1)-1)<<mantissa | r.Uint64()>>(64-mantissa)
		end := len(data) + rowBytes
		for len(data) < end {
			switch kind {
			case 0:
				x = r.Uint64()
			case 1:
				x = 0
				if r.IntN(16) == 0 {
					x = r.Uint64() >> 1 & (3<<(8*word-3) - 1)
				}
			case 2: // around one, of either sign
				x = uint64(1<<(exponent-1)-1-r.IntN(4))<<mantissa | r.Uint64()>>(64-mantissa) | r.Uint64()&1<<(8*word-1)
			default:
				x += r.Uint64() >> (64 - 8*word + shift)
			}
			binary.LittleEndian.PutUint64(b[:], x)
			data = append(data, b[:word]...)
		}
		data = data[:end]
	}
	return data
}

// DType is the element type that tests take rows of that length to be of: the widest float whose multiple it is, up to float32.
func DType(rowBytes int) dtype.Type {
	switch {
	case rowBytes%4 == 0:
		return dtype.Float32
	case rowBytes%2 == 0:
		return dtype.BFloat16
	}
	return dtype.Uint8
}

// Parts returns a type of rows of parts of rowBytes, at least 4, with elements of a type among them: float8 values and scales, behind floats that
// lie at odd bytes if they are of 2 bytes.
func Parts(of dtype.Type, rowBytes int) dtype.Type {
	var parts []dtype.Part
	left := rowBytes
	add := func(of dtype.Type, count int) {
		if count > 0 {
			parts, left = append(parts, dtype.Part{Type: of, Count: count}), left-count*of.Size()
		}
	}
	if of.Size() == 2 {
		add(dtype.Int8, 3)
	}
	if of.Size() > 1 {
		add(of, left/2/of.Size())
	}
	scales := max(1, left/33)
	add(dtype.Float8E4M3FN, left-scales)
	add(dtype.Float8E8M0FNU, scales)
	t, err := dtype.RowOf(parts...)
	if err != nil {
		panic(err)
	}
	return t
}

// PartsRows returns n rows of parts with N(0,1) values and scales that hardly differ. Every fifth row is bytes at random.
func PartsRows(of dtype.Type, n int, seed uint64) (data []byte) {
	r := rand.New(rand.NewPCG(seed, 12))
	for i := range n {
		for _, p := range of.Parts() {
			for range p.Count {
				x := r.NormFloat64()
				var b [8]byte
				switch {
				case i%5 == 4:
					binary.LittleEndian.PutUint64(b[:], r.Uint64())
				case p.Type == dtype.Float8E8M0FNU:
					b[0] = byte(120 + x)
				case p.Type.Size() == 1:
					b[0] = byte(int8(20 * x))
				case p.Type.Size() == 2: // bfloat16, and near enough to float16
					binary.LittleEndian.PutUint16(b[:], uint16(math.Float32bits(float32(x))>>16))
				case p.Type.Size() == 4:
					binary.LittleEndian.PutUint32(b[:], math.Float32bits(float32(x)))
				default:
					binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
				}
				data = append(data, b[:p.Type.Size()]...)
			}
		}
	}
	return data
}

// Few returns n, or few with -short, which is how tests run on the emulated GPU.
func Few(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}

// Drawn says whether a sweep runs its case number i: with -short one of n cases, else all. TENSORCACHE_DRAW, a number that CI takes from the commit, says
// which, so that each commit has others run.
func Drawn(i, n int) bool {
	if !testing.Short() {
		return true
	}
	draw, _ := strconv.Atoi(os.Getenv("TENSORCACHE_DRAW"))
	return (i+draw)%n == 0
}

// Kinds are the kinds of rows that Rows generates.
var Kinds = []string{"normal", "double", "sparse", "constant", "random", "mixed", "special"}

// Rows returns n generated rows of rowBytes, back to back.
func Rows(kind string, n, rowBytes int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	row := func(kind string) []byte {
		b := make([]byte, 0, rowBytes+8)
		for len(b) < rowBytes {
			switch kind {
			case "normal":
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
			case "double":
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(r.NormFloat64()))
			case "sparse":
				x := float32(0)
				if r.IntN(20) == 0 {
					x = 1
				}
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			case "constant":
				b = binary.LittleEndian.AppendUint32(b, 0xdeadbeef)
			case "special":
				b = binary.LittleEndian.AppendUint32(b, []uint32{
					0, 1 << 31, 0x7f800000, 0xff800000, 0x7fc00001, 0xffffffff, 1, 0x3f800000,
				}[r.IntN(8)])
			default:
				b = binary.LittleEndian.AppendUint32(b, r.Uint32())
			}
		}
		return b[:rowBytes]
	}
	var all bytes.Buffer
	for i := range n {
		k := kind
		if kind == "mixed" {
			k = []string{"normal", "normal", "normal", "random"}[(i+int(seed))%4]
		}
		all.Write(row(k))
	}
	return all.Bytes()
}
