package trace

import (
	"encoding/binary"
	"io"
)

// libCacheSim's lcs files: a header, and then records of one length, little-endian, packed.
//
//	0       8         16                   8184    8192
//	+-------+---------+--------------------+-------+
//	| magic | version | statistics, unused | magic |
//	+-------+---------+--------------------+-------+
//
// A record of version 1 is one of oracleGeneral. Version 2 adds 4 bytes in front of the next access, the operation and a tenant. From version 3 on the size has 8
// bytes, and a time to live follows the tenant; versions 4 to 8 have features behind the next access.
const (
	lcsMagic       = "\xf0\xde\xbc\x9a\x78\x56\x34\x12"
	lcsHeaderBytes = 8192
)

// lcsRecords are the layouts by version.
var lcsRecords = [...]oracleRecord{
	1: {bytes: 24, next: 16}, 2: {bytes: 28, next: 20}, 3: {bytes: 36, next: 28, wideSize: true}, 4: {bytes: 40, next: 28, wideSize: true},
	5: {bytes: 44, next: 28, wideSize: true}, 6: {bytes: 52, next: 28, wideSize: true}, 7: {bytes: 68, next: 28, wideSize: true}, 8: {bytes: 100, next: 28, wideSize: true},
}

// lcsDecoder reads such files. Every request counts as a get, as in libCacheSim's simulations.
type lcsDecoder struct{ oracleDecoder }

func newLCSDecoder(s *source) decoder { return &lcsDecoder{oracleDecoder{s: s}} }

func (d *lcsDecoder) decode(dst []Request) (int, error) {
	if d.record.bytes == 0 {
		var header [lcsHeaderBytes]byte
		n, err := d.s.read(header[:])
		version := binary.LittleEndian.Uint64(header[8:])
		switch {
		case err == io.EOF && n < len(header):
			return 0, d.s.fault(0, 0, truncated("header (%d bytes) must have %d", n, len(header)))
		case err != nil && err != io.EOF:
			return 0, d.s.fault(0, 0, err)
		case string(header[:8]) != lcsMagic || string(header[lcsHeaderBytes-8:]) != lcsMagic:
			return 0, d.s.fault(0, 0, corrupt("header must begin and end with libCacheSim's mark"))
		case version < 1 || version >= uint64(len(lcsRecords)):
			return 0, d.s.fault(8, 0, corrupt("version (%d) must be 1 to %d", version, len(lcsRecords)-1))
		}
		d.record = lcsRecords[version]
	}
	return d.oracleDecoder.decode(dst)
}
