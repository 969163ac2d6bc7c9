package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
)

// costsIn has measurements kept in a file of the test's for as long as it runs.
func costsIn(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "folder", "costs.json")
	t.Setenv(KeptEnv, path)
	return path
}

// limit sets measureLimit for a test.
func limit(t *testing.T, d time.Duration) {
	before := measureLimit
	t.Cleanup(func() { measureLimit = before })
	measureLimit = d
}

// launches counts a device's launches by the kernel's name.
type launches struct {
	device.Device
	of map[string]int
}

type countingStream struct {
	device.Stream
	of map[string]int
}

func (l launches) NewStream() (device.Stream, error) {
	s, err := l.Device.NewStream()
	return countingStream{s, l.of}, err
}

func (s countingStream) Launch(k device.Kernel) error {
	s.of[k.Name()]++
	return s.Stream.Launch(k)
}

// trainedOn returns codecs as auto-selection has them measured.
func trainedOn(t *testing.T, tier *Tier, data []byte, names ...string) (all []registry.Trained) {
	t.Helper()
	sample := data[:min(len(data), 300*tier.rowBytes)]
	for _, name := range names {
		c, err := registry.Train(name, sample, tier.rowBytes, dtype.Float32)
		if err != nil {
			t.Fatal(err)
		}
		k := registry.Trained{Name: name, Codec: c}
		stored := 0
		for at := 0; at < len(sample); at += tier.rowBytes {
			row := sample[at:][:tier.rowBytes]
			if c != nil {
				dst := make([]byte, c.EncodeBound())
				if n, err := c.Encode(dst, row); err == nil {
					row = dst[:n]
				}
			}
			k.Rows, stored = append(k.Rows, row), stored+len(row)
		}
		k.Ratio = float64(len(sample)) / float64(stored)
		all = append(all, k)
	}
	return all
}

// TestMeasuring_MeasuresEveryCodec on every layout, by all the kernels that batches have, without a write to the table.
func TestMeasuring_MeasuresEveryCodec(t *testing.T) {
	race.SkipSequential(t)
	limit(t, time.Minute)
	for _, c := range []struct {
		rows, rowBytes int
		batch          float64
		mode           Mode
		reading        Reading
		want           []string // launches
	}{
		{3000, 64, 2000, InPlace, Reading{}, []string{"decode", "fetch", "lookup"}},
		{3000, 100, 5000, Packed, Reading{Ordered: true}, []string{"decode", "fetch", "lookup", "order"}},
		{1500, 512, 1e9, InPlace, Reading{Ordered: true, Units: true}, []string{"decode", "fetch", "lookup", "order", "share-fetch"}},
		{20, 4096, 1, InPlace, Reading{}, []string{"decode", "fetch", "lookup"}},
	} {
		data, a := rowsOf(c.rows, c.rowBytes, 3), newAccelerator()
		tier, err := Load(a, SourceOf(data, c.rowBytes), Options{Codec: registry.None, DType: dtype.Float32})
		if err != nil {
			t.Fatal(err)
		}
		before, open := bytes.Clone(tier.host.Mem.Bytes()), len(a.open)
		tier.mode, tier.home = c.mode, launches{a, map[string]int{}}
		codecs := trainedOn(t, tier, data, registry.None, "ibp4", "rank", "zipnn", "sleek")
		asked := int64(0)
		m := tier.newMeasuring(MeasureOptions{Share: &ShareOptions{}, Reading: func(rows kernels.HostRows, n int64, _ *ShareTable) Reading {
			if asked = max(asked, n); rows.RowBytes != c.rowBytes {
				t.Errorf("reading of rows of %d bytes", rows.RowBytes)
			}
			return c.reading
		}}, c.batch, codecs)
		costs, err := m.run()
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if len(costs) != len(codecs) {
			t.Errorf("%+v: costs of %d codecs, want %d", c, len(costs), len(codecs))
		}
		for name, of := range costs {
			if !of.Valid() || of.Batch <= 0 || of.Lookup <= 0 || of.Miss <= 0 || of.MissByte <= 0 {
				t.Errorf("%+v: %s costs %+v", c, name, of)
			}
		}
		got := slices.Sorted(maps.Keys(tier.home.(launches).of))
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: launches of %s, want %s", c, got, c.want)
		}
		if most := int64(max(measuredLeast, c.batch)); asked > min(most, int64(c.rows)) {
			t.Errorf("%+v: batches of %d rows", c, asked)
		}
		if !bytes.Equal(before, tier.host.Mem.Bytes()) {
			t.Errorf("%+v: the table was written to", c)
		}
		if len(a.open) != open || a.twice != 0 {
			t.Errorf("%+v: buffers open %v, %d were freed twice", c, a.open, a.twice)
		}
		tier.Close()
	}
}

