/* Generated from symbols.txt by go generate. DO NOT EDIT. */

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

	.section .data.tensorcache_cuda_slots, "aw", %progbits
	.p2align 3
	.globl tensorcache_cuda_slots
	.hidden tensorcache_cuda_slots
	.type tensorcache_cuda_slots, %object
tensorcache_cuda_slots:

STUB cuArray3DCreate_v2, 0
STUB cuArray3DGetDescriptor_v2, 1
STUB cuArrayCreate_v2, 2
STUB cuArrayDestroy, 3
STUB cuArrayGetDescriptor_v2, 4
STUB cuCtxCreate_v2, 5
STUB cuCtxDestroy_v2, 6
STUB cuCtxDisablePeerAccess, 7
STUB cuCtxEnablePeerAccess, 8
STUB cuCtxGetApiVersion, 9
STUB cuCtxGetCacheConfig, 10
STUB cuCtxGetCurrent, 11
STUB cuCtxGetDevice, 12
STUB cuCtxGetFlags, 13
STUB cuCtxGetLimit, 14
STUB cuCtxGetSharedMemConfig, 15
STUB cuCtxGetStreamPriorityRange, 16
STUB cuCtxPopCurrent_v2, 17
STUB cuCtxPushCurrent_v2, 18
STUB cuCtxResetPersistingL2Cache, 19
STUB cuCtxSetCacheConfig, 20
STUB cuCtxSetCurrent, 21
STUB cuCtxSetLimit, 22
STUB cuCtxSetSharedMemConfig, 23
STUB cuCtxSynchronize, 24
STUB cuDeviceCanAccessPeer, 25
STUB cuDeviceGet, 26
STUB cuDeviceGetAttribute, 27
STUB cuDeviceGetCount, 28
STUB cuDeviceGetName, 29
STUB cuDeviceGetP2PAttribute, 30
STUB cuDeviceGetPCIBusId, 31
STUB cuDeviceGetUuid, 32
STUB cuDevicePrimaryCtxGetState, 33
STUB cuDevicePrimaryCtxRelease_v2, 34
STUB cuDevicePrimaryCtxReset_v2, 35
STUB cuDevicePrimaryCtxRetain, 36
STUB cuDevicePrimaryCtxSetFlags_v2, 37
STUB cuDeviceTotalMem_v2, 38
STUB cuDriverGetVersion, 39
STUB cuEventCreate, 40
STUB cuEventDestroy_v2, 41
STUB cuEventElapsedTime, 42
STUB cuEventQuery, 43
STUB cuEventRecord, 44
STUB cuEventSynchronize, 45
STUB cuFuncGetAttribute, 46
STUB cuFuncGetParamInfo, 47
STUB cuFuncSetAttribute, 48
STUB cuFuncSetCacheConfig, 49
STUB cuFuncSetSharedMemConfig, 50
STUB cuGetErrorName, 51
STUB cuGetErrorString, 52
STUB cuGraphAddChildGraphNode, 53
STUB cuGraphAddDependencies, 54
STUB cuGraphAddEmptyNode, 55
STUB cuGraphAddHostNode, 56
STUB cuGraphAddKernelNode, 57
STUB cuGraphAddMemcpyNode, 58
STUB cuGraphAddMemsetNode, 59
STUB cuGraphClone, 60
STUB cuGraphCreate, 61
STUB cuGraphDestroy, 62
STUB cuGraphDestroyNode, 63
STUB cuGraphExecDestroy, 64
STUB cuGraphGetEdges, 65
STUB cuInit, 66
STUB cuLaunchKernel, 67
STUB cuLinkAddData_v2, 68
STUB cuLinkAddFile_v2, 69
STUB cuLinkComplete, 70
STUB cuLinkCreate_v2, 71
STUB cuLinkDestroy, 72
STUB cuMemAdvise, 73
STUB cuMemAllocManaged, 74
STUB cuMemAllocPitch_v2, 75
STUB cuMemAlloc_v2, 76
STUB cuMemFreeHost, 77
STUB cuMemFree_v2, 78
STUB cuMemGetAddressRange_v2, 79
STUB cuMemGetInfo_v2, 80
STUB cuMemHostAlloc, 81
STUB cuMemHostGetDevicePointer_v2, 82
STUB cuMemHostRegister_v2, 83
STUB cuMemHostUnregister, 84
STUB cuMemPrefetchAsync, 85
STUB cuMemcpy, 86
STUB cuMemcpy2DAsync_v2, 87
STUB cuMemcpy2DUnaligned_v2, 88
STUB cuMemcpy2D_v2, 89
STUB cuMemcpy3DAsync_v2, 90
STUB cuMemcpy3DPeer, 91
STUB cuMemcpy3DPeerAsync, 92
STUB cuMemcpy3D_v2, 93
STUB cuMemcpyAsync, 94
STUB cuMemcpyAtoA_v2, 95
STUB cuMemcpyAtoD_v2, 96
STUB cuMemcpyAtoHAsync_v2, 97
STUB cuMemcpyAtoH_v2, 98
STUB cuMemcpyDtoA_v2, 99
STUB cuMemcpyDtoDAsync_v2, 100
STUB cuMemcpyDtoD_v2, 101
STUB cuMemcpyDtoHAsync_v2, 102
STUB cuMemcpyDtoH_v2, 103
STUB cuMemcpyHtoAAsync_v2, 104
STUB cuMemcpyHtoA_v2, 105
STUB cuMemcpyHtoDAsync_v2, 106
STUB cuMemcpyHtoD_v2, 107
STUB cuMemcpyPeer, 108
STUB cuMemcpyPeerAsync, 109
STUB cuMemsetD16Async, 110
STUB cuMemsetD16_v2, 111
STUB cuMemsetD2D16Async, 112
STUB cuMemsetD2D16_v2, 113
STUB cuMemsetD2D32Async, 114
STUB cuMemsetD2D32_v2, 115
STUB cuMemsetD2D8Async, 116
STUB cuMemsetD2D8_v2, 117
STUB cuMemsetD32Async, 118
STUB cuMemsetD32_v2, 119
STUB cuMemsetD8Async, 120
STUB cuMemsetD8_v2, 121
STUB cuModuleGetFunction, 122
STUB cuModuleGetGlobal_v2, 123
STUB cuModuleGetSurfRef, 124
STUB cuModuleGetTexRef, 125
STUB cuModuleLoad, 126
STUB cuModuleLoadData, 127
STUB cuModuleLoadDataEx, 128
STUB cuModuleLoadFatBinary, 129
STUB cuModuleUnload, 130
STUB cuOccupancyMaxActiveBlocksPerMultiprocessor, 131
STUB cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 132
STUB cuPointerGetAttribute, 133
STUB cuPointerGetAttributes, 134
STUB cuPointerSetAttribute, 135
STUB cuStreamAttachMemAsync, 136
STUB cuStreamBeginCapture_v2, 137
STUB cuStreamCreate, 138
STUB cuStreamCreateWithPriority, 139
STUB cuStreamDestroy_v2, 140
STUB cuStreamEndCapture, 141
STUB cuStreamGetCtx, 142
STUB cuStreamGetFlags, 143
STUB cuStreamGetPriority, 144
STUB cuStreamIsCapturing, 145
STUB cuStreamQuery, 146
STUB cuStreamSynchronize, 147
STUB cuStreamWaitEvent, 148
STUB cuStreamWaitValue32_v2, 149
STUB cuStreamWriteValue32_v2, 150
STUB cuSurfRefGetArray, 151
STUB cuSurfRefSetArray, 152
STUB cuTexRefGetAddressMode, 153
STUB cuTexRefGetAddress_v2, 154
STUB cuTexRefGetArray, 155
STUB cuTexRefGetBorderColor, 156
STUB cuTexRefGetFilterMode, 157
STUB cuTexRefGetFlags, 158
STUB cuTexRefGetFormat, 159
STUB cuTexRefGetMaxAnisotropy, 160
STUB cuTexRefSetAddress2D_v3, 161
STUB cuTexRefSetAddressMode, 162
STUB cuTexRefSetAddress_v2, 163
STUB cuTexRefSetArray, 164
STUB cuTexRefSetBorderColor, 165
STUB cuTexRefSetFilterMode, 166
STUB cuTexRefSetFlags, 167
STUB cuTexRefSetFormat, 168
STUB cuTexRefSetMaxAnisotropy, 169
STUB cuTexRefSetMipmapFilterMode, 170
STUB cuTexRefSetMipmapLevelBias, 171
STUB cuTexRefSetMipmapLevelClamp, 172

.section .note.GNU-stack, "", %progbits
