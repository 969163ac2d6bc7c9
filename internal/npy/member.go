package npy

import (
	"archive/zip"
	"bufio"
	"compress/flate"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	// maxInflate is the most that deflate expands: 258 bytes from a 1-bit length and a
	// 1-bit distance.
	maxInflate = 1032

	// encryptedFlags are the zip flags of traditional, strong and header encryption.
	encryptedFlags = 1<<0 | 1<<6 | 1<<13
)

// memberReader yields the content of a member and, in place of the final io.EOF,
// zip.ErrChecksum if the directory's CRC does not hold. zip's own reader drops bytes
// when the size is wrong, so that a truncation could not be counted, and takes a CRC
// of 0 on trust.
type memberReader struct {
	body io.Reader
	crc  uint32 // of what was read
	want uint32
}

func (r *memberReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.crc = crc32.Update(r.crc, crc32.IEEETable, p[:n])
	if err == io.EOF && r.crc != r.want {
		err = zip.ErrChecksum
	}
	return n, err
}

// openMember checks a member of an archive of archiveBytes and opens its content.
func openMember(m *zip.File, archiveBytes int64) (io.Reader, error) {
	if err := checkMember(m, archiveBytes); err != nil {
		return nil, err
	}
	raw, err := m.OpenRaw()
	if err != nil {
		return nil, readError("opening the member", err)
	}
	r := &memberReader{body: raw, want: m.CRC32}
	if m.Method == zip.Deflate {
		// Without a buffer of ours flate reads 4 KiB at a time.
		size := int(min(max(m.CompressedSize64, 1), bufferBytes))
		r.body = flate.NewReader(bufio.NewReaderSize(raw, size))
	}
	return r, nil
}

// checkMember rejects members that cannot be read, and sizes that the archive cannot
// back: everything after it may believe the directory up to deflate's ratio.
func checkMember(m *zip.File, archiveBytes int64) error {
	if m.Flags&encryptedFlags != 0 {
		return fmt.Errorf("member flags (%#04x) must not say encrypted", m.Flags)
	}
	if m.Method != zip.Store && m.Method != zip.Deflate {
		return fmt.Errorf("compression method (%d) must be 0 (stored) or 8 (deflate)", m.Method)
	}
	offset, err := m.DataOffset()
	if err != nil {
		return readError("reading the member's local header", err)
	}
	room := uint64(max(archiveBytes-offset, 0))
	if m.CompressedSize64 > room {
		return fmt.Errorf("compressed bytes (%d) must be at most the %d left in the archive", m.CompressedSize64, room)
	}
	limit := m.CompressedSize64
	if m.Method == zip.Deflate {
		limit *= maxInflate
	}
	if m.UncompressedSize64 > limit || m.Method == zip.Store && m.UncompressedSize64 < limit {
		return fmt.Errorf("member bytes (%d) must match the %d bytes that it is stored in", m.UncompressedSize64, m.CompressedSize64)
	}
	return nil
}

// startsAsArray says whether a member whose name does not end in .npy is an array all
// the same; numpy reads such members, and npyio writes them.
func startsAsArray(m *zip.File, archiveBytes int64) bool {
	r, err := openMember(m, archiveBytes)
	if err != nil {
		return false
	}
	var first [len(magic)]byte
	_, err = io.ReadFull(r, first[:])
	return err == nil && string(first[:]) == magic
}
