package sleek

// Name is the name of the lossless codec.
const Name = "sleek"
