package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/memlimit"
	"github.com/tensorcache/tensorcache/internal/pagetable"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/internal/statefolder"
)

// Plan is what the program would do, found out without doing it.
type Plan struct {
	Backend string          `json:"backend"` // host or cuda
	Devices int             `json:"devices"`
	Budgets []int64         `json:"budgets"` // bytes of each device
	Tables  []PlannedTable  `json:"tables"`
	Memory  []PlannedMemory `json:"memory"`
	Reach   []string        `json:"reach"` // the ways to reach the cache
	Restore string          `json:"restore,omitempty"`
	// Problems are why it would not work.
	Problems []string `json:"problems"`
}

// PlannedTable is a table that would be opened.
type PlannedTable struct {
	Name     string `json:"name"`
	File     string `json:"file,omitempty"`
	DType    string `json:"dtype"`
	Codec    string `json:"codec"`
	Rows     int64  `json:"rows"`
	Capacity int64  `json:"capacity"`
	RowBytes int    `json:"row_bytes"`
	RawBytes int64  `json:"raw_bytes"`
	// Resident says how long the slots of a resident table are, "" for others.
	Resident string `json:"resident,omitempty"`
}

// PlannedMemory is memory that would be taken.
type PlannedMemory struct {
	// Kind is "host", "page-locked host" or "device".
	Kind  string `json:"kind"`
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
	// AtMost says that the compressed rows decide, and that it is less if they compress.
	AtMost bool `json:"at_most,omitempty"`
	// Of is "budget" for a part of the budget, which is not to be counted again.
	Of string `json:"of,omitempty"`
}

// rowBytes is about what the policy, the statistics and the index keep of a row in host memory.
const bookkeeping = 150

// scratch is the device memory of batches under way, per device, besides 32 bytes a row of the largest.
const scratch = 32 << 20

// Check says what the program would do, and with how much memory. It opens the tables' files and reads their headers. An error is one of a field's value, as
// Validate has it, or of reading the files. What else would keep the program from working, also that the config has no listener, is in Problems.
func (c *Config) Check() (p *Plan, err error) {
	if err := c.values(); err != nil {
		return nil, err
	}
	p = &Plan{Backend: "host", Devices: c.devices(), Budgets: make([]int64, c.devices()), Problems: []string{}}
	if !c.OnProcessors() {
		p.Backend = "cuda"
	}
	groups := c.groups()
	for _, one := range groups {
		if err := one.plan(p, len(groups) > 1); err != nil {
			return nil, err
		}
	}
	c.compareMemory(p)
	c.planReach(p)
	if err := c.reachable(); err != nil {
		p.Problems = append(p.Problems, err.Error())
	}
	if c.Snapshot != "" {
		p.Restore = "nothing yet: " + c.Snapshot + " is not there"
		if info, err := os.Stat(c.Snapshot); err == nil {
			p.Restore = fmt.Sprintf("%s, of %s: at most %s rows", c.Snapshot, info.ModTime().Format("2006-01-02 15:04:05"), humanize.Comma(info.Size()/8))
		}
	}
	return p, nil
}

// plan adds a cache to a plan. several says that there are others.
func (c *Config) plan(all *Plan, several bool) (err error) {
	// A folder for pages of a cluster belongs to one opening at a time: to that of the cache.
	tables, err := c.openTables(context.Background(), func(p *pagetable.Place) { p.Cache, p.CacheBytes = "", 0 })
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range tables {
			err = errors.Join(err, t.Close())
		}
	}()
	p := &Plan{Backend: all.Backend, Devices: all.Devices}
	if p.Budgets, err = c.budgets(rawBytes(tables, c.Tables)); err != nil {
		return err
	}
	if len(p.Budgets) == 1 {
		p.Budgets = slices.Repeat(p.Budgets, p.Devices)
	}
	rows := int64(0)
	for i, t := range tables {
		spec := c.Tables[i]
		one := PlannedTable{
			Name: t.Name(), File: spec.File, DType: t.DType().String(), Codec: spec.Codec, Rows: int64(t.Rows()), Capacity: max(int64(t.Rows()), spec.Capacity), RowBytes: t.RowBytes(),
		}
		if one.Codec == "" {
			one.Codec = c.Codec
		}
		one.RawBytes = one.Capacity * int64(one.RowBytes)
		rows += one.Capacity
		p.Tables = append(p.Tables, one)
	}
	if err := c.planMemory(p, tables, rows); err != nil {
		return err
	}
	for i := range p.Memory {
		if m := &p.Memory[i]; several && m.Of == "" {
			m.What += " (" + strings.Join(c.names(), ", ") + ")"
		}
	}
	all.Tables, all.Memory, all.Problems = append(all.Tables, p.Tables...), append(all.Memory, p.Memory...), append(all.Problems, p.Problems...)
	for i, b := range p.Budgets {
		all.Budgets[i] += b
	}
	return nil
}

