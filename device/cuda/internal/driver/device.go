//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"gorgonia.org/cu"
)

// Device is one GPU.
type Device struct {
	ordinal int
	cu      cu.Device
}

// MaxSharedMemoryPerBlockOptin is an attribute that gorgonia.org/cu has no name for: the dynamic and static shared memory that a block can
// have, in bytes, after Function.SetAttribute.
const MaxSharedMemoryPerBlockOptin cu.DeviceAttribute = 97

// Attributes about memory, which gorgonia.org/cu has no names for.
const (
	concurrentManaged cu.DeviceAttribute = 89  // host and device may use managed memory at the same time
	virtualMemory     cu.DeviceAttribute = 102 // virtual memory management
	fileDescriptor    cu.DeviceAttribute = 103 // memory can be exported as a file descriptor
	readOnlyHost      cu.DeviceAttribute = 113 // host memory that is mapped to be read can be page-locked
)

// NumDevices returns the number of devices, 0 without a usable driver.
func NumDevices() int {
	n, err := cu.NumDevices()
	if err != nil {
		return 0
	}
	return n
}

// Devices returns all devices by ordinal. If no driver is usable, the error says why.
func Devices() ([]Device, error) {
	if err := LoadError(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, failedCU(err, "cuDeviceGetCount", "", -1)
	}
	devices := make([]Device, n)
	for i := range devices {
		if devices[i], err = OpenDevice(i); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// OpenDevice returns the device of an ordinal.
func OpenDevice(ordinal int) (Device, error) {
	if err := LoadError(); err != nil {
		return Device{}, err
	}
	d, err := cu.GetDevice(ordinal)
	return Device{ordinal: ordinal, cu: d}, failedCU(err, "cuDeviceGet", "", ordinal)
}

// Ordinal returns the device's number in this process.
func (d Device) Ordinal() int { return d.ordinal }

// Name returns the device's name, such as "NVIDIA H200".
func (d Device) Name() (string, error) {
	name, err := d.cu.Name()
	return name, failedCU(err, "cuDeviceGetName", "", d.ordinal)
}

// PCIBusID returns domain, bus, device and function, such as "0000:1B:00.0".
func (d Device) PCIBusID() (string, error) {
	var id [32]C.char
	if r := C.tensorcache_device_pci_bus_id(C.int(d.cu), &id[0], C.int(len(id))); r != 0 {
		return "", failed(r, "cuDeviceGetPCIBusId", "", d.ordinal)
	}
	return C.GoString(&id[0]), nil
}

// Attribute returns an attribute's value.
func (d Device) Attribute(a cu.DeviceAttribute) (int, error) {
	v, err := d.cu.Attribute(a)
	if err != nil {
		err = failedCU(err, "cuDeviceGetAttribute", fmt.Sprintf("%d", int(a)), d.ordinal)
	}
	return v, err
}

// ComputeCapability returns, for instance, 9 and 0.
func (d Device) ComputeCapability() (major, minor int, err error) {
	if major, err = d.Attribute(cu.ComputeCapabilityMajor); err == nil {
		minor, err = d.Attribute(cu.ComputeCapabilityMinor)
	}
	return major, minor, err
}

// CanAccessPeer says whether kernels on d can be given access to peer's memory.
func (d Device) CanAccessPeer(peer Device) (bool, error) {
	can, err := d.cu.CanAccessPeer(peer.cu)
	if err != nil {
		err = failedCU(err, "cuDeviceCanAccessPeer", fmt.Sprintf("to device %d", peer.ordinal), d.ordinal)
	}
	return can != 0, err
}

// Link returns an attribute of the link from d to peer.
func (d Device) Link(a cu.P2PAttribute, peer Device) (int, error) {
	v, err := d.cu.P2PAttribute(a, peer.cu)
	if err != nil {
		err = failedCU(err, "cuDeviceGetP2PAttribute", fmt.Sprintf("%d to device %d", a, peer.ordinal), d.ordinal)
	}
	return v, err
}
