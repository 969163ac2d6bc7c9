package host

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
)

func TestFor_CoversEveryPartOnce(t *testing.T) {
	for _, w := range []workers{1, 2, 5} {
		for _, n := range []int{0, 1, 7, 8, 9, 1000} {
			var seen [1000]atomic.Int32
			w.For(n, 8, func(from, to int) {
				if to-from > 8 || from >= to {
					t.Errorf("part [%d, %d)", from, to)
				}
				for i := from; i < to; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				if got, want := seen[i].Load(), int32(1); i < n && got != want || i >= n && got != 0 {
					t.Fatalf("workers %d, n %d: %d ran %d times", w, n, i, got)
				}
			}
		}
	}
}

// TestFor_WaitsForEveryPart lets each part in turn outlast the others, which all run at once.
func TestFor_WaitsForEveryPart(t *testing.T) {
	const parts = 3
	for slow := range parts {
		var began sync.WaitGroup
		began.Add(parts)
		var ended atomic.Int32
		workers(parts).For(parts, 1, func(from, _ int) {
			began.Done()
			began.Wait()
			if from == slow {
				time.Sleep(10 * time.Millisecond)
			}
			ended.Add(1)
		})
		if n := ended.Load(); n != parts {
			t.Errorf("part %d slow: For returned after %d of %d parts", slow, n, parts)
		}
	}
}

func TestAlloc_AlignedAndChecked(t *testing.T) {
	d := Open(2, 1)[1]
	for _, n := range []int64{0, 1, 127, 4096} {
		b, err := d.Alloc(n, "test")
		if err != nil || b.Size() != n || int64(len(b.Bytes())) != n {
			t.Fatalf("Alloc(%d): %d bytes, %v", n, b.Size(), err)
		}
		if n > 0 && uintptr(unsafe.Pointer(&b.Bytes()[0]))%128 != 0 {
			t.Errorf("Alloc(%d) is not aligned", n)
		}
	}
	if _, err := d.Alloc(-1, "slab"); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("Alloc(-1): %v", err)
	}
	if d.Info().Index != 1 || d.Info().Kind != "host" {
		t.Errorf("Info() = %+v", d.Info())
	}
}

func TestOpen_DevicesOfABackend(t *testing.T) {
	devices := Open(8, 3)
	for i, d := range devices {
		if info := d.Info(); info.Index != i || info.Kind != "host" || !strings.HasSuffix(info.Name, ", 3 workers") {
			t.Errorf("device %d: %+v", i, info)
		}
	}
	if name := Open(1, 0)[0].Info().Name; !strings.HasSuffix(name, fmt.Sprintf(", %d workers", runtime.GOMAXPROCS(0))) {
		t.Errorf("by default: %s", name)
	}
}

func TestAlloc_Zeroed(t *testing.T) {
	d := Open(1, 1)[0]
	for _, alloc := range []func(int64, string) (device.Buffer, error){d.Alloc, d.AllocHost} {
		b, err := alloc(1000, "test")
		if err != nil {
			t.Fatal(err)
		}
		if cap(b.Bytes()) != 1000 {
			t.Errorf("%d bytes can be reached beyond the allocation", cap(b.Bytes())-1000)
		}
		for i, x := range b.Bytes() {
			if x != 0 {
				t.Fatalf("byte %d is %d", i, x)
			}
			b.Bytes()[i] = 0xff // what the next one must not see
		}
		d.Free(b)
	}
}

// sum is a kernel that adds up the numbers below n.
type sum struct {
	n     int
	total atomic.Int64
}

func (*sum) Name() string { return "sum" }

func (k *sum) RunHost(w device.Workers) {
	w.For(k.n, 10, func(from, to int) {
		for i := from; i < to; i++ {
			k.total.Add(int64(i))
		}
	})
}

// TestStream_ManyAtOnce runs kernels on streams of one device from several goroutines; each is done when its stream
// says so.
func TestStream_ManyAtOnce(t *testing.T) {
	d := Open(1, 3)[0]
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			s, err := d.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			e, err := d.NewEvent()
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Close()
			for i := range 50 {
				k := &sum{n: 100*g + i}
				if err := s.Launch(k); err != nil {
					t.Error(err)
				}
				passed, err := e.Passed()
				if err = errors.Join(err, s.Record(e), s.Wait(e), e.Synchronize(), s.Synchronize()); err != nil || !passed {
					t.Errorf("before its record the event has passed: %v, %v", passed, err)
				}
				if passed, err := e.Passed(); err != nil || !passed {
					t.Errorf("after Synchronize the event has passed: %v, %v", passed, err)
				}
				if got, want := k.total.Load(), int64(k.n)*int64(k.n-1)/2; got != want {
					t.Errorf("sum below %d is %d, want %d", k.n, got, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestStream_CopiesAndFills(t *testing.T) {
	d := Open(1, 1)[0]
	s, err := d.WrapStream(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := d.Alloc(16, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Fill(b.Slice(4, 12), 7), s.Copy(b.Slice(10, 14), device.HostBuffer([]byte("abcd"))), s.Synchronize()); err != nil {
		t.Fatal(err)
	}
	if got, want := string(b.Bytes()), "\x00\x00\x00\x00\a\a\a\a\a\aabcd\x00\x00"; got != want {
		t.Errorf("memory is %q, want %q", got, want)
	}
	if err := s.Copy(b, b.Slice(0, 15)); err == nil {
		t.Error("a copy between different lengths succeeds")
	}
	if capturing, err := s.Capturing(); capturing || err != nil {
		t.Errorf("Capturing() = %v, %v", capturing, err)
	}
}
