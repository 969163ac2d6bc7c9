package wire

// Leave is the request by which a client says that none of its threads reads the memory of an attachment any more: LeaveRequest.
const Leave = "leave"

// FreeCaptures is the request by which a client gives back places of captured batches none of whose replays runs: FreeCapturesRequest. When it is answered, their
// counts are zero.
const FreeCaptures = "free_captures"

// AttachRequest asks for the cache's memory.
type AttachRequest struct {
	// Lanes is the most batches that the client wants to run at a time on one device. With Fewer, the owner may allow fewer; else it refuses the client.
	Lanes int  `json:"lanes"`
	Fewer bool `json:"fewer,omitempty"`
	// Scratch is the most memory of a device, in bytes, that the client will allocate there; 0: what the owner allows. The owner refuses more than that.
	Scratch int64 `json:"scratch,omitempty"`
	// Table is one of the tables that the client wants. An owner that has several caches lets the client in to the one that holds it; without, to the first.
	Table string `json:"table,omitempty"`
}

// Welcome answers an AttachRequest. Memory is named by the IDs of regions, which the owner has sent before; 0 is none.
type Welcome struct {
	Client  uint64   `json:"client"` // number of the attachment
	Tables  []Table  `json:"tables"`
	Devices []Device `json:"devices"`
	Lanes   int      `json:"lanes"` // of each device on the board
	// Captures is the number of each device's places for captured batches on the board.
	Captures int `json:"captures"`
	// Scratch is the most memory of a device, in bytes, that the client may allocate there; 0: no limit.
	Scratch int64   `json:"scratch,omitempty"`
	Board   uint64  `json:"board"`
	Sheet   uint64  `json:"sheet"`  // one 64-bit word a table: its number of rows
	Codecs  uint64  `json:"codecs"` // metadata of the tables' codecs, back to back
	Sampled Sampled `json:"sampled"`
	Rings   []Ring  `json:"rings"` // one a device, none if no accesses are sampled
	Views   Layout  `json:"views"`
}

// Device says which device of the machine one of the owner's is.
type Device struct {
	Kind    string `json:"kind"` // as device.Info has it
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
}

// Table is what does not change of a table.
type Table struct {
	Name     string `json:"name"`
	DType    string `json:"dtype"`
	RowBytes int    `json:"row_bytes"`
	Capacity int64  `json:"capacity"`
	Mode     int    `json:"mode"`            // transfer.Mode
	Codec    string `json:"codec,omitempty"` // "": all rows are raw
	// Partial says that the host tier may hold a part of the rows only: the owner reads the others.
	Partial bool `json:"partial,omitempty"`
	// Resident says that all rows lie in device memory: Layout.Residents.
	Resident bool `json:"resident,omitempty"`
	// MetaFrom and MetaBytes say where the codec's metadata are in the region Welcome.Codecs.
	MetaFrom  int64 `json:"meta_from,omitempty"`
	MetaBytes int64 `json:"meta_bytes,omitempty"`
}

// Sampled says which accesses batches sample.
type Sampled struct {
	Seed     uint64  `json:"seed"`
	Accesses float64 `json:"accesses"`
	Misses   float64 `json:"misses"`
	Keys     float64 `json:"keys"`
}

// Ring is the memory of a device's sample ring.
type Ring struct {
	Records uint64 `json:"records"`
	Head    uint64 `json:"head"`
}

// Region is memory that one descriptor names.
type Region struct {
	ID       uint64 `json:"id"`
	Bytes    int64  `json:"bytes"`
	Device   int    `json:"device"` // whose it is
	Host     bool   `json:"host"`   // host memory, not device memory
	Writable bool   `json:"writable"`
	What     string `json:"what"`
}

// MemoryNotice describes the regions whose descriptors come with it, in the same order.
type MemoryNotice struct {
	Regions []Region `json:"regions"`
}

// Layout is what batches read by, complete. A client that has mapped it writes its generation to the board.
type Layout struct {
	Generation uint64 `json:"generation"`
	// Paused says that no batch may begin until a later layout: rows of a device that has failed are being withdrawn.
	Paused  bool         `json:"paused,omitempty"`
	Devices []DeviceView `json:"devices"`
	// Residents are the resident tables, by table: null for others.
	Residents []*Resident `json:"residents,omitempty"`
}

// Resident is where the rows of a resident table lie: docs/format/buddy.md. Lists are by device.
type Resident struct {
	Slots  []uint64 `json:"slots"`
	Words  []uint64 `json:"words"`
	Ranges []Range  `json:"ranges"`
	// Only is the number of the range that all rows are in, or -1: their words say in which. Changes counts how often it was set.
	Only    int    `json:"only"`
	Changes uint64 `json:"changes"`
}

// Range is kernels.Range.
type Range struct {
	Number   int      `json:"number"`
	Target   int      `json:"target"`
	Slot     int64    `json:"slot"`
	Overflow int64    `json:"overflow"`
	Buddy    []uint64 `json:"buddy"`
}

// DeviceView is what the batches of one device read by.
type DeviceView struct {
	// Lost is the error with which the device has failed for good, "" if it works. When its rows have been withdrawn, its memory is not in the layout any more.
	Lost    string      `json:"lost,omitempty"`
	Map     uint64      `json:"map"`
	Buckets uint32      `json:"buckets"`
	Slabs   []uint64    `json:"slabs"` // by slab ID
	Peers   uint8       `json:"peers"`
	Tables  []TableView `json:"tables"`
}

// TableView is what the batches of a device read of a table.
type TableView struct {
	// Mem is the host tier; Stride, Ahead and Common are those of kernels.HostRows.
	Mem    uint64 `json:"mem"`
	Stride int64  `json:"stride,omitempty"`
	Ahead  int    `json:"ahead,omitempty"`
	Common int    `json:"common,omitempty"`
	// The rest is memory of the device.
	Compressed uint64 `json:"compressed,omitempty"`
	Index      uint64 `json:"index,omitempty"`
	Rejected   uint64 `json:"rejected,omitempty"`
	Oversize   uint64 `json:"oversize,omitempty"`
}

// Mapped is the body of the request Ready.
type Mapped struct {
	Client uint64 `json:"client"`
}

// Readiness answers a Mapped. If Live is false, memory has changed meanwhile: the client waits for a notice and asks again.
type Readiness struct {
	Live bool `json:"live"`
}

// LeaveRequest names an attachment.
type LeaveRequest struct {
	Client uint64 `json:"client"`
}

// FreeCapturesRequest names Count places of a device from number From on.
type FreeCapturesRequest struct {
	Device int `json:"device"`
	From   int `json:"from"`
	Count  int `json:"count"`
}