// TestMeasuring_RefusesCorruptRows: rows that do not decode are not measured.
func TestMeasuring_RefusesCorruptRows(t *testing.T) {
	limit(t, time.Minute)
	data, a := rowsOf(2000, 64, 3), newAccelerator()
	tier, err := Load(a, SourceOf(data, 64), Options{Codec: registry.None, DType: dtype.Float32})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	codecs := trainedOn(t, tier, data, registry.None, "ibp4")
	for i, row := range codecs[1].Rows {
		codecs[1].Rows[i] = make([]byte, max(1, len(row)/9)) // too short for any row
	}
	if costs, err := tier.newMeasuring(MeasureOptions{}, 1000, codecs).run(); err == nil || !strings.Contains(err.Error(), "did not decode") {
		t.Errorf("costs %v, error %v", costs, err)
	}
}

// TestMeasuring_NeedsRows: a codec without encoded rows is an error of its own, and not one of a device that is too slow.
func TestMeasuring_NeedsRows(t *testing.T) {
	limit(t, time.Minute)
	data, a := rowsOf(2000, 64, 3), newAccelerator()
	tier, err := Load(a, SourceOf(data, 64), Options{Codec: registry.None, DType: dtype.Float32})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	costs, err := tier.newMeasuring(MeasureOptions{}, 1000, []registry.Trained{{Name: registry.None, Ratio: 1}}).run()
	if err == nil || errors.Is(err, errTooSlow) || !strings.Contains(err.Error(), "encoded rows (0) must be at least 1") {
		t.Errorf("costs %v, error %v", costs, err)
	}
}

// autoOptions are those of a load that measures.
func autoOptions() Options {
	return Options{Codec: registry.Auto, DType: dtype.Float32, Measure: &MeasureOptions{}, Workers: 2}
}

// inject replaces the measuring by given costs for a test. times is how often a device was measured.
func inject(t *testing.T, costs func(codec string) registry.Costs) (times *int) {
	before := measureDevice
	t.Cleanup(func() { measureDevice = before })
	times = new(int)
	measureDevice = func(m *measuring) (map[string]registry.Costs, error) {
		*times++
		all := map[string]registry.Costs{}
		for _, k := range m.codecs {
			all[k.Name] = costs(k.Name)
		}
		return all, nil
	}
	return times
}

func costing(slow float64) registry.Costs {
	return registry.Costs{Batch: 1e-5, Lookup: 1e-10, Hit: 1e-9, Miss: 1e-8 * slow, MissByte: 1e-15}
}

// autoTable is a table that is large enough to be measured.
var autoTable = rowsOf(20_000, 64, 1)

