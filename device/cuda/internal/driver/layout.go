//go:build cuda

package driver

import (
	"fmt"
	"reflect"
)

// param is one kernel parameter in a struct of them.
type param struct {
	name   string
	offset uint16
	bytes  uintptr
}

const maxParams = 64 // TENSORCACHE_MAX_PARAMS of shim.h

// layoutOf returns the parameters in a struct type.
func layoutOf[A any]() ([]param, error) {
	t := reflect.TypeFor[A]()
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("cuda: kernel arguments %v must be a struct", t)
	}
	if t.Size() > 1<<16 {
		return nil, fmt.Errorf("cuda: kernel arguments %v (%d B) must fit 65536 B", t, t.Size())
	}
	var params []param
	for f := range t.Fields() {
		if f.Name == "_" {
			continue
		}
		if !plain(f.Type) {
			return nil, fmt.Errorf("cuda: kernel argument %v.%s (%v) must be a number, or an array or struct of them",
				t, f.Name, f.Type)
		}
		params = append(params, param{f.Name, uint16(f.Offset), f.Type.Size()})
	}
	if len(params) > maxParams {
		return nil, fmt.Errorf("cuda: kernel arguments %v (%d fields) must be at most %d", t, len(params), maxParams)
	}
	return params, nil
}

// plain says whether values of the type mean the same to a kernel.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !plain(f.Type) {
				return false
			}
		}
		return true
	}
	return false
}

func layoutError[A any](kernel, format string, args ...any) error {
	return fmt.Errorf("cuda: kernel %s with arguments %v: "+format,
		append([]any{kernel, reflect.TypeFor[A]()}, args...)...)
}
