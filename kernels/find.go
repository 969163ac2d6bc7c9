package kernels

import "github.com/tensorcache/tensorcache/device"

// Find is Lookup and then Decode. For short rows, and codecs for which it pays, it is one launch: a row is decoded by the tile that found it, and
// no list of hits is written. It suits batches with few misses. Misses lie at the back of the list, as Lookup leaves them, for Fetch.
type Find struct {
	// Lookup says what to look up and where the rows go. The front of its Found is scratch.
	Lookup Lookup
	// Slabs are the data store's, by slab ID.
	Slabs []device.Buffer
	Codec Codec

	decode Decode
}

// Name implements device.Kernel.
func (k *Find) Name() string { return "find" }

// RunHost implements device.Kernel.
func (k *Find) RunHost(w device.Workers) {
	k.Lookup.RunHost(w)
	k.hits().RunHost(w)
}

// hits returns the decoding of what Lookup finds.
func (k *Find) hits() *Decode {
	k.decode = Decode{
		Found: k.Lookup.Found, Counters: k.Lookup.Counters, Slabs: k.Slabs, Codec: k.Codec, Out: k.Lookup.Out, RowBytes: k.Lookup.RowBytes,
		Peers: k.Lookup.Peers,
	}
	return &k.decode
}
