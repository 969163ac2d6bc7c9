/*
 * Linked to every module: where the compiler's calls for shared variables go, and the control of the array that kernels declare as their
 * dynamic shared memory. Its number tells emulatedVariable.
 *
 * The function is the module's own, hidden. libgcc_s exports one of the same name, for real thread-local variables, which would be found first in
 * programs that load libraries with RTLD_GLOBAL, such as Python with torch.
 */
	.text
	.globl __emutls_get_address
	.hidden __emutls_get_address
	.type __emutls_get_address, @function
__emutls_get_address:
	jmp emulatedVariable@PLT
	.size __emutls_get_address, . - __emutls_get_address

	.data
	.balign 8
	.globl __emutls_v.dynamic
	.hidden __emutls_v.dynamic
__emutls_v.dynamic:
	.quad 0, 16, -1, 0
	.section .note.GNU-stack, "", @progbits
