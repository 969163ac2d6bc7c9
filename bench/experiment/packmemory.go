package experiment

import (
	"fmt"
	"math"
	"runtime"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/pages"
)

// What pack takes of memory: packBase and packWorker for each goroutine that encodes, packPage for each page, for the index, and a byte for each packOrder rows of an ordered table, for
// the set of those that the order has; order, positions and counts are in files, which count where their folder lies in memory. With more than mostPackMemory it goes on only if it is told to.
const (
	packBase       = 160 << 20
	packWorker     = 64 << 20
	packPage       = 16
	packOrder      = 4
	mostPackMemory = 1 << 30
)

// packWorkers returns the number of goroutines with which packing stays within mostPackMemory, at most those that are wanted (0: one a processor), or an error
// that says what takes more. force takes all that are wanted.
func packWorkers(wanted int, rows, rowBytes int64, pageBytes int, order orderMemory, force bool) (int, error) {
	if wanted == 0 {
		wanted = min(runtime.GOMAXPROCS(0), maximumPackers)
	}
	if pageBytes == 0 {
		pageBytes = pages.DefaultPageBytes
	}
	perPage := max(1, int64(pageBytes)/max(1, rowBytes)) // rows, if they do not shrink
	index := packPage * ((rows + perPage - 1) / perPage)
	ordered := order.set + order.files
	fits := (mostPackMemory - packBase - index - ordered) / packWorker
	if force || fits >= int64(wanted) {
		return wanted, nil
	}
	if fits >= 1 {
		return int(fits), nil
	}
	bytes := func(n int64) string { return humanize.IBytes(uint64(min(max(n, 0), math.MaxInt64))) }
	why := fmt.Sprintf("%s for the index, which larger pages (--page) make shorter", bytes(index))
	if ordered > 0 {
		why += fmt.Sprintf(", and %s for the order", bytes(ordered))
	}
	if order.files > 0 {
		why += fmt.Sprintf(", whose files are in a folder in memory (%s): --scratch takes one on a drive", order.folder)
	}
	return 0, fmt.Errorf("packing %d rows in pages of %d B would take about %s of memory, %s: --force goes on", rows, pageBytes, bytes(packBase+packWorker+index+ordered), why)
}
