/* Superpages and folios as a kernel in C asks for them, and what the page tables say then.
 *
 * The page tables are walked here, by code that knows x86-64 and nothing of the library.
 *
 * `cargo xtask c` compiles and runs this.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define SUPERPAGE ((uint64_t)2 << 20)
#define FRAMES ((uint32_t)16384)

/* Bits of an entry of x86-64's tables. */
#define PRESENT ((uint64_t)1)
#define LARGE ((uint64_t)0x80)
#define FRAME_BITS ((uint64_t)0x000ffffffffff000)

static void *heap;

static void boot(const char *design)
{
    static struct vellum_memory memory = {.first_frame = 0, .frames = FRAMES};
    struct vellum_platform platform = machine_with(&memory);
    size_t bytes = vellum_heap_bytes(&platform);
    heap = malloc(bytes);
    EXPECT(heap != NULL);
    DO(vellum_create(&platform, design, heap, bytes, &vm, NULL, 0));
}

static void shut_down(void)
{
    struct vellum_audit audit;
    DO(vellum_audit_run(vm, &audit, NULL, 0));
    DO(vellum_destroy(vm));
    free(heap);
}

/* How many bytes the entry maps that a processor finds for an address; 0 if it finds none. */
static uint64_t mapped_by(struct vellum_space space, uint64_t address)
{
    struct vellum_loaded loaded;
    DO(vellum_load(vm, space, &loaded));
    uint32_t table = loaded.root;
    for (unsigned level = 4; level > 0; level--) {
        uint64_t entry, bytes = PAGE << 9 * (level - 1);
        memcpy(&entry, ram + table * PAGE + (address / bytes & 511) * 8, 8);
        if ((entry & PRESENT) == 0)
            return 0;
        if (level == 1 || (entry & LARGE) != 0)
            return bytes;
        table = (uint32_t)((entry & FRAME_BITS) / PAGE);
    }
    return 0;
}

/* Maps so much at a multiple of a superpage. */
static uint64_t map(struct vellum_space space, uint64_t bytes, struct vellum_object object)
{
    static uint64_t next = (uint64_t)1 << 32;
    struct vellum_map_request request = {
        .bytes = bytes,
        .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE,
        .flags = object.bits != 0 ? VELLUM_MAP_SHARED : 0,
        .placement = VELLUM_FIXED_FREE,
        .address = next,
        .object = object,
    };
    uint64_t address;
    DO(vellum_map(vm, space, &request, &address));
    EXPECT(address == next && address % SUPERPAGE == 0);
    next += bytes + SUPERPAGE;
    return address;
}

static void store(struct vellum_space space, uint64_t address)
{
    DO(vellum_fault(vm, space, address, VELLUM_WRITE, NULL));
}

static struct vellum_superpage_stats stats(void)
{
    struct vellum_superpage_stats stats;
    DO(vellum_superpage_stats_get(vm, &stats));
    return stats;
}

static const struct vellum_object nothing = {0};

static void objects_say_for_themselves(void)
{
    static const uint32_t told[] = {VELLUM_HUGE_DEFAULT, VELLUM_HUGE_ALWAYS, VELLUM_HUGE_NEVER};
    boot("huge=advise");
    for (size_t at = 0; at < sizeof told / sizeof *told; at++) {
        bool is_huge = told[at] == VELLUM_HUGE_ALWAYS;
        struct vellum_space space;
        struct vellum_object object;
        DO(vellum_space_create(vm, &space));
        DO(vellum_shared_memory_create(vm, 2 * SUPERPAGE, &object));
        DO(vellum_object_huge_set(vm, object, VELLUM_HUGE_ALWAYS));
        DO(vellum_object_huge_set(vm, object, told[at]));
        uint64_t place = map(space, 2 * SUPERPAGE, object);
        store(space, place + 5 * PAGE);
        EXPECT(mapped_by(space, place + 5 * PAGE) == (is_huge ? SUPERPAGE : PAGE));
        EXPECT(mapped_by(space, place + 9 * PAGE) == (is_huge ? SUPERPAGE : 0));
        EXPECT(mapped_by(space, place + SUPERPAGE) == 0);
        EXPECT(stats().maps == (at > 0));
        /* A part of one goes, and faults find the rest. */
        DO(vellum_unmap(vm, space, place, PAGE));
        store(space, place + 5 * PAGE);
        EXPECT(mapped_by(space, place) == 0 && mapped_by(space, place + 5 * PAGE) == PAGE);
        EXPECT(stats().demotions == (at > 0));
        DO(vellum_exit(vm, space, NULL));
        DO(vellum_object_release(vm, object));
    }
    shut_down();
}

