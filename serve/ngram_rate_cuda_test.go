//go:build cuda && linux

package serve_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// ngramServer is a language model's server that reads n-gram tables on one GPU of a shared cache.
type ngramServer struct {
	cache *cache.Cache
	view  cache.View
	gpu   device.Device
	steps map[string][]device.Buffer // row numbers of some steps, by phase
	out   device.Buffer
	// before is the process's own memory before it attached.
	before float64
}

// ngramRates is what a server says: rows a second, and what it has of its own since it attached, without what it maps of the owner's.
type ngramRates struct{ RowsPerSecond, OwnBytes float64 }

const (
	ngramSteps = 8
	ngramVocab = 20_000
	// A token has so many rows, half of them of its 2-gram and half of its 3-gram; a row has so many float8 values, and a scale for each 32 of them.
	ngramHeads    = 32
	ngramElements = 256
	ngramRowBytes = ngramElements + ngramElements/32

	decode  = "decode"  // a step is a token of each sequence
	prefill = "prefill" // a step is a prompt
)

// ngramText is a text of tokens by a power law, of which each server has its own.
func ngramText(tokens int, seed uint64) []int32 {
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, 5)), 1.1, 8, ngramVocab-1)
	text := make([]int32, tokens)
	for i := range text {
		text[i] = int32(z.Uint64())
	}
	return text
}

// ngramRows are the row numbers, below rows, of the tokens of a text at some places.
func ngramRows(text []int32, places []int, rows int) (numbers []int64) {
	for _, at := range places {
		gram := uint64(text[at])*ngramVocab + uint64(text[max(at-1, 0)])
		for head := range uint64(ngramHeads) {
			if head == ngramHeads/2 {
				gram = gram*ngramVocab + uint64(text[max(at-2, 0)])
			}
			numbers = append(numbers, int64(rand.NewPCG(gram, head).Uint64()%uint64(rows)))
		}
	}
	return numbers
}

// ngramStep are the places in the text of a step of so many tokens.
func ngramStep(phase string, step, tokens, length int) (places []int) {
	for i := range tokens {
		if phase == decode {
			places = append(places, i*length/tokens+step)
		} else {
			places = append(places, step*tokens+i)
		}
	}
	return places
}

// newNgramServer attaches to a cache, for steps of decode and prefill.
func newNgramServer(address string, gpu, rows, sequences, prompt int) (_ *ngramServer, err error) {
	s := &ngramServer{steps: map[string][]device.Buffer{}}
	devices, err := cuda.OpenGPUs([]int{gpu})
	if err != nil {
		return nil, err
	}
	if s.before, err = ownBytes(); err != nil {
		return nil, err
	}
	if s.cache, err = cache.Attach(context.Background(), address, cache.AttachOptions{}); err != nil {
		return nil, err
	}
	s.gpu, s.view = devices[0], s.cache.On(gpu)
	text := ngramText(ngramSteps*prompt, uint64(gpu))
	for phase, tokens := range map[string]int{decode: sequences, prefill: prompt} {
		for i := range ngramSteps {
			var numbers []byte
			for _, row := range ngramRows(text, ngramStep(phase, i, tokens, len(text)), rows) {
				numbers = binary.LittleEndian.AppendUint64(numbers, uint64(row))
			}
			b, err := s.gpu.Alloc(int64(len(numbers)), "row numbers")
			if err != nil {
				return nil, err
			}
			if err := device.Upload(s.gpu, b, numbers); err != nil {
				return nil, err
			}
			s.steps[phase] = append(s.steps[phase], b)
		}
	}
	s.out, err = s.gpu.Alloc(int64(prompt*ngramHeads*s.cache.RowBytes(0)), "output")
	return s, err
}

// rate runs steps for so long, some of them untimed before, and returns rows a second.
func (s *ngramServer) rate(phase string, lasts time.Duration) (float64, error) {
	var running [queued]*cache.Batch
	steps, rows := s.steps[phase], 0
	begun := time.Now()
	for i, timed := 0, false; ; i++ {
		if slot := &running[i%len(running)]; *slot != nil {
			if err := (*slot).Wait(); err != nil {
				return 0, err
			}
			*slot = nil
		}
		switch {
		case !timed && i >= 3*len(steps):
			timed, begun, rows = true, time.Now(), 0
		case timed && time.Since(begun) >= lasts:
			for _, b := range running {
				if b != nil {
					if err := b.Wait(); err != nil {
						return 0, err
					}
				}
			}
			return float64(rows) / time.Since(begun).Seconds(), nil
		}
		ids := steps[i%len(steps)]
		n := int(ids.Size() / 8)
		b, err := s.view.Enqueue(context.Background(), 0, cache.Request{DeviceRows: ids, DeviceOut: s.out.Slice(0, int64(n*s.cache.RowBytes(0)))})
		if err != nil {
			return 0, err
		}
		running[i%len(running)], rows = b, rows+n
	}
}

