# Entry points and the few functions that cannot be written in Rust.
    .text

# The kernel enters here after execve, on a stack of its own making.
    .globl _start
_start:
    xor ebp, ebp
    mov rdi, rsp
    and rsp, -16
    call vellum_begin
    # The header of the task's slot: its stack ends where that begins.
    mov rsp, rax
    mov rdi, rax
    xor ebp, ebp
    call vellum_arrive
    ud2

# vellum_clone(flags, header of the child's slot) -> id or -errno.
# The child begins on its own stack. The kernel writes its id into the header for
# the parent and for the child: it is there when the call returns.
    .globl vellum_clone
vellum_clone:
    mov r9, rsi
    lea r10, [rsi + 8]
    mov rdx, r10
    xor r8d, r8d
    mov eax, 56
    syscall
    test rax, rax
    jnz 1f
    mov rsp, r9
    mov rdi, r9
    xor ebp, ebp
    call vellum_born
    ud2
1:  ret

# vellum_load(address), vellum_store(address): 0, or 1 if the access was refused.
    .globl vellum_load
vellum_load:
    mov al, byte ptr [rdi]
    xor eax, eax
    ret
    .globl vellum_store
vellum_store:
    mov byte ptr [rdi], 1
    xor eax, eax
    ret
vellum_touched:
    mov eax, 1
    ret

# The handler of SIGSEGV and SIGBUS: goes on at vellum_touched if a touch caused
# the signal; otherwise the stub itself is wrong and ends.
    .globl vellum_refused
vellum_refused:
    mov rax, [rdx + 168]
    lea rcx, [rip + vellum_load]
    cmp rax, rcx
    jb 2f
    lea rcx, [rip + vellum_touched]
    cmp rax, rcx
    jae 2f
    mov [rdx + 168], rcx
    ret
2:  mov edi, 97
    mov eax, 231
    syscall
    ud2

# The handler of SIGTERM in the keeper: the driver has ended, and so does the
# whole process group.
    .globl vellum_orphaned
vellum_orphaned:
    xor edi, edi
    mov esi, 9
    mov eax, 62
    syscall
    ud2

    .globl vellum_restore
vellum_restore:
    mov eax, 15
    syscall
    ud2
