package kernels

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Order sorts the misses of a batch by the page of their rows' host addresses. Small random rows of a large table cost a GPU address
// translations, not bytes. The order within a page is not specified.
type Order struct {
	// Found holds the batch's misses at its back; Counters says how many.
	Found, Counters device.Buffer
	// Ordered has the size of Found and receives the misses at its front.
	Ordered device.Buffer
	Pages
	// Counted says that a Lookup with the same Pages has counted the misses on a GPU.
	Counted bool
}

// Pages are buckets of pages of a host tier. Misses are counted in them and sorted by them.
type Pages struct {
	// Buckets is scratch memory of OrderBytes, zeroed once.
	Buckets device.Buffer
	Tier    HostRows
}

// OrderBytes is the size of Order's scratch memory.
const OrderBytes = (2*abi.OrderBuckets + 32) * 4

// Name implements device.Kernel.
func (k *Order) Name() string { return "order" }

// shift is log2 of the bytes of a bucket: a page, or several where the table has more pages than there are buckets.
func (p *Pages) shift() int {
	shift := abi.OrderPageBits
	for p.Tier.Mem.Size()>>shift >= abi.OrderBuckets {
		shift++
	}
	return shift
}

// RunHost implements device.Kernel: a counting sort.
func (k *Order) RunHost(device.Workers) {
	f := FoundView(k.Found)
	misses := f[len(f)-int(CountersView(k.Counters).Misses):]
	ordered := FoundView(k.Ordered)[:len(misses)]
	if len(misses) < 2 {
		copy(ordered, misses)
		return
	}
	shift := k.shift()
	var starts [abi.OrderBuckets + 1]uint32
	for _, m := range misses {
		starts[k.Tier.offset(int64(m.Word))>>shift+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	for _, m := range misses {
		at := &starts[k.Tier.offset(int64(m.Word))>>shift]
		ordered[*at] = m
		*at++
	}
}
