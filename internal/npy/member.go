package npy

import (
	"archive/zip"
	"fmt"
	"io"
)

const (
	// maxInflate is the most that deflate expands: 258 bytes from a 1-bit length and a
	// 1-bit distance.
	maxInflate = 1032

	// encryptedFlags are the zip flags of traditional, strong and header encryption.
	encryptedFlags = 1<<0 | 1<<6 | 1<<13
)

// openMember checks a member of an archive of archiveBytes and opens its content, whose CRC is checked at its end.
func openMember(m *zip.File, archiveBytes int64) (io.Reader, error) {
	if err := checkMember(m, archiveBytes); err != nil {
		return nil, err
	}
	r, err := m.Open()
	if err != nil {
		return nil, readError("opening the member", err)
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
