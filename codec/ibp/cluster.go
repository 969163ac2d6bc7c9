package ibp

import (
	"math/bits"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Clusters are found on at most so many rows and bytes of the sample, by so many rounds of k-means on bit distance, then so many
// in which rows go to the mask that stores them in the fewest bits.
const (
	clusterRows  = 2048
	clusterBytes = 2 << 20
	meansRounds  = 5
	// Fewer rows have no clusters worth their masks.
	leastClustered = 64
	// Clusters that would be of fewer rows of the sample are not tried.
	leastOfCluster = 32
	storingRounds  = 2
)

// clusterCounts are the numbers of masks that are tried. If the first does not save clusterGain of what one mask stores, metadata
// aside, no other will.
var clusterCounts = [...]int{8, 16, 4, 2}

const clusterGain = 0.01

// TrainClustered makes the clustered codec with the given chunk length whose masks and stored rows together take the fewest
// bytes of the sample: one mask where more do not pay for themselves on the sample alone, of which tables are a multiple.
//
// Unlike the paper's code, the masks of each cluster are those of the best threshold, or grown; rows move to the mask that suits
// them once there are masks; and the best of all rounds is kept, not the last.
func TrainClustered(sample []byte, rowBytes, chunk int) (*Clustered, error) {
	if err := rowcodec.CheckSample("ibp", sample, rowBytes); err != nil {
		return nil, err
	}
	rows := len(sample) / rowBytes
	one := func(part []byte) (*Clustered, error) {
		c, err := Train(part, rowBytes, chunk)
		if err != nil {
			return nil, err
		}
		return clusteredOf([]*Codec{c}), nil
	}
	// Rows evenly spread over the sample, and others between them, where there are so many, to judge masks by.
	n := max(1, min(rows, clusterRows, clusterBytes/rowBytes))
	if n < leastClustered {
		return one(sample)
	}
	spread := func(after int) []byte {
		part := make([]byte, 0, n*rowBytes)
		for i := range n {
			part = append(part, sample[(i*rows/n+after)*rowBytes:][:rowBytes]...)
		}
		return part
	}
	part := spread(0)
	judged := part
	if rows >= 2*n {
		judged = spread(rows / n / 2)
	}
	best, err := one(part)
	if err != nil {
		return nil, err
	}
	single := best.sampleBytes(judged)
	net := func(bytes int64, sets int) int64 {
		return bytes*int64(rows)/int64(n) + int64(coderBytes(chunk, rowBytes, sets))
	}
	fewest := net(single, 1)
	for i, k := range clusterCounts {
		if k > n || k*leastOfCluster > rows || int64(coderBytes(chunk, rowBytes, k)) > int64(len(sample)) {
			continue
		}
		c, bytes, err := trainClusters(part, judged, rowBytes, chunk, k)
		if err != nil {
			return nil, err
		}
		if i == 0 && (c == nil || float64(bytes) > (1-clusterGain)*float64(single)) {
			break
		}
		if c != nil && net(bytes, len(c.sets)) < fewest {
			best, fewest = c, net(bytes, len(c.sets))
		}
	}
	if len(best.sets) == 1 && n < rows {
		return one(sample)
	}
	return best, nil
}

// sampleBytes is what the sample's rows take, those that do not shrink counted raw.
func (c *Clustered) sampleBytes(sample []byte) (sum int64) {
	for ; len(sample) > 0; sample = sample[c.RowBytes():] {
		_, n := c.best(sample[:c.RowBytes()])
		sum += int64(min(n, c.RowBytes()))
	}
	return sum
}

// trainClusters makes a codec of k masks, or of fewer where clusters are left empty, and returns what the judged rows take; nil
// where only one is not empty.
func trainClusters(sample, judged []byte, rowBytes, chunk, k int) (best *Clustered, fewest int64, err error) {
	of := means(sample, rowBytes, k)
	for range storingRounds {
		c, err := masksOf(sample, rowBytes, chunk, of, k)
		if c == nil || err != nil {
			return best, fewest, err
		}
		if bytes := c.sampleBytes(judged); best == nil || bytes < fewest {
			best, fewest = c, bytes
		}
		moved := false
		for i := range of {
			set, _ := c.best(sample[i*rowBytes:][:rowBytes])
			moved = moved || of[i] != int(set.index)
			of[i] = int(set.index)
		}
		if !moved {
			break
		}
	}
	return best, fewest, nil
}

// masksOf trains a mask for each cluster, given each row's.
func masksOf(sample []byte, rowBytes, chunk int, of []int, k int) (*Clustered, error) {
	var sets []*Codec
	for i := range k {
		var rows []byte
		for r, c := range of {
			if c == i {
				rows = append(rows, sample[r*rowBytes:][:rowBytes]...)
			}
		}
		if len(rows) == 0 {
			continue
		}
		c, err := Train(rows, rowBytes, chunk)
		if err != nil {
			return nil, err
		}
		sets = append(sets, c)
	}
	if len(sets) < 2 {
		return nil, nil
	}
	return clusteredOf(sets), nil
}

// means puts rows into k clusters: rounds of k-means on bit distance, a cluster's centre being what most of its rows have at each
// bit. The first centres are rows far from each other: k-means++.
func means(sample []byte, rowBytes, k int) (of []int) {
	words, n := (rowBytes+7)/8, len(sample)/rowBytes
	rows := make([]uint64, n*words)
	for i := range rows {
		rows[i] = bitio.Group(sample[i/words*rowBytes:][:rowBytes], i%words)
	}
	row := func(r int) []uint64 { return rows[r*words:][:words] }

	random := rand.New(rand.NewPCG(uint64(rowBytes), uint64(k)))
	centres := make([][]uint64, 0, k)
	nearest := make([]int, n)
	of = make([]int, n)
	for r := range nearest {
		nearest[r] = 1 << 40
	}
	for next := random.IntN(n); len(centres) < k; {
		centres = append(centres, append([]uint64(nil), row(next)...))
		sum := 0
		for r := range nearest {
			nearest[r] = min(nearest[r], distance(row(r), centres[len(centres)-1]))
			sum += nearest[r]
		}
		if sum == 0 {
			break // no row differs from all centres
		}
		at := random.IntN(sum)
		for r, d := range nearest {
			if at -= d; at < 0 {
				next = r
				break
			}
		}
	}
	for round := range meansRounds {
		moved := false
		for r := range of {
			best, least := 0, 1<<40
			for i, c := range centres {
				if d := distance(row(r), c); d < least {
					best, least = i, d
				}
			}
			moved = moved || of[r] != best
			of[r] = best
		}
		if !moved && round > 0 {
			break
		}
		counts, ones := make([]int, len(centres)), make([]uint32, len(centres)*64*words)
		for r, i := range of {
			counts[i]++
			to := ones[i*64*words:][:64*words]
			for w, x := range row(r) {
				for ; x != 0; x &= x - 1 {
					to[64*w+bits.TrailingZeros64(x)]++
				}
			}
		}
		for i, c := range centres {
			for w := range c {
				c[w] = 0
				for b, count := range ones[(i*words+w)*64:][:64] {
					if 2*int(count) > counts[i] {
						c[w] |= 1 << b
					}
				}
			}
		}
	}
	return of
}

// distance is the number of bits in which two rows differ.
func distance(a, b []uint64) (n int) {
	for i, x := range a {
		n += bits.OnesCount64(x ^ b[i])
	}
	return n
}

// maxClusteredRow bounds the metadata, which are several times a row for each mask.
const maxClusteredRow = 32 << 10

// IBPC is the family of clustered codecs: its chunks are as long as the table's elements, or 4 bytes for those of one or two,
// whichever stores the sample in fewer bytes.
var IBPC = codec.Family{
	Name: "ibpc", GPURate: codec.RateOnGPU("ibpc"),
	Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
		if rowBytes > maxClusteredRow {
			return nil, codec.DTypeError("ibpc", "row (%d bytes) must be at most %d", rowBytes, maxClusteredRow)
		}
		chunks := map[int][]int{2: {2, 4}, 8: {8}}[of.Size()]
		if chunks == nil {
			chunks = []int{4}
		}
		var best *Clustered
		fewest := int64(0)
		for _, chunk := range chunks {
			c, err := TrainClustered(sample, rowBytes, chunk)
			if err != nil {
				return nil, err
			}
			if bytes := c.sampleBytes(sample) + c.MetadataBytes(); best == nil || bytes < fewest {
				best, fewest = c, bytes
			}
		}
		return best, nil
	},
	Unmarshal: func(metadata []byte) (codec.Codec, error) {
		return rowcodec.AsCodec(UnmarshalClustered(metadata))
	},
}
