/* What the library answers to arguments that are none, and how much memory it needs.
 *
 * `cargo xtask c` compiles and runs this.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vellum.h"

#define PAGE ((uint64_t)4096)
#define FRAMES ((uint32_t)8192)
#define STACK_BYTES ((size_t)16 << 10)

static unsigned char *ram;

_Noreturn void vellum_panic(const char *text, size_t length)
{
    fprintf(stderr, "vellum: %.*s\n", (int)length, text);
    abort();
}

static int failures;

static void expect(bool holds, const char *what, int line)
{
    if (!holds) {
        fprintf(stderr, "border.c:%d: not so: %s\n", line, what);
        failures++;
    }
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define ANSWERS(answer, call) expect((call) == VELLUM_STATUS_##answer, #call ": " #answer, __LINE__)

static uint32_t pin(void *context)
{
    (void)context;
    return 0;
}

static void unpin(void *context, uint32_t cpu)
{
    (void)context;
    (void)cpu;
}

static void flush(void *context, uint32_t from, const uint64_t *cpus, size_t words,
                  const struct vellum_flush *request)
{
    (void)context;
    (void)from;
    (void)cpus;
    (void)words;
    (void)request;
}

static void *frame(void *context, uint32_t number)
{
    (void)context;
    return ram + number * PAGE;
}

static void *nowhere(void *context, uint32_t number)
{
    (void)context;
    (void)number;
    return NULL;
}

static void *askew(void *context, uint32_t number)
{
    (void)context;
    return ram + number * PAGE + 8;
}

static uint32_t node_of(void *context, uint32_t cpu)
{
    return cpu % *(uint32_t *)context;
}

static bool fails(void *context, uint64_t store, uint64_t index, uint32_t number)
{
    (void)context;
    (void)store;
    (void)index;
    (void)number;
    return false;
}

/* Which hook has caught the last access, and where. */
static uint32_t caught;
static uint64_t caught_at;

static bool fault_hook(void *context, uint64_t space, uint64_t address, uint32_t access,
                       uint32_t hook)
{
    (void)context;
    EXPECT(space != 0 && access <= VELLUM_EXECUTE);
    caught = hook;
    caught_at = address;
    return false;
}

static struct vellum_memory memory = {.first_frame = 0, .frames = FRAMES};

static struct vellum_platform board(void)
{
    struct vellum_platform platform;
    memset(&platform, 0, sizeof platform);
    platform.size = sizeof platform;
    platform.cpus = 1;
    platform.nodes = 1;
    platform.memory = &memory;
    platform.memory_ranges = 1;
    platform.frame = frame;
    platform.pin = pin;
    platform.unpin = unpin;
    platform.flush = flush;
    platform.fault_hook = fault_hook;
    return platform;
}

static enum vellum_status create(const struct vellum_platform *platform, const char *design,
                                 struct vellum **vm, char *message, size_t bytes)
{
    size_t needed = vellum_heap_bytes(platform);
    void *heap = malloc(needed);
    EXPECT(needed > 0 && heap != NULL);
    enum vellum_status status = vellum_create(platform, design, heap, needed, vm, message, bytes);
    if (status != VELLUM_STATUS_OK)
        free(heap);
    return status;
}

static void platforms_that_lack_something(void)
{
    struct vellum *vm = NULL;
    char message[100];
    unsigned char heap[64];
    struct vellum_platform platform = board();
    EXPECT(vellum_heap_bytes(NULL) == 0);
    ANSWERS(ARGUMENT, vellum_create(NULL, NULL, heap, sizeof heap, &vm, NULL, 0));
    ANSWERS(ARGUMENT, vellum_create(&platform, NULL, heap, sizeof heap, NULL, NULL, 0));
    ANSWERS(ARGUMENT, vellum_create(&platform, NULL, NULL, 1 << 30, &vm, NULL, 0));
    ANSWERS(OUT_OF_MEMORY,
            vellum_create(&platform, NULL, heap, sizeof heap, &vm, message, sizeof message));
    EXPECT(strstr(message, "heap") != NULL);
#define LACKS(change)                                                                          \
    do {                                                                                       \
        platform = board();                                                                    \
        change;                                                                                \
        EXPECT(vellum_heap_bytes(&platform) == 0);                                             \
        ANSWERS(ARGUMENT,                                                                      \
                vellum_create(&platform, NULL, heap, sizeof heap, &vm, message, sizeof message)); \
    } while (0)
    LACKS(platform.size = 8);
    LACKS(platform.cpus = 0);
    LACKS(platform.cpus = 513);
    LACKS(platform.nodes = 0);
    LACKS(platform.nodes = 2);
    LACKS(platform.memory = NULL);
    LACKS(platform.pin = NULL);
    LACKS(platform.unpin = NULL);
    LACKS(platform.flush = NULL);
    LACKS((platform.frame = NULL, platform.direct_map = ram + 8));
    EXPECT(vm == NULL);

    platform = board();
    platform.frame = NULL; /* and no direct map: frame 0 would lie at address 0 */
    ANSWERS(ARGUMENT, create(&platform, NULL, &vm, message, sizeof message));
    EXPECT(strstr(message, "address") != NULL);
    platform.direct_map = (void *)(0 - PAGE * (uintptr_t)(FRAMES / 2)); /* wraps around */
    ANSWERS(ARGUMENT, create(&platform, NULL, &vm, message, sizeof message));
    platform.frame = nowhere;
    ANSWERS(ARGUMENT, create(&platform, NULL, &vm, message, sizeof message));
    platform.frame = askew;
    ANSWERS(SETUP, create(&platform, NULL, &vm, message, sizeof message));
    EXPECT(strstr(message, "frame size") != NULL);

    platform = board();
    struct vellum_memory ranges[2] = {{16, 16, 0}, {20, 16, 0}};
    platform.memory = ranges;
    platform.memory_ranges = 2;
    ANSWERS(SETUP, create(&platform, NULL, &vm, message, sizeof message));
    EXPECT(strstr(message, "overlap") != NULL);
    ranges[1].first_frame = 64;
    ranges[1].node = 70000;
    ANSWERS(SETUP, create(&platform, NULL, &vm, message, sizeof message));
    EXPECT(strstr(message, "node") != NULL);
    platform.memory_ranges = 0;
    ANSWERS(SETUP, create(&platform, NULL, &vm, message, sizeof message));
    EXPECT(strstr(message, "empty") != NULL);
}

static void designs_that_cannot_be_had(void)
{
    struct vellum *vm = NULL;
    char message[12] = "unchanged";
    struct vellum_platform platform = board();
    ANSWERS(SETUP, create(&platform, "no such option", &vm, message, sizeof message));
    EXPECT(strlen(message) == sizeof message - 1);
    ANSWERS(SETUP, create(&platform, "rmap=partial", &vm, NULL, 0));
    ANSWERS(SETUP, create(&platform, "format=x86-64-la57", &vm, NULL, 100));
    ANSWERS(SETUP, create(&platform, "\xff", &vm, message, 1));
    EXPECT(message[0] == 0 && vm == NULL);
}

