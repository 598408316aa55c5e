# Entry, and the accesses whose refusal is not the end.
    .text
    .globl _start
_start:
    call begin
    ud2

# Where a thread begins: its argument in rdi.
    .globl thread_start
thread_start:
    call thread_begin
    ud2

# probe_*(address, value, kind of probe) -> (value, 0) or (anything, 1) if refused. The kind
# is in r10 during the access, and the stack pointer in r11 for the way back.
    .globl probe_load, probe_store, probe_fetch, probe_refused
probe_load:
    mov %rsp, %r11
    mov %rdx, %r10
    mov (%rdi), %rax
    xor %r10d, %r10d
    xor %edx, %edx
    ret
probe_store:
    mov %rsp, %r11
    mov %rdx, %r10
    mov %rsi, (%rdi)
    xor %r10d, %r10d
    xor %edx, %edx
    ret
probe_fetch:
    mov %rsp, %r11
    mov %rdx, %r10
    call *%rdi
    xor %r10d, %r10d
    xor %edx, %edx
    ret
probe_refused:
    mov %r11, %rsp
    xor %r10d, %r10d
    mov $1, %edx
    ret
