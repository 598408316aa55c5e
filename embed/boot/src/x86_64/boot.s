# From the boot loader to Rust, from a trap to Rust and back, and from task to task.
# AT&T syntax: assembled with options(att_syntax).

# The boot protocol is PVH: this note says where to enter, in 32-bit protected mode without
# paging, with the address of `hvm_start_info` in ebx.
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18                  # name size, content size, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_entry

# Or Multiboot2, as GRUB does it from a disc: found by this header, which asks for modules on
# pages of their own, and entered in the same state, at the same place.
    .section .boot.header, "a"
    .balign 8
multiboot2:
    .long 0xe85250d6, 0, multiboot2_end - multiboot2
    .long 0x100000000 - 0xe85250d6 - (multiboot2_end - multiboot2)
    .long 6, 8, 0, 8
multiboot2_end:

# Long mode with the boot tables; SSE for the compiler's code; W^X and write protection.
    .macro ENTER_LONG_MODE target
    mov $0x620, %eax                # CR4: PAE, OSFXSR, OSXMMEXCPT
    mov %eax, %cr4
    mov $boot_root, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx           # EFER: LME, NXE
    rdmsr
    or $0x900, %eax
    wrmsr
    mov $0x80010033, %eax           # CR0: PG, WP, NE, ET, MP, PE
    mov %eax, %cr0
    lgdt boot_gdtr
    ljmp $8, $\target
    .endm

    .section .boot.text, "ax"
    .code32
    .globl pvh_entry
pvh_entry:
    cld
    mov %ebx, %esi
    mov $boot_directories, %edi     # 4 GiB in pages of 2 MiB
    mov $0x83, %eax
1:  mov %eax, (%edi)
    add $8, %edi
    add $0x200000, %eax
    jnc 1b
    movl $boot_directories + 0x0003, boot_direct
    movl $boot_directories + 0x1003, boot_direct + 8
    movl $boot_directories + 0x2003, boot_direct + 16
    movl $boot_directories + 0x3003, boot_direct + 24
    movl $boot_directories + 0x0003, boot_kernel + 510 * 8
    movl $boot_direct + 3, boot_root            # where we are now
    movl $boot_direct + 3, boot_root + 256 * 8  # the direct map
    movl $boot_kernel + 3, boot_root + 511 * 8  # the kernel
    ENTER_LONG_MODE bsp_entry

# The other processors begin in real mode, in a copy of this at AP_PAGE.
    .code16
    .globl ap_begin
ap_begin:
    cli
    cld
    xor %ax, %ax
    mov %ax, %ds
    lgdtl ap_gdtr - ap_begin + 0x8000
    mov $0x11, %eax
    mov %eax, %cr0
    ljmpl $24, $ap_protected - ap_begin + 0x8000
    .code32
ap_protected:
    mov $16, %ax
    mov %ax, %ds
    mov %ax, %ss
    ENTER_LONG_MODE ap_entry
ap_gdtr:
    .word 31
    .long boot_gdt
    .globl ap_end
ap_end:

    .code64
bsp_entry:
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    movabs $boot_stack_end, %rsp
    mov %esi, %edi
    movabs $kernel_start, %rax
    call *%rax
    ud2
ap_entry:
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    movabs $AP_STACK, %rax
    mov (%rax), %rsp
    movabs $ap_start, %rax
    call *%rax
    ud2

    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        # 8: 64-bit code
    .quad 0x00cf93000000ffff        # 16: data
    .quad 0x00cf9b000000ffff        # 24: 32-bit code
boot_gdtr:
    .word 31
    .long boot_gdt

    .section .boot.tables, "aw", @progbits
    .globl boot_root
    .balign 4096
boot_root:        .skip 4096
boot_direct:      .skip 4096
boot_kernel:      .skip 4096
boot_directories: .skip 4 * 4096

    .section .bss.boot_stack, "aw", @nobits
    .balign 16
    .skip 65536
boot_stack_end:

# Traps. Every vector leaves the same frame (`TrapFrame`) and goes through `trap_entry`.
    .text
    .macro VECTOR number
    .balign 16
    .if (\number == 8) || (\number >= 10 && \number <= 14) || (\number == 17) || (\number == 21) || (\number == 29) || (\number == 30)
    .else
    pushq $0
    .endif
    pushq $\number
    jmp trap_entry
    .endm
    .globl trap_vectors
    .balign 16
trap_vectors:
    .irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47
    VECTOR \number
    .endr
    .globl trap_call
    .balign 16
trap_call:
    pushq $0
    pushq $0x80
trap_entry:
    testb $3, 24(%rsp)              # from user mode: the kernel's GS
    jz 1f
    swapgs
1:  push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    sub $512, %rsp
    fxsave64 (%rsp)                 # the kernel's own code uses SSE
    cld
    mov %rsp, %rdi
    call trap
trap_return:
    fxrstor64 (%rsp)
    add $512, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rbp
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbx
    pop %rax
    testb $3, 24(%rsp)
    jz 1f
    swapgs
1:  add $16, %rsp
    iretq

# switch_stacks(&mut where to leave the stack pointer, the one to continue with): what a
# function call preserves lies on the stack that is left.
    .globl switch_stacks
switch_stacks:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

# Where a new task begins: its frame lies on its stack.
    .globl task_begin
task_begin:
    call task_begun
    jmp trap_return
