package device

import "errors"

// Upload copies host memory to a buffer and returns when the copy is done.
func Upload(d Device, dst Buffer, src []byte) error {
	return transferNow(d, func(s Stream) error { return s.Copy(dst, HostBuffer(src)) })
}

// Download copies a buffer to host memory and returns when the copy is done.
func Download(d Device, dst []byte, src Buffer) error {
	return transferNow(d, func(s Stream) error { return s.Copy(HostBuffer(dst), src) })
}

func transferNow(d Device, enqueue func(Stream) error) error {
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	return errors.Join(enqueue(s), s.Synchronize())
}
