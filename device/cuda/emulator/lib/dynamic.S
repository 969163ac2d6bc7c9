/*
 * Linked to every module: the control of the array that kernels declare as their dynamic shared memory. Its number tells
 * __emutls_get_address.
 */
	.data
	.balign 8
	.globl __emutls_v.dynamic
	.hidden __emutls_v.dynamic
__emutls_v.dynamic:
	.quad 0, 16, -1, 0
	.section .note.GNU-stack, "", @progbits
