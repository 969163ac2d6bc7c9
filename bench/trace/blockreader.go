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

// next reads the header or a block; io.EOF is returned after the end mark only.
func (d *blockDecoder) next() error {
	if !d.opened {
		d.opened = true
		if err := d.fill("header", 0, headerBytes); err != nil {
			return err
		}
		return d.header.parse(d.buf)
	}
	if err := d.fill("block or end mark", 0, endBytes); err != nil {
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

// fill makes buf so many bytes long, of which some are there, and reads the others.
func (d *blockDecoder) fill(what string, there, size int) error {
	d.buf = append(d.buf[:there], make([]byte, size-there)...)
	n, err := d.s.read(d.buf[there:])
	if err == io.EOF {
		return truncated("%s (%d bytes) must have %d", what, there+n, size)
	}
	return err
}

// checksum says whether buf ends with the checksum of what precedes it.
func (d *blockDecoder) checksum() bool {
	end := len(d.buf) - 4
	return crc32.Checksum(d.buf[:end], castagnoli) == binary.LittleEndian.Uint32(d.buf[end:])
}

func (d *blockDecoder) end() error {
	if !d.checksum() {
		return corrupt("end mark's checksum does not match")
	}
	if total := binary.LittleEndian.Uint64(d.buf[8:]); total != uint64(d.index) {
		return corrupt("requests (%d) must be the %d of the end mark", d.index, total)
	}
	d.lost += int64(binary.LittleEndian.Uint32(d.buf[4:]))
	_, err := d.s.read(d.buf[:1])
	if err == nil {
		return corrupt("nothing must follow the end mark")
	}
	return err
}

// body reads the block whose first endBytes bytes are there.
func (d *blockDecoder) body() error {
	if err := d.fill("block's head", endBytes, blockHead); err != nil {
		return err
	}
	count, payload := binary.LittleEndian.Uint32(d.buf[4:]), binary.LittleEndian.Uint32(d.buf[8:])
	if count == 0 || count > maxRequests || payload > maxPayload {
		return corrupt("block's requests (%d) and bytes (%d) must be 1 to %d and at most %d", count, payload, maxRequests, maxPayload)
	}
	if err := d.fill("block", blockHead, blockHead+int(payload)+4); err != nil {
		return err
	}
	if !d.checksum() {
		return corrupt("block's checksum does not match")
	}
	if index := binary.LittleEndian.Uint64(d.buf[16:]); index != uint64(d.index) {
		return corrupt("block's first request (%d) must be number %d: a block is missing or there twice", index, d.index)
	}
	if err := d.parse(d.buf[blockHead:len(d.buf)-4], int(count)); err != nil {
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
