package demand

import (
	golanglru "github.com/hashicorp/golang-lru/v2"

	golangarc "github.com/hashicorp/golang-lru/arc/v2"
)

var _ = register(Policy{Name: "glru-lru", UnitOnly: true, New: func(c Config) cache {
	l, err := golanglru.New[uint32, struct{}](places(c))
	return library{lruLibrary{l}, err}.cache()
}})
var _ = register(Policy{Name: "glru-2q", UnitOnly: true, New: func(c Config) cache {
	l, err := golanglru.New2Q[uint32, struct{}](places(c))
	return library{l, err}.cache()
}})
var _ = register(Policy{Name: "glru-arc", UnitOnly: true, New: func(c Config) cache {
	l, err := golangarc.NewARC[uint32, struct{}](places(c))
	return library{l, err}.cache()
}})

// places is the capacity, as far as it matters.
func places(c Config) int { return int(min(c.Capacity, int64(c.rows)+1)) }

// library is a cache of golang-lru. Its 2Q and ARC are not the papers'.
type library struct {
	held interface {
		Get(uint32) (struct{}, bool)
		Add(uint32, struct{})
		Remove(uint32)
	}
	err error
}

// cache returns nothing at all where the library refuses the size, as 2Q does below 2.
func (l library) cache() cache {
	if l.err != nil {
		return nothing{}
	}
	return l
}

func (l library) access(row uint32) bool {
	_, hit := l.held.Get(row)
	if !hit {
		l.held.Add(row, struct{}{})
	}
	return hit
}

func (l library) remove(row uint32) { l.held.Remove(row) }

type lruLibrary struct {
	*golanglru.Cache[uint32, struct{}]
}

func (l lruLibrary) Add(row uint32, v struct{}) { l.Cache.Add(row, v) }
func (l lruLibrary) Remove(row uint32)          { l.Cache.Remove(row) }

// nothing holds no rows.
type nothing struct{}

func (nothing) access(uint32) bool { return false }
func (nothing) remove(uint32)      {}
