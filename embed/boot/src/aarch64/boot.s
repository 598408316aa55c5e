// From QEMU to Rust, from a trap to Rust and back, and from task to task.

// The head of an image of Linux (Documentation/arch/arm64/booting.rst): QEMU starts it with
// the address of the device tree in x0, without paging, at EL1.
    .section .head, "ax"
    .globl image_begin
image_begin:
    b entry
    .long 0
    .quad 0                         // offset from a multiple of 2 MiB
    .quad image_bytes
    .quad 10                        // little-endian, anywhere in memory
    .quad 0, 0, 0
    .ascii "ARM\x64"
    .long 0

// Block entries: normal memory, inner shareable, accessed, never executed by programs; and
// device memory, never executed at all.
    .set NORMAL, 0x0040000000000701
    .set DEVICE, 0x0060000000000409

entry:
    mov x20, x0
    adrp x1, bss_begin
    add x1, x1, :lo12:bss_begin
    adrp x2, kernel_end
    add x2, x2, :lo12:kernel_end
1:  cmp x1, x2
    b.hs 2f
    stp xzr, xzr, [x1], #16
    b 1b
2:  adrp x9, boot_tables            // root, one or two tables below
    add x9, x9, :lo12:boot_tables
    .if GRANULE == 14
    add x10, x9, #0x4000
    add x11, x9, #0x8000
    orr x12, x10, #3
    str x12, [x9]
    orr x12, x11, #3
    str x12, [x10]
    mov x13, #0x2000000             // blocks of 32 MiB
    .else
    add x11, x9, #0x1000
    orr x12, x11, #3
    str x12, [x9]
    mov x13, #0x40000000            // blocks of 1 GiB
    .endif
    mov x14, #0
    ldr x15, =DEVICE
    ldr x16, =NORMAL
3:  lsr x17, x14, #30               // the first GiB is devices
    cmp x17, #0
    csel x12, x15, x16, eq
    orr x12, x12, x14
    str x12, [x11], #8
    add x14, x14, x13
    lsr x17, x14, #32               // 4 GiB
    cbz x17, 3b
    ldr x12, =MEMORY_ATTRIBUTES
    msr mair_el1, x12
    ldr x12, =TRANSLATION
    msr tcr_el1, x12
    msr ttbr0_el1, x9
    msr ttbr1_el1, x9
    dsb sy
    tlbi vmalle1
    dsb sy
    isb
    ldr x12, =0x34d0198d            // SCTLR: MMU, caches, stack alignment, no set PAN
    msr sctlr_el1, x12
    isb
    ldr x12, =high
    br x12
high:
    ldr x12, =boot_stack_end
    mov sp, x12
    ldr x12, =trap_vectors
    msr vbar_el1, x12
    mov x29, #0
    mov x0, x20
    bl kernel_start
    brk 1
    .ltorg

    .section .bss.boot, "aw", @nobits
    .balign 16384
    .globl boot_tables, empty_root
boot_tables:
    .skip 3 * 16384
empty_root:
    .skip 16384
    .skip 524288
boot_stack_end:

    .macro VECTOR kind
    .balign 128
    sub sp, sp, #288
    stp x0, x1, [sp]
    mov x0, #\kind
    b trap_entry
    .endm
    .text
    .balign 2048
trap_vectors:
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 0                        // from programs: calls and faults
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1
    VECTOR 1

trap_entry:
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x2, sp_el0
    mrs x3, elr_el1
    mrs x4, spsr_el1
    stp x30, x2, [sp, #240]
    stp x3, x4, [sp, #256]
    mov x1, x0
    mov x0, sp
    bl trap
trap_return:
    dsb ishst                       // new entries are seen by the walker
    ldp x30, x2, [sp, #240]
    ldp x3, x4, [sp, #256]
    msr sp_el0, x2
    msr elr_el1, x3
    msr spsr_el1, x4
    ldp x0, x1, [sp]
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x19, [sp, #144]
    ldp x20, x21, [sp, #160]
    ldp x22, x23, [sp, #176]
    ldp x24, x25, [sp, #192]
    ldp x26, x27, [sp, #208]
    ldp x28, x29, [sp, #224]
    add sp, sp, #288
    eret

    .globl switch_stacks
switch_stacks:
    sub sp, sp, #96
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    add sp, sp, #96
    ret

    .globl task_begin
task_begin:
    bl task_begun
    b trap_return
