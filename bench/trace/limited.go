package trace

import "github.com/tensorcache/tensorcache/internal/memlimit"

// Limited returns r with an error once what its caller keeps of the requests, so many bytes each, would need more memory than this
// process may take. It looks each time that the number of requests has doubled, as slices and maps grow by then. The error names the
// setting and the value that say which trace this is.
func Limited(r Reader, setting string, value any, bytes float64) Reader {
	return &limited{Reader: r, need: memlimit.Need{Setting: setting, Value: value}, bytes: bytes, next: 1 << 20}
}

type limited struct {
	Reader
	need        memlimit.Need
	bytes       float64
	total, next int64
}

// Read implements Reader.
func (l *limited) Read(dst []Request) (int, error) {
	n, err := l.Reader.Read(dst)
	if l.total += int64(n); l.total < l.next || err != nil {
		return n, err
	}
	l.next *= 2
	l.need.Bytes = l.bytes * float64(l.total)
	return n, memlimit.Check(l.need)
}