// names returns the names of the tables.
func (c *Config) names() (all []string) {
	for i := range c.Tables {
		all = append(all, c.Tables[i].name())
	}
	return all
}

func (c *Config) planMemory(p *Plan, tables []cache.Table, rows int64) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Tables, o.Budgets = tables, p.Budgets
	o.EnsureDefaults()
	hostKind, deviceKind := "page-locked host", "device"
	if p.Backend == "host" {
		hostKind, deviceKind = "host", "host" // devices are emulated
	}
	raw, resident, atMost := int64(0), int64(0), false
	for i, t := range p.Tables {
		if c.Tables[i].Resident {
			resident += t.RawBytes
			continue
		}
		raw += t.RawBytes
		atMost = atMost || t.Codec != string(cache.CodecNone) && c.HostTier == string(cache.Packed)
	}
	n := int64(p.Devices)
	add := func(kind, what string, bytes int64, atMost bool) {
		p.Memory = append(p.Memory, PlannedMemory{kind, what, bytes, atMost, ""})
	}
	if o.Host.Memory > 0 && o.Host.Memory < raw {
		add(hostKind, "host tier, of which --host-memory is the limit", o.Host.Memory, true)
	} else if raw > 0 || resident == 0 {
		add(hostKind, "host tier: every row", raw, atMost)
	}
	if resident > 0 {
		add(hostKind, "rows of resident tables, until they are on the devices", resident, false)
	}
	add(hostKind, "overlay: updated rows on their way", o.Host.Overlay, false)
	add("host", "bookkeeping: policy, index, statistics", bookkeeping*rows, false)
	add(deviceKind, fmt.Sprintf("budget: cached rows and hashmap, %d ×", n), p.budget(), false)
	if c.HostTier == string(cache.Packed) {
		add(deviceKind, fmt.Sprintf("index of the packed host tier, %d ×", n), n*8*rows, false)
	}
	if p.Backend == "cuda" {
		add(deviceKind, fmt.Sprintf("scratch of batches under way, %d ×, up to", n), n*scratch, true)
	}
	return c.planResident(p, hostKind, deviceKind)
}

// compareMemory says which memory does not suffice.
func (c *Config) compareMemory(p *Plan) {
	var needs []memlimit.Need
	device := int64(0)
	for _, m := range p.Memory {
		if m.Of != "" {
			continue
		}
		if m.Kind == "device" {
			device += m.Bytes
		} else {
			needs = append(needs, memlimit.Need{Setting: "the " + m.What, Value: m.Kind + " memory", Bytes: float64(m.Bytes)})
		}
	}
	if c.Force {
		return
	}
	if c.State != "" {
		has, all := statefolder.Bytes(c.State), int64(0) // what is taken over, or given back
		needs = append(needs, memlimit.Need{Setting: "--state", Value: c.State, Bytes: -float64(has)})
		for _, m := range p.Memory {
			if m.Of == "" && m.Kind != "device" && !strings.HasPrefix(m.What, "bookkeeping") {
				all += m.Bytes
			}
		}
		if room := statefolder.Room(c.State) + has; all > room {
			p.Problems = append(p.Problems, fmt.Sprintf("--state (%s) is to hold up to %s, and its file system has room for %s: mount it with a larger size, or go on with --force",
				c.State, humanize.IBytes(uint64(all)), humanize.IBytes(uint64(room))))
		}
	}
	if err := memlimit.Check(needs...); err != nil {
		p.Problems = append(p.Problems, err.Error())
		if held := memlimit.Held(); held != "" {
			p.Problems = append(p.Problems, held)
		}
	}
	if device == 0 {
		return
	}
	gpus, err := cuda.List()
	if err != nil {
		p.Problems = append(p.Problems, err.Error())
		return
	}
	use, _ := setting.GPUs(c.GPUs, c.Device)
	rest := (device - p.budget()) / int64(p.Devices)
	for _, g := range gpus {
		i := g.Index
		if len(use) > 0 {
			i = slices.Index(use, g.Index)
		}
		if i < 0 || i >= p.Devices {
			continue
		}
		if needs := p.Budgets[i] + rest; needs > g.FreeBytes {
			p.Problems = append(p.Problems, fmt.Sprintf("GPU %d (%s) has %s of its memory free, and would need %s: lower --gpu-memory, or go on with --force", g.Index, g.Name,
				humanize.IBytes(uint64(g.FreeBytes)), humanize.IBytes(uint64(needs))))
		}
	}
}

