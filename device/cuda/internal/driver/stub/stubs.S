/*
 * The code of every entry, and the table of where each goes. Each architecture has a macro for one stub, and the
 * routine behind a stub's first call.
 *
 * A stub jumps to the address in its slot and touches no register that can hold an argument. At first that address is
 * the stub's own second half, which names its slot and goes on to the routine; that one saves all argument registers,
 * asks tensorcache_cuda_bind for the entry (which also stores it in the slot), restores them and jumps there. The
 * stack is as the caller left it, so arguments on it arrive too.
 *
 * Stubs are hidden: they serve the program or library they are linked into and never stand in for the driver's own
 * entries in the rest of the process.
 */
#if defined(__x86_64__)

.macro STUB name, index
	.text
	.p2align 4
	.globl \name
	.hidden \name
	.type \name, %function
\name:
	endbr64
	jmp *tensorcache_cuda_slots+8*\index(%rip)
.Lbind_\name:
	endbr64
	movl $\index, %r11d
	jmp .Lbind
	.size \name, .-\name
	.section .data.tensorcache_cuda_slots, "aw", %progbits
	.quad .Lbind_\name
.endm

	.text
	.p2align 4
	.type .Lbind, %function
.Lbind:
	.cfi_startproc
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq $192, %rsp
	movq %rdi, 0(%rsp)
	movq %rsi, 8(%rsp)
	movq %rdx, 16(%rsp)
	movq %rcx, 24(%rsp)
	movq %r8, 32(%rsp)
	movq %r9, 40(%rsp)
	movq %rax, 48(%rsp)
	movaps %xmm0, 64(%rsp)
	movaps %xmm1, 80(%rsp)
	movaps %xmm2, 96(%rsp)
	movaps %xmm3, 112(%rsp)
	movaps %xmm4, 128(%rsp)
	movaps %xmm5, 144(%rsp)
	movaps %xmm6, 160(%rsp)
	movaps %xmm7, 176(%rsp)
	movl %r11d, %edi
	call tensorcache_cuda_bind
	movq %rax, %r11
	movq 0(%rsp), %rdi
	movq 8(%rsp), %rsi
	movq 16(%rsp), %rdx
	movq 24(%rsp), %rcx
	movq 32(%rsp), %r8
	movq 40(%rsp), %r9
	movq 48(%rsp), %rax
	movaps 64(%rsp), %xmm0
	movaps 80(%rsp), %xmm1
	movaps 96(%rsp), %xmm2
	movaps 112(%rsp), %xmm3
	movaps 128(%rsp), %xmm4
	movaps 144(%rsp), %xmm5
	movaps 160(%rsp), %xmm6
	movaps 176(%rsp), %xmm7
	leave
	.cfi_def_cfa %rsp, 8
	jmp *%r11
	.cfi_endproc
	.size .Lbind, .-.Lbind

#elif defined(__aarch64__)

.macro STUB name, index
	.text
	.p2align 4
	.globl \name
	.hidden \name
	.type \name, %function
\name:
	hint #34 /* bti c */
	adrp x16, tensorcache_cuda_slots+8*\index
	add x16, x16, :lo12:tensorcache_cuda_slots+8*\index
	ldar x16, [x16]
	br x16
.Lbind_\name:
	hint #34
	mov w17, #\index
	b .Lbind
	.size \name, .-\name
	.section .data.tensorcache_cuda_slots, "aw", %progbits
	.quad .Lbind_\name
.endm

	.text
	.p2align 4
	.type .Lbind, %function
.Lbind:
	.cfi_startproc
	stp x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset 29, -224
	.cfi_offset 30, -216
	mov x29, sp
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	str x8, [sp, #80]
	stp q0, q1, [sp, #96]
	stp q2, q3, [sp, #128]
	stp q4, q5, [sp, #160]
	stp q6, q7, [sp, #192]
	mov w0, w17
	bl tensorcache_cuda_bind
	mov x16, x0
	ldp x0, x1, [sp, #16]
	ldp x2, x3, [sp, #32]
	ldp x4, x5, [sp, #48]
	ldp x6, x7, [sp, #64]
	ldr x8, [sp, #80]
	ldp q0, q1, [sp, #96]
	ldp q2, q3, [sp, #128]
	ldp q4, q5, [sp, #160]
	ldp q6, q7, [sp, #192]
	ldp x29, x30, [sp], #224
	.cfi_def_cfa_offset 0
	.cfi_restore 29
	.cfi_restore 30
	br x16
	.cfi_endproc
	.size .Lbind, .-.Lbind

#else
#error "the CUDA stub library has no code for this architecture"
#endif

/* The slots: 8 bytes each, in the order of symbols.h, written with release order by tensorcache_cuda_bind. */
	.section .data.tensorcache_cuda_slots, "aw", %progbits
	.p2align 3
	.globl tensorcache_cuda_slots
	.hidden tensorcache_cuda_slots
	.type tensorcache_cuda_slots, %object
tensorcache_cuda_slots:

/* A stub's index is the number of those before it, as in the enum of loader.c. */
#define SYMBOL(name) STUB name, __COUNTER__
#define RENAMED(name, older) SYMBOL(name)
#include "symbols.h"

.section .note.GNU-stack, "", %progbits
