//go:build cuda

package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/internal/race"
)

// one is what the fake driver's kernel "one" takes.
type one struct{ A, B uint64 }

const oneBytes = unsafe.Sizeof(one{})

func init() {
	children["sequence"] = func() {
		c := must(must(OpenDevice(1)).Retain())
		s, other := must(c.NewStream()), must(c.WrapStream(0x10001))
		e := must(c.NewEvent(false))
		f := must(must(c.LoadModule([]byte("x"))).Function("one"))
		q := c.NewSequence()
		check(q.Enqueue()) // of nothing
		for i := range uint64(40) {
			a := one{0x0123456789abcdef, i}
			q.Launch(s, f, int(i)+1, 32, 7, unsafe.Pointer(&a), oneBytes, nil)
			a.B = 1 << 63 // it was copied
		}
		q.Launch(other, f, 5, 64, 0, unsafe.Pointer(&one{3, 4}), oneBytes, e)
		q.Wait(s, e)
		q.Record(other, e)
		check(q.Enqueue())
		check(q.Enqueue()) // nothing is left
		q.Record(s, e)
		q.Drop()
		check(q.Enqueue())
	}
	children["sequence failures"] = func() {
		c := must(must(OpenDevice(1)).Retain())
		s := must(c.NewStream())
		e := must(c.NewEvent(false))
		f := must(must(c.LoadModule([]byte("x"))).Function("one"))
		q := c.NewSequence()
		for _, fail := range []func(){
			func() { q.Launch(s, f, 9, 96, 5, unsafe.Pointer(&one{5, 6}), oneBytes, e) },
			func() { q.Wait(s, e) },
		} {
			q.Launch(s, f, 1, 32, 0, unsafe.Pointer(&one{1, 2}), oneBytes, nil)
			fail()
			q.Record(s, e)
			err := q.Enqueue()
			fmt.Println(err, IsSticky(err))
			check(q.Enqueue())
		}
	}
	children["sequence allocations"] = func() {
		c := must(must(OpenDevice(0)).Retain())
		s := must(c.NewStream())
		e := must(c.NewEvent(false))
		f := must(must(c.LoadModule([]byte("x"))).Function("one"))
		q := c.NewSequence()
		fmt.Println(testing.AllocsPerRun(1000, func() {
			for range 8 {
				a := one{1, 2}
				q.Launch(s, f, 1, 32, 0, unsafe.Pointer(&a), oneBytes, e)
				q.Wait(s, e)
				q.Record(s, e)
			}
			check(q.Enqueue())
		}))
	}
	children["sequence benchmark"] = func() {
		c := must(must(OpenDevice(0)).Retain())
		s := must(c.NewStream())
		e := must(c.NewEvent(false))
		f := must(must(c.LoadModule([]byte("x"))).Function("one"))
		q := c.NewSequence()
		a := [256]byte{}
		// What a batch with a launch a stage enqueues.
		const launches, events = 7, 5
		fmt.Println("one by one", testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				for range launches {
					check(f.Launch(s, 1, 32, 0, unsafe.Pointer(&a), nil))
				}
				for range events {
					check(e.Record(s))
				}
			}
		}))
		fmt.Println("in sequence", testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				for range launches {
					q.Launch(s, f, 1, 32, 0, unsafe.Pointer(&a), unsafe.Sizeof(a), nil)
				}
				for range events {
					q.Record(s, e)
				}
				check(q.Enqueue())
			}
		}))
	}
}

func TestSequence_InOrder(t *testing.T) {
	_, calls := runChild(t, "sequence", fakeDriver(t, false))
	from := slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "launch") })
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("launch in 0xc0de0001 0x10e grid %d block 32 shared 7 stream 0x57e0 begun (nil): 0x123456789abcdef %s", i+1, hex(i)))
	}
	want = append(want,
		"launch in 0xc0de0001 0x10e grid 5 block 64 shared 0 stream 0x10001 begun 0xe4e47: 0x3 0x4",
		"cuStreamWaitEvent 0x57e0 0xe4e47 0", "cuEventRecord 0xe4e47 0x10001",
	)
	if from < 0 || !slices.Equal(calls[from:], want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(calls[max(from, 0):], "\n"), strings.Join(want, "\n"))
	}
}

// hex is C's %#x.
func hex(i int) string {
	if i == 0 {
		return "0"
	}
	return fmt.Sprintf("%#x", i)
}

// TestSequence_Failures: what comes before the failure is enqueued, what comes after is dropped, and the error names the call.
func TestSequence_Failures(t *testing.T) {
	got, calls := runChild(t, "sequence failures", fakeDriver(t, false), "FAKE_CUDA_FAIL=cuLaunchKernelEx=719,cuStreamWaitEvent=400")
	want := `cuda: cuLaunchKernel of one, grid 9, block 96, 5 bytes shared on device 1: CUDA_ERROR_LAUNCH_FAILED (launch failed) true
cuda: cuStreamWaitEvent on device 1: CUDA_ERROR_INVALID_HANDLE (invalid handle) false
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	n := 0
	for _, c := range calls {
		if strings.HasPrefix(c, "launch") {
			n++
		}
		if strings.HasPrefix(c, "cuEventRecord") {
			t.Errorf("enqueued after a failure: %s", c)
		}
	}
	if n != 2 {
		t.Errorf("%d launches before the failures, want 2: %q", n, calls)
	}
}

func TestSequence_AllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	if got, _ := runChild(t, "sequence allocations", fakeDriver(t, false), "FAKE_CUDA_LOG=/dev/null"); got != "0\n" {
		t.Errorf("allocations per sequence: %s", got)
	}
}

// BenchmarkSequence compares calls one by one with one call, of a driver that does nothing.
func BenchmarkSequence(b *testing.B) {
	got, _ := runChild(b, "sequence benchmark", fakeDriver(b, false), "FAKE_CUDA_LOG=")
	b.Log("\n" + got)
}
