// Command lab measures GPUs and drives with tensorcache, and keeps the record of GPU tests. "lab help" lists what it does, and docs/gpu.md has how it is used.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/lab/gpu"
	"github.com/tensorcache/tensorcache/lab/record"
)

// commands are the commands with their arguments, and what they do.
var commands = []struct{ name, args, does string }{
	{"bench", "", "measure the first GPU: each operation beside a plain kernel on the same rows"},
	{"drive", "", "measure reading rows from pages on a drive, beside a plain reader"},
	{"machine", "", "print which GPUs and which driver this machine has"},
	{"codecs", "", "print the names of all lossless codecs"},
	{"sources", "", "print the hashes of the code that only a GPU can test"},
	{"collect", "FOLDER…", "make a record of folders of results"},
	{"check", "RECORD", "say whether a record is of the code in this repository"},
	{"owe", "WHY", "note that the code in this repository has yet to run on a GPU"},
}

func main() {
	command, args := "help", os.Args[1:]
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	i := slices.IndexFunc(commands, func(c struct{ name, args, does string }) bool { return c.name == command })
	if i < 0 {
		known := strings.TrimLeft(command, "-")
		if known != "help" && known != "h" {
			fmt.Fprintf(os.Stderr, "lab: unknown command %q: lab help lists them\n", command)
			os.Exit(1)
		}
		for _, c := range commands {
			fmt.Printf("lab %-16s %s\n", c.name+" "+c.args, c.does)
		}
		return
	}
	ctx := context.Background()
	if command == "drive" { // which removes its pages; a signal ends the others
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	f := flag.NewFlagSet("lab "+command, flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "lab %s [flags] %s: %s\n", command, commands[i].args, commands[i].does)
		f.PrintDefaults()
	}
	err := run(ctx, f, command, args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(os.Stderr, "lab %s: %s\n", command, line)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, f *flag.FlagSet, command string, args []string) error {
	var root, out, owed, packages string
	switch command {
	case "bench":
		return bench(f, args)
	case "drive":
		return measureDrive(ctx, f, args)
	case "collect":
		f.StringVar(&out, "out", "gpu-test.json", "record to write")
	case "sources", "check", "owe":
		f.StringVar(&root, "root", "..", "folder of the repository")
	}
	if command == "check" || command == "owe" {
		f.StringVar(&owed, "owed", "", "file of the note that code has yet to run on a GPU")
	}
	if command == "check" || command == "collect" {
		f.StringVar(&packages, "packages", "", "packages that a record must cover, between spaces")
	}
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
		s, err := record.HashSources(root)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	case command == "collect" && len(args) > 0:
		r, err := record.Collect(args)
		if err != nil {
			return err
		}
		if err := writeJSON(out, r); err != nil {
			return err
		}
		fmt.Println(r)
		return r.Faults(strings.Fields(packages))
	case command == "check" && len(args) == 1:
		said, err := record.Check(root, args[0], owed, strings.Fields(packages))
		fmt.Print(said)
		return err
	case command == "owe" && len(args) == 1 && args[0] != "" && owed != "":
		s, err := record.HashSources(root)
		if err != nil {
			return err
		}
		return writeJSON(owed, record.Owed{Sources: s, Why: args[0]})
	}
	return fmt.Errorf("arguments (%q) must be as lab %s --help says", args, command)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'))
}
