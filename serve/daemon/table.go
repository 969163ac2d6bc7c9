package daemon

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/pagetable"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// TableSpec describes a table: a file, or, without one, a table that begins without rows.
type TableSpec struct {
	File, Name, Codec string
	Capacity          int64 // rows that it has room for; 0: those of the file
	DType             string
	Columns           int
	// Resident has all rows in device memory, in slots as Slots says.
	Resident bool
	Slots    cache.ResidentOptions
	// Place says more of a File that is a directory of pages, or the address of a cluster.
	Place pagetable.Place
	// Budget is that of a cache of its own, as --gpu-memory has it; "": it shares a cache with other tables.
	Budget string
}

// parseTable reads a table as --table has it: key=value between commas, with CSV's quotes.
func parseTable(text string) (t TableSpec, err error) {
	if text == "" {
		return t, errors.New("a table's description must not be empty: it is key=value,…, such as file=FILE")
	}
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return t, fmt.Errorf("%q must be key=value,…: %w", text, err)
	}
	given := map[string]bool{}
	for _, f := range fields {
		key, value, ok := strings.Cut(f, "=")
		if !ok {
			return t, fmt.Errorf("%q must be key=value", f)
		}
		if value == "" {
			return t, fmt.Errorf("value of key %q must not be empty", key)
		}
		if given[key] {
			return t, fmt.Errorf("key %q must be given once", key)
		}
		given[key] = true
		switch key {
		case "file":
			t.File = value
		case "name":
			t.Name = value
		case "codec":
			if err := registry.Check(value); err != nil {
				return t, err
			}
			t.Codec = value
		case "capacity":
			if t.Capacity, err = strconv.ParseInt(value, 10, 64); err != nil || t.Capacity < 1 {
				return t, fmt.Errorf("capacity (%q) must be a number of rows", value)
			}
		case "gpu_memory":
			if _, err := setting.Budget(value, 1<<40); err != nil || strings.Contains(value, ",") {
				return t, fmt.Errorf("gpu_memory (%q) must be a size such as 64MiB, or a positive percentage of the table", value)
			}
			t.Budget = value
		case "dtype":
			if dtypeOf(value) == dtype.Invalid {
				return t, fmt.Errorf("dtype (%q) must be a type of elements such as float32", value)
			}
			t.DType = value
		case "columns":
			if t.Columns, err = strconv.Atoi(value); err != nil || t.Columns < 1 {
				return t, fmt.Errorf("columns (%q) must be a number of elements", value)
			}
		case "durable", "log", "cold", "cold_cache", "cold_cache_bytes":
			if err := t.parsePlace(key, value); err != nil {
				return t, err
			}
		case "resident", "max_target", "max_overflow", "retarget", "buddy":
			if err := t.parseResident(key, value); err != nil {
				return t, err
			}
		default:
			return t, fmt.Errorf("unknown key %q of a table must be file, name, codec, capacity, gpu_memory, dtype, columns, durable, log, cold, cold_cache, cold_cache_bytes, resident, max_target, max_overflow, retarget or buddy", key)
		}
	}
	if !t.Resident && t.Slots != (cache.ResidentOptions{}) {
		return t, errors.New("max_target, max_overflow, retarget and buddy must be of a table with resident")
	}
	switch empty := t.DType != "" || t.Columns != 0; {
	case t.File != "" && empty:
		return t, errors.New("a table with a file must have no dtype and no columns")
	case t.File == "" && (t.DType == "" || t.Columns == 0 || t.Capacity == 0 || t.Name == ""):
		return t, errors.New("a table must have a file, or else name, dtype, columns and capacity")
	case t.File == "" && t.Place.Given():
		return t, errors.New("durable, log, cold and cold_cache must be of a table with a file")
	}
	place := t.Place
	place.Path = t.File
	return t, place.Check()
}

// String describes the table as --table has it.
func (t *TableSpec) String() string {
	var all []string
	add := func(given bool, key string, value any) {
		if given {
			all = append(all, fmt.Sprintf("%s=%v", key, value))
		}
	}
	add(t.File != "", "file", t.File)
	add(t.Name != "", "name", t.Name)
	add(t.Codec != "", "codec", t.Codec)
	add(t.Capacity != 0, "capacity", t.Capacity)
	add(t.Budget != "", "gpu_memory", t.Budget)
	add(t.DType != "", "dtype", t.DType)
	add(t.Columns != 0, "columns", t.Columns)
	add(t.Place.Durable, "durable", true)
	add(t.Place.Log != "", "log", t.Place.Log)
	add(t.Place.Cold != "", "cold", t.Place.Cold)
	add(t.Place.Cache != "", "cold_cache", t.Place.Cache)
	add(t.Place.CacheBytes != 0, "cold_cache_bytes", t.Place.CacheBytes)
	add(t.Resident && t.Slots.Target == 0, "resident", "auto")
	add(t.Slots.Target != 0, "resident", t.Slots.Target)
	add(t.Slots.MaxTarget != 0, "max_target", t.Slots.MaxTarget)
	add(t.Slots.MaxOverflow != 0, "max_overflow", t.Slots.MaxOverflow)
	add(t.Slots.Retarget, "retarget", true)
	add(t.Slots.Buddy != "", "buddy", t.Slots.Buddy)
	return strings.Join(all, ",")
}

