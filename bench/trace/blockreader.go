package trace

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// blockDecoder reads tct.
type blockDecoder struct {
	s      *source
	opened bool
	header Header
	lost   int64
	index  int64     // requests in blocks read so far
	block  []Request // what is left of the current one
	room   []Request
	column []uint64
	buf    []byte
}

func newBlockDecoder(s *source) decoder { return &blockDecoder{s: s} }

func (d *blockDecoder) decode(dst []Request) (int, error) {
	for len(d.block) == 0 {
		at := d.s.offset
		if err := d.next(); err == io.EOF {
			return 0, err
		} else if err != nil {
			return 0, d.s.fault(at, 0, err)
		}
	}
	n := copy(dst, d.block)
	d.block = d.block[n:]
	return n, nil
}

// open reads the header, once.
func (d *blockDecoder) open() error {
	if d.opened {
		return nil
	}
	var b [headerBytes]byte
	if n, err := d.s.read(b[:]); err == io.EOF {
		return truncated("header (%d bytes) must have %d", n, headerBytes)
	} else if err != nil {
		return err
	}
	d.opened = true
	return d.header.parse(b[:])
}

// next reads a block; io.EOF is returned after the end mark only.
func (d *blockDecoder) next() error {
	if !d.opened {
		return d.open()
	}
	d.buf = append(d.buf[:0], make([]byte, blockHead)...)
	n, err := d.s.read(d.buf[:endBytes])
	if err == io.EOF {
		return truncated("block (%d bytes) must be complete, and an end mark come last", n)
	}
	if err != nil {
		return err
	}
	switch string(d.buf[:4]) {
	case blockMark:
		return d.body()
	case endMark:
		return d.end()
	}
	return corrupt("mark (%q) must be %q or %q", d.buf[:4], blockMark, endMark)
}

func (d *blockDecoder) end() error {
	if crc32.Checksum(d.buf[:endBytes-4], castagnoli) != binary.LittleEndian.Uint32(d.buf[endBytes-4:]) {
		return corrupt("end mark's checksum does not match")
	}
	if total := binary.LittleEndian.Uint64(d.buf[8:]); total != uint64(d.index) {
		return corrupt("requests (%d) must be the %d of the end mark", d.index, total)
	}
	d.lost += int64(binary.LittleEndian.Uint32(d.buf[4:]))
	switch _, err := d.s.read(d.buf[:1]); err {
	case io.EOF:
		return io.EOF
	case nil:
		return corrupt("nothing must follow the end mark")
	default:
		return err
	}
}

// body reads the block whose first endBytes bytes are there.
func (d *blockDecoder) body() error {
	if n, err := d.s.read(d.buf[endBytes:blockHead]); err == io.EOF {
		return truncated("block's head (%d bytes) must have %d", endBytes+n, blockHead)
	} else if err != nil {
		return err
	}
	count, payload := binary.LittleEndian.Uint32(d.buf[4:]), binary.LittleEndian.Uint32(d.buf[8:])
	if count == 0 || count > maxRequests || payload > maxPayload {
		return corrupt("block's requests (%d) and bytes (%d) must be 1 to %d and at most %d", count, payload, maxRequests, maxPayload)
	}
	d.buf = append(d.buf[:blockHead], make([]byte, payload+4)...)
	if n, err := d.s.read(d.buf[blockHead:]); err == io.EOF {
		return truncated("block (%d bytes) must have %d", blockHead+n, len(d.buf))
	} else if err != nil {
		return err
	}
	end := len(d.buf) - 4
	if crc32.Checksum(d.buf[:end], castagnoli) != binary.LittleEndian.Uint32(d.buf[end:]) {
		return corrupt("block's checksum does not match")
	}
	if index := binary.LittleEndian.Uint64(d.buf[16:]); index != uint64(d.index) {
		return corrupt("block's first request (%d) must be number %d: a block is missing or there twice", index, d.index)
	}
	if err := d.parse(d.buf[blockHead:end], int(count)); err != nil {
		return err
	}
	d.lost += int64(binary.LittleEndian.Uint32(d.buf[12:]))
	d.index += int64(count)
	return nil
}

// parse fills the block from its columns.
func (d *blockDecoder) parse(b []byte, count int) (err error) {
	if count > len(d.room) {
		d.room, d.column = make([]Request, count), make([]uint64, count)
	}
	block, column := d.room[:count], d.column[:count]
	for c := range blockColumns {
		if b, err = parseColumn(b, column); err != nil {
			return err
		}
		for i, v := range column {
			if err := setCell(&block[i], c, d.index+int64(i), v); err != nil {
				return err
			}
		}
	}
	if len(b) > 0 {
		return corrupt("block's bytes after its columns (%d) must be 0", len(b))
	}
	d.block = block
	return nil
}
