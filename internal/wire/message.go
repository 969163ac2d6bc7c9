package wire

import (
	"encoding/json"
	"fmt"
	"os"
)

// Version is the newest version of the protocol, of the board and of all formats in shared memory, and Oldest the oldest that this program speaks, too. Owner and client use the newest
// that both speak: so owners and clients of one version apart can be replaced one after the other.
//
//	6  the greeting has one version
//	7  the greeting has an oldest and a newest one, and a refusal has both; memory may be files of a folder, which are not sealed
const (
	Version = 7
	Oldest  = 6
	// InFolder is the oldest version whose clients map memory that is files of a folder.
	InFolder = 7
)

// Message is a request, an answer or a notice.
type Message struct {
	ID      uint64          `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Error   *Error          `json:"error,omitempty"` // of an answer
	Body    json.RawMessage `json:"body,omitempty"`
	Payload []byte          `json:"-"`
	Files   []*os.File      `json:"-"`
}

// CloseFiles closes the descriptors that came with the message.
func (m *Message) CloseFiles() {
	for _, f := range m.Files {
		f.Close()
	}
	m.Files = nil
}

// Error is an error that crosses the socket. Kind says which of the sentinels of package cache it wraps, as attribute error.type of telemetry
// does; it is "" for others.
type Error struct {
	Kind string `json:"kind,omitempty"`
	Text string `json:"text"`
	// Done is the number of rows that an update has replaced before the error; nil if the error is not of one that has begun. Text is the cause.
	Done *int `json:"done,omitempty"`
}

func (e *Error) Error() string { return e.Text }

// Decode reads a body into v.
func Decode(body json.RawMessage, v any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("wire: body: %w", err)
	}
	return nil
}

// Methods of requests by a client.
const (
	Hello   = "hello"   // Greeting → Reception
	Attach  = "attach"  // AttachRequest → Welcome; memory follows in notices before the answer
	Ready   = "ready"   // Mapped → Readiness
	Status  = "status"  // → what serve.Status documents
	Stats   = "stats"   // → cache.Stats
	Explain = "explain" // RowsRequest → explanations, for people
	// Explanations is Explain for programs: []cache.Explanation.
	Explanations = "explanations"
	Cached       = "cached"     // RowsRequest → []bool
	Update       = "update"     // RowsRequest, with the rows' data as payload
	Invalidate   = "invalidate" // RowsRequest
	Absent       = "absent"     // RowsRequest, of at most AbsentBytes → AbsentRows
	Prefetch     = "prefetch"   // RowsRequest
	Refresh      = "refresh"
	SetBudget    = "budget"   // BudgetRequest
	Retarget     = "retarget" // RetargetRequest
	Merge        = "merge"    // MergeRequest
	Snapshot     = "snapshot" // SnapshotRequest
	Drain        = "drain"
	ChangeTable  = "table"  // TableRequest → TableAnswer
	Ping         = "ping"   // is answered at once, whatever else is under way
	Cancel       = "cancel" // a notice: CancelNotice
)

// Notices by the owner.
const (
	Memory = "memory" // MemoryNotice, with a descriptor for each region
	Views  = "views"  // Layout: the client maps what is new, reads by it, and writes its generation to the board
)

// Greeting is the body of the first request.
type Greeting struct {
	// Version is the oldest version that the client speaks: owners of version 6 look at it only. Newest is the newest one, 0 for clients of version 6.
	Version int `json:"version"`
	Newest  int `json:"newest,omitempty"`
	// Name is how the client is called in statistics and errors.
	Name string `json:"name"`
}

// Agree returns the version that an owner which speaks versions from oldest on speaks with a client. The error names the versions of both.
func (g *Greeting) Agree(oldest int) (int, error) {
	newest := max(g.Newest, g.Version)
	if agreed := min(newest, Version); agreed >= max(g.Version, oldest) {
		return agreed, nil
	}
	return 0, &VersionError{Owner: [2]int{oldest, Version}, Client: [2]int{g.Version, newest}}
}

// VersionError says that owner and client have no version in common. Both have an oldest and a newest one.
type VersionError struct{ Owner, Client [2]int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("wire: the owner speaks versions %d to %d of the protocol, and the client %d to %d: both must come from one release or from neighbouring ones",
		e.Owner[0], e.Owner[1], e.Client[0], e.Client[1])
}

// Reception answers a Greeting.
type Reception struct {
	Version int    `json:"version"` // that both use from now on
	Cache   string `json:"cache"` // the cache's name in telemetry
	Process int    `json:"process"`
}

// RowsRequest names rows of a table.
type RowsRequest struct {
	Table int     `json:"table"`
	Rows  []int64 `json:"rows"`
}

// AbsentBytes is the most bytes of rows that one answer has, but for a longer row.
const AbsentBytes = 4 << 20

// AbsentRows are rows that lie below the host tier, one after the other. Failed are the indices of those that are zeros because they could not be read,
// Reason says why of the first of them.
type AbsentRows struct {
	Data   []byte `json:"data"`
	Failed []int  `json:"failed,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// BudgetRequest is the new budget of a device in bytes.
type BudgetRequest struct {
	Bytes int64 `json:"bytes"`
}

// MergeRequest has the table whose updated rows are to be merged into its pages.
type MergeRequest struct{ Table int }

// RetargetRequest has the target that a resident table is to move to, in bytes; 0 leaves the choice to the owner.
type RetargetRequest struct {
	Table  int `json:"table"`
	Target int `json:"target"`
}

// SnapshotRequest has the path of the file to write, "" for the one that the owner is configured with.
type SnapshotRequest struct {
	Path string `json:"path,omitempty"`
}

// CancelNotice ends a request.
type CancelNotice struct {
	ID uint64 `json:"id"`
}

// TableRequest changes the tables of an owner.
type TableRequest struct {
	// Change is "add", "replace" or "drop".
	Change string `json:"change"`
	// Table is a name, or the description of a table as the flag --table of tensorcached has it, whose relative paths are of Folder.
	Table  string `json:"table"`
	Folder string `json:"folder,omitempty"`
	// InPlace replaces rows one after the other. Force goes on where processes that are attached lose the table, or memory is estimated not to suffice.
	InPlace bool `json:"in_place,omitempty"`
	Force   bool `json:"force,omitempty"`
}

// TableAnswer says what has been done.
type TableAnswer struct {
	Text string `json:"text"`
}
