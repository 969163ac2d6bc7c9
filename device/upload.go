package device

import "errors"

// Upload copies host memory to a buffer and returns when the copy is done.
func Upload(d Device, dst Buffer, src []byte) error {
	return transferNow(d, func(s Stream) error { return s.Copy(dst, HostBuffer(src)) })
}

// AllocCopy returns device memory that holds a copy of b. what says in errors what the memory is for.
func AllocCopy(d Device, b []byte, what string) (Buffer, error) {
	to, err := d.Alloc(int64(len(b)), what)
	if err != nil {
		return Buffer{}, err
	}
	if err := Upload(d, to, b); err != nil {
		d.Free(to)
		return Buffer{}, err
	}
	return to, nil
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
