package model_test

import (
	"fmt"
	"log"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages/model"
)

// A tensor in bytes that describe themselves.
func ExampleCompress() {
	zeros := model.Array{DType: dtype.Float32, Shape: []int64{1000, 1000}, Data: make([]byte, 4_000_000)}
	b, err := model.Compress(zeros, "rank")
	if err != nil {
		log.Fatal(err)
	}
	back, err := model.Decompress(b)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(back.Shape, back.DType, len(back.Data), len(b) < 10_000)
	// Output: [1000 1000] float32 4000000 true
}
