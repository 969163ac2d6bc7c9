package experiment

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/internal/scratch"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

// diskTemp is the system's folder for temporary files that are too large for memory.
const diskTemp = "/var/tmp"

// scratch returns the folder for arrays with an element for each row: the one that is named, or the directory that is packed into, or, until that is made, the nearest
// one above it, since a table has room there. Of a cluster it is the system's folder for temporary files, and diskTemp where that one lies in memory. The arrays'
// files have no name.
func (c *PackConfig) scratch() string {
	if c.Scratch != "" {
		return c.Scratch
	}
	if cluster.IsAddress(c.Out) {
		dir := os.TempDir()
		if info, err := os.Stat(diskTemp); scratch.InMemory(dir) && err == nil && info.IsDir() {
			dir = diskTemp
		}
		return dir
	}
	dir := filepath.Clean(c.Out)
	for dir != filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// orderMemory is what an order takes of memory.
type orderMemory struct {
	set    int64  // bytes of the set of rows that the order has
	files  int64  // bytes of order, positions and counts, 0 where their files are on a drive
	folder string // of the files
}

// orderMemory returns what the order of a table of so many rows takes.
func (c *PackConfig) orderMemory(rows int64) (m orderMemory) {
	if c.Order == "" {
		return m
	}
	m.set, m.folder = rows/packOrder, c.scratch()
	if scratch.InMemory(m.folder) {
		m.files = 8 * rows // order and positions
		if c.Order == "degree" || c.Order == "frequency" {
			m.files = 12 * rows // order and counts, before the positions
		}
	}
	return m
}

// order returns the row numbers in the order in which they are to lie in pages, nil for that of the numbers. They lie in memory of the folder, 4 bytes a row, and
// counts 8 bytes a row while they are sorted. What is read is read in parts, but for edge lists, whose graph is in memory.
func (c *PackConfig) order(name string, rows int64, memory *scratch.Folder) ([]uint32, error) {
	switch {
	case c.Order != "degree" && c.Graph != "":
		return nil, errors.New("--graph means nothing without --order degree")
	case c.Order != "frequency" && c.IDs != "":
		return nil, errors.New("--ids means nothing without --order frequency")
	case c.Order == "":
		return nil, nil
	case rows > math.MaxUint32:
		return nil, fmt.Errorf("--order takes a table of at most %d rows (%d)", uint32(math.MaxUint32), rows)
	case c.Order == "degree" && c.Graph == "":
		return nil, errors.New("--order degree needs --graph")
	case c.Order == "frequency" && c.IDs == "":
		return nil, errors.New("--order frequency needs --ids")
	}
	order, err := scratch.Of[uint32](memory, rows)
	if err != nil {
		return nil, fmt.Errorf("--order: %w", err)
	}
	if c.Order != "degree" && c.Order != "frequency" {
		return order, c.listed(order, rows)
	}
	counting := scratch.In(c.scratch())
	keys, err := scratch.Of[uint64](counting, rows)
	if err != nil {
		return nil, fmt.Errorf("--order: %w", err)
	}
	counts := pages.NewRowCounts(keys)
	add := func(part []int64) {
		for _, row := range part {
			counts.Add(row)
		}
	}
	if c.Order == "degree" {
		err = workload.VisitTargets(c.Graph, c.Force, func(vertices int, listed bool) error {
			return fitsTable(vertices, c.Graph, name, int(rows), listed)
		}, add)
	} else {
		err = visitIDs(c.IDs, int(rows), func(part []int64) error {
			add(part)
			return nil
		})
		if err != nil {
			err = fmt.Errorf("--ids: %w", err)
		}
	}
	if err == nil {
		counts.Order(order)
	}
	return order, errors.Join(err, counting.Close())
}

// listed fills order with the rows of a file, and then the others.
func (c *PackConfig) listed(order []uint32, rows int64) error {
	list, err := pages.NewOrderList(order)
	if err != nil {
		return err
	}
	var fault error
	err = visitIDs(c.Order, int(rows), func(part []int64) error {
		fault = list.Add(part)
		return fault
	})
	switch {
	case fault != nil:
		return fmt.Errorf("--order (%s): %w", c.Order, fault)
	case err != nil:
		return fmt.Errorf("--order (degree, frequency or a file): %w", err)
	}
	list.Finish()
	return nil
}
