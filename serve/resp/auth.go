package resp

import (
	"crypto/sha256"
	"crypto/subtle"
)

// role is what a connection may do.
type role uint8

const (
	unknown role = iota // authenticate
	reading             // user default
	writing             // user admin: all commands
)

// Users are the passwords of the two users.
type Users struct {
	// Password is that of user default, who reads. "": no password is asked for.
	Password string
	// Admin is the password of user admin, who also changes rows. "": nobody is admin.
	Admin string
}

// users are Users as connections check them. They keep digests only.
type users struct {
	open, hasAdmin  bool
	password, admin [sha256.Size]byte
}

func newUsers(u Users) *users {
	return &users{open: u.Password == "", hasAdmin: u.Admin != "", password: sha256.Sum256([]byte(u.Password)), admin: sha256.Sum256([]byte(u.Admin))}
}

// first is the role of a new connection.
func (u *users) first() role {
	if u.open {
		return reading
	}
	return unknown
}

// login returns the role of a user, unknown if name and password are not one's. The time does not depend on how much of the password is right.
func (u *users) login(name string, password []byte) role {
	given := sha256.Sum256(password)
	switch {
	case name == "default" && (u.open || subtle.ConstantTimeCompare(given[:], u.password[:]) == 1):
		return reading
	case name == "admin" && u.hasAdmin && subtle.ConstantTimeCompare(given[:], u.admin[:]) == 1:
		return writing
	}
	return unknown
}
