package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"slices"
)

// Digest is the SHA-256 of a password.
type Digest = [sha256.Size]byte

// User is one that Users name.
type User struct {
	Name string
	// Passwords are those that it logs in with, any of them. Several let a password be replaced while clients still use the one before.
	Passwords []Digest
	// Read and Write are the names of the tables whose rows it may read, and change; "*" is every table.
	Read, Write []string
	// Admin also kills other users' connections, and sees their commands.
	Admin bool
}

// Users are who may log in. Besides those of Named there are default and admin.
type Users struct {
	// Password is that of user default, who reads all tables. "": no password is asked for, and connections begin as default.
	Password string
	// Admin is the password of user admin, who has all rights. "": there is no admin.
	Admin string
	// Named are further users. One that is called default or admin takes the other's place, and its password here must be "".
	Named []User
}

// user is a User as connections check it.
type user struct {
	User
	open bool // no password is asked for
}

// users are Users by name.
type users map[string]*user

func newUsers(u Users) *users {
	all := users{}
	first := &user{User: User{Name: "default", Read: []string{"*"}}, open: u.Password == ""}
	if !first.open {
		first.Passwords = []Digest{sha256.Sum256([]byte(u.Password))}
	}
	all["default"] = first
	if u.Admin != "" {
		all["admin"] = &user{User: User{Name: "admin", Passwords: []Digest{sha256.Sum256([]byte(u.Admin))}, Read: []string{"*"}, Write: []string{"*"}, Admin: true}}
	}
	for _, named := range u.Named {
		all[named.Name] = &user{User: named}
	}
	return &all
}

// first is the user of a new connection, nil if it must log in.
func (u *users) first() *user {
	if first := (*u)["default"]; first.open {
		return first
	}
	return nil
}

// login returns a user, nil if name and password are not one's. The time does not depend on how much of the password is right.
func (u *users) login(name string, password []byte) *user {
	given := sha256.Sum256(password)
	of, ok := (*u)[name]
	if !ok {
		return nil
	}
	right := 0
	for i := range of.Passwords {
		right |= subtle.ConstantTimeCompare(given[:], of.Passwords[i][:])
	}
	if of.open || right == 1 {
		return of
	}
	return nil
}

// writers reports whether anybody may change rows of a table.
func (u *users) writers(table string) bool {
	for _, of := range *u {
		if of.may(writeRows, table) {
			return true
		}
	}
	return false
}

// may reports whether a user may read a table, or change it.
func (u *user) may(what right, table string) bool {
	tables := u.Read
	if what == writeRows {
		tables = u.Write
	}
	return slices.Contains(tables, table) || slices.Contains(tables, "*")
}

// Open reports whether connections begin as default without a password.
func (u Users) Open() bool { return newUsers(u).first() != nil }

// Login reports whether name and password are a user's, for other doors of the same service. It does not delay those that are wrong.
func (u Users) Login(name string, password []byte) bool {
	of := newUsers(u).login(name, password)
	return of != nil && !of.open
}

// names returns the users' names, sorted.
func (u *users) names() []string { return slices.Sorted(maps.Keys(*u)) }

// name is the name for people and the log.
func (u *user) name() string {
	if u == nil {
		return ""
	}
	return u.Name
}

// UserName reports whether a name can be a user's: 1 to 256 printable characters of ASCII, no spaces.
func UserName(name string) bool { return name != "" && printable([]byte(name)) }
