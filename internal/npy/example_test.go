package npy_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/npy"
)

func ExampleReader_Read() {
	dir, err := os.MkdirTemp("", "npy")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var array bytes.Buffer
	if err := npy.Write(&array, dtype.Uint8, []int{3, 2}, []byte{1, 2, 3, 4, 5, 6}); err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "features.npy")
	if err := os.WriteFile(path, array.Bytes(), 0o600); err != nil {
		log.Fatal(err)
	}

	r, err := npy.Open(path, 2, "features")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	fmt.Println(r.DType(), r.Shape(), r.Rows(), "rows of", r.RowBytes(), "bytes")
	buf := make([]byte, 2*r.RowBytes())
	for {
		rows, err := r.Read(buf)
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(buf[:rows*r.RowBytes()])
	}
	// Output:
	// uint8 [3 2] 3 rows of 2 bytes
	// [1 2 3 4]
	// [5 6]
}
