/* A kernel in one file, in C: what an embedder writes around the library.
 *
 * The machine is played by this program: 64 MiB of memory, one processor with a TLB, and a
 * disk. The processor walks the page tables that the library makes, with code of its own, and
 * traps where they do not allow what a program does; so what is compared below is what the
 * tables say and not what the library says about them. A forgotten flush shows as a page that
 * still has its old content.
 *
 * `cargo xtask c` compiles and runs this.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vellum.h"

#define PAGE ((uint64_t)4096)
#define FRAMES ((uint32_t)16384)
#define TLB_ENTRIES 64
#define DISK_PAGES 32
/* The upper half of a root is the kernel's; this is what ours has there. */
#define KERNEL_ENTRY ((uint64_t)0x1000003)

/* Bits of an entry of x86-64's tables. */
#define PRESENT ((uint64_t)1)
#define WRITABLE ((uint64_t)2)
#define USER ((uint64_t)4)
#define ACCESSED ((uint64_t)0x20)
#define DIRTY ((uint64_t)0x40)
#define LARGE ((uint64_t)0x80)
#define NO_EXECUTE ((uint64_t)1 << 63)
#define FRAME_BITS ((uint64_t)0x000ffffffffff000)

struct translation {
    bool valid;
    uint32_t tag;
    uint64_t page;
    uint64_t entry;
};

struct machine {
    unsigned char *memory;
    struct translation tlb[TLB_ENTRIES];
    uint32_t tag;
    uint32_t root;
    unsigned char disk[DISK_PAGES][4096];
    unsigned pins;
    uint64_t flushes, faults, copies;
};

static struct machine machine;
static struct vellum *vm;

/* What the library calls if it finds itself broken. */
_Noreturn void vellum_panic(const char *text, size_t length)
{
    fprintf(stderr, "vellum: %.*s\n", (int)length, text);
    abort();
}

static void expect(bool holds, const char *what, int line)
{
    if (!holds) {
        fprintf(stderr, "kernel.c:%d: not so: %s\n", line, what);
        exit(1);
    }
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)

static void done(enum vellum_status status, const char *what, int line)
{
    if (status != VELLUM_STATUS_OK) {
        fprintf(stderr, "kernel.c:%d: %s: %s\n", line, what, vellum_status_text(status));
        exit(1);
    }
}

#define DO(call) done((call), #call, __LINE__)

/* The platform. */

static unsigned char *frame_bytes(uint32_t frame)
{
    return machine.memory + frame * PAGE;
}

static uint64_t *frame_words(uint32_t frame)
{
    return (uint64_t *)(void *)frame_bytes(frame);
}

static uint32_t pin(void *context)
{
    (void)context;
    machine.pins++; /* a kernel disables preemption here */
    return 0;
}

static void unpin(void *context, uint32_t cpu)
{
    (void)context;
    EXPECT(cpu == 0 && machine.pins > 0);
    machine.pins--;
}

static void flush(void *context, uint32_t from, const uint64_t *cpus, size_t words,
                  const struct vellum_flush *request)
{
    (void)context;
    EXPECT(from == 0 && words == 1 && machine.pins > 0);
    if ((cpus[0] & 1) == 0)
        return;
    machine.flushes++;
    for (size_t at = 0; at < TLB_ENTRIES; at++) {
        struct translation *known = &machine.tlb[at];
        uint64_t address = known->page * PAGE;
        bool covered = address >= request->start && address - request->start < request->bytes;
        if (known->tag == request->space && (request->all || covered))
            known->valid = false;
    }
}

static void root_made(void *context, uint32_t root)
{
    (void)context;
    for (size_t index = 256; index < 512; index++) {
        EXPECT(frame_words(root)[index] == 0);
        frame_words(root)[index] = KERNEL_ENTRY;
    }
}

static void root_ends(void *context, uint32_t root)
{
    (void)context;
    for (size_t index = 256; index < 512; index++) {
        EXPECT(frame_words(root)[index] == KERNEL_ENTRY);
        frame_words(root)[index] = 0;
    }
}

