package codectest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Float16 rounds float32 elements to the nearest float16, ties to even. Those below float16's normal numbers become zero, and none may be
// above them.
func Float16(table []byte) (half []byte) {
	for x := range slices.Chunk(table, 4) {
		u := binary.LittleEndian.Uint32(x)
		h := uint16(u >> 16 & 0x8000)
		if size := u & 0x7fffffff; size >= (127-14)<<23 {
			h |= uint16((size - (127-15)<<23 + 0xfff + size>>13&1) >> 13)
		}
		half = binary.LittleEndian.AppendUint16(half, h)
	}
	return half
}

// Vectors returns rows of float32 elements like those of vectors that are trained: columns of different scales and means, and rows of
// different lengths, exp(N(0,1)/2).
func Vectors(seed uint64, rows, columns int) (table []byte) {
	r := rand.New(rand.NewPCG(seed, 11))
	scale, mean := make([]float64, columns), make([]float64, columns)
	for j := range columns {
		scale[j], mean[j] = math.Exp(r.NormFloat64()/4), 1.2*r.NormFloat64()
	}
	for range rows {
		length := math.Exp(r.NormFloat64() / 2)
		for j := range columns {
			table = binary.LittleEndian.AppendUint32(table, math.Float32bits(float32(length*(r.NormFloat64()*scale[j]+mean[j]))))
		}
	}
	return table
}

// Text returns the words, as numbers, of wikitext2_tokens.npy, or skips the test if that does not exist.
func Text(t testing.TB) []uint16 {
	t.Helper()
	file := File(t, "wikitext2_tokens.npy")
	if !bytes.HasPrefix(file, []byte("\x93NUMPY\x01")) || !bytes.Contains(file[:128], []byte("'<u2'")) {
		t.Fatal("the text is not a version 1 .npy file of uint16")
	}
	body := file[10+int(binary.LittleEndian.Uint16(file[8:])):]
	text := make([]uint16, len(body)/2)
	for i := range text {
		text[i] = binary.LittleEndian.Uint16(body[2*i:])
	}
	return text
}

// VectorColumns is the number of columns of TrainVectors.
const VectorColumns = 100

// TrainVectors trains vectors of float32 elements on a text by skip-gram with five negative samples (Mikolov et al. 2013): with piece 0 of its
// words, by the words up to five places away, else of pieces of the text of so many words, by the words in them (Le and Mikolov 2014, PV-DBOW).
func TrainVectors(text []uint16, piece, epochs int) (table []byte) {
	vocabulary := int(slices.Max(text)) + 1
	r := rand.New(rand.NewPCG(1, 3))
	rows := vocabulary
	if piece > 0 {
		rows = (len(text) + piece - 1) / piece
	}
	vectors, outputs := make([]float32, rows*VectorColumns), make([]float32, vocabulary*VectorColumns)
	for i := range vectors {
		vectors[i] = (r.Float32() - 0.5) / VectorColumns
	}
	counts, drawn := make([]float64, vocabulary), []uint16{}
	for _, word := range text {
		counts[word]++
	}
	for word, n := range counts {
		for range int(math.Ceil(math.Pow(n, 0.75))) {
			drawn = append(drawn, uint16(word))
		}
	}
	var step [VectorColumns]float32
	train := func(vector []float32, word uint16, rate float32) {
		clear(step[:])
		for negative := range 6 {
			target, of := word, float32(1)
			if negative > 0 {
				if target, of = drawn[r.IntN(len(drawn))], 0; target == word {
					continue
				}
			}
			output := outputs[int(target)*VectorColumns:][:VectorColumns]
			var product float32
			for j, x := range vector {
				product += x * output[j]
			}
			by := rate * (of - float32(1/(1+math.Exp(-float64(product)))))
			for j, x := range vector {
				step[j] += by * output[j]
				output[j] += by * x
			}
		}
		for j := range vector {
			vector[j] += step[j]
		}
	}
	for done := range epochs * len(text) {
		i := done % len(text)
		rate := 0.025 * max(1e-4, 1-float32(done)/float32(epochs*len(text)))
		share := 1e-3 * float64(len(text)) / counts[text[i]]
		if math.Sqrt(share)+share < r.Float64() { // frequent words are trained less often
			continue
		}
		if piece > 0 {
			train(vectors[i/piece*VectorColumns:][:VectorColumns], text[i], rate)
			continue
		}
		window := 1 + r.IntN(5)
		for at := max(0, i-window); at <= min(len(text)-1, i+window); at++ {
			if at != i {
				train(vectors[int(text[at])*VectorColumns:][:VectorColumns], text[i], rate)
			}
		}
	}
	for _, x := range vectors {
		table = binary.LittleEndian.AppendUint32(table, math.Float32bits(x))
	}
	return table
}
