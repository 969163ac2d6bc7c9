/*
 * Switching between stacks, x86-64 System V: callee-saved registers are pushed and the stack pointer changes hands. The
 * floating-point control words are the same on all stacks.
 */
	.text

/* void emulator_switch(void **from, void *to): keeps this stack in *from and goes on where to was kept. */
	.globl emulator_switch
	.hidden emulator_switch
	.type emulator_switch, @function
emulator_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size emulator_switch, . - emulator_switch

/*
 * int emulator_protect(void **keep, void (*work)(void *), void *argument): 0, or 1 where emulator_recover was given
 * what this kept in *keep, on whatever stack that was.
 */
	.globl emulator_protect
	.hidden emulator_protect
	.type emulator_protect, @function
emulator_protect:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	subq $8, %rsp
	movq %rsp, (%rdi)
	movq %rdx, %rdi
	call *%rsi
	xorl %eax, %eax
	jmp 1f
	.size emulator_protect, . - emulator_protect

/* void emulator_recover(void *kept) does not return. */
	.globl emulator_recover
	.hidden emulator_recover
	.type emulator_recover, @function
emulator_recover:
	movq %rdi, %rsp
	movl $1, %eax
1:	addq $8, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size emulator_recover, . - emulator_recover

/*
 * A lane's first instructions: emulator_switch has popped the kernel to rbx and, where its argument is a struct of up to 16
 * bytes, that to r12 and r13; a longer struct lies on the stack, above the address that the kernel returns to.
 */
	.globl emulator_begin
	.hidden emulator_begin
	.type emulator_begin, @function
emulator_begin:
	movq %r12, %rdi
	movq %r13, %rsi
	jmp *%rbx
	.size emulator_begin, . - emulator_begin

	.globl emulator_end
	.hidden emulator_end
	.type emulator_end, @function
emulator_end:
	call emulator_lane_ends
	ud2
	.size emulator_end, . - emulator_end

	.section .note.GNU-stack, "", @progbits