static bool read_page(void *context, uint64_t store, uint64_t index, uint32_t frame)
{
    (void)context;
    EXPECT(machine.pins == 0);
    if (store != 1 || index >= DISK_PAGES)
        return false;
    memcpy(frame_bytes(frame), machine.disk[index], PAGE);
    return true;
}

static bool write_page(void *context, uint64_t store, uint64_t index, uint32_t frame)
{
    (void)context;
    EXPECT(machine.pins == 0);
    if (store != 1 || index >= DISK_PAGES)
        return false;
    memcpy(machine.disk[index], frame_bytes(frame), PAGE);
    return true;
}

/* The processor. */

static void load_space(struct vellum_space space)
{
    struct vellum_loaded loaded;
    DO(vellum_load(vm, space, &loaded));
    machine.tag = loaded.tag;
    machine.root = loaded.root;
}

static bool allows(uint64_t entry, uint32_t access)
{
    if ((entry & PRESENT) == 0 || (entry & USER) == 0)
        return false;
    if (access == VELLUM_WRITE)
        return (entry & WRITABLE) != 0;
    return access != VELLUM_EXECUTE || (entry & NO_EXECUTE) == 0;
}

/* Where the processor finds the entry of an address, or null. */
static uint64_t *walk(uint64_t address)
{
    uint32_t table = machine.root;
    for (unsigned level = 4;; level--) {
        uint64_t index = address >> (12 + 9 * (level - 1)) & 511;
        uint64_t *entry = &frame_words(table)[index];
        EXPECT((*entry & LARGE) == 0 || level == 1);
        if (level == 1 || (*entry & PRESENT) == 0)
            return level == 1 ? entry : NULL;
        table = (uint32_t)((*entry & FRAME_BITS) / PAGE);
    }
}

/* The bytes that a program reaches, or null: then the processor traps. */
static unsigned char *reach(uint64_t address, uint32_t access)
{
    uint64_t page = address / PAGE;
    struct translation *known = &machine.tlb[page % TLB_ENTRIES];
    if (!known->valid || known->tag != machine.tag || known->page != page ||
        !allows(known->entry, access)) {
        uint64_t *entry = walk(address);
        if (entry == NULL || !allows(*entry, access))
            return NULL;
        *entry |= ACCESSED | (access == VELLUM_WRITE ? DIRTY : 0);
        *known = (struct translation){true, machine.tag, page, *entry};
    }
    return frame_bytes((uint32_t)((known->entry & FRAME_BITS) / PAGE)) + address % PAGE;
}

/* An access of a program, with the trap handler; null if the program gets a signal. */
static unsigned char *access_as(struct vellum_space space, uint64_t address, uint32_t access)
{
    load_space(space);
    for (int tries = 0; tries < 4; tries++) {
        enum vellum_resolved resolved;
        unsigned char *bytes = reach(address, access);
        if (bytes != NULL)
            return bytes;
        if (vellum_fault(vm, space, address, access, &resolved) != VELLUM_STATUS_OK)
            return NULL;
        machine.faults++;
        machine.copies += resolved == VELLUM_RESOLVED_COPIED;
    }
    fprintf(stderr, "the fault at %#" PRIx64 " is never resolved\n", address);
    exit(1);
}

static unsigned char load(struct vellum_space space, uint64_t address)
{
    unsigned char *byte = access_as(space, address, VELLUM_READ);
    EXPECT(byte != NULL);
    return *byte;
}

static void store(struct vellum_space space, uint64_t address, unsigned char value)
{
    unsigned char *byte = access_as(space, address, VELLUM_WRITE);
    EXPECT(byte != NULL);
    *byte = value;
}

static bool refused(struct vellum_space space, uint64_t address, uint32_t access)
{
    return access_as(space, address, access) == NULL;
}

/* The kernel. */

