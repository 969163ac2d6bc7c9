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
STUB cuLaunchKernelEx, 68
STUB cuLinkAddData_v2, 69
STUB cuLinkAddFile_v2, 70
STUB cuLinkComplete, 71
STUB cuLinkCreate_v2, 72
STUB cuLinkDestroy, 73
STUB cuMemAdvise, 74
STUB cuMemAllocManaged, 75
STUB cuMemAllocPitch_v2, 76
STUB cuMemAlloc_v2, 77
STUB cuMemFreeHost, 78
STUB cuMemFree_v2, 79
STUB cuMemGetAddressRange_v2, 80
STUB cuMemGetInfo_v2, 81
STUB cuMemHostAlloc, 82
STUB cuMemHostGetDevicePointer_v2, 83
STUB cuMemHostRegister_v2, 84
STUB cuMemHostUnregister, 85
STUB cuMemPrefetchAsync, 86
STUB cuMemcpy, 87
STUB cuMemcpy2DAsync_v2, 88
STUB cuMemcpy2DUnaligned_v2, 89
STUB cuMemcpy2D_v2, 90
STUB cuMemcpy3DAsync_v2, 91
STUB cuMemcpy3DPeer, 92
STUB cuMemcpy3DPeerAsync, 93
STUB cuMemcpy3D_v2, 94
STUB cuMemcpyAsync, 95
STUB cuMemcpyAtoA_v2, 96
STUB cuMemcpyAtoD_v2, 97
STUB cuMemcpyAtoHAsync_v2, 98
STUB cuMemcpyAtoH_v2, 99
STUB cuMemcpyDtoA_v2, 100
STUB cuMemcpyDtoDAsync_v2, 101
STUB cuMemcpyDtoD_v2, 102
STUB cuMemcpyDtoHAsync_v2, 103
STUB cuMemcpyDtoH_v2, 104
STUB cuMemcpyHtoAAsync_v2, 105
STUB cuMemcpyHtoA_v2, 106
STUB cuMemcpyHtoDAsync_v2, 107
STUB cuMemcpyHtoD_v2, 108
STUB cuMemcpyPeer, 109
STUB cuMemcpyPeerAsync, 110
STUB cuMemsetD16Async, 111
STUB cuMemsetD16_v2, 112
STUB cuMemsetD2D16Async, 113
STUB cuMemsetD2D16_v2, 114
STUB cuMemsetD2D32Async, 115
STUB cuMemsetD2D32_v2, 116
STUB cuMemsetD2D8Async, 117
STUB cuMemsetD2D8_v2, 118
STUB cuMemsetD32Async, 119
STUB cuMemsetD32_v2, 120
STUB cuMemsetD8Async, 121
STUB cuMemsetD8_v2, 122
STUB cuModuleGetFunction, 123
STUB cuModuleGetGlobal_v2, 124
STUB cuModuleGetSurfRef, 125
STUB cuModuleGetTexRef, 126
STUB cuModuleLoad, 127
STUB cuModuleLoadData, 128
STUB cuModuleLoadDataEx, 129
STUB cuModuleLoadFatBinary, 130
STUB cuModuleUnload, 131
STUB cuOccupancyMaxActiveBlocksPerMultiprocessor, 132
STUB cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 133
STUB cuPointerGetAttribute, 134
STUB cuPointerGetAttributes, 135
STUB cuPointerSetAttribute, 136
STUB cuStreamAttachMemAsync, 137
STUB cuStreamBeginCapture_v2, 138
STUB cuStreamCreate, 139
STUB cuStreamCreateWithPriority, 140
STUB cuStreamDestroy_v2, 141
STUB cuStreamEndCapture, 142
STUB cuStreamGetCtx, 143
STUB cuStreamGetFlags, 144
STUB cuStreamGetPriority, 145
STUB cuStreamIsCapturing, 146
STUB cuStreamQuery, 147
STUB cuStreamSynchronize, 148
STUB cuStreamWaitEvent, 149
STUB cuStreamWaitValue32_v2, 150
STUB cuStreamWriteValue32_v2, 151
STUB cuSurfRefGetArray, 152
STUB cuSurfRefSetArray, 153
STUB cuTexRefGetAddressMode, 154
STUB cuTexRefGetAddress_v2, 155
STUB cuTexRefGetArray, 156
STUB cuTexRefGetBorderColor, 157
STUB cuTexRefGetFilterMode, 158
STUB cuTexRefGetFlags, 159
STUB cuTexRefGetFormat, 160
STUB cuTexRefGetMaxAnisotropy, 161
STUB cuTexRefSetAddress2D_v3, 162
STUB cuTexRefSetAddressMode, 163
STUB cuTexRefSetAddress_v2, 164
STUB cuTexRefSetArray, 165
STUB cuTexRefSetBorderColor, 166
STUB cuTexRefSetFilterMode, 167
STUB cuTexRefSetFlags, 168
STUB cuTexRefSetFormat, 169
STUB cuTexRefSetMaxAnisotropy, 170
STUB cuTexRefSetMipmapFilterMode, 171
STUB cuTexRefSetMipmapLevelBias, 172
STUB cuTexRefSetMipmapLevelClamp, 173

.section .note.GNU-stack, "", %progbits
