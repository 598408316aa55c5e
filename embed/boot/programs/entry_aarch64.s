// Entry, and the accesses whose refusal is not the end, as in entry.s: the kind of probe is
// in x16 during the access, and the stack pointer and the way back in x17 and x15.
    .text
    .globl _start
_start:
    bl begin
    brk 1

    .globl thread_start
thread_start:
    bl thread_begin
    brk 1

    .globl probe_load, probe_store, probe_fetch, probe_refused
probe_load:
    mov x15, x30
    mov x16, x2
    ldr x0, [x0]
    mov x16, #0
    mov x1, #0
    ret
probe_store:
    mov x15, x30
    mov x16, x2
    str x1, [x0]
    mov x16, #0
    mov x1, #0
    ret
probe_fetch:
    mov x15, x30
    mov x16, x2
    blr x0
    mov x30, x15
    mov x16, #0
    mov x1, #0
    ret
probe_refused:
    mov x30, x15
    mov x16, #0
    mov x1, #1
    ret
