package kernels

import "github.com/tensorcache/tensorcache/device"

// Find is Lookup, then Decode, then Fetch: a whole batch that is expected to have few misses, which it reads after the hits, in any order. For
// short rows, and codecs for which it pays, it is one launch: the tile that finds a row decodes it, and no list of hits is written.
type Find struct {
	// Lookup says what to look up and where the rows go. Its Found is scratch.
	Lookup Lookup
	// Slabs are the data store's, by slab ID; Tier holds the rows that miss.
	Slabs []device.Buffer
	Codec Codec
	Tier  HostRows
	// End is how the batch ends. Its Kernels is 1.
	End Ending
	// Absent is as in Fetch.
	Absent *Absent

	decode Decode
	fetch  Fetch
}

// Name implements device.Kernel.
func (k *Find) Name() string { return "find" }

// RunHost implements device.Kernel.
func (k *Find) RunHost(w device.Workers) {
	k.Lookup.RunHost(w)
	k.hits().RunHost(w)
	k.misses().RunHost(w)
}

// hits returns the decoding of what Lookup finds.
func (k *Find) hits() *Decode {
	k.decode = Decode{
		Found: k.Lookup.Found, Counters: k.Lookup.Counters, Slabs: k.Slabs, Codec: k.Codec, Out: k.Lookup.Out, RowBytes: k.Lookup.RowBytes,
		Peers: k.Lookup.Peers,
	}
	return &k.decode
}

// misses returns the reading of what Lookup does not find.
func (k *Find) misses() *Fetch {
	k.fetch = Fetch{Misses: k.Lookup.Found, AtBack: true, Counters: k.Lookup.Counters, Tier: k.Tier, Codec: k.Codec, Out: k.Lookup.Out, End: k.End, Absent: k.Absent}
	return &k.fetch
}
