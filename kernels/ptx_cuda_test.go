//go:build cuda && linux

package kernels

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/bundle"
)

// named are the functions that Go asks for: the bytes of their arguments, by module and name.
type named map[[2]string]int64

func name[A any](all named, functions ...*cuda.Function[A]) {
	for _, f := range functions {
		all[[2]string{f.Module().Name, f.Name()}] = int64(unsafe.Sizeof(*new(A)))
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
	for _, c := range codedKernels {
		name(want, slices.Collect(maps.Values(c.decode))...)
		name(want, slices.Collect(maps.Values(c.find))...)
		name(want, slices.Collect(maps.Values(c.buddy))...)
		name(want, slices.Collect(maps.Values(c.serve))...)
		name(want, slices.Collect(maps.Values(c.share))...)
		name(want, slices.Collect(maps.Values(c.replay))...)
		name(want, c.fetch, c.fetchLong)
		name(want, c.shareLong)
		if c.encode != nil {
			name(want, c.encode)
		}
		if c.encodeLong != nil {
			name(want, c.encodeLong)
		}
		name(want, slices.Collect(maps.Values(c.pooled))...)
		name(want, slices.Collect(maps.Values(c.pooledTables))...)
	}
	name(want, poolJoin)
	name(want, poolJoinTables)
	name(want, slices.Collect(maps.Values(sumRows))...)
	name(want, poolOffsets)
	name(want, slices.Collect(maps.Values(gatherPool))...)
	name(want, shareOpenKernel)
	name(want, replayLook)
	name(want, replayBegins, replayEnds)
	name(want, lookupKernel)
	name(want, absentListKernel)
	name(want, absentWaitKernel, absentEndKernel)
	name(want, orderCountKernel, orderPlaceKernel)
	name(want, buildCount, buildPlace, buildSort, buildClaim, buildTake, buildEnd)
	name(want, buildSums[:]...)
	name(want, storeKernel)
	name(want, scatterKernel)
	name(want, gather16Kernel, gather8Kernel, gather4Kernel, gatherHot16Kernel)
	name(want, planesKernel, onesKernel, growKernel)
	name(want, sampleBytesKernel)

	files, err := ptx.ReadDir("ptx")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{}
	for _, file := range files {
		packed, err := ptx.ReadFile("ptx/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		modules, err := bundle.Unpack(packed)
		if err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		for module, text := range modules {
			if want := bundle.Of(module) + bundle.Ext; want != file.Name() {
				t.Errorf("module %s lies in %s, want %s", module, file.Name(), want)
			}
			texts[module] = text.Text()
		}
	}
	for module, text := range texts {
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
	threads := regexp.MustCompile(`(?s)\.entry (\w+)\(.*?\)\s*\.maxntid (\d+), 1, 1`)
	for name, c := range coders {
		if !c.pairs {
			continue
		}
		most := map[string]int{}
		for module := range entries {
			if !strings.HasSuffix(module, "_"+name) {
				continue
			}
			text, err := ptxText(module)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range threads.FindAllStringSubmatch(string(text), -1) {
				most[entry[1]], _ = strconv.Atoi(entry[2])
			}
		}
		for rowBytes := 1; rowBytes <= abi.LongRow; rowBytes++ {
			_, threads, _ := decodeShape(rowBytes)
			for _, op := range []string{"decode", "decodePeers", "find", "buddy"} {
				for _, row := range rowsOf(rowBytes) {
					if h := c.hits(&row, op); threads > most[h.name()] {
						t.Fatalf("%s, rows of %d bytes: %s with %d threads, compiled for %d", name, rowBytes, h.name(), threads, most[h.name()])
					}
				}
			}
		}
	}
}

// rowsOf returns rows of a length by which kernels are picked differently.
func rowsOf(rowBytes int) []abi.RowCodec {
	rows := []abi.RowCodec{
		{Store: abi.Store1}, {Store: abi.Store16}, {Store: abi.Store16, Params: [4]uint32{0, 4<<16 | 8<<8 | 1, 0x3222}},
		{Store: abi.Store8, Params: [4]uint32{0, 4<<16 | 8<<8 | 1, 0x3222}},
		{Store: abi.Store16, Params: [4]uint32{0, 1<<24 | 4<<16 | 9<<8, 0x3222, 1 << 8}}, // symbols of 9 bits, with bases
	}
	for i := range rows {
		rows[i].RowBytes = uint32(rowBytes)
	}
	return rows
}

// TestPTX_HitKernels: whatever the rows, the kernel that decodes a coder's hits is one that it has, with tiles as wide as its name says; and
// each kernel is for some rows.
func TestPTX_HitKernels(t *testing.T) {
	for name, c := range codedKernels {
		seen := map[string]bool{}
		for rowBytes := 1; rowBytes <= abi.LongRow; rowBytes++ {
			for _, row := range rowsOf(rowBytes) {
				for _, op := range []string{"decode", "decodePeers", "find", "buddy"} {
					h := c.hits(&row, op)
					seen[h.name()] = true
					if c.decode[h.name()] == nil && c.find[h.name()] == nil && c.buddy[h.name()] == nil {
						t.Fatalf("%s: rows of %d bytes, %+v: %s of %+v, which there is not", name, rowBytes, row, op, h)
					}
					compiled := cmp.Or(c.ahead, abi.CoderAhead)
					if h.form != "" {
						compiled = 1
					}
					if !c.pairs && (h.lanes < c.lanes || h.lanes > 32 || h.ahead != 0 && h.ahead != compiled) {
						t.Fatalf("%s: rows of %d bytes: %+v", name, rowBytes, h)
					}
				}
			}
			if lanes := c.serveTile(rowBytes); c.serve[lanes] == nil {
				t.Fatalf("%s: rows of %d bytes: no kernel for small batches of %d lanes", name, rowBytes, lanes)
			}
			if lanes := c.shareTile(rowBytes); c.share[lanes] == nil {
				t.Fatalf("%s: rows of %d bytes: no kernel for shared misses of %d lanes", name, rowBytes, lanes)
			}
		}
		seen["decodeLong"], seen["buddyLong"] = true, true
		if all := len(c.decode) + len(c.find) + len(c.buddy); len(seen) != all {
			t.Errorf("%s: %d kernels are launched, want all %d", name, len(seen), all)
		}
	}
}

// TestPTX_StagesBeginAtLines: kernels that copy rows of the host tier to shared memory have none of their own beside the dynamic one, or it is
// whole lines, and metadata before the rows are whole lines too. Rows that began within a line took 2.6 times as long.
func TestPTX_StagesBeginAtLines(t *testing.T) {
	static := regexp.MustCompile(`(?m)^\s*\.shared .*\[(\d+)\]`)
	for name := range coders {
		text, err := ptxText("share_" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, own := range static.FindAllStringSubmatch(string(text), -1) {
			if bytes, _ := strconv.Atoi(own[1]); bytes%metaAlign != 0 {
				t.Errorf("share_%s has %d bytes of shared memory of its own", name, bytes)
			}
		}
	}
	if abi.ShareHead%metaAlign != 0 {
		t.Errorf("%d bytes before the metadata", abi.ShareHead)
	}
}
