package zipnn

// deviceTable is a coded plane's table in device memory: an entry of 2 bytes for each value of the bits ahead.
const deviceTable = 2 << maxCode

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 { return int64(len(c.coded) * deviceTable) }
