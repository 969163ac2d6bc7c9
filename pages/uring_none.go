//go:build !linux || !cgo || !liburing

package pages

import "errors"

func newUring(int, int) (engine, error) {
	return nil, errors.New("pages: engine uring needs Linux and a build with the tag liburing")
}
