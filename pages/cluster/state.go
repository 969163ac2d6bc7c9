package cluster

import (
	"fmt"

	"github.com/tensorcache/tensorcache/pages"
)

// The states of a generation.
const (
	loading  = "loading"  // a loader writes its pages
	ready    = "ready"    // it was committed
	dropping = "dropping" // its pages are being deleted, unless a reader has a lease
)

// state is what the hash of generations has of one of them. As text: "STATE TOKEN PAGES CHUNKS CHUNKS CHUNKS".
type state struct {
	is     string
	token  string // of who loads or drops it
	pages  uint32 // no page of this number or above was written
	chunks [pages.PartCount]int
}

func (s state) String() string {
	return fmt.Sprintf("%s %s %d %d %d %d", s.is, s.token, s.pages, s.chunks[0], s.chunks[1], s.chunks[2])
}

func parseState(text string) (s state, err error) {
	if n, err := fmt.Sscanf(text, "%s %s %d %d %d %d", &s.is, &s.token, &s.pages, &s.chunks[0], &s.chunks[1], &s.chunks[2]); err != nil || n != 6 ||
		s.String() != text || s.is != loading && s.is != ready && s.is != dropping {
		return state{}, fmt.Errorf("cluster: state of a generation (%.80q) cannot be read: written by a newer version?", text)
	}
	return s, nil
}
