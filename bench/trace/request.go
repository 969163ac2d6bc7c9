package trace

// Request is one access.
type Request struct {
	ID uint64
	// Size is in bytes, 0 where the format has none.
	Size int64
	// Next is the logical time of the next access to ID: Never if there is none, Unknown where the format does not say.
	Next int64
	// Time is in the format's unit: seconds in oraclegeneral and cachelib, milliseconds in mooncake, request numbers in
	// arc, in tct what its header says.
	Time int64
	Op   Op
	// Outcome says whether a captured access hit.
	Outcome Outcome
}

// Values of Request.Next that are no logical time.
const (
	Never   = -1
	Unknown = -2
)

// Op is what a request does.
type Op uint8

// Operations.
const (
	Get Op = iota
	Set
	Delete
	numOps
)

// String returns the operation's name.
func (o Op) String() string { return [...]string{"get", "set", "delete", "unknown"}[min(o, numOps)] }

// Outcome is what a lookup found.
type Outcome uint8

// Outcomes.
const (
	UnknownOutcome Outcome = iota
	Hit
	Miss
	numOutcomes
)

// Reader yields a trace's requests in order.
type Reader interface {
	// Read fills dst from its begin and returns how many requests it holds now: at least one, unless dst is empty or there is
	// an error, which is io.EOF at the end of the trace.
	Read(dst []Request) (n int, err error)
	Close() error
}