// parsePlace reads one of the keys of a table of pages.
func (t *TableSpec) parsePlace(key, value string) (err error) {
	switch key {
	case "durable":
		if t.Place.Durable, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("durable (%q) must be true or false", value)
		}
	case "log":
		t.Place.Log = value
	case "cold":
		t.Place.Cold = value
	case "cold_cache":
		t.Place.Cache = value
	case "cold_cache_bytes":
		n, err := humanize.ParseBytes(value)
		if err != nil || n == 0 || n > math.MaxInt64 {
			return fmt.Errorf("cold_cache_bytes (%q) must be a size, such as 200GiB", value)
		}
		t.Place.CacheBytes = int64(n)
	}
	return nil
}

// parseResident reads one of the keys of a resident table.
func (t *TableSpec) parseResident(key, value string) (err error) {
	slot := func(what string, to *int) error {
		n, err := humanize.ParseBytes(value)
		if err != nil || n == 0 || n%buddy.MinTarget != 0 || n > uint64(buddy.MaxTarget(slab.MaxRowBytes)) {
			return fmt.Errorf("%s (%q) must be %sbytes of a slot: a multiple of %d up to %d", key, value, what, buddy.MinTarget, buddy.MaxTarget(slab.MaxRowBytes))
		}
		*to = int(n)
		return nil
	}
	switch key {
	case "resident":
		if t.Resident = true; value != "auto" {
			return slot("auto, or ", &t.Slots.Target)
		}
	case "max_target":
		return slot("", &t.Slots.MaxTarget)
	case "max_overflow":
		if t.Slots.MaxOverflow, err = strconv.ParseFloat(value, 64); err != nil || !(t.Slots.MaxOverflow > 0 && t.Slots.MaxOverflow <= 1) {
			return fmt.Errorf("max_overflow (%q) must be a share of the rows, above 0 and at most 1", value)
		}
	case "retarget":
		if t.Slots.Retarget, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("retarget (%q) must be true or false", value)
		}
	case "buddy":
		if t.Slots.Buddy = cache.BuddyMemory(value); !slices.Contains([]cache.BuddyMemory{cache.BuddyHost, cache.BuddyPeer, cache.BuddyAuto}, t.Slots.Buddy) {
			return fmt.Errorf("buddy (%q) must be %s, %s or %s", value, cache.BuddyHost, cache.BuddyPeer, cache.BuddyAuto)
		}
	}
	return nil
}

func dtypeOf(name string) dtype.Type {
	for t := dtype.Invalid + 1; t.Size() > 0; t++ {
		if t.String() == name {
			return t
		}
	}
	return dtype.Invalid
}

// name returns what clients call the table: by default its file's name without folder and extension, with the array if one is named.
func (t *TableSpec) name() string {
	if t.Name != "" {
		return t.Name
	}
	name, array := filepath.Base(t.File), ""
	for _, ext := range []string{".npy", ".npz", ".safetensors", ".tc"} {
		if i := strings.LastIndex(strings.ToLower(name), ext); i > 0 && (i+len(ext) == len(name) || name[i+len(ext)] == ':') {
			name, array = name[:i], name[i+len(ext):]
			break
		}
	}
	return name + array
}

// open returns the table for a cache. Table.Close closes it.
func (t *TableSpec) open(ctx context.Context) (cache.Table, error) {
	var table cache.Table
	var err error
	if t.Place.Path = t.File; t.Place.Given() {
		table, err = t.Place.Open(ctx)
	} else if t.File != "" {
		table, err = cache.Open(t.File)
	} else {
		of := dtypeOf(t.DType)
		table, err = cache.FromBytes(t.Name, of, nil, t.Columns*of.Size())
	}
	if err != nil {
		return table, err
	}
	if t.Resident {
		table = table.ResidentWith(t.Slots)
	}
	return table.WithName(t.name()).WithCodec(cache.Codec(t.Codec)).WithCapacity(t.Capacity), nil
}

// source returns cache.Table.Source of the table's file as it is now.
func (t *TableSpec) source(ctx context.Context) (string, error) {
	table, err := t.open(ctx)
	if err != nil {
		return "", err
	}
	return sharing.Source(&table), table.Close()
}

// openTables opens all tables. change may change where their pages are. After an error it has closed them.
func (c *Config) openTables(ctx context.Context, change func(*pagetable.Place)) (tables []cache.Table, err error) {
	var errs []error
	for i := range c.Tables {
		spec := c.Tables[i]
		change(&spec.Place)
		t, err := spec.open(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tables = append(tables, t)
	}
	if len(errs) > 0 {
		for _, t := range tables {
			errs = append(errs, t.Close())
		}
		return nil, errors.Join(errs...)
	}
	return tables, nil
}
