package main

// #include "bridge.h"
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// bytesOf returns C's memory as bytes.
func bytesOf[T any](at *T, n uintptr) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(at)), n) }

// sizeOf returns the size that a structure begins with. must says what it must be.
func sizeOf[T any](of *T, name, must string) (uintptr, error) {
	size := binary.NativeEndian.Uint64(bytesOf(of, 8))
	if size < 8 || size > 1<<16 {
		return 0, argument("%s.size (%d) must be %s", name, size, must)
	}
	return uintptr(size), nil
}

// take returns a copy of a structure of C, of any version, as one of this version. Fields that the caller does not have are 0, which is their default. Fields that
// this version does not have must be 0. All fields of NULL are 0.
func take[T any](from *T, name string) (to T, err error) {
	known := unsafe.Sizeof(to)
	if from == nil {
		return to, nil
	}
	size, err := sizeOf(from, name, "set by "+name+"_default")
	if err != nil {
		return to, err
	}
	given := bytesOf(from, size)
	for i := known; i < size; i++ {
		if given[i] != 0 {
			return to, argument("%s has a field at byte %d that this library (version "+C.TC_VERSION+", %d bytes) does not know", name, i, known)
		}
	}
	copy(bytesOf(&to, known), given)
	return to, nil
}

// takeAll returns copies of an array of such structures, whose sizes must be those of the first one. what is what they are, with one for one of them.
func takeAll[T any](first *T, count C.int32_t, least, most int, name, what, one string) ([]T, error) {
	switch {
	case int(count) < least || int(count) > most:
		return nil, argument("count (%d) of %s must be %d to %d", count, what, least, most)
	case count == 0:
		return nil, nil
	case first == nil:
		return nil, argument("%s (NULL) must not be NULL", what)
	}
	distance, err := sizeOf(first, name, "set by "+name+"_default")
	if err != nil {
		return nil, err
	}
	all := make([]T, count)
	for i := range all {
		at := (*T)(unsafe.Add(unsafe.Pointer(first), uintptr(i)*distance))
		if size := binary.NativeEndian.Uint64(bytesOf(at, 8)); size != uint64(distance) {
			return nil, argument("%s.size (%d) of %s %d must be that of %s 0 (%d)", name, size, one, i, one, distance)
		}
		if all[i], err = take(at, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// give copies a structure of this version to the caller's, of any version, whose size stays.
func give[T any](to *T, from *T, name string) error {
	size, err := sizeOf(to, name, "the size of the structure")
	if err != nil {
		return err
	}
	given := bytesOf(to, size)[8:]
	clear(given[copy(given, bytesOf(from, unsafe.Sizeof(*from))[8:]):])
	return nil
}