static void private_memory_comes_in_superpages(void)
{
    struct vellum_space space;
    boot("superpage=eager");
    EXPECT(vellum_superpage_bytes() == SUPERPAGE);
    DO(vellum_space_create(vm, &space));
    uint64_t place = map(space, SUPERPAGE, nothing);
    store(space, place + 100 * PAGE);
    EXPECT(mapped_by(space, place) == SUPERPAGE && stats().maps == 1);
    DO(vellum_protect(vm, space, place, PAGE, VELLUM_PROT_READ));
    EXPECT(mapped_by(space, place) == PAGE && stats().demotions == 1);
    DO(vellum_protect(vm, space, place, PAGE, VELLUM_PROT_READ | VELLUM_PROT_WRITE));

    /* All pages are there, but not in use by one entry: until somebody collapses them. */
    struct vellum_collapsed done;
    DO(vellum_collapse(vm, space, place, 1, SUPERPAGE, &done));
    EXPECT(done.scanned == 1 && done.collapsed == 1 && done.next == place + SUPERPAGE);
    EXPECT(mapped_by(space, place) == SUPERPAGE && stats().collapses == 1);
    DO(vellum_exit(vm, space, NULL));
    shut_down();
}

static void runs_are_set_aside_and_promoted(void)
{
    struct vellum_space space;
    boot("superpage=reserve");
    DO(vellum_space_create(vm, &space));
    uint64_t place = map(space, SUPERPAGE, nothing);
    store(space, place);
    EXPECT(mapped_by(space, place) == PAGE && mapped_by(space, place + PAGE) == 0);
    EXPECT(stats().reservations == 1 && stats().reserved_bytes > SUPERPAGE / 2);
    for (uint64_t page = 1; page < SUPERPAGE / PAGE; page++)
        store(space, place + page * PAGE);
    EXPECT(mapped_by(space, place) == SUPERPAGE && stats().promotions == 1);
    EXPECT(stats().reserved_bytes == 0 && stats().broken_reservations == 0);
    DO(vellum_exit(vm, space, NULL));
    shut_down();
}

static void advice_sets_the_size_of_folios(void)
{
    static const uint64_t sizes[] = {0, PAGE, 4 * PAGE, 16 * PAGE};
    uint64_t expected_folios = 0, expected_bytes = 0;
    boot("folio=advise");
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        uint64_t mapped = 0, size = sizes[at] > PAGE ? sizes[at] : PAGE;
        struct vellum_space space;
        DO(vellum_space_create(vm, &space));
        uint64_t place = map(space, SUPERPAGE, nothing);
        DO(vellum_folio_advise(vm, space, place, SUPERPAGE, sizes[at]));
        store(space, place + 40 * PAGE);
        for (uint64_t page = 0; page < SUPERPAGE / PAGE; page++)
            mapped += mapped_by(space, place + page * PAGE);
        EXPECT(mapped == size);
        expected_folios += size > PAGE;
        expected_bytes += size > PAGE ? size : 0;
        EXPECT(stats().folios == expected_folios && stats().folio_bytes == expected_bytes);
        EXPECT(stats().folio_failures == 0 && stats().failures == 0);
        DO(vellum_exit(vm, space, NULL));
    }
    shut_down();
}

int main(void)
{
    ram = aligned_alloc(PAGE, FRAMES * PAGE);
    EXPECT(ram != NULL);
    objects_say_for_themselves();
    private_memory_comes_in_superpages();
    runs_are_set_aside_and_promoted();
    advice_sets_the_size_of_folios();
    puts("superpages and folios are what they were asked to be");
    return 0;
}
