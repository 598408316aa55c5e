/* Files that are open, bytes at their end, pinned pages, and swap areas. */
#include <string.h>

#include "machine.h"

#define FRAMES 1024u
#define SWAP 7u
#define FILE_STORE 3u
#define STORE_PAGES 2048u

/* Two backing stores: of files, and for swap. */
static unsigned char stored[2][STORE_PAGES][4096];
static bool refuses;
static unsigned reads, writes;

static unsigned char *place_of(uint64_t store, uint64_t index)
{
    EXPECT((store == SWAP || store == FILE_STORE) && index < STORE_PAGES);
    return stored[store == SWAP][index];
}

static bool read_page(void *context, uint64_t store, uint64_t index, uint32_t frame)
{
    (void)context;
    reads++;
    memcpy(ram + frame * PAGE, place_of(store, index), PAGE);
    return true;
}

static bool write_page(void *context, uint64_t store, uint64_t index, uint32_t frame)
{
    (void)context;
    if (refuses)
        return false;
    writes++;
    memcpy(place_of(store, index), ram + frame * PAGE, PAGE);
    return true;
}

static struct vellum_memory memory = {.first_frame = 0, .frames = FRAMES};

static void make(const char *design)
{
    struct vellum_platform platform = machine_with(&memory);
    platform.read_page = read_page;
    platform.write_page = write_page;
    size_t needed = vellum_heap_bytes_for_reclaim(&platform);
    void *heap = malloc(needed);
    char message[100];
    enum vellum_status made =
        vellum_create(&platform, design, heap, needed, &vm, message, sizeof message);
    EXPECT(made == VELLUM_STATUS_OK);
}

static void audit(void)
{
    struct vellum_audit found;
    DO(vellum_audit_run(vm, &found, NULL, 0));
}

static void files_that_are_open(void)
{
    struct vellum_object object, none = {0};
    struct vellum_open_file file, second;
    char text[16] = "";
    uint64_t offset, pages;
    size_t done;
    make("");
    DO(vellum_file_create(vm, FILE_STORE, 0, &object));
    DO(vellum_open(vm, object, &file));
    DO(vellum_open(vm, object, &second));
    DO(vellum_object_append(vm, object, "one, ", 5, &offset, &done));
    EXPECT(offset == 0 && done == 5);
    DO(vellum_object_append(vm, object, "two", 3, &offset, NULL));
    EXPECT(offset == 5);
    DO(vellum_open_read(vm, &file, 0, text, sizeof text, &done));
    EXPECT(done == 8 && memcmp(text, "one, two", 8) == 0);

    /* An error of writing back is told once to each who has the file open. */
    refuses = true;
    ANSWERS(IO, vellum_open_sync(vm, &file, NULL));
    refuses = false;
    DO(vellum_open_sync(vm, &file, &pages));
    EXPECT(pages == 1);
    ANSWERS(IO, vellum_open_sync(vm, &second, NULL));
    DO(vellum_open_sync(vm, &second, NULL));

    /* The object ends with its last user, and is written. */
    DO(vellum_object_append(vm, object, "!", 1, NULL, NULL));
    DO(vellum_object_release(vm, object));
    DO(vellum_close(vm, &file));
    EXPECT(stored[0][0][8] == 0);
    DO(vellum_close(vm, &second));
    EXPECT(memcmp(stored[0][0], "one, two!", 9) == 0);

    ANSWERS(NO_OBJECT, vellum_open(vm, none, &file));
    ANSWERS(NO_OBJECT, vellum_open(vm, object, &file));
    ANSWERS(NO_OBJECT, vellum_object_append(vm, object, "!", 1, NULL, NULL));
    ANSWERS(ARGUMENT, vellum_open(vm, object, NULL));
    ANSWERS(ARGUMENT, vellum_open(NULL, object, &file));
    ANSWERS(ARGUMENT, vellum_close(vm, NULL));
    ANSWERS(ARGUMENT, vellum_open_read(vm, NULL, 0, text, sizeof text, NULL));
    ANSWERS(ARGUMENT, vellum_open_sync(vm, NULL, NULL));
    ANSWERS(ARGUMENT, vellum_object_append(vm, object, NULL, 1, NULL, NULL));

    /* A file is given back by the manager that opened it. */
    struct vellum *first = vm;
    DO(vellum_file_create(first, FILE_STORE, PAGE, &object));
    DO(vellum_open(first, object, &file));
    unsigned char *its = ram;
    ram = aligned_alloc(PAGE, FRAMES * PAGE);
    EXPECT(ram != NULL);
    make("");
    ANSWERS(BUSY, vellum_close(vm, &file));
    ANSWERS(NO_OBJECT, vellum_open_read(vm, &file, 0, text, sizeof text, NULL));
    DO(vellum_destroy(vm));
    free(ram);
    ram = its;
    vm = first;
    DO(vellum_close(vm, &file));
    DO(vellum_destroy(vm));
}

