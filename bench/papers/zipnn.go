package papers

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/model"
)

// zipnn: Hershcovitch et al., ZipNN: Lossless Compression for AI Models, arXiv 2411.05239.
func (r *run) zipnn(context.Context) error {
	const paper = "zipnn"
	m := newNetwork(r.o.Seed)
	r.o.Progress("training a small network, for checkpoints ten steps apart")
	full := m.train(false)
	half := m.train(true)
	generated := "weights of N(0, σ), σ by layer, generated in shape of a model's"
	plain := normalWeights(r.o.Seed, 4)
	for _, c := range []struct {
		where, what string
		claimed     float64
		of          dtype.Type
		data        []byte
		about       string
	}{
		{"abstract, Table II", "saving on bfloat16 models", 33, dtype.BFloat16, upper(plain), generated},
		{"abstract, Table II", "saving on float32 models", 17, dtype.Float32, plain, generated},
		{"abstract, Table II", "saving on models whose float32 values are rounded (\"clean\")", 50, dtype.Float32, rounded(plain), generated + ", rounded to bfloat16"},
		{"deltas of checkpoints", "saving on float32 checkpoints, 10 steps apart (40 to 42 %)", 40, dtype.Float32, xor(full[0], full[1]), trained},
		{"deltas of checkpoints", "saving on bfloat16 checkpoints, 10 steps apart (80 to 85 %)", 80, dtype.BFloat16, xor(half[0], half[1]), trained},
	} {
		r.o.Progress(c.what)
		ours, err := packedBytes(c.of, c.data)
		if err != nil {
			return err
		}
		theirs, err := zipnnBytes(c.data, c.of)
		if err != nil {
			return err
		}
		saved, method := saving(ours, c.data), saving(theirs, c.data)
		// On data of our own the paper's method, not its figure, is what ours is held against.
		r.claims = append(r.claims, Claim{
			Paper: paper, Where: c.where, What: c.what, Claimed: percent(c.claimed), Measured: percent(saved), Verdict: points(method, saved),
			Data: fmt.Sprintf("%s; ZipNN's method saves %s of it", c.about, percent(method)), Command: "cachebench pack",
		})
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	half16 := upper(plain)
	ours, err := packedBytes(dtype.BFloat16, half16)
	if err != nil {
		return err
	}
	theirs, err := zipnnBytes(half16, dtype.BFloat16)
	if err != nil {
		return err
	}
	vanilla := float64(len(e.EncodeAll(half16, nil)))
	smaller, method := 100*(1-float64(ours)/vanilla), 100*(1-float64(theirs)/vanilla)
	r.add(paper, "abstract", "bytes of bfloat16 models, less than by zstd alone", percent(17), percent(smaller), points(method, smaller), generated+"; by ZipNN's method "+percent(method))
	encode, decode, err := speed(half16, dtype.BFloat16)
	if err != nil {
		return err
	}
	r.add(paper, "README, results", "compression of bfloat16, one core, GB/s", "1.12", fmt.Sprintf("%.2f", encode), ratios(1.12, encode), generated+"; codec rank, any row by itself")
	r.add(paper, "README, results", "decompression of bfloat16, one core, GB/s", "1.66", fmt.Sprintf("%.2f", decode), ratios(1.66, decode), generated+"; codec rank, any row by itself")
	r.gpu(paper, "abstract, Figure 9", "decompression with all workers, GB/s", "80", "go -C lab run . bench --cases hit-codecs --codecs zipnn,rank")
	r.gpu(paper, "Figures 8 and 9", "a model of 16 GB from the drive to the GPU, beside the raw file by the same reader", "1.5 × (its size)", "")
	return nil
}

const trained = "checkpoints of a small network that is trained for this, with AdamW at 3e-5"

func saving(stored int64, data []byte) float64 { return 100 * (1 - float64(stored)/float64(len(data))) }

// packedBytes returns the bytes of elements as pack stores them.
func packedBytes(of dtype.Type, data []byte) (int64, error) {
	b, err := model.Compress(model.Array{DType: of, Shape: []int64{int64(len(data) / of.Size())}, Data: data}, pages.Smallest)
	return int64(len(b)), err
}

// zipnnBytes returns the bytes of elements by ZipNN's method: bits reordered to exponent, sign, mantissa; bytes by their place in the element; chunks of 256 KiB of elements, of which each
// plane is stored by a Huffman code of its own, by zstd, or raw, whichever is shortest.
func zipnnBytes(data []byte, of dtype.Type) (int64, error) {
	const chunk, planeMost = 256 << 10, huff0.BlockSizeMax
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return 0, err
	}
	size, total := of.Size(), int64(0)
	for part := range slices.Chunk(data, chunk) {
		n := len(part) / size
		for plane := range size {
			bytes := make([]byte, n)
			for i := range bytes {
				x := part[i*size:][:size]
				switch top := x[size-1]; {
				case plane == size-1: // exponent
					bytes[i] = top<<1 | x[size-2]>>7
				case plane == size-2: // sign, and the first bits of the mantissa
					bytes[i] = top&0x80 | x[size-2]&0x7f
				default:
					bytes[i] = x[plane]
				}
			}
			coded := int64(0)
			for some := range slices.Chunk(bytes, planeMost) {
				if h, _, err := huff0.Compress4X(some, &huff0.Scratch{Reuse: huff0.ReusePolicyNone}); err == nil {
					coded += int64(len(h))
				} else { // a Huffman code does not make it shorter
					coded += int64(len(some))
				}
			}
			total += min(int64(n), coded, int64(len(e.EncodeAll(bytes, nil))))
		}
	}
	return total, nil
}

// speed returns the GB/s at which one core encodes and decodes rows of 8 KiB by codec rank, the best of three.
func speed(data []byte, of dtype.Type) (encode, decode float64, err error) {
	const row = 8 << 10
	data = data[:min(len(data), 4<<20)/row*row]
	c, err := registry.Train("rank", data, row, of)
	if err != nil {
		return 0, 0, err
	}
	dst := make([]byte, c.EncodeBound())
	back := make([]byte, row)
	for range 3 {
		var rows [][]byte
		start := time.Now()
		for r := range slices.Chunk(data, row) {
			n, err := c.Encode(dst, r)
			if err != nil {
				return 0, 0, err
			}
			rows = append(rows, append([]byte(nil), dst[:n]...))
		}
		encode = max(encode, float64(len(data))/time.Since(start).Seconds()/1e9)
		start = time.Now()
		for _, b := range rows {
			if _, err := c.Decode(back, b); err != nil {
				return 0, 0, err
			}
		}
		decode = max(decode, float64(len(data))/time.Since(start).Seconds()/1e9)
	}
	return encode, decode, nil
}

// normalWeights returns float32 of layers, each of N(0, σ) with a σ of its own, as initialisation and training leave them.
func normalWeights(seed uint64, layers int) []byte {
	r := rand.New(rand.NewPCG(seed, 0x7765_6967))
	var b []byte
	for range layers {
		sigma := 0.02 * math.Exp(0.5*r.NormFloat64())
		for range 300_000 {
			b = appendFloat(b, float32(sigma*r.NormFloat64()))
		}
	}
	return b
}
