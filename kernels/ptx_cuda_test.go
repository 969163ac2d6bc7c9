//go:build cuda && linux

package kernels

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// named are the functions that Go asks for: the bytes of their arguments, by module and name.
type named map[[2]string]int64

func name[A any](all named, functions ...*cuda.Function[A]) {
	for _, f := range functions {
		all[[2]string{f.Module().Name, f.Name()}] = int64(unsafe.Sizeof(*new(A)))
	}
}

func nameAll[A any](all named, maps ...map[variant]map[string]*cuda.Function[A]) {
	for _, m := range maps {
		for _, shapes := range m {
			for _, f := range shapes {
				name(all, f)
			}
		}
	}
}

var (
	ptxEntry = regexp.MustCompile(`(?s)\.visible \.entry (\w+)\((.*?)\)`)
	ptxParam = regexp.MustCompile(`\.param \.align 8 \.b8 \w+\[(\d+)\]`)
)

// TestPTX_FunctionsAndArguments compares the committed PTX with what Go launches: each has the other's functions, and a
// function's parameter is as long as its struct. It needs no GPU.
func TestPTX_FunctionsAndArguments(t *testing.T) {
	want := named{}
	nameAll(want, decodeKernels, decodeStillKernels, decodePeersKernels, decodeWordsKernels)
	nameAll(want, findKernels, findStillKernels)
	nameAll(want, fetchKernels)
	nameAll(want, serveKernels)
	nameAll(want, shareKernels)
	for _, e := range encodeKernels {
		name(want, e.short, e.long)
	}
	for _, c := range codedKernels {
		for _, f := range c.decode {
			name(want, f)
		}
		for _, f := range c.serve {
			name(want, f)
		}
		name(want, c.decodeLong)
		name(want, c.fetch, c.fetchLong)
		if c.encode != nil {
			name(want, c.encode)
		}
	}
	name(want, shareOpenKernel)
	name(want, lookupKernel)
	name(want, orderCountKernel, orderPlaceKernel)
	name(want, insertKernel, eraseKernel)
	name(want, buildCount, buildPlace, buildSort, buildClaim, buildTake, buildEnd)
	name(want, buildSums[:]...)
	name(want, storeKernel)
	name(want, scatterKernel)
	name(want, gather16Kernel, gather8Kernel, gather4Kernel)
	name(want, planesKernel, onesKernel, growKernel)
	name(want, sampleBytesKernel)

	files, err := ptx.ReadDir("ptx")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		module := strings.TrimSuffix(file.Name(), ".ptx.zst")
		text, err := ptxText(module)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range ptxEntry.FindAllStringSubmatch(string(text), -1) {
			id := [2]string{module, entry[1]}
			bytes, ok := want[id]
			if !ok {
				t.Errorf("%v is in the PTX, and this test does not know who launches it", id)
				continue
			}
			delete(want, id)
			params := ptxParam.FindAllStringSubmatch(entry[2], -1)
			if strings.Count(entry[2], ".param") != 1 || len(params) != 1 || params[0][1] != strconv.FormatInt(bytes, 10) {
				t.Errorf("%v has parameters %q, want one of %d bytes", id, entry[2], bytes)
			}
		}
	}
	for id := range want {
		t.Errorf("%v is launched and not in the PTX", id)
	}
}

// TestPTX_BlocksFitLaunchBounds: no row's decoder is launched with more threads than it was compiled for.
func TestPTX_BlocksFitLaunchBounds(t *testing.T) {
	for _, op := range []string{"decode", "decodePeers", "decodeWords", "find"} {
		for v, codec := range variants {
			text, err := ptxText(op + "_" + codec)
			if err != nil {
				t.Fatal(err)
			}
			most := map[string]int{}
			for _, entry := range regexp.MustCompile(`(?s)\.entry (\w+)\(.*?\)\s*\.maxntid (\d+), 1, 1`).FindAllStringSubmatch(string(text), -1) {
				most[entry[1]], _ = strconv.Atoi(entry[2])
			}
			for rowBytes := 1; rowBytes <= abi.LongRow; rowBytes++ {
				shape, threads, _ := decodeShape(rowBytes)
				if op != "decode" && shape == "Long" || op == "find" && shape == "Wide" {
					continue
				}
				if name := op + shape + "x" + strconv.Itoa(v.steps); threads > most[name] {
					t.Fatalf("rows of %d bytes: %s with %d threads, compiled for %d", rowBytes, name, threads, most[name])
				}
			}
		}
	}
}

// TestPTX_HitKernels: whatever the rows, the kernel that decodes a coder's hits is one that it has, with tiles as wide as its name says.
func TestPTX_HitKernels(t *testing.T) {
	for name, c := range codedKernels {
		seen := map[string]bool{}
		for rowBytes := 1; rowBytes < abi.LongRow; rowBytes++ {
			for _, row := range []abi.RowCodec{
				{Store: abi.Store1}, {Store: abi.Store16}, {Store: abi.Store16, Params: [4]uint32{0, 4<<16 | 8<<8 | 1, 0x3222}},
				{Store: abi.Store8, Params: [4]uint32{0, 4<<16 | 8<<8 | 1, 0x3222}},
			} {
				row.RowBytes = uint32(rowBytes)
				d := c.hits(&row)
				if c.decode[d.kernel()] == nil || d.lanes < c.lanes || d.lanes > 32 || d.ahead < 1 || d.ahead > abi.CoderAhead {
					t.Fatalf("%s: rows of %d bytes, %+v: %+v, which there is not", name, rowBytes, row, d)
				}
				seen[d.kernel()] = true
			}
		}
		if len(seen) != len(c.decode) {
			t.Errorf("%s: %d kernels are launched, want all %d", name, len(seen), len(c.decode))
		}
	}
}