static void pages_that_a_device_uses(void)
{
    struct vellum_space space, child;
    struct vellum_map_request request = {.bytes = 4 * PAGE, .prot = 3};
    struct vellum_translation shown;
    uint32_t frames[5];
    uint64_t start;
    make("");
    DO(vellum_space_create(vm, &space));
    DO(vellum_map(vm, space, &request, &start));
    DO(vellum_pin_pages(vm, space, start, VELLUM_WRITE, frames, 4));
    ram[frames[2] * PAGE + 9] = 7; /* the device */
    unsigned char byte = 0;
    DO(vellum_memory_read(vm, space, start + 2 * PAGE + 9, &byte, 1, VELLUM_CHECKED, NULL));
    EXPECT(byte == 7);
    /* A child gets a copy, and the parent keeps the page. */
    DO(vellum_fork(vm, space, &child));
    DO(vellum_translate(vm, space, start, &shown));
    EXPECT(shown.frame == frames[0]);
    DO(vellum_exit(vm, child, NULL));
    /* It outlives the mapping, and what was pinned can be let go in parts. */
    DO(vellum_unmap(vm, space, start, 4 * PAGE));
    EXPECT(ram[frames[2] * PAGE + 9] == 7);
    DO(vellum_unpin_pages(vm, frames + 3, 1));
    DO(vellum_unpin_pages(vm, frames, 3));
    audit();

    DO(vellum_map(vm, space, &request, &start));
    ANSWERS(NO_REGION, vellum_pin_pages(vm, space, start, VELLUM_WRITE, frames, 5));
    ANSWERS(PROTECTION, vellum_pin_pages(vm, space, start, VELLUM_EXECUTE, frames, 1));
    ANSWERS(ARGUMENT, vellum_pin_pages(vm, space, start + 1, VELLUM_WRITE, frames, 1));
    ANSWERS(ARGUMENT, vellum_pin_pages(vm, space, start, 9, frames, 1));
    ANSWERS(ARGUMENT, vellum_pin_pages(vm, space, start, VELLUM_WRITE, NULL, 1));
    ANSWERS(ARGUMENT, vellum_pin_pages(vm, space, start, VELLUM_WRITE, frames, SIZE_MAX));
    ANSWERS(ARGUMENT, vellum_unpin_pages(vm, NULL, 1));
    DO(vellum_pin_pages(vm, space, start, VELLUM_READ, frames, 0));
    DO(vellum_unpin_pages(vm, frames, 0));
    audit();
    DO(vellum_destroy(vm));
}

static void memory_that_does_not_fit(void)
{
    struct vellum_space space;
    struct vellum_map_request request = {.bytes = 3000 * PAGE, .prot = 3};
    uint64_t start;
    size_t bytes = vellum_swap_heap_bytes(STORE_PAGES);
    unsigned char *heap = malloc(3 * bytes);
    EXPECT(bytes > 0 && heap != NULL);
    EXPECT(vellum_swap_heap_bytes(0) == 0 && vellum_swap_heap_bytes(UINT64_MAX) == 0);
    make("reclaim=on");
    ANSWERS(NO_OBJECT, vellum_swap_off(vm, SWAP));
    ANSWERS(OUT_OF_MEMORY, vellum_swap_on(vm, SWAP, STORE_PAGES, 0, heap, bytes - 1));
    ANSWERS(ARGUMENT, vellum_swap_on(vm, SWAP, 0, 0, heap, bytes));
    ANSWERS(ARGUMENT, vellum_swap_on(vm, SWAP, STORE_PAGES, 0, NULL, bytes));
    ANSWERS(ARGUMENT, vellum_swap_on(vm, UINT64_MAX, STORE_PAGES, 0, heap, bytes));
    ANSWERS(ARGUMENT, vellum_swap_on(NULL, SWAP, STORE_PAGES, 0, heap, bytes));
    DO(vellum_swap_on(vm, SWAP, STORE_PAGES, 0, heap, bytes));
    ANSWERS(IN_USE, vellum_swap_on(vm, SWAP, STORE_PAGES, 0, heap + bytes, bytes));

    DO(vellum_space_create(vm, &space));
    DO(vellum_map(vm, space, &request, &start));
    for (uint64_t page = 0; page < 2000; page++)
        DO(vellum_memory_write(vm, space, start + page * PAGE, &page, sizeof page,
                               VELLUM_CHECKED, NULL));
    EXPECT(writes > 900);
    for (uint64_t page = 0; page < 2000; page++) {
        uint64_t found = 0;
        DO(vellum_memory_read(vm, space, start + page * PAGE, &found, sizeof found,
                              VELLUM_CHECKED, NULL));
        EXPECT(found == page);
    }
    EXPECT(reads > 900);
    ANSWERS(OUT_OF_MEMORY, vellum_swap_off(vm, SWAP));
    DO(vellum_unmap(vm, space, start + 500 * PAGE, 2500 * PAGE));
    DO(vellum_swap_off(vm, SWAP));
    ANSWERS(NO_OBJECT, vellum_swap_off(vm, SWAP));
    DO(vellum_swap_on(vm, SWAP, STORE_PAGES, 2, heap + bytes, bytes));
    audit();
    DO(vellum_destroy(vm));

    /* Exactly as much as is asked for is enough, for any number of slots. */
    make("reclaim=on");
    for (uint64_t slots = 1, store = 100; slots <= STORE_PAGES; slots = slots * 5 + 1, store++) {
        size_t needed = vellum_swap_heap_bytes(slots);
        DO(vellum_swap_on(vm, store, slots, 0, malloc(needed), needed));
    }
    DO(vellum_destroy(vm));
}

int main(void)
{
    ram = aligned_alloc(PAGE, FRAMES * PAGE);
    EXPECT(ram != NULL);
    files_that_are_open();
    pages_that_a_device_uses();
    memory_that_does_not_fit();
    return 0;
}