static void boot(void)
{
    static struct vellum_memory memory[2] = {
        {.first_frame = 16, .frames = FRAMES / 2 - 16},
        {.first_frame = FRAMES / 2 + 100, .frames = FRAMES / 2 - 100},
    };
    struct vellum_platform platform = {
        .size = sizeof platform,
        .cpus = 1,
        .nodes = 1,
        .memory_ranges = 2,
        .memory = memory,
        .pin = pin,
        .unpin = unpin,
        .flush = flush,
        .root_made = root_made,
        .root_ends = root_ends,
        .read_page = read_page,
        .write_page = write_page,
    };
    char message[200];
    machine.memory = aligned_alloc(PAGE, FRAMES * PAGE);
    EXPECT(machine.memory != NULL);
    platform.direct_map = machine.memory;
    EXPECT(vellum_page_bytes() == PAGE);
    size_t heap_bytes = vellum_heap_bytes(&platform);
    EXPECT(heap_bytes > 0);
    void *heap = malloc(heap_bytes);
    EXPECT(heap != NULL);
    enum vellum_status status =
        vellum_create(&platform, NULL, heap, heap_bytes, &vm, message, sizeof message);
    if (status != VELLUM_STATUS_OK) {
        fprintf(stderr, "no manager: %s: %s\n", vellum_status_text(status), message);
        exit(1);
    }
    printf("%zu of %zu bytes of the heap are in use\n", vellum_heap_used(vm), heap_bytes);
}

static uint64_t map(struct vellum_space space, struct vellum_map_request request)
{
    uint64_t address;
    DO(vellum_map(vm, space, &request, &address));
    return address;
}

static void print_region(void *context, const struct vellum_region *region)
{
    unsigned *count = context;
    ++*count;
    printf("    %#" PRIx64 " %" PRIu64 " KiB %c%c%c%s%s\n", region->start, region->bytes / 1024,
           region->prot & VELLUM_PROT_READ ? 'r' : '-', region->prot & VELLUM_PROT_WRITE ? 'w' : '-',
           region->prot & VELLUM_PROT_EXECUTE ? 'x' : '-',
           region->flags & VELLUM_MAP_SHARED ? " shared" : "", region->is_file ? " of a file" : "");
}

