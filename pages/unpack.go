package pages

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

// Unpack writes the rows of a store to a file, in the order of their numbers: an .npy file of two axes, or, if the name ends in .safetensors,
// such a file with the tensor "features". The file is there as a whole or, after an error, not at all. Memory does not depend on the table's
// length, but for 4 bytes a row of an ordered table. Progress, if not nil, is told how many pages have been read.
func Unpack(ctx context.Context, s Store, path string, progress func(pages uint32)) (err error) {
	m := s.Manifest()
	t, err := OpenStores(ctx, unclosed{s})
	if err != nil {
		return err
	}
	if err := checkPositions(t.order, m.Rows); err != nil {
		return fmt.Errorf("%s: %w", s.Name(), err)
	}
	header, err := arrayHeader(m, strings.EqualFold(filepath.Ext(path), ".safetensors"))
	if err != nil {
		return err
	}
	return atomicfile.Replace(path, func(f *os.File) error {
		if _, err := f.Write(header); err != nil {
			return err
		}
		numbers := make([]uint32, len(t.order)/4) // row numbers by position
		for row := range numbers {
			numbers[binary.LittleEndian.Uint32(t.order[4*row:])] = uint32(row)
		}
		var rows []byte
		return scan(ctx, s, t.index, func(first uint32, _ [][]byte, pages []parsedPage) error {
			from, _ := t.index.positions(first)
			_, to := t.index.positions(first + uint32(len(pages)) - 1)
			if n := int(to-from) * m.RowBytes; len(rows) < n {
				rows = make([]byte, n)
			}
			faults := make([]error, len(pages))
			parallel(len(pages), func(i int) {
				begin, _ := t.index.positions(first + uint32(i))
				faults[i] = t.decodePage(pages[i], rows[int(begin-from)*m.RowBytes:])
			})
			for i, err := range faults {
				if err != nil {
					return t.pageError(s, first+uint32(i), err)
				}
			}
			if err := writeRows(f, int64(len(header)), rows, from, to, m.RowBytes, numbers); err != nil {
				return err
			}
			if progress != nil {
				progress(first + uint32(len(pages)))
			}
			return nil
		}, true)
	})
}

// decodePage writes the rows of a page, back to back.
func (t *Table) decodePage(p parsedPage, rows []byte) error {
	n := t.manifest.RowBytes
	for i := range p.Rows() {
		stored, compressed, err := p.Row(i)
		if err != nil {
			return err
		}
		if err := t.Decode(rows[i*n:][:n], stored, compressed); err != nil {
			return fmt.Errorf("row %d of the page: %w", i, err)
		}
	}
	return nil
}

// Decode writes a row to dst, which must be RowBytes long, from the stored form that ReadRows delivers.
func (t *Table) Decode(dst, stored []byte, compressed bool) error {
	if !compressed {
		copy(dst, stored)
		return nil
	}
	if t.codec == nil {
		return fmt.Errorf("%w: an encoded row of a table of raw rows", ErrCorrupt)
	}
	_, err := t.codec.Decode(dst, stored)
	return err
}

// writeRows writes rows of positions [from, to). numbers are the row numbers by position; empty: the same.
func writeRows(f *os.File, header int64, rows []byte, from, to int64, rowBytes int, numbers []uint32) error {
	rows = rows[:int(to-from)*rowBytes]
	if len(numbers) == 0 {
		_, err := f.WriteAt(rows, header+from*int64(rowBytes))
		return err
	}
	for position := from; position < to; {
		n := int64(1) // neighbours are written at once
		for position+n < to && numbers[position+n] == numbers[position]+uint32(n) {
			n++
		}
		part := rows[int(position-from)*rowBytes:][:int(n)*rowBytes]
		if _, err := f.WriteAt(part, header+int64(numbers[position])*int64(rowBytes)); err != nil {
			return err
		}
		position += n
	}
	return nil
}

var (
	npyCodes = map[dtype.Type]string{
		dtype.Float16: "<f2", dtype.BFloat16: "<V2", dtype.Float32: "<f4", dtype.Float64: "<f8", dtype.Int8: "|i1", dtype.Int16: "<i2", dtype.Int32: "<i4", dtype.Int64: "<i8",
		dtype.Uint8: "|u1", dtype.Uint16: "<u2", dtype.Uint32: "<u4", dtype.Uint64: "<u8", dtype.Bool: "|b1",
	}
	safetensorsCodes = map[dtype.Type]string{
		dtype.Float16: "F16", dtype.BFloat16: "BF16", dtype.Float32: "F32", dtype.Float64: "F64", dtype.Int8: "I8", dtype.Int16: "I16", dtype.Int32: "I32",
		dtype.Int64: "I64", dtype.Uint8: "U8", dtype.Uint16: "U16", dtype.Uint32: "U32", dtype.Uint64: "U64", dtype.Bool: "BOOL",
		dtype.Float8E4M3FN: "F8_E4M3", dtype.Float8E5M2: "F8_E5M2", dtype.Float8E8M0FNU: "F8_E8M0",
	}
)

// npyDescr returns how the header of an .npy file says a type, "" if it cannot. A row of parts is a structured type with fields p0, p1 and so on;
// float8 among them is a void byte, or f1, as ml_dtypes has it.
func npyDescr(of dtype.Type) string {
	if !of.IsRow() {
		if npyCodes[of] == "" {
			return ""
		}
		return "'" + npyCodes[of] + "'"
	}
	var fields []string
	for i, p := range of.Parts() {
		code := npyCodes[p.Type]
		switch {
		case p.Type == dtype.Float8E5M2:
			code = "<f1"
		case code == "" && p.Type.Size() == 1:
			code = "|V1"
		case code == "":
			return ""
		}
		fields = append(fields, fmt.Sprintf("('p%d', '%s', (%d,))", i, code, p.Count))
	}
	return "[" + strings.Join(fields, ", ") + "]"
}

// arrayHeader returns what a file of the table's rows begins with.
func arrayHeader(m *Manifest, safetensors bool) ([]byte, error) {
	columns := m.RowBytes / m.DType.Size()
	if safetensors && m.DType.IsRow() {
		return nil, fmt.Errorf("pages: a tensor of a .safetensors file cannot hold rows of parts (%v): take a name that ends in .npy", m.DType)
	}
	if safetensors {
		text := fmt.Sprintf(`{"features":{"dtype":"%s","shape":[%d,%d],"data_offsets":[0,%d]}}`, safetensorsCodes[m.DType], m.Rows, columns, m.Rows*int64(m.RowBytes))
		text += strings.Repeat(" ", -len(text)&7)
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
	}
	descr, shape := npyDescr(m.DType), fmt.Sprintf("(%d, %d)", m.Rows, columns)
	if m.DType.IsRow() {
		shape = fmt.Sprintf("(%d,)", m.Rows)
	}
	if descr == "" {
		return nil, fmt.Errorf("pages: an .npy file cannot hold %v: take a name that ends in .safetensors", m.DType)
	}
	// As NumPy writes it: the data begin at a multiple of 64.
	text := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': %s, }", descr, shape)
	text += strings.Repeat(" ", -(10+len(text)+1)&63) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), byte(len(text)>>8))
	return append(b, text...), nil
}