/* Enough, whatever the machine and the design; and not many times too much. */
static void the_heap_is_large_enough(void)
{
    static const char *designs[] = {"",
                                    "framelists=linked",
                                    "fileio=pages",
                                    "fileio=pages,pagelock=hashed",
                                    "ptepage=quicklist",
                                    "ptepage=zeroaware",
                                    "framelists=linked,zonecache=eager,blockflags=bits",
                                    "superpage=eager,huge=always,folio=1m",
                                    "superpage=reserve,huge=always,folio=1m",
                                    "reclaim=on,aging=generations",
                                    "reclaim=on,aging=generations,groups=on,fileio=pages"};
    static const uint32_t cpus[] = {1, 2, 7, 64, 65, 512};
    static uint32_t nodes[] = {1, 2, 5, 64};
    static const uint32_t frames[] = {1024, FRAMES};
    size_t tried = 0;
    double tightest = 0, loosest = 1;
    for (size_t d = 0; d < sizeof designs / sizeof *designs; d++)
        for (size_t c = 0; c < sizeof cpus / sizeof *cpus; c++)
            for (size_t n = 0; n < sizeof nodes / sizeof *nodes; n++)
                for (size_t f = 0; f < sizeof frames / sizeof *frames; f++) {
                    struct vellum_platform platform = board();
                    struct vellum_memory ranges[64];
                    struct vellum *vm;
                    char message[200];
                    platform.cpus = cpus[c];
                    platform.nodes = nodes[n];
                    platform.node_of = node_of;
                    platform.context = &nodes[n];
                    platform.memory = ranges;
                    platform.memory_ranges = nodes[n];
                    for (uint32_t node = 0; node < nodes[n]; node++) {
                        uint32_t share = frames[f] / nodes[n];
                        ranges[node] = (struct vellum_memory){node * share, share, node};
                    }
                    size_t needed = strstr(designs[d], "reclaim=on") != NULL
                                        ? vellum_heap_bytes_for_reclaim(&platform)
                                        : vellum_heap_bytes(&platform);
                    unsigned char *heap = malloc(needed + 1);
                    heap[needed] = 0x5a;
                    enum vellum_status status = vellum_create(&platform, designs[d], heap, needed,
                                                              &vm, message, sizeof message);
                    if (status != VELLUM_STATUS_OK) {
                        fprintf(stderr, "%s: %s\n", designs[d], message);
                        failures++;
                        free(heap);
                        continue;
                    }
                    double share = (double)vellum_heap_used(vm) / (double)needed;
                    tightest = share > tightest ? share : tightest;
                    loosest = share < loosest ? share : loosest;
                    EXPECT(share <= 1 && heap[needed] == 0x5a);
                    ANSWERS(OK, vellum_destroy(vm));
                    free(heap);
                    tried++;
                }
    printf("the heap is used to %.0f to %.0f %% on %zu machines\n", 100 * loosest, 100 * tightest,
           tried);
}

/* `place` is memory of 16 pages that may be read only. */
static void copies(struct vellum *vm, struct vellum_space space, uint64_t place,
                   struct vellum_space none)
{
    char text[8] = "abcdefg";
    size_t done = 0;
    uint32_t word = 7;

