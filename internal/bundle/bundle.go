// Package bundle reads bundles: the PTX of several modules in one compressed file. Modules of one codec are compiled from the same functions, so they
// compress better together than one by one.
//
// A bundle is a Zstandard frame. Its content is, for each module in the order of names, a line
//
//	//module NAME
//
// and the module as Packed, which ends with a newline and has no such line. Two copies of a function differ in the numbers of their registers and labels, but
// hardly in the distances between these: with relative numbers bundles are a third smaller.
package bundle

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Ext is what names of bundles end in.
const Ext = ".ptx.zst"

var (
	head = []byte("//module ")
	next = append([]byte("\n"), head...)
)

// Of returns the name of the bundle that a module is in: its coder's, which follows the last underscore, without the digits that tell coders of one codec
// apart (ibp4x3, ibp8x4), or common.
func Of(module string) string {
	if at := strings.LastIndexByte(module, '_'); at >= 0 {
		return strings.TrimRight(module[at+1:], "0123456789x")
	}
	return "common"
}

// Join returns what the bundle of modules, given by name, decompresses to.
func Join(modules map[string][]byte) ([]byte, error) {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		module := modules[name]
		if strings.ContainsAny(name, "\n ") || !bytes.HasSuffix(module, []byte("\n")) || bytes.HasPrefix(module, head) || bytes.Contains(module, next) {
			return nil, fmt.Errorf("bundle: module %q must end with a newline and have no line %q, nor its name a space", name, head)
		}
		text.Write(head)
		text.WriteString(name + "\n")
		packed, err := Pack(module)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, name)
		}
		text.Write(packed)
	}
	return text.Bytes(), nil
}

// Unpack returns the modules of a bundle by name. They share memory.
func Unpack(packed []byte) (map[string]Packed, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	text, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	modules := map[string]Packed{}
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		name, ok := bytes.CutPrefix(line, head)
		if _, again := modules[string(name)]; !ok || again {
			return nil, fmt.Errorf("bundle: line %q must name a module, each once", line)
		}
		end := len(rest)
		if at := bytes.Index(rest, next); at >= 0 {
			end = at + 1
		}
		modules[string(name)], text = Packed(rest[:end:end]), rest[end:]
	}
	return modules, nil
}