int main(void)
{
    const uint32_t read_write = VELLUM_PROT_READ | VELLUM_PROT_WRITE;
    struct vellum_space parent, child;
    struct vellum_object file;
    struct vellum_audit audit;
    struct vellum_stats stats;
    char message[200];
    unsigned regions = 0;

    boot();
    for (size_t page = 0; page < DISK_PAGES; page++)
        memset(machine.disk[page], (int)(0x40 + page), PAGE);
    DO(vellum_space_create(vm, &parent));

    puts("a program stores to memory of its own");
    uint64_t heap = map(parent, (struct vellum_map_request){.bytes = 64 * PAGE, .prot = read_write});
    for (uint64_t page = 0; page < 64; page++) {
        EXPECT(load(parent, heap + page * PAGE) == 0);
        store(parent, heap + page * PAGE + 7, (unsigned char)(page + 1));
    }
    EXPECT(refused(parent, heap + 64 * PAGE, VELLUM_READ));
    EXPECT(refused(parent, heap, VELLUM_EXECUTE));

    puts("it forks; each side has what there was, and sees only its own stores");
    DO(vellum_fork(vm, parent, &child));
    uint64_t copies = machine.copies;
    for (uint64_t page = 0; page < 64; page += 2)
        store(child, heap + page * PAGE + 7, 200);
    EXPECT(machine.copies - copies == 32);
    for (uint64_t page = 0; page < 64; page++) {
        EXPECT(load(parent, heap + page * PAGE + 7) == page + 1);
        EXPECT(load(child, heap + page * PAGE + 7) == (page % 2 == 0 ? 200 : page + 1));
    }
    store(parent, heap + 7, 99);
    EXPECT(load(child, heap + 7) == 200 && load(parent, heap + 7) == 99);

    puts("text of a file is executed, and not stored to");
    DO(vellum_file_create(vm, 1, DISK_PAGES * PAGE, &file));
    uint64_t text = map(parent, (struct vellum_map_request){
                                    .bytes = 4 * PAGE,
                                    .prot = VELLUM_PROT_READ | VELLUM_PROT_EXECUTE,
                                    .placement = VELLUM_FIXED,
                                    .address = 0x400000,
                                    .object = file,
                                    .offset = 2 * PAGE,
                                });
    EXPECT(text == 0x400000 && load(parent, text + PAGE) == 0x43);
    EXPECT(!refused(parent, text + 3 * PAGE, VELLUM_EXECUTE));
    EXPECT(refused(parent, text, VELLUM_WRITE));

    puts("a file is shared: stores are seen by the other, and reach the disk");
    uint64_t place = 0x10000000;
    struct vellum_map_request view = {.bytes = DISK_PAGES * PAGE,
                                      .prot = read_write,
                                      .flags = VELLUM_MAP_SHARED,
                                      .placement = VELLUM_FIXED,
                                      .address = place,
                                      .object = file};
    EXPECT(map(parent, view) == place && map(child, view) == place);
    store(child, place + 5 * PAGE + 1, 0xaa);
    EXPECT(load(parent, place + 5 * PAGE + 1) == 0xaa && load(parent, text + 3 * PAGE + 1) == 0xaa);
    uint64_t written;
    DO(vellum_object_sync(vm, file, &written));
    EXPECT(written == 1 && machine.disk[5][1] == 0xaa && machine.disk[5][0] == 0x45);
    unsigned char bytes[3];
    size_t count;
    DO(vellum_object_read(vm, file, 6 * PAGE - 2, bytes, sizeof bytes, &count));
    EXPECT(count == 3 && bytes[0] == 0x45 && bytes[1] == 0x45 && bytes[2] == 0x46);

    puts("rights are taken away and given back, a stack grows, memory moves");
    DO(vellum_protect(vm, parent, heap, PAGE, VELLUM_PROT_READ));
    EXPECT(refused(parent, heap, VELLUM_WRITE) && load(parent, heap + 7) == 99);
    DO(vellum_protect(vm, parent, heap, PAGE, read_write));
    store(parent, heap, 1);
    uint64_t stack = map(parent, (struct vellum_map_request){.bytes = 2 * PAGE,
                                                             .prot = read_write,
                                                             .flags = VELLUM_MAP_GROWS_DOWN,
                                                             .placement = VELLUM_FIXED,
                                                             .address = 0x7ff000000000});
    store(parent, stack - 3 * PAGE, 5);
    EXPECT(load(parent, stack - 3 * PAGE) == 5);
    uint64_t moved;
    DO(vellum_remap(vm, parent, heap, 64 * PAGE, 128 * PAGE, VELLUM_FIXED, 0x20000000, &moved));
    EXPECT(moved == 0x20000000 && load(parent, moved + 8 * PAGE + 7) == 9);
    EXPECT(refused(parent, heap + 8 * PAGE, VELLUM_READ));
    DO(vellum_regions_each(vm, parent, print_region, &regions));
    EXPECT(regions == 4);

    puts("what is unmapped is gone, and comes back as zeroes");
    DO(vellum_unmap(vm, child, heap + 8 * PAGE, 8 * PAGE));
    EXPECT(refused(child, heap + 8 * PAGE + 7, VELLUM_READ));
    EXPECT(load(child, heap + 16 * PAGE + 7) == 200);
    view = (struct vellum_map_request){.bytes = 8 * PAGE,
                                       .prot = read_write,
                                       .placement = VELLUM_FIXED_FREE,
                                       .address = heap + 8 * PAGE};
    EXPECT(map(child, view) == view.address && load(child, heap + 8 * PAGE + 7) == 0);

    puts("both end, and nothing is left");
    machine.root = 0;
    machine.tag = UINT32_MAX;
    DO(vellum_exit(vm, child, NULL));
    DO(vellum_exit(vm, parent, NULL));
    EXPECT(vellum_fault(vm, parent, heap, VELLUM_READ, NULL) == VELLUM_STATUS_NO_SPACE);
    DO(vellum_object_release(vm, file));
    if (vellum_audit_run(vm, &audit, message, sizeof message) != VELLUM_STATUS_OK) {
        fprintf(stderr, "audit: %s\n", message);
        return 1;
    }
    EXPECT(audit.spaces == 0 && audit.objects == 0 && audit.tables == 0 && audit.entries == 0);
    DO(vellum_stats_get(vm, &stats));
    EXPECT(stats.forks == 1 && stats.exits == 2 && machine.pins == 0);
    printf("%" PRIu64 " faults, %" PRIu64 " pages copied, %" PRIu64 " flushes\n", machine.faults,
           machine.copies, machine.flushes);
    DO(vellum_destroy(vm));
    free(machine.memory);
    return 0;
}
