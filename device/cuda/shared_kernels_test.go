//go:build cuda && linux

package cuda_test

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// copyWords copies words, a thread a word.
const copyWords = `.version 8.0
.target sm_80
.address_size 64
.visible .entry copyWords(.param .align 8 .b8 args[24]) {
	.reg .u64 to, from, at;
	.reg .u32 i, threads, block, words, x;
	.reg .pred behind;
	ld.param.u64 to, [args];
	ld.param.u64 from, [args+8];
	ld.param.u32 words, [args+16];
	mov.u32 i, %tid.x;
	mov.u32 threads, %ntid.x;
	mov.u32 block, %ctaid.x;
	mad.lo.u32 i, block, threads, i;
	setp.ge.u32 behind, i, words;
	@behind bra end;
	mul.wide.u32 at, i, 4;
	add.u64 to, to, at;
	add.u64 from, from, at;
	ld.global.u32 x, [from];
	st.global.u32 [to], x;
end:
	ret;
}
`

// gatherRows gathers rows of 256 bytes that lie apart, 16 threads a row.
const gatherRows = `.version 8.0
.target sm_80
.address_size 64
.visible .entry gatherRows(.param .align 8 .b8 args[24]) {
	.reg .u64 to, from, at;
	.reg .u32 i, threads, block, rows, row, part, x<4>;
	ld.param.u64 to, [args];
	ld.param.u64 from, [args+8];
	ld.param.u32 rows, [args+20];
	mov.u32 i, %tid.x;
	mov.u32 threads, %ntid.x;
	mov.u32 block, %ctaid.x;
	mad.lo.u32 i, block, threads, i;
	shr.u32 row, i, 4;
	mul.lo.u32 row, row, 2654435761;
	mul.hi.u32 row, row, rows;
	mul.wide.u32 at, row, 256;
	add.u64 from, from, at;
	and.b32 part, i, 15;
	mul.wide.u32 at, part, 16;
	add.u64 from, from, at;
	mul.wide.u32 at, i, 16;
	add.u64 to, to, at;
	ld.global.v4.u32 {x0, x1, x2, x3}, [from];
	st.global.v4.u32 [to], {x0, x1, x2, x3};
	ret;
}
`

type copyArgs struct {
	To, From    uint64
	Words, Rows uint32
}

var gatherKernel = cuda.NewFunction[copyArgs](&cuda.Module{Name: "gatherRows", PTX: func() ([]byte, error) { return []byte(gatherRows), nil }}, "gatherRows")

var copyKernel = cuda.NewFunction[copyArgs](&cuda.Module{Name: "copyWords", PTX: func() ([]byte, error) { return []byte(copyWords), nil }}, "copyWords")

// launchCopy copies whole words by a kernel.
func launchCopy(s device.Stream, to, from device.Buffer) error {
	words := int(to.Size() / 4)
	return copyKernel.Launch(s.(*cuda.Stream), (words+255)/256, 256, 0, &copyArgs{To: to.Addr(), From: from.Addr(), Words: uint32(words)})
}
