# What compilers call without being asked. The kernel and the programs assemble this.
    .text
    .globl memcpy, memmove, memset, memcmp, bcmp, strlen, rust_eh_personality, _Unwind_Resume
memcpy:
    mov %rdi, %rax
    mov %rdx, %rcx
    rep movsb
    ret
memmove:
    mov %rdi, %rax
    mov %rdx, %rcx
    mov %rdi, %r8
    sub %rsi, %r8
    cmp %rdx, %r8
    jb 1f
    rep movsb
    ret
1:  lea -1(%rdi,%rdx), %rdi
    lea -1(%rsi,%rdx), %rsi
    std
    rep movsb
    cld
    ret
memset:
    mov %rdi, %r8
    mov %esi, %eax
    mov %rdx, %rcx
    rep stosb
    mov %r8, %rax
    ret
memcmp:
bcmp:
    xor %eax, %eax
    xor %ecx, %ecx
1:  cmp %rdx, %rcx
    je 2f
    movzbl (%rdi,%rcx), %eax
    movzbl (%rsi,%rcx), %r8d
    inc %rcx
    sub %r8d, %eax
    je 1b
2:  ret
strlen:
    mov $-1, %rax
1:  inc %rax
    cmpb $0, (%rdi,%rax)
    jne 1b
    ret
rust_eh_personality:
_Unwind_Resume:
    ud2
