package resp

import (
	"slices"
	"time"
)

// Connection describes a connection, for people.
type Connection struct {
	Name        string  `json:"name"` // that the client has given itself, or else its library's
	User        string  `json:"user"` // "" before it has logged in
	From        string  `json:"from"`
	AgeSeconds  float64 `json:"age_s"`
	IdleSeconds float64 `json:"idle_s"`            // since its last command ended
	Command     string  `json:"command,omitempty"` // the last one
}

// Connections describes connections, the oldest first, at most so many.
func (s *Server) Connections(most int) []Connection {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	slices.SortFunc(conns, func(a, b *conn) int { return int(a.id - b.id) })
	all := []Connection{}
	for _, c := range conns[:min(len(conns), most)] {
		i := c.who.Load()
		one := Connection{Name: i.name, User: i.user, From: c.net.RemoteAddr().String(), AgeSeconds: time.Since(c.begun).Seconds(), IdleSeconds: max(0, time.Since(time.Unix(0, c.seen.Load())).Seconds())}
		if one.Name == "" {
			one.Name = i.lib
		}
		if cmd := c.last.Load(); cmd != nil {
			one.Command = cmd.full
		}
		all = append(all, one)
	}
	return all
}
