package predict

import "math"

// A GPU that reads host memory looks up where each page lies. What it has looked up lately covers about 1 GiB, so short rows of larger tables wait for that rather
// than for the link.

// translation has what looking up pages costs, in seconds.
type translation struct {
	// page is of a page that a batch's ordered misses touch, plainPage of one that a plain kernel touches which reads rows in order of their addresses.
	page, plainPage float64
	// row is of a row that is read in no order, by the bytes of memory over which rows spread: most pages of small memories are known.
	row curve
}

const (
	// pageBytes is the page by which misses are ordered.
	pageBytes = 64 << 10
	// knownBytes is host memory of which all pages are known: misses of smaller tables are not ordered (cache/internal/read/route.go).
	knownBytes = 512 << 20
	// largeCached is the share of the table that gather-misses-large caches.
	largeCached = 1. / 64
)

// translationOf takes the costs from the shortest rows of gather-misses, gather-80 and gather-misses-large.
func translationOf(m *Model, misses, mixed, large *Result) (t translation) {
	seconds := func(x *Result, speed float64) float64 { return float64(x.Batch) * float64(x.RowBytes) / (speed * 1e9) }
	n := float64(mixed.Batch) // the baseline of gather-80 is its misses alone
	t.page = max(0, (seconds(mixed, mixed.BaselineValue)-m.launches-n/m.lookup)/pagesOf(n*(1-gatherHits), float64(mixed.TableBytes)*(1-gatherCached)))
	outside := float64(large.TableBytes) * (1 - largeCached)
	t.plainPage = seconds(large, large.BaselineValue) / pagesOf(float64(large.Batch), outside)
	t.row = curve{{knownBytes, 0}}
	for _, at := range []struct {
		x     *Result
		speed string
		bytes float64
	}{
		{misses, UnsortedZeroCopy, float64(misses.TableBytes) * (1 - gatherCached)}, {mixed, UnsortedZeroCopy + ", of all rows", float64(mixed.TableBytes)}, {large, UnsortedZeroCopy, outside},
	} {
		if speed := at.x.FurtherValue(at.speed); speed > 0 && at.bytes > t.row[len(t.row)-1].rowBytes {
			t.row = append(t.row, point{at.bytes, seconds(at.x, speed) / float64(at.x.Batch)})
		}
	}
	return t
}

// unsorted is the time for a row's page, if rows are read in no order over so many bytes.
func (t *translation) unsorted(bytes float64) float64 { return t.row.at(max(bytes, knownBytes), false) }

// unknown is the share of the pages of so many bytes that are not known, by what rows in no order wait for.
func (t *translation) unknown(bytes float64) float64 {
	return t.unsorted(bytes) / t.row[len(t.row)-1].value
}

// pagesOf is how many pages of so many bytes some random rows touch, on average.
func pagesOf(rows, bytes float64) float64 {
	pages := max(1, bytes/pageBytes)
	return pages * (1 - math.Exp(-rows/pages))
}