    ANSWERS(ARGUMENT, vellum_memory_read(vm, space, place, NULL, 8, VELLUM_CHECKED, NULL));
    ANSWERS(ARGUMENT, vellum_memory_read(vm, space, place, text, 8, 2, NULL));
    ANSWERS(NO_SPACE, vellum_memory_read(vm, none, place, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(NO_REGION, vellum_memory_read(vm, space, 0, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(PROTECTION, vellum_memory_write(vm, space, place, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(OK, vellum_memory_write(vm, space, place + 4, text, 8, VELLUM_FORCED, &done));
    EXPECT(done == 8);
    memset(text, 1, sizeof text);
    ANSWERS(OK, vellum_memory_read(vm, space, place + 4, text, 8, VELLUM_FORCED, NULL));
    EXPECT(memcmp(text, "abcdefg", 8) == 0);
    ANSWERS(OK, vellum_memory_read(vm, space, place + 16 * PAGE - 3, text, 8, VELLUM_CHECKED, &done));
    EXPECT(done == 3 && text[0] == 0 && text[2] == 0 && text[3] == 'd');
    ANSWERS(OK, vellum_memory_read_string(vm, space, place + 6, text, 8, &done));
    EXPECT(done == 5 && memcmp(text, "cdefg", 5) == 0);
    ANSWERS(OK, vellum_memory_read_string(vm, space, place + 6, text, 2, &done));
    EXPECT(done == 2);
    ANSWERS(NO_REGION, vellum_memory_read_string(vm, space, 0, text, 2, &done));

    ANSWERS(ARGUMENT, vellum_memory_compare_exchange(vm, space, place, NULL, 1));
    ANSWERS(ARGUMENT, vellum_memory_compare_exchange(vm, space, place + 2, &word, 1));
    ANSWERS(PROTECTION, vellum_memory_compare_exchange(vm, space, place, &word, 1));
    ANSWERS(OK, vellum_protect(vm, space, place, PAGE, VELLUM_PROT_READ | VELLUM_PROT_WRITE));
    ANSWERS(OK, vellum_memory_compare_exchange(vm, space, place, &word, 1));
    EXPECT(word == 0);
    ANSWERS(OK, vellum_memory_compare_exchange(vm, space, place, &word, 9));
    ANSWERS(OK, vellum_memory_compare_exchange(vm, space, place, &word, 9));
    EXPECT(word == 9);
    ANSWERS(OK, vellum_protect(vm, space, place, PAGE, VELLUM_PROT_READ));
}

static void rules(struct vellum *vm, struct vellum_space none)
{
    struct vellum_space space;
    bool ended;
    const uint32_t read_write = VELLUM_PROT_READ | VELLUM_PROT_WRITE;
    const uint32_t code = VELLUM_PROT_READ | VELLUM_PROT_EXECUTE;
    struct vellum_map_request request = {.bytes = 4 * PAGE, .prot = VELLUM_PROT_READ};
    struct vellum_region region;
    uint64_t place, at;

    ANSWERS(OK, vellum_space_create(vm, &space));
    request.barred = 8;
    ANSWERS(ARGUMENT, vellum_map(vm, space, &request, &place));
    request.barred = VELLUM_PROT_READ;
    ANSWERS(RIGHTS, vellum_map(vm, space, &request, &place));
    request.barred = VELLUM_PROT_WRITE;
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(RIGHTS, vellum_protect(vm, space, place, PAGE, read_write));
    ANSWERS(OK, vellum_region_at(vm, space, place, &region));
    EXPECT(region.bytes == 4 * PAGE && region.barred == VELLUM_PROT_WRITE && region.flags == 0);
    ANSWERS(OK, vellum_protect(vm, space, place, 4 * PAGE, code));

    request.flags = VELLUM_MAP_SEALED;
    ANSWERS(ARGUMENT, vellum_map(vm, space, &request, &at));
    ANSWERS(NO_SPACE, vellum_seal(vm, none, place, PAGE));
    ANSWERS(ARGUMENT, vellum_seal(vm, space, place + 1, PAGE));
    ANSWERS(NOT_MAPPED, vellum_seal(vm, space, place - PAGE, 2 * PAGE));
    ANSWERS(OK, vellum_seal(vm, space, place, PAGE));
    ANSWERS(OK, vellum_region_at(vm, space, place, &region));
    EXPECT(region.bytes == PAGE && region.flags == VELLUM_MAP_SEALED);
    ANSWERS(SEALED, vellum_unmap(vm, space, place, 4 * PAGE));
    ANSWERS(SEALED, vellum_protect(vm, space, place, PAGE, VELLUM_PROT_READ));
    ANSWERS(SEALED, vellum_remap(vm, space, place, PAGE, 2 * PAGE, VELLUM_ANYWHERE, 0, &at));
    ANSWERS(SEALED, vellum_advise(vm, space, place, PAGE, VELLUM_DONT_NEED));
    ANSWERS(OK, vellum_unmap(vm, space, place + PAGE, 3 * PAGE));

    struct vellum_node_policy nodes = {.kind = VELLUM_NODES_BIND, .home = VELLUM_NO_HOME};
    uint32_t node;
    ANSWERS(BAD_NODES, vellum_set_node_policy(vm, space, place, PAGE, &nodes));
    nodes.nodes = 1;
    ANSWERS(NO_SPACE, vellum_set_node_policy(vm, none, place, PAGE, &nodes));
    ANSWERS(ARGUMENT, vellum_set_node_policy(vm, space, place + 1, PAGE, &nodes));
    ANSWERS(NOT_MAPPED, vellum_set_node_policy(vm, space, place + PAGE, PAGE, &nodes));
    ANSWERS(OK, vellum_set_node_policy(vm, space, place, PAGE, &nodes));
    nodes.kind = VELLUM_NODES_WEIGHTED + 1;
    ANSWERS(ARGUMENT, vellum_set_node_policy(vm, space, 0, 0, &nodes));
    ANSWERS(OK, vellum_node_policy_at(vm, space, place, &nodes, &node));
    EXPECT(nodes.kind == VELLUM_NODES_BIND && nodes.nodes == 1 && nodes.home == VELLUM_NO_HOME);
    EXPECT(node == VELLUM_NO_HOME);
    ANSWERS(OK, vellum_set_node_policy(vm, space, 0, 0, NULL));
    ANSWERS(NO_REGION, vellum_node_policy_at(vm, space, place + PAGE, &nodes, NULL));
    ANSWERS(BAD_NODES, vellum_set_node_weight(vm, 1, 3));
    ANSWERS(BAD_NODES, vellum_set_node_weight(vm, 0, 0));
    ANSWERS(OK, vellum_set_node_weight(vm, 0, 255));

    struct vellum_pages_moved moved;
    ANSWERS(NO_SPACE, vellum_move_pages(vm, none, place, PAGE, 0, &moved));
    ANSWERS(ARGUMENT, vellum_move_pages(vm, space, place + 1, PAGE, 0, &moved));
    ANSWERS(ARGUMENT, vellum_move_pages(NULL, space, place, PAGE, 0, &moved));
    ANSWERS(BAD_RANGE, vellum_move_pages(vm, space, place, 0, 0, &moved));
    ANSWERS(NOT_MAPPED, vellum_move_pages(vm, space, place, 2 * PAGE, 0, NULL));
    ANSWERS(BAD_NODES, vellum_move_pages(vm, space, place, PAGE, 1, &moved));
    ANSWERS(BAD_NODES, vellum_move_pages(vm, space, place, PAGE, 1 << 16, &moved));
    request = (struct vellum_map_request){.bytes = PAGE, .prot = read_write};
    ANSWERS(OK, vellum_map(vm, space, &request, &at));
    enum vellum_resolved how;
    ANSWERS(OK, vellum_fault(vm, space, at, VELLUM_WRITE, &how));
    ANSWERS(OK, vellum_move_pages(vm, space, at, PAGE, 0, &moved));
    EXPECT(moved.moved == 0 && moved.in_place == 1 && moved.busy + moved.no_memory == 0);
    ANSWERS(OK, vellum_move_pages(vm, space, at, PAGE, VELLUM_BY_POLICY, NULL));

    struct vellum_translation shown;
    uint32_t what;
    ANSWERS(OK, vellum_translate(vm, space, at, &shown));
    ANSWERS(ARGUMENT, vellum_set_frame_health(vm, shown.frame, 3, &what));
    ANSWERS(ARGUMENT, vellum_set_frame_health(NULL, shown.frame, VELLUM_FRAME_FAILED, &what));
    ANSWERS(UNMANAGED, vellum_set_frame_health(vm, UINT32_MAX, VELLUM_FRAME_FAILED, &what));
    ANSWERS(OK, vellum_set_frame_health(vm, shown.frame, VELLUM_FRAME_FAILING, &what));
    EXPECT(what == VELLUM_WITHDRAWN_MOVED);
    ANSWERS(KEPT, vellum_set_frame_health(vm, shown.frame, VELLUM_FRAME_FAILED, NULL));
    ANSWERS(OK, vellum_set_frame_health(vm, shown.frame, VELLUM_FRAME_GOOD, &what));
    EXPECT(what == VELLUM_READMITTED);
    ANSWERS(KEPT, vellum_set_frame_health(vm, shown.frame, VELLUM_FRAME_GOOD, NULL));
    ANSWERS(OK, vellum_translate(vm, space, at, &shown));
    ANSWERS(OK, vellum_set_frame_health(vm, shown.frame, VELLUM_FRAME_FAILED, &what));
    EXPECT(what == VELLUM_WITHDRAWN_LOST);
    ANSWERS(LOST, vellum_fault(vm, space, at, VELLUM_READ, &how));
    ANSWERS(OK, vellum_unmap(vm, space, at, PAGE));

    ANSWERS(NO_SPACE, vellum_refuse_new_code(vm, none));
    ANSWERS(ARGUMENT, vellum_refuse_new_code(NULL, space));
    ANSWERS(OK, vellum_refuse_new_code(vm, space));
    request = (struct vellum_map_request){.bytes = PAGE, .prot = read_write};
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(RIGHTS, vellum_protect(vm, space, place, PAGE, code));
    request.prot = read_write | VELLUM_PROT_EXECUTE;
    ANSWERS(RIGHTS, vellum_map(vm, space, &request, &place));
    ANSWERS(OK, vellum_exit(vm, space, &ended));
}

static void frames_of_devices(struct vellum *vm)
{
    struct vellum_space space;
    bool ended;
    const uint32_t device = VELLUM_PROT_READ | VELLUM_PROT_WRITE | VELLUM_PROT_UNCACHED;
    struct vellum_map_request request = {.bytes = 4 * PAGE, .prot = device};
    struct vellum_region region;
    struct vellum_translation translation;
    uint32_t first, number;
    unsigned char byte;
    uint64_t place;
    size_t done;
    enum vellum_resolved how;

    ANSWERS(OK, vellum_space_create(vm, &space));
    request.flags = VELLUM_MAP_SHARED | VELLUM_MAP_ON_FAULT;
    ANSWERS(ARGUMENT, vellum_map(vm, space, &request, &place));
    request.flags = VELLUM_MAP_SHARED | VELLUM_MAP_FRAMES;
    request.offset = 0xfd000001;
    ANSWERS(ARGUMENT, vellum_map(vm, space, &request, &place));
    request.offset = UINT64_C(1) << 60;
    ANSWERS(UNMANAGED, vellum_map(vm, space, &request, &place));
    request.offset = 0xfd000000;
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(OK, vellum_translate(vm, space, place + 3 * PAGE, &translation));
    EXPECT(translation.frame == 0xfd003 && translation.prot == device);
    ANSWERS(OK, vellum_region_at(vm, space, place + PAGE, &region));
    EXPECT(region.flags == request.flags && region.offset == 0xfd000000 && !region.is_file);
    EXPECT(region.object.bits == 0);
    ANSWERS(UNMANAGED, vellum_memory_read(vm, space, place, &byte, 1, VELLUM_CHECKED, &done));
    ANSWERS(WRONG_KIND, vellum_advise(vm, space, place, PAGE, VELLUM_DONT_NEED));
    request.flags = VELLUM_MAP_FRAMES;
    ANSWERS(RIGHTS, vellum_map(vm, space, &request, &place));
    request.flags = VELLUM_MAP_SHARED | VELLUM_MAP_FRAMES | VELLUM_MAP_ON_FAULT;
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(NOT_MAPPED, vellum_translate(vm, space, place, &translation));
    ANSWERS(OK, vellum_fault(vm, space, place, VELLUM_WRITE, &how));
    ANSWERS(OK, vellum_translate(vm, space, place, &translation));

    /* Frames that the kernel keeps. */
    ANSWERS(OK, vellum_frames_alloc(vm, 2, true, &first));
    request.offset = first * PAGE;
    ANSWERS(UNMANAGED, vellum_map(vm, space, &request, &place));
    ANSWERS(OK, vellum_frames_reserve(vm, first, 2));
    ANSWERS(ARGUMENT, vellum_frames_reserve(vm, first, 2));
    ANSWERS(ARGUMENT, vellum_frames_free(vm, first, 2));
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    number = first + 1;
    ANSWERS(OK, vellum_fault(vm, space, place + PAGE, VELLUM_READ, &how));
    ANSWERS(OK, vellum_translate(vm, space, place + PAGE, &translation));
    EXPECT(translation.frame == number);
    ANSWERS(OK, vellum_exit(vm, space, &ended));
}

static void hooks(struct vellum *vm, struct vellum_space none)
{
    static unsigned char bytes[2 * 4096];
    struct vellum_space space;
    const uint32_t read_write = VELLUM_PROT_READ | VELLUM_PROT_WRITE;
    const uint32_t all = VELLUM_HOOK_MISSING | VELLUM_HOOK_STORES;
    struct vellum_map_request request = {.bytes = 4 * PAGE, .prot = read_write};
    enum vellum_resolved how;
    uint64_t place, done;
    bool ended;

    ANSWERS(OK, vellum_space_create(vm, &space));
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(NO_SPACE, vellum_hooks(vm, none, place, PAGE, all));
    ANSWERS(ARGUMENT, vellum_hooks(vm, space, place, PAGE, 8));
    ANSWERS(ARGUMENT, vellum_hooks(vm, space, place + 1, PAGE, all));
    ANSWERS(WRONG_KIND, vellum_hooks(vm, space, place, PAGE, VELLUM_HOOK_MINOR));
    ANSWERS(NOT_HOOKED, vellum_hooks_supply(vm, space, place, PAGE, bytes, 0, &done));
    ANSWERS(OK, vellum_hooks(vm, space, place, 4 * PAGE, all));
    ANSWERS(HOOKED, vellum_fault(vm, space, place + 9, VELLUM_READ, &how));
    EXPECT(caught == VELLUM_HOOK_MISSING && caught_at == place);
    ANSWERS(ARGUMENT, vellum_hooks_supply(vm, space, place, PAGE, bytes, 4, &done));
    ANSWERS(ARGUMENT, vellum_hooks_supply(vm, space, place, PAGE, NULL, VELLUM_HOOK_PROTECTED, NULL));
    bytes[4096] = 7;
    ANSWERS(OK, vellum_hooks_supply(vm, space, place, 2 * PAGE, bytes, VELLUM_HOOK_PROTECTED, &done));
    EXPECT(done == 2 * PAGE);
    ANSWERS(EXISTS, vellum_hooks_supply(vm, space, place, PAGE, NULL, 0, NULL));
    ANSWERS(OK, vellum_hooks_supply(vm, space, place + 2 * PAGE, PAGE, NULL, VELLUM_HOOK_QUIET, NULL));
    ANSWERS(OK, vellum_hooks_wake(vm, space, place, 4 * PAGE));
    ANSWERS(HOOKED, vellum_fault(vm, space, place + PAGE, VELLUM_WRITE, &how));
    EXPECT(caught == VELLUM_HOOK_STORES && caught_at == place + PAGE);
    ANSWERS(OK, vellum_fault(vm, space, place + PAGE, VELLUM_READ, &how));
    ANSWERS(OK, vellum_hooks_protect(vm, space, place, 4 * PAGE, false));
    ANSWERS(OK, vellum_fault(vm, space, place + PAGE, VELLUM_WRITE, &how));
    ANSWERS(OK, vellum_hooks_protect(vm, space, place, 4 * PAGE, true));
    ANSWERS(HOOKED, vellum_fault(vm, space, place + 2 * PAGE, VELLUM_WRITE, &how));
    ANSWERS(NOT_HOOKED, vellum_hooks_map_present(vm, space, place + 3 * PAGE, PAGE, &done));
    ANSWERS(OK, vellum_hooks(vm, space, place, 4 * PAGE, 0));
    ANSWERS(NOT_HOOKED, vellum_hooks_protect(vm, space, place, PAGE, true));
    ANSWERS(OK, vellum_fault(vm, space, place + 3 * PAGE, VELLUM_WRITE, &how));
    ANSWERS(OK, vellum_exit(vm, space, &ended));
}

/* What vellum_dirty_take() has reported. */
struct told {
    uint64_t calls, address, bytes;
};

static void tell(void *context, uint64_t address, uint64_t bytes)
{
    struct told *told = context;
    *told = (struct told){told->calls + 1, address, bytes};
}

static void dirty(struct vellum *vm, struct vellum_space none)
{
    struct vellum_space space;
    const uint32_t read_write = VELLUM_PROT_READ | VELLUM_PROT_WRITE;
    struct vellum_map_request request = {.bytes = 4 * PAGE, .prot = read_write};
    struct told told = {0};
    enum vellum_resolved how;
    uint64_t place;
    bool ended;

    ANSWERS(OK, vellum_space_create(vm, &space));
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(NO_SPACE, vellum_dirty_take(vm, none, place, PAGE, 0, tell, &told));
    ANSWERS(ARGUMENT, vellum_dirty_take(vm, space, place, PAGE, 0, NULL, &told));
    ANSWERS(ARGUMENT, vellum_dirty_take(vm, space, place, PAGE, 4, tell, &told));
    ANSWERS(ARGUMENT, vellum_dirty_take(vm, space, place + 1, PAGE, 0, tell, &told));
    ANSWERS(BAD_RANGE, vellum_dirty_take(vm, space, place, 0, 0, tell, &told));
    EXPECT(told.calls == 0);
    ANSWERS(OK, vellum_dirty_take(vm, space, place, 4 * PAGE, 0, tell, &told));
    EXPECT(told.calls == 1 && told.address == place && told.bytes == 4 * PAGE);
    ANSWERS(OK, vellum_dirty_take(vm, space, place, 4 * PAGE, VELLUM_DIRTY_SPLITS, tell, &told));
    EXPECT(told.calls == 1);
    ANSWERS(OK, vellum_fault(vm, space, place + PAGE, VELLUM_WRITE, &how));
    ANSWERS(OK, vellum_dirty_take(vm, space, place, 4 * PAGE, VELLUM_DIRTY_PROTECTS, tell, &told));
    EXPECT(told.calls == 2 && told.address == place + PAGE && told.bytes == PAGE);
    ANSWERS(OK, vellum_exit(vm, space, &ended));
}

static void advice(struct vellum *vm, struct vellum_space none)
{
    struct vellum_space space, child;
    struct vellum_map_request request = {.bytes = 4 * PAGE,
                                         .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE};
    struct vellum_region region;
    uint64_t place;
    char text[8] = "abcdefg";
    bool ended;

    ANSWERS(OK, vellum_space_create(vm, &space));
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    ANSWERS(ARGUMENT, vellum_advise(vm, space, place, PAGE, 19));
    ANSWERS(NO_SPACE, vellum_advise(vm, none, place, PAGE, VELLUM_GUARD_INSTALL));
    ANSWERS(NOT_MAPPED, vellum_advise(vm, space, place - PAGE, 2 * PAGE, VELLUM_DONT_FORK));
    ANSWERS(OK, vellum_advise(vm, space, place, PAGE, VELLUM_DONT_FORK));
    ANSWERS(OK, vellum_region_at(vm, space, place, &region));
    EXPECT(region.bytes == PAGE && region.flags == VELLUM_MAP_NOT_FORKED);
    ANSWERS(OK, vellum_advise(vm, space, place + PAGE, PAGE, VELLUM_GUARD_INSTALL));
    ANSWERS(OK, vellum_region_at(vm, space, place + PAGE, &region));
    EXPECT(region.bytes == 3 * PAGE && region.flags == 0);
    ANSWERS(OK, vellum_fork(vm, space, &child));
    ANSWERS(NO_REGION, vellum_memory_write(vm, child, place, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(PROTECTION,
            vellum_memory_write(vm, child, place + PAGE, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(OK, vellum_advise(vm, child, place + PAGE, PAGE, VELLUM_GUARD_REMOVE));
    ANSWERS(OK, vellum_memory_write(vm, child, place + PAGE, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(PROTECTION,
            vellum_advise(vm, space, place + PAGE, 2 * PAGE, VELLUM_POPULATE_WRITE));
    ANSWERS(OK, vellum_advise(vm, space, place + 2 * PAGE, 2 * PAGE, VELLUM_POPULATE_WRITE));
    ANSWERS(WRONG_KIND, vellum_advise(vm, space, place, PAGE, VELLUM_REMOVE));
    ANSWERS(OK, vellum_exit(vm, child, &ended));
    ANSWERS(OK, vellum_exit(vm, space, &ended));
}

static void placement(struct vellum *vm, struct vellum_space none)
{
    struct vellum_space space;
    struct vellum_map_request request = {.bytes = 4 * PAGE,
                                         .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE};
    struct vellum_layout layout, again;
    struct vellum_object shared;
    uint64_t place, moved;
    uint32_t seals;
    bool resident[4], ended;
    char text[8] = "abcdefg", found[8];

    ANSWERS(OK, vellum_space_create(vm, &space));
    ANSWERS(ARGUMENT, vellum_layout_random(1, 8 << 20, NULL));
    ANSWERS(OK, vellum_layout_random(1, 8 << 20, &layout));
    ANSWERS(OK, vellum_layout_random(1, 8 << 20, &again));
    EXPECT(layout.base == again.base && layout.base < layout.stack_end);
    ANSWERS(ARGUMENT, vellum_layout_set(vm, space, NULL));
    ANSWERS(NO_SPACE, vellum_layout_set(vm, none, &layout));
    layout.kept_free = layout.base - PAGE;
    layout.kept_free_bytes = PAGE;
    ANSWERS(OK, vellum_layout_set(vm, space, &layout));
    ANSWERS(OK, vellum_map(vm, space, &request, &place));
    EXPECT(place == layout.base - 5 * PAGE);
    request.placement = VELLUM_ALIGNED;
    request.address = 3 * PAGE;
    ANSWERS(ARGUMENT, vellum_map(vm, space, &request, &moved));
    request.address = 2 << 20;
    ANSWERS(OK, vellum_map(vm, space, &request, &moved));
    EXPECT(moved % (2 << 20) == 0);
    request.placement = VELLUM_FIXED;
    request.address = 0;
    ANSWERS(BAD_RANGE, vellum_map(vm, space, &request, &moved));

    ANSWERS(OK, vellum_memory_write(vm, space, place + PAGE, text, 8, VELLUM_CHECKED, NULL));
    ANSWERS(ARGUMENT, vellum_residency(vm, space, place, 4 * PAGE, NULL));
    ANSWERS(NOT_MAPPED, vellum_residency(vm, space, place + PAGE, 4 * PAGE, resident));
    ANSWERS(OK, vellum_residency(vm, space, place, 4 * PAGE, resident));
    EXPECT(!resident[0] && resident[1] && !resident[2] && !resident[3]);
    ANSWERS(BAD_RANGE, vellum_remap(vm, space, place, PAGE, 2 * PAGE, VELLUM_LEAVE, 0, &moved));
    ANSWERS(OK, vellum_remap(vm, space, place, 4 * PAGE, 4 * PAGE, VELLUM_LEAVE, 0, &moved));
    ANSWERS(OK, vellum_residency(vm, space, place, 4 * PAGE, resident));
    EXPECT(!resident[1]);
    ANSWERS(OK, vellum_memory_read(vm, space, moved + PAGE, text, 8, VELLUM_CHECKED, NULL));
    EXPECT(text[1] == 'b');
    ANSWERS(WRONG_KIND, vellum_remap(vm, space, place, 0, PAGE, VELLUM_ANYWHERE, 0, &moved));

    ANSWERS(OK, vellum_sealable_memory_create(vm, 4 * PAGE, &shared));
    ANSWERS(ARGUMENT, vellum_object_allocate(vm, shared, 7, 0, PAGE));
    ANSWERS(OK, vellum_object_allocate(vm, shared, VELLUM_ALLOCATE, 0, 5 * PAGE));
    ANSWERS(OK, vellum_object_write(vm, shared, 2 * PAGE, text, 8, NULL));
    ANSWERS(WRONG_KIND, vellum_object_allocate(vm, shared, VELLUM_ALLOCATE_COLLAPSE, 1, PAGE));
    ANSWERS(OK, vellum_object_allocate(vm, shared, VELLUM_ALLOCATE_COLLAPSE, 0, PAGE));
    ANSWERS(OK, vellum_object_read(vm, shared, PAGE, found, 8, NULL));
    EXPECT(found[1] == 'b' && found[6] == 'g');
    ANSWERS(OK, vellum_object_allocate(vm, shared, VELLUM_ALLOCATE_INSERT, PAGE, PAGE));
    ANSWERS(OK, vellum_object_read(vm, shared, 2 * PAGE, found, 8, NULL));
    EXPECT(found[1] == 'b' && found[6] == 'g');
    ANSWERS(WRONG_KIND, vellum_object_seal(vm, shared, 64));
    ANSWERS(OK, vellum_object_seal(vm, shared, VELLUM_SEAL_WRITE | VELLUM_SEAL_GROW));
    ANSWERS(SEALED, vellum_object_write(vm, shared, 0, text, 8, NULL));
    ANSWERS(SEALED, vellum_object_resize(vm, shared, 6 * PAGE));
    ANSWERS(SEALED, vellum_object_allocate(vm, shared, VELLUM_ALLOCATE_HOLE, 0, PAGE));
    ANSWERS(OK, vellum_object_seals(vm, shared, &seals));
    EXPECT(seals == (VELLUM_SEAL_WRITE | VELLUM_SEAL_GROW));
    request = (struct vellum_map_request){.bytes = PAGE,
                                          .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE,
                                          .flags = VELLUM_MAP_SHARED,
                                          .object = shared};
    ANSWERS(SEALED, vellum_map(vm, space, &request, &place));
    ANSWERS(OK, vellum_object_release(vm, shared));
    ANSWERS(OK, vellum_exit(vm, space, &ended));
}

static void arguments_that_are_none(void)
{
    struct vellum *vm;
    struct vellum_space space, other, none = {0};
    struct vellum_object object, nothing = {0};
    struct vellum_map_request request = {.bytes = 16 * PAGE, .prot = VELLUM_PROT_READ};
    struct vellum_region region;
    struct vellum_translation translation;
    struct vellum_loaded loaded;
    struct vellum_space_stats space_stats;
    struct vellum_audit audit;
    struct vellum_collapsed collapsed;
    struct vellum_limits limits = {
        .bytes = 16 * PAGE, .locked_bytes = PAGE, .data_bytes = 16 * PAGE, .regions = 3};
    uint64_t at, place;
    uint32_t first;
    unsigned char bytes[8] = {0};
    struct vellum_platform platform = board();
    platform.read_page = fails;
    ANSWERS(OK, create(&platform, NULL, &vm, NULL, 0));

    ANSWERS(ARGUMENT, vellum_space_create(NULL, &space));
    ANSWERS(ARGUMENT, vellum_space_create(vm, NULL));
    ANSWERS(OK, vellum_space_create(vm, &space));
    EXPECT(space.bits != 0);

    ANSWERS(ARGUMENT, vellum_fork(vm, space, NULL));
    ANSWERS(NO_SPACE, vellum_fork(vm, none, &other));
    ANSWERS(NO_SPACE, vellum_exit(vm, none, NULL));
    ANSWERS(NO_SPACE, vellum_space_share(vm, none));
    ANSWERS(NO_SPACE, vellum_load(vm, none, &loaded));
    ANSWERS(ARGUMENT, vellum_load(vm, space, NULL));
    other.bits = UINT64_MAX;
    ANSWERS(NO_SPACE, vellum_load(vm, other, &loaded));
    ANSWERS(NO_SPACE, vellum_space_stats_get(vm, other, &space_stats));
    ANSWERS(NO_SPACE, vellum_limits_set(vm, none, &limits));

    ANSWERS(ARGUMENT, vellum_map(vm, space, NULL, &at));
    ANSWERS(ARGUMENT, vellum_map(vm, space, &request, NULL));
    ANSWERS(NO_SPACE, vellum_map(vm, none, &request, &at));
#define REFUSED(answer, field, value)                                  \
    do {                                                               \
        struct vellum_map_request bad = request;                       \
        bad.field = value;                                             \
        ANSWERS(answer, vellum_map(vm, space, &bad, &at));             \
    } while (0)
    REFUSED(ARGUMENT, bytes, 17);
    REFUSED(BAD_RANGE, bytes, 0);
    REFUSED(NO_GAP, bytes, vellum_user_end());
    REFUSED(ARGUMENT, prot, 8);
    REFUSED(ARGUMENT, prot, VELLUM_PROT_UNCACHED | VELLUM_PROT_WRITE_COMBINING);
    REFUSED(ARGUMENT, flags, VELLUM_MAP_HEAP);
    REFUSED(ARGUMENT, flags, 64);
    REFUSED(ARGUMENT, placement, 4);
    REFUSED(ARGUMENT, offset, PAGE);
    REFUSED(NO_OBJECT, object.bits, 12345);
    request.placement = VELLUM_FIXED;
    REFUSED(ARGUMENT, address, 5);
    REFUSED(BAD_RANGE, address, vellum_user_end());
    REFUSED(BAD_RANGE, address, UINT64_MAX - PAGE + 1);
    request.placement = VELLUM_ANYWHERE;
    ANSWERS(OK, vellum_map(vm, space, &request, &place));

    ANSWERS(ARGUMENT, vellum_unmap(vm, space, place + 1, PAGE));
    ANSWERS(ARGUMENT, vellum_unmap(vm, space, place, 1));
    ANSWERS(BAD_RANGE, vellum_unmap(vm, space, place, 0));
    ANSWERS(BAD_RANGE, vellum_unmap(vm, space, UINT64_MAX - PAGE + 1, PAGE));
    ANSWERS(BAD_RANGE, vellum_unmap(vm, space, PAGE, UINT64_MAX - PAGE + 1));
    ANSWERS(ARGUMENT, vellum_protect(vm, space, place, PAGE, 99));
    ANSWERS(NOT_MAPPED, vellum_protect(vm, space, place - PAGE, 2 * PAGE, VELLUM_PROT_READ));
    ANSWERS(ARGUMENT, vellum_advise(vm, space, place, PAGE, VELLUM_GUARD_REMOVE + 1));
    ANSWERS(NOT_MAPPED, vellum_advise(vm, space, place - PAGE, 2 * PAGE, VELLUM_COLD));
    ANSWERS(OK, vellum_advise(vm, space, place, PAGE, VELLUM_COLD));
    ANSWERS(OK, vellum_advise(vm, space, place, PAGE, VELLUM_PAGE_OUT));
    ANSWERS(ARGUMENT, vellum_folio_advise(vm, space, place, PAGE, 3 * PAGE));
    ANSWERS(ARGUMENT, vellum_folio_advise(vm, space, place, PAGE, 100));
    ANSWERS(NOT_MAPPED, vellum_folio_advise(vm, space, place - PAGE, 2 * PAGE, PAGE));
    ANSWERS(OK, vellum_folio_advise(vm, space, place, PAGE, (uint64_t)1 << 40));
    ANSWERS(ARGUMENT, vellum_collapse(vm, space, place + 1, 1, 0, &collapsed));
    ANSWERS(ARGUMENT, vellum_collapse(vm, space, place, 1, 1, &collapsed));
    ANSWERS(ARGUMENT, vellum_collapse(vm, space, place, 1, 0, NULL));
    ANSWERS(OK, vellum_collapse(vm, space, place, 1, 0, &collapsed));
    EXPECT(collapsed.collapsed == 0 && collapsed.next == vellum_user_end());
    ANSWERS(ARGUMENT, vellum_superpage_stats_get(vm, NULL));
    ANSWERS(ARGUMENT, vellum_remap(vm, space, place, PAGE, 2 * PAGE, 8, 0, &at));
    ANSWERS(ARGUMENT, vellum_remap(vm, space, place, PAGE, 2 * PAGE, 0, 0, NULL));
    ANSWERS(ARGUMENT, vellum_remap(vm, space, place, PAGE, 9, 0, 0, &at));
    ANSWERS(NO_REGION, vellum_populate(vm, space, PAGE, PAGE));
    ANSWERS(ARGUMENT, vellum_heap_start(vm, space, 1));
    ANSWERS(OK, vellum_heap_start(vm, space, 64 * PAGE));
    ANSWERS(BAD_RANGE, vellum_brk(vm, space, 63 * PAGE));
    ANSWERS(OK, vellum_brk(vm, space, 65 * PAGE));

    ANSWERS(ARGUMENT, vellum_fault(vm, space, place, 3, NULL));
    ANSWERS(NO_REGION, vellum_fault(vm, space, 0, VELLUM_READ, NULL));
    ANSWERS(NO_REGION, vellum_fault(vm, space, UINT64_MAX, VELLUM_READ, NULL));
    ANSWERS(PROTECTION, vellum_fault(vm, space, place, VELLUM_WRITE, NULL));
    ANSWERS(NOT_MAPPED, vellum_translate(vm, space, UINT64_MAX, &translation));
    ANSWERS(NOT_MAPPED, vellum_translate(vm, space, place, &translation));
    ANSWERS(OK, vellum_fault(vm, space, place, VELLUM_READ, NULL));
    ANSWERS(OK, vellum_translate(vm, space, place, &translation));
    EXPECT(translation.prot == VELLUM_PROT_READ);
    ANSWERS(ARGUMENT, vellum_translate(vm, space, place, NULL));
    copies(vm, space, place, none);
    rules(vm, none);
    frames_of_devices(vm);
    advice(vm, none);
    placement(vm, none);
    hooks(vm, none);
    dirty(vm, none);
    ANSWERS(NO_REGION, vellum_region_at(vm, space, UINT64_MAX, &region));
    ANSWERS(OK, vellum_region_at(vm, space, place + 1, &region));
    EXPECT(region.start == place && region.bytes == 16 * PAGE && region.object.bits == 0);
    ANSWERS(ARGUMENT, vellum_regions_each(vm, space, NULL, NULL));
    ANSWERS(ARGUMENT, vellum_limits_set(vm, space, NULL));
    ANSWERS(OK, vellum_limits_set(vm, space, &limits));
    ANSWERS(LIMIT, vellum_map(vm, space, &request, &at));

    ANSWERS(NO_SPACE, vellum_lock_pages(vm, none, place, PAGE));
    ANSWERS(NO_SPACE, vellum_unlock_pages(vm, none, place, PAGE));
    ANSWERS(ARGUMENT, vellum_lock_pages(vm, space, place + 1, PAGE));
    ANSWERS(BAD_RANGE, vellum_unlock_pages(vm, space, place, 0));
    ANSWERS(NOT_MAPPED, vellum_lock_pages(vm, space, place - PAGE, 2 * PAGE));
    ANSWERS(LIMIT, vellum_lock_pages(vm, space, place, 2 * PAGE));
    ANSWERS(OK, vellum_lock_pages(vm, space, place, PAGE));
    ANSWERS(LOCKED, vellum_advise(vm, space, place, 2 * PAGE, VELLUM_DONT_NEED));
    ANSWERS(OK, vellum_region_at(vm, space, place, &region));
    EXPECT(region.bytes == PAGE && region.flags == VELLUM_MAP_LOCKED);
    ANSWERS(OK, vellum_space_stats_get(vm, space, &space_stats));
    EXPECT(space_stats.locked_pages == 1);
    request.flags = VELLUM_MAP_LOCKED;
    ANSWERS(LIMIT, vellum_map(vm, space, &request, &at));
    ANSWERS(OK, vellum_unlock_pages(vm, space, place, 2 * PAGE));
    ANSWERS(OK, vellum_region_at(vm, space, place, &region));
    EXPECT(region.bytes == 16 * PAGE && region.flags == 0);

    ANSWERS(NO_OBJECT, vellum_object_release(vm, nothing));
    ANSWERS(NO_OBJECT, vellum_object_size(vm, nothing, &at));
    ANSWERS(NO_OBJECT, vellum_object_huge_set(vm, nothing, VELLUM_HUGE_ALWAYS));
    ANSWERS(NO_OBJECT, vellum_object_sync(vm, nothing, NULL));
    ANSWERS(ARGUMENT, vellum_file_create(vm, UINT64_MAX, PAGE, &object));
    ANSWERS(ARGUMENT, vellum_shared_memory_create(vm, 1, &object));
    ANSWERS(OK, vellum_file_create(vm, 1, 4 * PAGE, &object));
    ANSWERS(ARGUMENT, vellum_object_huge_set(vm, object, 3));
    ANSWERS(OK, vellum_object_huge_set(vm, object, VELLUM_HUGE_ALWAYS));
    ANSWERS(IO, vellum_object_read(vm, object, 0, bytes, sizeof bytes, NULL));
    ANSWERS(ARGUMENT, vellum_object_read(vm, object, 0, NULL, 8, NULL));
    ANSWERS(ARGUMENT, vellum_object_read(vm, object, 0, bytes, SIZE_MAX, NULL));
    ANSWERS(ARGUMENT, vellum_object_write(vm, object, 0, NULL, 8, NULL));
    ANSWERS(TOO_LARGE, vellum_object_write(vm, object, UINT64_MAX - 4, bytes, 8, NULL));
    ANSWERS(OK, vellum_object_write(vm, object, 4 * PAGE, bytes, 8, NULL));
    ANSWERS(OK, vellum_object_size(vm, object, &at));
    EXPECT(at == 4 * PAGE + 8);
    ANSWERS(IO, vellum_object_sync(vm, object, NULL));

    ANSWERS(ARGUMENT, vellum_frames_alloc(vm, 11, false, &first));
    ANSWERS(ARGUMENT, vellum_frames_alloc(vm, 0, false, NULL));
    ANSWERS(OK, vellum_frames_alloc(vm, 3, true, &first));
    ANSWERS(ARGUMENT, vellum_frames_free(vm, first + 1, 0));
    ANSWERS(ARGUMENT, vellum_frames_free(vm, translation.frame, 0));
    ANSWERS(ARGUMENT, vellum_frames_free(vm, UINT32_MAX, 0));
    ANSWERS(ARGUMENT, vellum_frames_free(vm, loaded.root + FRAMES, 0));
    ANSWERS(OK, vellum_audit_run(vm, &audit, NULL, 0));
    EXPECT(audit.kernel_frames == 8 && audit.spaces == 1 && audit.objects == 1);
    ANSWERS(OK, vellum_frames_free(vm, first, 3));
    ANSWERS(ARGUMENT, vellum_frames_free(vm, first, 3));

    bool ended = false;
    ANSWERS(OK, vellum_space_share(vm, space));
    ANSWERS(OK, vellum_exit(vm, space, &ended));
    EXPECT(!ended);
    ANSWERS(OK, vellum_exit(vm, space, &ended));
    EXPECT(ended);
    ANSWERS(NO_SPACE, vellum_exit(vm, space, &ended));
    ANSWERS(OK, vellum_object_release(vm, object));
    ANSWERS(ARGUMENT, vellum_audit_run(vm, NULL, NULL, 0));
    ANSWERS(OK, vellum_audit_run(vm, &audit, NULL, 0));
    EXPECT(audit.spaces == 0 && audit.objects == 0);
    ANSWERS(ARGUMENT, vellum_destroy(NULL));
    ANSWERS(OK, vellum_destroy(vm));
}

/* Memory runs out at every place in turn; what is left is whole. */
static void memory_runs_out(void)
{
    struct vellum_platform platform = board();
    struct vellum_memory little = {.first_frame = 0, .frames = 256};
    struct vellum_map_request request = {.bytes = 1024 * PAGE,
                                         .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE};
    struct vellum *vm;
    struct vellum_space space, child;
    struct vellum_audit audit;
    uint64_t at, page = 0;
    platform.memory = &little;
    ANSWERS(OK, create(&platform, NULL, &vm, NULL, 0));
    ANSWERS(OK, vellum_space_create(vm, &space));
    ANSWERS(OK, vellum_map(vm, space, &request, &at));
    enum vellum_status status = VELLUM_STATUS_OK;
    while (status == VELLUM_STATUS_OK && page < 1024)
        status = vellum_fault(vm, space, at + page++ * PAGE, VELLUM_WRITE, NULL);
    EXPECT(status == VELLUM_STATUS_OUT_OF_MEMORY && page > 100);
    do
        status = vellum_fork(vm, space, &child);
    while (status == VELLUM_STATUS_OK);
    EXPECT(status == VELLUM_STATUS_OUT_OF_MEMORY);
    ANSWERS(OK, vellum_audit_run(vm, &audit, NULL, 0));
    ANSWERS(OK, vellum_unmap(vm, space, at, 512 * PAGE));
    ANSWERS(OK, vellum_audit_run(vm, &audit, NULL, 0));
    ANSWERS(OK, vellum_destroy(vm));
}

static void *create_and_destroy(void *argument)
{
    struct vellum_platform platform = board();
    struct vellum *vm;
    platform.cpus = 4;
    ANSWERS(OK, create(&platform, argument, &vm, NULL, 0));
    ANSWERS(OK, vellum_destroy(vm));
    return NULL;
}

static void *call_everything(void *argument)
{
    arguments_that_are_none();
    memory_runs_out();
    return argument;
}

static void *do_nothing(void *argument)
{
    return argument;
}

/* Bytes of a stack that a thread wrote to. */
static size_t stack_used_by(void *(*run)(void *), char *argument)
{
    static _Alignas(4096) unsigned char stack[512 << 10];
    pthread_attr_t attributes;
    pthread_t thread;
    size_t untouched = 0;
    memset(stack, 0x5a, sizeof stack);
    EXPECT(pthread_attr_init(&attributes) == 0);
    EXPECT(pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
    EXPECT(pthread_create(&thread, &attributes, run, argument) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(pthread_attr_destroy(&attributes) == 0);
    while (untouched < sizeof stack && stack[untouched] == 0x5a)
        untouched++;
    return sizeof stack - untouched;
}

/* What the header says about the stack of calls. */
static void the_stack_stays_small(void)
{
    static char *designs[] = {NULL, "framelists=linked", "ptepage=zeroaware", "fileio=pages"};
    size_t thread = stack_used_by(do_nothing, NULL);
    for (size_t d = 0; d < sizeof designs / sizeof *designs; d++) {
        size_t used = stack_used_by(create_and_destroy, designs[d]) - thread;
        const char *name = designs[d] == NULL ? "the default" : designs[d];
        printf("vellum_create() takes %zu bytes of stack: %s\n", used, name);
        EXPECT(used < STACK_BYTES);
    }
    size_t used = stack_used_by(call_everything, NULL) - thread;
    printf("all calls together take %zu bytes of stack\n", used);
    EXPECT(used < STACK_BYTES);
}

int main(void)
{
    ram = aligned_alloc(PAGE, FRAMES * PAGE);
    EXPECT(ram != NULL);
    platforms_that_lack_something();
    designs_that_cannot_be_had();
    the_heap_is_large_enough();
    arguments_that_are_none();
    memory_runs_out();
    the_stack_stays_small();
    EXPECT(strcmp(vellum_status_text(VELLUM_STATUS_OK), "as asked") == 0);
    EXPECT(strcmp(vellum_status_text(99), "no status") == 0);
    printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
