// Command gpubench measures the CUDA backend and prints a table, or JSON.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gpubench:", err)
		os.Exit(1)
	}
}

func run() error {
	var o gpu.Options
	cases := flag.String("cases", strings.Join(gpu.Cases, ","), "what to measure")
	rows := flag.String("rows", "", "row lengths in bytes; default those of the documentation")
	asJSON := flag.String("json", "", "write the results to this file as JSON")
	flag.Int64Var(&o.TableBytes, "table", 0, "table bytes")
	flag.IntVar(&o.Batch, "batch", 0, "rows of a batch that crosses the link")
	flag.IntVar(&o.Entries, "entries", 0, "entries of the hashmap for lookup")
	flag.Parse()
	o.Cases = strings.Split(*cases, ",")
	for s := range strings.SplitSeq(*rows, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			o.RowBytes = append(o.RowBytes, n)
		}
	}
	o.Log = os.Stderr
	report, err := gpu.Run(o)
	if err != nil {
		return err
	}
	report.WriteTable(os.Stdout)
	if *asJSON == "" {
		return nil
	}
	f, err := os.Create(*asJSON)
	if err != nil {
		return err
	}
	defer f.Close()
	return report.WriteJSON(f)
}
