// Command lab measures GPUs and drives with tensorcache, and keeps the record of GPU tests. docs/gpu.md has how it is used.
//
//	lab bench [flags]                 measure the first GPU: each operation beside a plain kernel on the same rows
//	lab drive --dir FOLDER [flags]    measure reading rows from pages on a drive, beside a plain reader
//	lab machine                       print which GPUs and which driver this machine has
//	lab codecs                        print the names of all lossless codecs
//	lab sources                       print the hashes of the code that only a GPU can test
//	lab collect [flags] FOLDER…       make a record of folders of results
//	lab check [flags] RECORD          say whether a record is of the code in this repository
//	lab owe [flags] RECORD WHY        note that the code in this repository has yet to run on a GPU
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

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/lab/gpu"
	"github.com/tensorcache/tensorcache/lab/record"
)

func main() {
	command, args := "", os.Args[1:]
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	ctx := context.Background()
	if command == "drive" { // which removes its pages; a signal ends the others
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	f := flag.NewFlagSet("lab "+command, flag.ContinueOnError)
	err := run(ctx, f, command, args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "lab %s: %v\n", command, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f *flag.FlagSet, command string, args []string) error {
	switch command {
	case "bench":
		return bench(f, args)
	case "drive":
		return measureDrive(ctx, f, args)
	}
	root := f.String("root", "..", "folder of the repository")
	out := f.String("out", "gpu-test.json", "record to write")
	owed := f.String("owed", "", "file of the note that code has yet to run on a GPU")
	packages := f.String("packages", "", "packages that a record must cover")
	if err := f.Parse(args); err != nil {
		return err
	}
	args = f.Args()
	switch {
	case command == "machine" && len(args) == 0:
		m, err := gpu.ThisMachine()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(m)
	case command == "codecs" && len(args) == 0:
		fmt.Println(strings.Join(append([]string{registry.Auto, registry.None}, registry.Concrete()...), "\n"))
		return nil
	case command == "sources" && len(args) == 0:
		s, err := record.HashSources(*root)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	case command == "collect" && len(args) > 0:
		r, err := record.Collect(args)
		if err != nil {
			return err
		}
		if err := writeJSON(*out, r); err != nil {
			return err
		}
		fmt.Println(r)
		return r.Faults(strings.Fields(*packages))
	case command == "check" && len(args) == 1:
		said, err := record.Check(*root, args[0], *owed, strings.Fields(*packages))
		fmt.Print(said)
		return err
	case command == "owe" && len(args) == 2 && args[1] != "" && *owed != "":
		s, err := record.HashSources(*root)
		if err != nil {
			return err
		}
		return writeJSON(*owed, record.Owed{Sources: s, Why: args[1]})
	}
	return errors.New("command and arguments must be bench, drive, machine, codecs, sources, collect FOLDER…, check RECORD, or owe --owed FILE RECORD WHY")
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'))
}
