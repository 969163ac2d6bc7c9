//go:build cuda && linux

package emulator_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// args are the FaultArgs of lib/tests.cu.
type args struct {
	Out         uint64
	Words, Mode uint32
}

// ptx is what the driver reads of a kernel in lib/tests.cu: its name and its argument.
func ptx(name string) string {
	return fmt.Sprintf(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry %s(\n\t.param .align 8 .b8 args[16]\n)\n{\n\tret;\n}\n", name)
}

// open returns a device, or skips the test where the driver is not the emulator.
func open(t *testing.T) *cuda.Device {
	t.Helper()
	if !emulator.Present() {
		t.Skip("not the emulated GPU")
	}
	return gputest.Open(t).(*cuda.Device)
}

// run launches a kernel of one block on memory of so many words, and returns them, all ones before.
func run(t *testing.T, d *cuda.Device, kernel string, threads, shared, words int, a args) ([]uint32, error) {
	t.Helper()
	m, err := d.Alloc(int64(4*words), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(m)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Fill(m, 0xff); err != nil {
		t.Fatal(err)
	}
	a.Out = m.Addr()
	f := cuda.NewFunction[args](&cuda.Module{Name: kernel, PTX: func() ([]byte, error) { return []byte(ptx(kernel)), nil }}, kernel)
	if err := f.Launch(s.(*cuda.Stream), 1, threads, shared, &a); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err != nil {
		return nil, err
	}
	out := make([]uint32, words)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), 4*words)
	return out, device.Download(d, raw, m)
}

// moduleFiles returns the emulator's modules.
func moduleFiles(t *testing.T) []string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	library := regexp.MustCompile(`/\S*/libcuda\.so\.1`).Find(maps)
	modules, err := filepath.Glob(filepath.Join(filepath.Dir(string(library)), "modules", "*.so"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("no modules beside %q: %v", library, err)
	}
	return modules
}

// imports says whether a module takes a function of that name from other libraries.
func imports(t *testing.T, module, name string) bool {
	t.Helper()
	file, err := elf.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(symbols, func(s elf.ImportedSymbol) bool { return s.Name == name })
}

// TestModules_ResolveSharedVariablesThemselves: libgcc_s exports __emutls_get_address too, and a program that has loaded it with RTLD_GLOBAL,
// such as Python with torch, would give that one to the modules if they imported it.
func TestModules_ResolveSharedVariablesThemselves(t *testing.T) {
	open(t)
	for _, name := range moduleFiles(t) {
		if imports(t, name, "__emutls_get_address") {
			t.Errorf("%s imports __emutls_get_address", name)
		}
	}
}

func resultOf(err error) (r driver.Result) {
	errors.As(err, &r)
	return r
}

// TestEmulator_FindsFaults runs kernels with faults, each on a device of its own, since it is lost. Their like without the fault pass.
func TestEmulator_FindsFaults(t *testing.T) {
	const bad, misaligned, failed = driver.Result(700), driver.Result(716), driver.Result(719)
	for _, c := range []struct {
		kernel          string
		threads, shared int
		words           int
		args            args
		want            driver.Result
	}{
		{"writeBehind", 32, 0, 1024, args{Words: 1023}, 0},
		{"writeBehind", 32, 0, 1024, args{Words: 1024}, bad},
		{"writeBehind", 32, 0, 1024, args{Words: 1024, Mode: 1}, bad},
		{"writeBehind", 32, 0, 1000, args{Words: 1001}, bad}, // between the memory and the next page
		{"writeBehind", 32, 0, 64, args{Words: 1 << 24}, bad},
		{"notAligned", 1, 0, 64, args{}, misaligned},
		{"diverged", 64, 0, 64, args{Mode: 0}, failed},
		{"diverged", 64, 0, 64, args{Mode: 1}, failed},
		{"diverged", 64, 0, 64, args{Mode: 2}, 0},
		{"sharedBehind", 32, 4096, 64, args{Words: 992}, 0},
		{"sharedBehind", 32, 4096, 64, args{Words: 1024}, bad},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.kernel, c.args), func(t *testing.T) {
			d := open(t)
			_, err := run(t, d, c.kernel, c.threads, c.shared, c.words, c.args)
			if got := resultOf(err); got != c.want {
				t.Fatalf("result %v, want %v", got, c.want)
			}
			if (c.want != 0) != (d.Err() != nil) {
				t.Errorf("the device's error is %v", d.Err())
			}
		})
	}
}

