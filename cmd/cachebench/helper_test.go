package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
)

// asCommand makes the test binary behave as cachebench. A value but 1 is a file for what the system says of the process at its end.
const asCommand = "TENSORCACHE_TEST_AS_COMMAND"

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		minTime = time.Millisecond
		main()
		if path := os.Getenv(asCommand); path != "1" { // for the memory that it took
			if status, err := os.ReadFile("/proc/self/status"); err != nil || os.WriteFile(path, status, 0o600) != nil {
				os.Exit(3)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command returns cachebench, not started. It is killed after some minutes, which is for runs that hang: the machine may be busy.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// interrupt ends a command under way as ^C does. The command was made by interruptible, so that a signal which comes before it
// listens is ignored; one is sent until it ends.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	start := time.Now()
	for again := time.NewTicker(200 * time.Millisecond); ; {
		if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case <-ended:
			// On a busy machine seconds pass; without an end of its own, each of these commands would go on for a minute at least.
			if d := time.Since(start); d > 50*time.Second {
				t.Errorf("took %v to end", d)
			}
			return
		case <-again.C:
		}
	}
}

// interruptible is command, to begin with deaf to interrupts.
func interruptible(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, args...)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = sh, slices.Concat([]string{"sh", "-c", `trap "" INT; exec "$@"`, "sh"}, []string{cmd.Path}, args)
	return cmd
}

// cachebench runs the command as a process.
func cachebench(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// succeed runs the command, which must succeed and be silent on stderr, and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := cachebench(t, args...)
	if status != 0 || stderr != "" {
		t.Fatalf("cachebench %s: status %d, stderr %q", strings.Join(args, " "), status, stderr)
	}
	return stdout
}

// refuse runs the command, which must fail with this text and print nothing else.
func refuse(t *testing.T, want string, args ...string) {
	t.Helper()
	stdout, stderr, status := cachebench(t, args...)
	want = "cachebench: " + strings.ReplaceAll(want, "\n", "\ncachebench: ") + "\n"
	if status != 1 || stdout != "" || stderr != want {
		t.Errorf("cachebench %s: status %d, %d bytes on stdout, stderr\n got %q\nwant %q", strings.Join(args, " "), status, len(stdout), stderr, want)
	}
}

// generated are the flags of a small generated table and workload.
var generated = []string{"--vertices", "2000", "--batches", "6", "--train-batches", "4", "--batch-size", "16"}

// small are the flags of a generated run that takes no time; most of a run with the default codec is the training of all there are.
var small = slices.Concat(generated, []string{"--codec", "ibp4"})

// run runs `cachebench run --json --verify` and checks what must hold of every result.
func run(t *testing.T, flags ...string) *experiment.Result {
	t.Helper()
	args := append([]string{"run", "--json", "--verify"}, flags...)
	res := decode[experiment.Result](t, succeed(t, args...))
	check(t, strings.Join(args, " "), &res)
	return &res
}

// decode reads the one JSON value that the command printed.
func decode[T any](t *testing.T, s string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	if d.More() {
		t.Fatalf("more than one JSON value in %q", s)
	}
	return v
}

