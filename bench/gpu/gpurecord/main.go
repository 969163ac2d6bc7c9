// Command gpurecord runs GPU tests and keeps their record: which code ran on which device, and how each test ended.
//
//	gpurecord sources                        print the hashes of the code in this repository
//	gpurecord codecs                         print the names of all lossless codecs
//	gpurecord begin -dir DIR                 begin a folder of results of this bundle on this machine
//	gpurecord test -dir DIR … BINARY…        run the tests of test binaries that have no result in the folder yet
//	gpurecord collect -out FILE DIR…         make a record of folders of results
//	gpurecord check [-owed FILE] RECORD      say whether a record is of the code in this repository
//	gpurecord owe -owed FILE RECORD WHY      note that the code in this repository, or what -added names of it, has yet to run on a GPU
//
// A record that is older than the code passes the check only if a note names exactly this code. The check repeats the note, so
// that nobody takes the code for tested.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	if err := run(command, os.Args[min(2, len(os.Args)):]); err != nil {
		fmt.Fprintf(os.Stderr, "gpurecord %s: %v\n", command, err)
		os.Exit(1)
	}
}

func run(command string, args []string) error {
	f := flag.NewFlagSet(command, flag.ExitOnError)
	dir := f.String("dir", "results", "folder of results")
	out := f.String("out", "gpu-test.json", "record to write")
	owed := f.String("owed", "", "file of the note that code has yet to run on a GPU")
	added := f.String("added", "", "files that are new since the record")
	packages := f.String("packages", "kernels transfer cache serve device_cuda bench_drive cmd_tensorcached python capi", "packages that a record must cover")
	t := tester{}
	f.StringVar(&t.pattern, "run", ".", "tests to run, as of go test")
	f.BoolVar(&t.short, "short", false, "run the tests with -test.short")
	tools := f.String("tools", "", "run each test under each of these tools of compute-sanitizer, for example memcheck,racecheck")
	f.IntVar(&t.workers, "workers", 1, "processes at once")
	f.DurationVar(&t.each, "each", 200*time.Second, "the most that one test may take")
	f.DurationVar(&t.limit, "limit", 10*time.Minute, "the most that all tests may take")
	_ = f.Parse(args)
	args = f.Args()
	switch {
	case command == "sources":
		s, err := hashSources(".")
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	case command == "codecs":
		fmt.Println(strings.Join(append([]string{registry.Auto, registry.None}, registry.Concrete()...), "\n"))
		return nil
	case command == "begin":
		return begin(*dir, ".")
	case command == "test" && len(args) > 0:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		t.dir, t.binaries, t.tools, t.out = *dir, args, strings.Split(*tools, ","), os.Stdout
		return t.run(ctx)
	case command == "collect" && len(args) > 0:
		r, err := collect(args)
		if err != nil {
			return err
		}
		if err := writeJSON(*out, r); err != nil {
			return err
		}
		fmt.Println(r)
		return errors.Join(r.failures(), r.gaps(strings.Fields(*packages)))
	case command == "check" && len(args) == 1:
		return check(args[0], *owed, strings.Fields(*packages))
	case command == "owe" && len(args) == 2 && args[1] != "" && *owed != "":
		var r Record
		if err := readJSON(args[0], &r); err != nil {
			return err
		}
		o, err := note(".", args[1], r.Sources, strings.Fields(*added))
		if err != nil {
			return err
		}
		return writeJSON(*owed, o)
	}
	return errors.New("command and arguments must be sources, codecs, begin, test BINARY…, collect DIR…, check RECORD, or owe -owed FILE RECORD WHY")
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'))
}
