/*
 * Linked to every module. The compiler takes shared variables for thread-local ones, and calls __emutls_get_address with a variable's control for
 * its address. The control of the array `dynamic`, by which kernels declare dynamic shared memory, is here; emulatedVariable knows it by its number, -1.
 *
 * The function is hidden, so each module has its own. libgcc_s exports one of the same name, for real thread-local variables, which would be found first in
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
