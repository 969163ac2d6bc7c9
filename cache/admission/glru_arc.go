package admission

import "github.com/hashicorp/golang-lru/arc/v2"

var _ = register(Spec{Name: "glru-arc", Online: true, New: simple(NewARC)})

// NewARC returns the policy that ranks the content of golang-lru's ARC, with one entry for each row of mean slot bytes
// that fits: rows accessed again, then rows accessed once, the latest first. This differs from the ARC of the paper. After
// Resize all rows count as accessed once.
func NewARC() Policy {
	return &recency{name: "glru-arc", make: newARC}
}

func newARC(rows int) (keeper, error) {
	c, err := arc.NewARC[uint64, struct{}](rows)
	return adaptive{c}, err
}

type adaptive struct {
	*arc.ARCCache[uint64, struct{}]
}

func (k adaptive) resized(rows int) (keeper, error) {
	next, err := newARC(rows)
	if err != nil {
		return nil, err
	}
	for _, key := range k.Keys() {
		next.Add(key, struct{}{})
	}
	return next, nil
}