// ownBytes is the process's memory that it does not share.
func ownBytes() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	var kilobytes float64
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			_, err = fmt.Sscan(rest, &kilobytes)
		}
	}
	return kilobytes * 1024, err
}

func init() {
	// ngrams ADDRESS GPU ROWS SEQUENCES PROMPT: for each line "PHASE SECONDS" of the test, says the ngramRates of that phase.
	roles["ngrams"] = func(p *parent, args []string) error {
		var gpu, rows, sequences, prompt int
		for i, to := range []*int{&gpu, &rows, &sequences, &prompt} {
			fmt.Sscan(args[1+i], to)
		}
		s, err := newNgramServer(args[0], gpu, rows, sequences, prompt)
		if err != nil {
			return err
		}
		p.tell("ready")
		for {
			line, ok := p.wait()
			if !ok {
				return s.cache.Close()
			}
			var phase string
			var seconds float64
			fmt.Sscan(line, &phase, &seconds)
			var r ngramRates
			if r.RowsPerSecond, err = s.rate(phase, time.Duration(seconds*float64(time.Second))); err != nil {
				return err
			}
			own, err := ownBytes()
			if err != nil {
				return err
			}
			r.OwnBytes = own - s.before
			p.tell(r)
		}
	}
}

// TestGPUs_NgramServers: two servers of a language model, one a GPU, read n-gram tables through one shared cache: together nearly twice as fast as one of them, while host memory holds
// the table once. The aim is 1.9 times.
func TestGPUs_NgramServers(t *testing.T) {
	if !gputest.Two(t) {
		return
	}
	rows, sequences, prompt := gputest.Few(8_000_000, 20_000), gputest.Few(256, 8), gputest.Few(8192, 64)
	seconds := 2.0
	if testing.Short() {
		seconds = 0.05
	}
	random := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, min(rows, 200_000)*ngramRowBytes)
	for i := range data { // values of similar size, of either sign
		data[i] = byte(0x30+random.IntN(16)) | byte(random.IntN(2))<<7
	}
	data = slices.Repeat(data, rows*ngramRowBytes/len(data)+1)[:rows*ngramRowBytes]
	of, err := dtype.RowOf(dtype.Part{Type: dtype.Float8E4M3FN, Count: ngramElements}, dtype.Part{Type: dtype.Float8E8M0FNU, Count: ngramElements / 32})
	if err != nil {
		t.Fatal(err)
	}
	table, err := cache.FromBytes("ngrams", of, data, ngramRowBytes)
	if err != nil {
		t.Fatal(err)
	}
	text := ngramText(ngramSteps*prompt, 9)
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: int64(len(data) / 6), Codec: "ibp4", Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA, Count: 2},
		Host: cache.HostOptions{NoEqualRows: true}, // the data repeat
		Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
			for i := range ngramSteps {
				if !yield(0, ngramRows(text, ngramStep(prefill, i, prompt, len(text)), rows)) {
					return
				}
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := listen(t, c, serve.Options{})
	var servers [2]*child
	for gpu := range servers {
		servers[gpu] = start(t, "ngrams", s.Address(), fmt.Sprint(gpu), fmt.Sprint(rows), fmt.Sprint(sequences), fmt.Sprint(prompt))
		servers[gpu].expect(`"ready"`)
	}
	answer := func(c *child) (r ngramRates) {
		if err := json.Unmarshal([]byte(c.line()), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, phase := range []string{decode, prefill} {
		asked := fmt.Sprintf("%s %g", phase, seconds)
		best := 0.0
		for range 3 {
			one := 0.0
			for _, child := range servers { // alone
				child.say(asked)
				r := answer(child)
				one += r.RowsPerSecond / 2
				if !testing.Short() && r.OwnBytes > float64(len(data))/4 {
					t.Errorf("a server has %.0f MB of its own, with a table of %d MB", r.OwnBytes/1e6, len(data)/1e6)
				}
			}
			for _, child := range servers {
				child.say(asked)
			}
			both := answer(servers[0]).RowsPerSecond + answer(servers[1]).RowsPerSecond
			t.Logf("%s: one server %.1f M rows/s, both %.1f, ratio %.2f (the aim is 1.9)", phase, one/1e6, both/1e6, both/one)
			best = max(best, both/one)
		}
		if !testing.Short() && best < 1.8 {
			t.Errorf("%s: both servers together have at most %.2f of one's rate, want at least 1.8", phase, best)
		}
	}
	stats, err := c.Stats()
	if err != nil || stats.HostBytes > int64(len(data))*5/4 {
		t.Errorf("host memory %d B of a table of %d B, %v", stats.HostBytes, len(data), err)
	}
	if of := stats.Tables[0]; of.Hits == 0 || of.Misses == 0 {
		t.Errorf("%d hits and %d misses, want some of both", of.Hits, of.Misses)
	} else {
		t.Logf("%.3f hits", float64(of.Hits)/float64(of.Lookups))
	}
	sharedTier(t, int64(len(data)), os.Getpid(), servers[0].cmd.Process.Pid, servers[1].cmd.Process.Pid)
}
