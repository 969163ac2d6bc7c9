// Command redis compares how fast tensorcached and redis-server deliver the same rows to the same client, redis-benchmark, over loopback. Rounds
// alternate, so that what else the machine does meets both. It needs build/tensorcached, redis-server and redis-benchmark.
//
//	go run ./bench/redis
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

const (
	rows    = 100_000
	columns = 128 // of float32: 512 bytes
)

// workload is one run of redis-benchmark.
type workload struct {
	name     string
	args     []string
	rows     int // of one request
	requests int
}

func main() {
	binary := flag.String("tensorcached", "build/tensorcached", "the program")
	rounds := flag.Int("rounds", 5, "runs of each server for each workload")
	budget := flag.String("budget", "5%", "of the cache; by default tensorcached's own default")
	codec := flag.String("codec", "auto", "of the cache; by default tensorcached's own default")
	flag.Parse()
	if err := run(*binary, *budget, *codec, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

func run(binary, budget, codec string, rounds int) error {
	dir, err := os.MkdirTemp("", "tensorcache-redis")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data := values()
	file := filepath.Join(dir, "users.npy")
	if err := os.WriteFile(file, append(header(), data...), 0o600); err != nil {
		return err
	}
	ours, end, err := serve(binary, "--features", file, "--gpu-memory", budget, "--codec", codec, "--device", "host", "--resp", "127.0.0.1:@", "--log-level", "warn")
	if err != nil {
		return err
	}
	defer end()
	theirs, end, err := serve("redis-server", "--port", "@", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err != nil {
		return err
	}
	defer end()
	if err := fill(theirs, data); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	for _, port := range []string{ours, theirs} {
		if err := check(port, data); err != nil {
			return err
		}
	}
	keys := slices.Repeat([]string{"users:__rand_int__"}, 100)
	t := table.NewWriter()
	t.AppendHeader(table.Row{"workload", "tensorcached rows/s", "redis-server rows/s", "ratio", "least", "most", "tensorcached p99 ms", "redis-server p99 ms", "p99 ratio"})
	for _, w := range []workload{
		{"MGET of 100, 1 client", append([]string{"-c", "1", "MGET"}, keys...), 100, 5000},
		{"MGET of 100, 4 clients", append([]string{"-c", "4", "MGET"}, keys...), 100, 20_000},
		{"GET, 50 clients", []string{"-c", "50", "GET", keys[0]}, 1, 100_000},
		{"GET, 50 clients, pipelines of 16", []string{"-c", "50", "-P", "16", "GET", keys[0]}, 1, 400_000},
	} {
		var all [2][]speed // of tensorcached and of redis-server
		for round := range rounds {
			for i := range 2 {
				which := (round + i) % 2
				s, err := w.measure([]string{ours, theirs}[which])
				if err != nil {
					return err
				}
				all[which] = append(all[which], s)
			}
		}
		var mine, other, ratios, mineLast, otherLast, lastRatios []float64
		for i, a := range all[0] {
			b := all[1][i]
			mine, other, ratios = append(mine, a.rows), append(other, b.rows), append(ratios, a.rows/b.rows)
			mineLast, otherLast, lastRatios = append(mineLast, a.p99), append(otherLast, b.p99), append(lastRatios, a.p99/b.p99)
		}
		t.AppendRow(table.Row{w.name, fmt.Sprintf("%.0f", median(mine)), fmt.Sprintf("%.0f", median(other)), fmt.Sprintf("%.2f", median(ratios)),
			fmt.Sprintf("%.2f", slices.Min(ratios)), fmt.Sprintf("%.2f", slices.Max(ratios)), fmt.Sprintf("%.2f", median(mineLast)), fmt.Sprintf("%.2f", median(otherLast)),
			fmt.Sprintf("%.2f", median(lastRatios))})
	}
	fmt.Printf("rows of %d bytes, %d processors shared by server and client, medians of %d rounds, cache of %s, codec %s\n%s\n", 4*columns, runtime.NumCPU(), rounds, budget, codec, t.Render())
	return nil
}

// values returns the rows: smooth numbers with some noise.
func values() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 0, rows*columns*4)
	for range rows * columns {
		b = binary.LittleEndian.AppendUint32(b, 0x3f000000|r.Uint32()>>12)
	}
	return b
}

// header returns that of the .npy file.
func header() []byte {
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	text += strings.Repeat(" ", 63-(10+len(text))%64) + "\n"
	return append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(text)), 0}, text...)
}

// serve starts a server on a free port, which replaces @ in its arguments, and waits until it answers.
func serve(name string, args ...string) (port string, end func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "@", port)
	}
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			return port, end, nil
		}
	}
	end()
	return "", nil, fmt.Errorf("%s does not listen", name)
}

// key is the key of a row as redis-benchmark writes it.
func key(row int) string { return fmt.Sprintf("users:%012d", row) }

// fill sets all rows in redis-server.
func fill(port string, data []byte) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(c, 1<<20)
		for r := range rows {
			fmt.Fprintf(w, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key(r)), key(r), 4*columns, data[r*4*columns:][:4*columns])
		}
		sent <- w.Flush()
	}()
	from := bufio.NewReader(c)
	for r := range rows {
		if line, err := from.ReadString('\n'); err != nil || line != "+OK\r\n" {
			return fmt.Errorf("SET of row %d: %q, %w", r, line, err)
		}
	}
	return <-sent
}

// check compares rows that a server returns with the data.
func check(port string, data []byte) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	defer c.Close()
	from := bufio.NewReader(c)
	for i := range 1000 {
		r := i * 97 % rows
		fmt.Fprintf(c, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key(r)), key(r))
		head, err := from.ReadString('\n')
		got := make([]byte, 4*columns+2)
		if err == nil && head == fmt.Sprintf("$%d\r\n", 4*columns) {
			_, err = io.ReadFull(from, got)
		}
		if err != nil || !bytes.Equal(got[:4*columns], data[r*4*columns:][:4*columns]) {
			return fmt.Errorf("port %s returns other bytes for row %d (%q): %w", port, r, head, err)
		}
	}
	return nil
}

// speed is what redis-benchmark measures: rows a second, and the time in ms that 99 % of the requests do not exceed.
type speed struct{ rows, p99 float64 }

func (w *workload) measure(port string) (s speed, err error) {
	args := append([]string{"-p", port, "--csv", "-e", "-r", strconv.Itoa(rows), "-n", strconv.Itoa(w.requests)}, w.args...)
	out, err := exec.Command("redis-benchmark", args...).Output()
	if err != nil {
		return s, fmt.Errorf("redis-benchmark: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Split(line, `","`); len(fields) > 6 && fields[0] != `"test` { // test, rps, avg, min, p50, p95, p99, max
			rate, err := strconv.ParseFloat(fields[1], 64)
			p99, err2 := strconv.ParseFloat(fields[6], 64)
			return speed{rate * float64(w.rows), p99}, errors.Join(err, err2)
		}
	}
	return s, errors.New("redis-benchmark printed no rate:\n" + string(out))
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