// TestEmulator_FindsMissingMeetings: without a meeting between, lanes see what others had not written yet, and copies that had not arrived.
func TestEmulator_FindsMissingMeetings(t *testing.T) {
	for _, c := range []struct {
		kernel string
		mode   uint32
		sound  bool
	}{{"neighbour", 0, false}, {"neighbour", 1, false}, {"neighbour", 2, true}, {"copied", 0, false}, {"copied", 1, true}} {
		t.Run(fmt.Sprintf("%s/%d", c.kernel, c.mode), func(t *testing.T) {
			d := open(t)
			const threads = 256
			out, err := run(t, d, c.kernel, threads, 4*threads, 2*threads, args{Mode: c.mode})
			if err != nil {
				t.Fatal(err)
			}
			var want []uint32
			for i := range uint32(threads) {
				if c.kernel == "copied" {
					want = append(want, ^uint32(0))
				} else {
					want = append(want, (i+33)%threads)
				}
			}
			got := out[:threads]
			if c.kernel == "copied" {
				got = out[threads:]
			}
			if c.kernel == "neighbour" && c.mode < 2 {
				for i := range want {
					want[i] = (uint32(i) + 1) % threads
				}
			}
			if slices.Equal(got, want) != c.sound {
				t.Errorf("sound: %v, want %v", !c.sound, c.sound)
			}
		})
	}
}

// TestEmulator_FindsRaces: votes order no accesses to shared memory, barriers of a warp those of its lanes only. Modules have to be built for it.
func TestEmulator_FindsRaces(t *testing.T) {
	if !emulator.Present() {
		t.Skip("not the emulated GPU")
	}
	if !slices.ContainsFunc(moduleFiles(t), func(m string) bool { return filepath.Base(m) == "tests.so" && imports(t, m, "emulatedAccess") }) {
		t.Skip("the modules do not say what they access: make test-races")
	}
	for _, c := range []struct {
		mode uint32
		race bool
	}{
		{0x000, true}, {0x010, true}, {0x020, false}, {0x030, false}, // write, then read within the warp
		{0x011, true}, {0x021, true}, {0x031, false}, // write, then read by another warp
		{0x120, true}, {0x220, false}, {0x320, false}, {0x231, true}, {0x331, false}, // and written again
	} {
		t.Run(fmt.Sprintf("%03x", c.mode), func(t *testing.T) {
			d := open(t)
			const threads = 64
			_, err := run(t, d, "handed", threads, 0, threads, args{Mode: c.mode})
			if race := resultOf(err) == 719; race != c.race {
				t.Errorf("a race: %v (%v), want %v", race, err, c.race)
			}
		})
	}
}

// TestFail_LosesOneDevice: at the launch that it was told, until the device is opened anew.
func TestFail_LosesOneDevice(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		d := open(t)
		emulator.Fail(0, driver.Result(214), 1)
		if _, err := run(t, d, "diverged", 32, 0, 64, args{Mode: 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, d, "diverged", 32, 0, 64, args{Mode: 2}); resultOf(err) != 214 {
			t.Fatalf("the second launch: %v", err)
		}
		if _, err := d.Alloc(16, "test"); resultOf(err) != 214 {
			t.Errorf("Alloc after it: %v", err)
		}
	})
	t.Run("anew", func(t *testing.T) {
		if _, err := run(t, open(t), "diverged", 32, 0, 64, args{Mode: 2}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSlow_DelaysLaunches holds a slowed launch against the time it was slowed by.
func TestSlow_DelaysLaunches(t *testing.T) {
	d := open(t)
	const by = 50 * time.Millisecond
	emulator.Slow(0, by)
	defer emulator.Slow(0, 0)
	begun := time.Now()
	if _, err := run(t, d, "diverged", 32, 0, 64, args{Mode: 2}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < by {
		t.Errorf("took %v, want at least %v", took, by)
	}
}