// TestLoad_KeepsMeasurements: what was measured and picked is read from the file by the next load of such a table, unless the file says
// nothing that can be used.
func TestLoad_KeepsMeasurements(t *testing.T) {
	race.SkipSequential(t)
	path := costsIn(t)
	fast := "ibp4"
	times := inject(t, func(codec string) registry.Costs {
		if codec == fast {
			return costing(1)
		}
		return costing(1.5)
	})
	load := func(what string, o Options, data []byte, rowBytes int, want int, pick string) *registry.Choice {
		t.Helper()
		tier, err := Load(newAccelerator(), SourceOf(data, rowBytes), o)
		if err != nil {
			t.Fatal(err)
		}
		defer tier.Close()
		if choice := tier.Choice(); *times != want || choice.Codec != pick {
			t.Fatalf("%s: measured %d times, want %d; picked %s, want %s: %s", what, *times, want, choice.Codec, pick, choice.Reason)
		}
		return tier.Choice()
	}
	if c := load("first", autoOptions(), autoTable, 64, 1, fast); c.Kept || !strings.Contains(c.Basis, "now, with batches of 20000 rows") || !c.Candidates[0].Measured {
		t.Errorf("first: %+v", c)
	}
	if c := load("again", autoOptions(), autoTable, 64, 1, fast); !c.Kept || !strings.Contains(c.Basis, "as measured on this  on 20") {
		t.Errorf("again: %+v", c)
	}
	want := 1
	for what, change := range map[string]func(*Options, *[]byte, *int){
		"longer table":    func(_ *Options, data *[]byte, _ *int) { *data = slices.Repeat(autoTable, 2) },
		"longer rows":     func(_ *Options, _ *[]byte, rowBytes *int) { *rowBytes = 128 },
		"element type":    func(o *Options, _ *[]byte, _ *int) { o.DType = dtype.Int32 },
		"layout":          func(o *Options, _ *[]byte, _ *int) { o.Mode = Packed },
		"batch":           func(o *Options, _ *[]byte, _ *int) { o.Terms.Batch = 5000 },
		"threads":         func(o *Options, _ *[]byte, _ *int) { o.Measure = &MeasureOptions{Share: &ShareOptions{Threads: 3}} },
		"planted":         func(o *Options, _ *[]byte, _ *int) { o.Measure = &MeasureOptions{Share: &ShareOptions{Always: true}} },
		"default threads": func(o *Options, _ *[]byte, _ *int) { o.Measure = &MeasureOptions{Share: &ShareOptions{}} },
	} {
		o, data, rowBytes := autoOptions(), autoTable, 64
		change(&o, &data, &rowBytes)
		want++
		load(what, o, data, rowBytes, want, fast)
		load(what+" again", o, data, rowBytes, want, fast)
	}
	for what, contents := range map[string]string{"empty": "", "cut": `{"format":1,"entries":[{"key":{"gp`, "other": `{"format":2,"entries":[]}`, "list": "[1,2]"} {
		if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
		want++
		load(what, autoOptions(), autoTable, 64, want, fast)
		load(what+" again", autoOptions(), autoTable, 64, want, fast)
	}
	// Costs that cannot be are measured again.
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(b, []byte(`"hit": 1e-9`)) {
		t.Fatalf("%v: %s", err, b)
	}
	if err := os.WriteFile(path, bytes.Replace(b, []byte(`"hit": 1e-9`), []byte(`"hit": -1`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	want++
	load("impossible costs", autoOptions(), autoTable, 64, want, fast)
	// Not kept at all.
	t.Setenv(KeptEnv, "off")
	for range 2 {
		want++
		load("off", autoOptions(), autoTable, 64, want, fast)
	}
	// A place that cannot be written to.
	t.Setenv(KeptEnv, filepath.Join(path, "below a file"))
	want++
	load("not writable", autoOptions(), autoTable, 64, want, fast)
	t.Setenv(KeptEnv, t.TempDir())
	want++
	load("a folder", autoOptions(), autoTable, 64, want, fast)
}

// TestLoad_NotMeasured: named codecs, small tables, devices of the host backend and loads without Measure are not measured.
func TestLoad_NotMeasured(t *testing.T) {
	race.SkipSequential(t)
	costsIn(t)
	times := inject(t, func(string) registry.Costs { return costing(1) })
	for what, of := range map[string]func() (*Tier, error){
		"small": func() (*Tier, error) { return Load(newAccelerator(), SourceOf(autoTable[:64*5000], 64), autoOptions()) },
		"host":  func() (*Tier, error) { return Load(newDevice(), SourceOf(autoTable, 64), autoOptions()) },
		"named": func() (*Tier, error) {
			o := autoOptions()
			o.Codec = "ibp4"
			return Load(newAccelerator(), SourceOf(autoTable, 64), o)
		},
		"not asked": func() (*Tier, error) {
			o := autoOptions()
			o.Measure = nil
			return Load(newAccelerator(), SourceOf(autoTable, 64), o)
		},
	} {
		tier, err := of()
		if err != nil {
			t.Fatal(err)
		}
		if *times != 0 {
			t.Fatalf("%s: the device was measured", what)
		}
		if c := tier.Choice(); c != nil && c.MeasuredSeconds != 0 {
			t.Errorf("%s: %+v", what, c)
		}
		tier.Close()
	}
}

// TestLoad_GivesUpMeasuring in time, or without memory: the committed figures stand, and the choice says why. Nothing is kept.
func TestLoad_GivesUpMeasuring(t *testing.T) {
	path := costsIn(t)
	for what, c := range map[string]struct {
		limit  time.Duration
		refuse string
		want   string
	}{
		"time": {time.Nanosecond, "", "(measuring this device takes longer than 1ns)"}, "memory": {time.Minute, "measuring", "(the device has too little memory left to be measured)"},
	} {
		limit(t, c.limit)
		a := newAccelerator()
		a.refuse = c.refuse
		tier, err := Load(a, SourceOf(autoTable, 64), autoOptions())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if choice := tier.Choice(); !strings.HasSuffix(choice.Basis, c.want) || choice.Candidates[0].Measured {
			t.Errorf("%s: %+v", what, choice)
		}
		tier.Close()
		if len(a.open) != 0 || a.twice != 0 {
			t.Errorf("%s: buffers open %v, %d were freed twice", what, a.open, a.twice)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLoad_ServesAfterFailure: a measurement that fails on a device that works is none, and is not kept.
func TestLoad_ServesAfterFailure(t *testing.T) {
	path := costsIn(t)
	before := measureDevice
	t.Cleanup(func() { measureDevice = before })
	measureDevice = func(*measuring) (map[string]registry.Costs, error) { return nil, errors.New("rows (3) did not decode") }
	tier, err := Load(newAccelerator(), SourceOf(autoTable, 64), autoOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	if choice := tier.Choice(); !strings.HasSuffix(choice.Basis, "(measuring this device failed: rows (3) did not decode)") {
		t.Errorf("%s", choice.Basis)
	}
	checkRows(t, tier, autoTable)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestLoad_KeptPickStands: of the same measurement, what was picked before stands under other terms, unless another codec is 3 % faster.
func TestLoad_KeptPickStands(t *testing.T) {
	race.SkipSequential(t)
	path := costsIn(t)
	inject(t, func(codec string) registry.Costs {
		if codec == "ibp4" {
			return costing(0.98)
		}
		return costing(1)
	})
	load := func() string {
		tier, err := Load(newAccelerator(), SourceOf(autoTable, 64), autoOptions())
		if err != nil {
			t.Fatal(err)
		}
		defer tier.Close()
		return tier.Choice().Codec
	}
	if got := load(); got != "ibp4" {
		t.Fatalf("%s was picked, want ibp4", got)
	}
	const rival = "ibp8" // by which as many rows fit
	for _, e := range readCosts(path) {
		e.Pick = rival
		if err := storeCosts(path, e); err != nil {
			t.Fatal(err)
		}
	}
	if got := load(); got != rival {
		t.Errorf("%s was picked, want %s again", got, rival)
	}
	for _, e := range readCosts(path) {
		e.Costs["ibp4"] = costing(0.5)
		if err := storeCosts(path, e); err != nil {
			t.Fatal(err)
		}
	}
	if got := load(); got != "ibp4" {
		t.Errorf("%s was picked, want ibp4", got)
	}
}

// TestKeep_LatestEntries: the file has a bounded number of entries, the latest, and one of a key.
func TestKeep_LatestEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.json")
	entry := func(i int) costEntry {
		return costEntry{
			Key: costKey{GPU: fmt.Sprint("GPU ", i), Codecs: "ibp4=1.20 none=1.00"}, Costs: map[string]registry.Costs{"none": costing(1), "ibp4": costing(2)},
			At: time.Unix(int64(i), 0).UTC(),
		}
	}
	for _, i := range []int{5, 3} { // the order of writing is not that of time
		if err := storeCosts(path, entry(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxCosts + 20 {
		if err := storeCosts(path, entry(100+i)); err != nil {
			t.Fatal(err)
		}
	}
	if all := readCosts(path); len(all) != maxCosts {
		t.Fatalf("%d entries, want %d", len(all), maxCosts)
	}
	last := entry(100 + maxCosts + 19)
	last.Pick = "ibp4"
	if err := storeCosts(path, last); err != nil {
		t.Fatal(err)
	}
	if all := readCosts(path); len(all) != maxCosts {
		t.Errorf("%d entries, want %d", len(all), maxCosts)
	}
	if got, ok := findCosts(path, last.Key); !ok || got.Pick != "ibp4" || !maps.Equal(got.Costs, last.Costs) {
		t.Errorf("%+v, %t", got, ok)
	}
	for _, i := range []int{5, 3, 100} {
		if _, ok := findCosts(path, entry(i).Key); ok {
			t.Errorf("entry %d is kept", i)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxCostBytes/2 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	if err := os.WriteFile(path, make([]byte, maxCostBytes+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := storeCosts(path, entry(1)); err != nil || len(readCosts(path)) != 1 {
		t.Errorf("after a file that is too long: %v, %d entries", err, len(readCosts(path)))
	}
	without := entry(2)
	without.Costs = map[string]registry.Costs{"none": costing(1)}
	if without.valid() {
		t.Error("an entry without costs of ibp4 is valid")
	}
}

// TestMeasure_OnGPU measures all candidates with the GPU's kernels, picks one of them, and reads the table back.
func TestMeasure_OnGPU(t *testing.T) {
	d := gputest.Open(t)
	path := costsIn(t)
	if strings.Contains(os.Getenv("LD_LIBRARY_PATH"), "emulator") {
		limit(t, 10*time.Minute)
	}
	for _, mode := range []Mode{InPlace, Packed}[:gputest.Few(2, 1)] {
		o := autoOptions()
		o.Mode, o.Terms.Batch = mode, 1024
		if mode == InPlace {
			o.Measure.Share = &ShareOptions{Threads: 1, Always: true}
		}
		o.Measure.Reading = func(rows kernels.HostRows, n int64, _ *ShareTable) Reading {
			return Reading{Ordered: true, Units: true}
		}
		tier, err := Load(d, SourceOf(autoTable, 64), o)
		if err != nil {
			t.Fatal(err)
		}
		choice := tier.Choice()
		t.Logf("%s, %s, %s", choice.Codec, choice.Reason, choice.Basis)
		if choice.Kept || choice.MeasuredSeconds <= 0 || choice.MeasuredSeconds > measureLimit.Seconds() {
			t.Errorf("%s: %+v", mode, choice)
		}
		all := readCosts(path)
		if len(all) == 0 || len(all[0].Costs) < 3 || all[0].Key.Code == "host" {
			t.Fatalf("%s: kept %+v", mode, all)
		}
		for _, e := range all {
			t.Logf("%+v", e)
		}
		checkRows(t, tier, autoTable)
		tier.Close()
	}
}