// check tests the relations between the numbers of the verified run of that name.
func check(t *testing.T, name string, r *experiment.Result) {
	t.Helper()
	expect := func(ok bool, what string) {
		t.Helper()
		if !ok {
			t.Errorf("%s: want %s: %+v", name, what, *r)
		}
	}
	c, q, u := &r.Cache, &r.Results, &r.Uncompressed
	expect(q.Hits+q.Misses == q.Lookups && q.Lookups == r.Workload.IDs && q.Lookups > 0, "hits + misses = lookups = ids")
	sum := int64(0)
	for _, n := range r.MissesByReason {
		expect(n >= 0, "misses of each reason ≥ 0")
		sum += n
	}
	expect(sum == q.Misses, "sum of misses_by_reason = misses")
	expect(q.HostBytesRaw == q.Misses*int64(r.Table.RowBytes), "host_bytes_raw = misses × row_bytes")
	expect(0 <= q.HostBytesMoved && q.HostBytesMoved <= q.HostBytesRaw, "0 ≤ host_bytes_moved ≤ host_bytes_raw")
	expect((q.HostBytesMoved == 0) == (q.Misses == 0), "host bytes move for misses only")
	expect(c.MetadataBytes > 0 && c.PayloadBytes >= 0 && c.MetadataBytes+c.PayloadBytes <= c.BudgetBytes, "metadata + payload ≤ budget")
	expect(q.HitRatio == float64(q.Hits)/float64(q.Lookups) && q.ByteHitRatio == q.HitRatio, "hit ratios = hits ÷ lookups")
	expect(u.HitRatio >= 0 && u.HitRatio <= 1, "hit ratio in [0, 1]")
	expect(c.RowsCached >= 0 && c.RowsCached <= r.Table.Rows && u.RowsCached >= 0 && u.RowsCached <= r.Table.Rows, "rows cached ≤ rows")
	expect(c.CompressionRatio >= 1, "compression ratio ≥ 1")
	expect(c.Codec != "none" || c.CompressionRatio == 1 && c.CodecBytes == 0, "no codec: ratio 1, no codec bytes")
	expect(r.VerifiedRows == q.Lookups && r.Mismatches == 0, "verified_rows = lookups, no mismatches")
	for _, s := range []experiment.Speed{q.Speed, u.Speed} {
		l := s.BatchLatency
		expect(s.LookupsPerSecond > 0 && s.OutputGBPerSecond > 0 && 0 < l.P50 && l.P50 <= l.P95 && l.P95 <= l.P99, "speeds > 0, percentiles in order")
	}
	expect(r.Device.Kind == "host" && r.Device.Name != "" && r.Device.Count >= 1, "device")
}

// timeless returns the result without its speeds.
func timeless(r *experiment.Result) experiment.Result {
	c := *r
	c.Results.Speed, c.Uncompressed.Speed = experiment.Speed{}, experiment.Speed{}
	return c
}

// write writes a file into the test's folder and returns its path.
func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// npyOf returns an .npy file of these elements, in C order.
func npyOf(t testing.TB, of dtype.Type, data []byte, shape ...int) []byte {
	t.Helper()
	letter := "u"
	switch {
	case of == dtype.Bool:
		letter = "b"
	case of.IsFloat():
		letter = "f"
	case of <= dtype.Int64:
		letter = "i"
	}
	axes := ""
	for _, n := range shape {
		axes += fmt.Sprint(n, ",")
	}
	return rawNPY(fmt.Sprintf("'<%s%d'", letter, of.Size()), "False", "("+axes+")", data)
}

// rawNPY returns an .npy file with this text in its header, whatever it says.
func rawNPY(descr, fortran, shape string, data []byte) []byte {
	header := fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }", descr, fortran, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	return slices.Concat(b, []byte(header), data)
}

// tensorsOf returns a .safetensors file of these tensors: the members' data one after the other.
func tensorsOf(t testing.TB, members ...tensorMember) []byte {
	t.Helper()
	header, data := map[string]any{}, []byte(nil)
	for _, m := range members {
		header[m.name] = map[string]any{"dtype": m.dtype, "shape": m.shape, "data_offsets": []int{len(data), len(data) + len(m.data)}}
		data = append(data, m.data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
}

// tensorMember is a tensor of a .safetensors file.
type tensorMember struct {
	name, dtype string
	shape       []int
	data        []byte
}

// member is an array of an .npz file.
type member struct {
	name string
	data []byte
}

func npzOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, m := range members {
		w, err := z.Create(m.name + ".npy")
		if err == nil {
			_, err = w.Write(m.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ints returns an .npy file of rank 1.
func ints(t testing.TB, values ...int64) []byte {
	t.Helper()
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return npyOf(t, dtype.Int64, b, len(values))
}

// noise returns bytes that no codec shrinks.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// smooth returns n float32 as bytes: close to each other, so that codecs shrink rows of them.
func smooth(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint32(b, 0x3f800000|r.Uint32()&0x3fff)
	}
	return b
}

// scaledColumns returns float32 of N(0,1), times 4^column.
func scaledColumns(rows, columns int) []byte {
	r := rand.New(rand.NewPCG(5, 6))
	var b []byte
	for i := range rows * columns {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.Ldexp(r.NormFloat64(), 2*(i%columns)))))
	}
	return b
}

// idLines returns a file of row numbers.
func idLines(ids []int) []byte {
	var b []byte
	for _, id := range ids {
		b = fmt.Appendln(b, id)
	}
	return b
}
