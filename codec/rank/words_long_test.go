//go:build long

package rank

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// TestLong_TrainedVectors logs what rank saves on vectors that are trained here, on the text of wikitext2_tokens.npy: of its words, and of its
// pieces of 100 words. Vectors of words differ in length by how frequent the word is; the columns of both have means of their own.
func TestLong_TrainedVectors(t *testing.T) {
	text := textOf(t)
	vocabulary := int(slices.Max(text)) + 1
	for _, c := range []struct {
		name        string
		vectors     []float32
		least       float64 // points that bfloat16 must save, of rows of 200 bytes
		leastFloats float64 // and float32, of 400
	}{
		{"words", trainVectors(text, vocabulary, 0, 3), 39.5, 20},
		{"pieces", trainVectors(text, vocabulary, 100, 12), 37.5, 18.5},
	} {
		floats := make([]byte, 0, 4*len(c.vectors))
		for _, x := range c.vectors {
			floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(x))
		}
		for _, of := range []struct {
			name         string
			table        []byte
			elementBytes int
			least        float64
		}{{"float32", floats, 4, c.leastFloats}, {"bfloat16", codectest.BFloat16(floats), 2, c.least}, {"float16", float16s(floats), 2, 0}} {
			if got := logSaving(t, c.name+", "+of.name, of.table, vectorColumns*of.elementBytes, of.elementBytes); got < of.least {
				t.Errorf("%s, %s: saving %.2f %%, want at least %.1f %%", c.name, of.name, got, of.least)
			}
		}
	}
}

// vectorColumns is the length of the vectors.
const vectorColumns = 100

// textOf returns the words of the text, as numbers.
func textOf(t *testing.T) []uint16 {
	file := codectest.File(t, "wikitext2_tokens.npy")
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

// trainVectors trains vectors on a text by skip-gram with five negative samples (Mikolov et al. 2013): of words, by the words up to five places
// away; or of pieces of the text of so many words, by the words in them (Le and Mikolov 2014, PV-DBOW).
func trainVectors(text []uint16, vocabulary, piece, epochs int) []float32 {
	r := rand.New(rand.NewPCG(1, 3))
	rows := vocabulary
	if piece > 0 {
		rows = (len(text) + piece - 1) / piece
	}
	vectors, outputs := make([]float32, rows*vectorColumns), make([]float32, vocabulary*vectorColumns)
	for i := range vectors {
		vectors[i] = (r.Float32() - 0.5) / vectorColumns
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
	var step [vectorColumns]float32
	train := func(vector []float32, word uint16, rate float32) {
		clear(step[:])
		for negative := range 6 {
			target, of := word, float32(1)
			if negative > 0 {
				if target, of = drawn[r.IntN(len(drawn))], 0; target == word {
					continue
				}
			}
			output := outputs[int(target)*vectorColumns:][:vectorColumns]
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
			train(vectors[i/piece*vectorColumns:][:vectorColumns], text[i], rate)
			continue
		}
		window := 1 + r.IntN(5)
		for at := max(0, i-window); at <= min(len(text)-1, i+window); at++ {
			if at != i {
				train(vectors[int(text[at])*vectorColumns:][:vectorColumns], text[i], rate)
			}
		}
	}
	return vectors
}
