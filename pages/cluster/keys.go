package cluster

import (
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/pages"
)

// tablesKey is the set of the names of all tables.
const tablesKey = "tc:tables"

// keys are the names of a table's keys: docs/format/cluster.md.
type keys struct{ table string }

// page is the key of a page. It has no braces, so that pages spread over all slots.
func (k keys) page(generation uint64, page uint32) string {
	b := make([]byte, 0, 64)
	b = append(append(append(b, "tc:"...), k.table...), ':')
	b = append(strconv.AppendUint(b, generation, 10), ':')
	return string(strconv.AppendUint(b, uint64(page), 10))
}

// part is the key of a chunk of a part.
func (k keys) part(generation uint64, p pages.Part, chunk int) string {
	return "tc:" + k.table + ":" + strconv.FormatUint(generation, 10) + ":" + p.String() + ":" + strconv.Itoa(chunk)
}

// control is the key of what the table's readers and loaders agree on. All are in one slot.
func (k keys) control(what string) string { return "tc:{" + k.table + "}:" + what }

// manifest is the current generation's manifest, generations the states of all, last the highest number that was given.
func (k keys) manifest() string    { return k.control("manifest") }
func (k keys) generations() string { return k.control("generations") }
func (k keys) last() string        { return k.control("last") }

// leases is the set of the readers of a generation, lease the key of one of them, loader that of who loads it.
func (k keys) leases(generation uint64) string {
	return k.control("leases:" + strconv.FormatUint(generation, 10))
}
func (k keys) lease(generation uint64, reader string) string {
	return k.control("lease:" + strconv.FormatUint(generation, 10) + ":" + reader)
}
func (k keys) loader(generation uint64) string {
	return k.control("loader:" + strconv.FormatUint(generation, 10))
}

// chunkBytes is the length of the chunks that parts are cut into.
const chunkBytes = 1 << 20

func chunks(n int64) int { return int((n + chunkBytes - 1) / chunkBytes) }

// slotOf is a key's slot: CRC-16/XMODEM of what is between its first braces, or of all if it has none.
func slotOf(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1:][:n]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return crc % slots
}

// slots is the number of slots of a cluster.
const slots = 1 << 14

var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