// budget is the sum of the budgets.
func (p *Plan) budget() (sum int64) {
	for _, b := range p.Budgets {
		sum += b
	}
	return sum
}

func (c *Config) planReach(p *Plan) {
	if c.Listen != "" {
		p.Reach = append(p.Reach, c.Listen+": processes of this user attach")
	}
	users, _ := c.users()
	if c.RESP != "" {
		addr, remote, _ := address("--resp", c.RESP)
		p.Reach = append(p.Reach, "resp "+addr+": "+who(remote, users.Password != "", c.RESPCert != "", "a password")+admins(users.Admin != ""))
	}
	if c.HTTP != "" {
		addr, remote, _ := address("--http", c.HTTP)
		p.Reach = append(p.Reach, "http "+addr+": "+who(remote, c.HTTPToken != "", false, "a token"))
	}
}

func who(remote, secret, encrypted bool, what string) string {
	text := "this machine"
	if remote {
		text = "any machine"
	}
	if secret {
		text += ", with " + what
	}
	if encrypted {
		text += ", by TLS"
	}
	return text
}

func admins(any bool) string {
	if any {
		return "; admin may change rows"
	}
	return "; nobody may change rows"
}

// Write prints the plan for a person.
func (p *Plan) Write(w io.Writer) error {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"table", "file", "rows", "row", "type", "codec", "raw"})
	for _, one := range p.Tables {
		rows, codec := humanize.Comma(one.Rows), one.Codec
		if one.Resident != "" {
			codec += ", resident, " + one.Resident
		}
		if one.Capacity > one.Rows {
			rows += " of " + humanize.Comma(one.Capacity)
		}
		t.AppendRow(table.Row{one.Name, one.File, rows, fmt.Sprintf("%d B", one.RowBytes), one.DType, codec, humanize.IBytes(uint64(one.RawBytes))})
	}
	m := table.NewWriter()
	m.AppendHeader(table.Row{"memory", "for", "bytes"})
	sum := map[string]int64{}
	for _, one := range p.Memory {
		text := humanize.IBytes(uint64(one.Bytes))
		if one.AtMost {
			text = "at most " + text
		}
		if one.Of != "" { // of what is a line of its own
			m.AppendRow(table.Row{one.Kind, "  of the " + one.Of + ": " + one.What, text})
			continue
		}
		m.AppendRow(table.Row{one.Kind, one.What, text})
		sum[one.Kind] += one.Bytes
	}
	m.AppendSeparator()
	for _, kind := range []string{"host", "page-locked host", "device"} {
		if sum[kind] > 0 {
			m.AppendRow(table.Row{kind, "together", humanize.IBytes(uint64(sum[kind]))})
		}
	}
	var budgets []string
	for _, b := range p.Budgets {
		budgets = append(budgets, humanize.IBytes(uint64(b)))
	}
	_, err := fmt.Fprintf(w, "%s\n\nbackend %s, budgets of its devices: %s\n%s\n", t.Render(), p.Backend, strings.Join(budgets, ", "), m.Render())
	if p.Restore != "" {
		fmt.Fprintln(w, "restores", p.Restore)
	}
	for _, r := range p.Reach {
		fmt.Fprintln(w, "reached by", r)
	}
	for _, problem := range p.Problems {
		fmt.Fprintln(w, "problem:", problem)
	}
	return err
}
