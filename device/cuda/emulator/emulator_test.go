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
	"strings"
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

// run launches a kernel, as one block, on memory of so many words. All bits of the words are ones before; run returns what they are after it.
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

// TestEmulator_FindsFaults runs kernels with faults, each on a device of its own, since a fault loses it. The same kernels without the fault pass.
func TestEmulator_FindsFaults(t *testing.T) {
	const bad, misaligned, notShared, failed = driver.Result(700), driver.Result(716), driver.Result(717), driver.Result(719)
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
		{"copyTo", 1, 0, 64, args{Mode: 0}, 0},
		{"copyTo", 1, 0, 64, args{Mode: 1}, misaligned},
		{"copyTo", 1, 0, 64, args{Mode: 2}, notShared},
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

// steps are the names of the steps that kernel steps of lib/tests.cu takes, in the order of its enumeration.
var steps = []string{"", "write", "writeOther", "read", "readLane", "readWarp", "copy", "copySecond", "readSecond", "commit", "waitButLast", "waitGroups",
	"waitAll", "vote", "warpSync", "blockSync"}

// runSteps runs kernel steps in a block of so many threads. It returns what each thread has read last.
func runSteps(t *testing.T, d *cuda.Device, names string, threads int) ([]uint32, error) {
	t.Helper()
	mode := uint32(0)
	for i, name := range strings.Fields(names) {
		step := slices.Index(steps, name)
		if step < 0 || i == 8 {
			t.Fatalf("steps %q: %q must be one of %q and among the first 8", names, name, steps)
		}
		mode |= uint32(step) << (4 * i)
	}
	out, err := run(t, d, "steps", threads, 0, 2*threads, args{Mode: mode})
	if err != nil {
		return nil, err
	}
	return out[threads:], nil
}

// TestEmulator_FindsMissingBarriers: without a barrier, lanes read what others have not written yet. Copies that they have not waited for have not arrived.
func TestEmulator_FindsMissingBarriers(t *testing.T) {
	const threads = 256
	nextLane := func(i uint32) uint32 { return i&^31 | (i+1)&31 }
	nextWarp := func(i uint32) uint32 { return (i + 33) % threads }
	copied := func(uint32) uint32 { return ^uint32(0) }
	for _, c := range []struct {
		steps string
		want  func(thread uint32) uint32 // if nothing is missing
		sound bool
	}{
		{"write readLane", nextLane, false},
		{"write warpSync readLane", nextLane, true},
		{"write readWarp", nextWarp, false},
		{"write warpSync readWarp", nextWarp, false},
		{"write blockSync readWarp", nextWarp, true},

		{"copy read", copied, false},
		{"copy commit blockSync read", copied, false},
		{"copy waitAll read", copied, true},
		{"copy waitGroups read", copied, false}, // it is in no group yet
		{"copy commit waitGroups read", copied, true},
		{"copy commit waitButLast read", copied, false},
		{"copy commit copySecond commit waitButLast read", copied, true},
		{"copy commit copySecond commit waitButLast readSecond", copied, false},
		{"copy waitAll readWarp", copied, false},
		{"copy blockSync waitAll readWarp", copied, false},
		{"copy waitAll blockSync readWarp", copied, true},
	} {
		t.Run(c.steps, func(t *testing.T) {
			got, err := runSteps(t, open(t), c.steps, threads)
			if err != nil {
				t.Fatal(err)
			}
			sound := true
			for i, x := range got {
				sound = sound && x == c.want(uint32(i))
			}
			if sound != c.sound {
				t.Errorf("sound: %v, want %v: %x", sound, c.sound, got)
			}
		})
	}
}

// needRaces skips the test where the modules were not built for the search for races.
func needRaces(t *testing.T) {
	t.Helper()
	if !emulator.Present() {
		t.Skip("not the emulated GPU")
	}
	if !slices.ContainsFunc(moduleFiles(t), func(m string) bool { return filepath.Base(m) == "tests.so" && imports(t, m, "emulatedAccess") }) {
		t.Skip("the modules do not say what they access: make test-races")
	}
}

// TestEmulator_FindsRaces: votes order no accesses to shared memory, and barriers of a warp order those of its lanes only. An asynchronous copy writes
// until its thread has waited for it, whatever barriers are between; other threads need a barrier after that.
func TestEmulator_FindsRaces(t *testing.T) {
	needRaces(t)
	for _, c := range []struct {
		steps string
		race  bool
	}{
		{"copy commit blockSync read", true}, // the first: nothing has accessed shared memory by load or store
		{"copy commit blockSync readWarp", true},
		{"copy commit read", true},
		{"copy commit warpSync readLane", true},
		{"copy commit blockSync blockSync write", true},
		{"copy commit blockSync writeOther", true},
		{"copy commit blockSync copy waitAll", true}, // which arrives last?
		{"copy commit blockSync", false},             // nobody accesses it

		{"copy commit copySecond commit waitButLast blockSync readSecond", true},
		{"copy commit copySecond commit waitButLast blockSync readWarp", false},
		{"copy commit copySecond commit waitGroups readSecond", false},
		{"copy commit waitButLast blockSync readWarp", true},
		{"copy waitGroups blockSync readWarp", true}, // it is in no group yet
		{"copy waitAll blockSync readWarp", false},

		{"copy waitAll readLane", true},
		{"copy warpSync waitAll readLane", true},
		{"copy waitAll vote readLane", true},
		{"copy waitAll warpSync readLane", false},
		{"copy waitAll warpSync readWarp", true},
		{"copy blockSync waitAll readWarp", true},
		{"copy blockSync waitAll writeOther", true},
		{"copy blockSync waitAll read", false},
		{"copy waitAll read write", false},
		{"copy waitAll blockSync writeOther", false},
		{"copy waitAll blockSync readWarp copy", true}, // read while the next copy writes
		{"copy waitAll blockSync readWarp blockSync copy", false},
		{"write copy waitAll read", false},

		{"write readLane", true},
		{"write vote readLane", true},
		{"write warpSync readLane", false},
		{"write blockSync readLane", false},
		{"write vote readWarp", true},
		{"write warpSync readWarp", true},
		{"write blockSync readWarp", false},
		{"write warpSync readLane vote write", true},
		{"write warpSync readLane warpSync write", false},
		{"write warpSync readLane blockSync write", false},
		{"write blockSync readWarp warpSync write", true},
		{"write blockSync readWarp blockSync write", false},
	} {
		t.Run(c.steps, func(t *testing.T) {
			_, err := runSteps(t, open(t), c.steps, 64)
			if race := resultOf(err) == 719; race != c.race || err != nil && !race {
				t.Errorf("a race: %v (%v), want %v", race, err, c.race)
			}
		})
	}
}

// TestEmulator_FindsRacesWithinBlocksOnly: a copy that nobody has waited for is over when its block ends. Later blocks may get the same shared memory.
func TestEmulator_FindsRacesWithinBlocksOnly(t *testing.T) {
	needRaces(t)
	d := open(t)
	for _, steps := range []string{"copy commit", "read", "copy commit", "write read", "copy commit", "copy waitAll blockSync readWarp"} {
		if _, err := runSteps(t, d, steps, 64); err != nil {
			t.Fatalf("%q: %v", steps, err)
		}
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
