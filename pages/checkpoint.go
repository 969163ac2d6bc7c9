package pages

import (
	"encoding/binary"
	"os"
)

// checkpoint is the file that says how far an interrupted Pack has come: docs/format/pages.md. What it says has been written is durable,
// because page files are synced before it.
type checkpoint struct {
	file   *os.File
	buffer []byte // not written yet
	fault  error
}

const (
	checkpointMagic = "TCPACK\x00\x01"
	checkpointFixed = 8 + 32 + 12
	groupFixed      = 28
)

// encodeCheckpoint returns what the file begins with.
func encodeCheckpoint(r *resumable) []byte {
	le := binary.LittleEndian
	b := append([]byte(checkpointMagic), r.key[:]...)
	b = le.AppendUint32(b, uint32(r.stage))
	b = le.AppendUint32(b, uint32(len(r.codec)))
	b = le.AppendUint32(b, uint32(len(r.metadata)))
	b = append(append(b, r.codec...), r.metadata...)
	return le.AppendUint32(b, checksum(b))
}

// add notes a group, for append to write.
func (c *checkpoint) add(g *packedGroup, pages []indexPage) {
	le := binary.LittleEndian
	from := len(c.buffer)
	b := le.AppendUint32(c.buffer, uint32(g.pageRows))
	b = le.AppendUint32(b, uint32(len(pages)))
	b = le.AppendUint32(b, uint32(g.longest))
	b = le.AppendUint64(b, uint64(g.stored))
	b = le.AppendUint64(b, uint64(g.raw))
	for _, p := range pages {
		b = le.AppendUint32(le.AppendUint32(b, p.length), p.sum)
	}
	c.buffer = le.AppendUint32(b, checksum(b[from:]))
}

// append makes the pages durable that have been written to a file, if there is one, and then the groups that they are of. After an error it
// writes nothing more: the system may have dropped what it could not write, and a later sync that succeeds would prove nothing.
func (c *checkpoint) append(pages *os.File, groups []byte) error {
	if c.fault == nil && pages != nil {
		c.fault = syncFile(pages)
	}
	if c.fault == nil {
		_, c.fault = writeTo(c.file, groups)
	}
	if c.fault == nil {
		c.fault = syncFile(c.file)
	}
	return c.fault
}

// parseCheckpoint returns what a checkpoint file of this key says, and how many of its bytes say that: an interrupted write leaves a torn
// end. It returns nil for a file of another key and for one without a sound beginning.
func parseCheckpoint(b []byte, key [32]byte) (*resumable, int64) {
	le := binary.LittleEndian
	if len(b) < checkpointFixed || string(b[:8]) != checkpointMagic || [32]byte(b[8:40]) != key {
		return nil, 0
	}
	codec, metadata := int64(le.Uint32(b[44:])), int64(le.Uint32(b[48:]))
	head := checkpointFixed + codec + metadata
	if int64(len(b)) < head+4 || le.Uint32(b[40:]) >= uint32(len(Stages)) || checksum(b[:head]) != le.Uint32(b[head:]) {
		return nil, 0
	}
	r := &resumable{key: key, stage: Stage(b[40]), codec: string(b[checkpointFixed:][:codec]), metadata: b[checkpointFixed+codec : head]}
	at := head + 4
	for {
		rest := b[at:]
		if len(rest) < groupFixed {
			return r, at
		}
		pages := int64(le.Uint32(rest[4:]))
		size := groupFixed + 8*pages
		if int64(len(rest)) < size+4 || checksum(rest[:size]) != le.Uint32(rest[size:]) {
			return r, at
		}
		r.groups = append(r.groups, le.Uint32(rest))
		r.longest = max(r.longest, int(le.Uint32(rest[8:])))
		r.stored += int64(le.Uint64(rest[12:]))
		r.raw += int64(le.Uint64(rest[20:]))
		for i := range pages {
			r.pages = append(r.pages, indexPage{le.Uint32(rest[groupFixed+8*i:]), le.Uint32(rest[groupFixed+8*i+4:])})
		}
		at += size + 4
	}
}
