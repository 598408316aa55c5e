/* Groups of spaces with limits, as a kernel in C asks for them.
 *
 * `cargo xtask c` compiles and runs this.
 */
#include <stdio.h>
#include <stdlib.h>

#include "machine.h"

#define FRAMES ((uint32_t)4096)
#define LIMIT (64 * PAGE)

static void *heap;

static bool read_page(void *context, uint64_t store, uint64_t index, uint32_t frame)
{
    (void)context;
    (void)store;
    (void)index;
    for (uint64_t at = 0; at < PAGE; at++)
        ram[frame * PAGE + at] = 0;
    return true;
}

static enum vellum_status make(const char *design, size_t less)
{
    static struct vellum_memory memory = {.first_frame = 0, .frames = FRAMES};
    struct vellum_platform platform = machine_with(&memory);
    platform.read_page = read_page;
    size_t bytes = vellum_heap_bytes_for_reclaim(&platform);
    EXPECT(bytes > vellum_heap_bytes(&platform));
    heap = malloc(bytes);
    EXPECT(heap != NULL);
    return vellum_create(&platform, design, heap, bytes - less, &vm, NULL, 0);
}

static void shut_down(void)
{
    struct vellum_audit audit;
    DO(vellum_audit_run(vm, &audit, NULL, 0));
    DO(vellum_destroy(vm));
    free(heap);
}

static struct vellum_group_stats stats(struct vellum_group group)
{
    struct vellum_group_stats stats;
    DO(vellum_group_stats_get(vm, group, &stats));
    return stats;
}

static uint64_t map(struct vellum_space space, uint64_t bytes, struct vellum_object object)
{
    struct vellum_map_request request = {
        .bytes = bytes,
        .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE,
        .flags = object.bits != 0 ? VELLUM_MAP_SHARED : 0,
        .object = object,
    };
    uint64_t address;
    DO(vellum_map(vm, space, &request, &address));
    return address;
}

/* Touches pages until one is refused; returns how many were not. */
static uint64_t touch(struct vellum_space space, uint64_t start, uint64_t pages, uint32_t access,
                      enum vellum_status *last)
{
    uint64_t page = 0;
    *last = VELLUM_STATUS_OK;
    for (; page < pages; page++) {
        *last = vellum_fault(vm, space, start + page * PAGE, access, NULL);
        if (*last != VELLUM_STATUS_OK)
            break;
    }
    return page;
}

static const struct vellum_object nothing = {0};
static const struct vellum_group root = {0};

static void a_group_has_no_more_than_its_limit(void)
{
    enum vellum_status last;
    struct vellum_space space, child, other;
    struct vellum_group group;
    uint64_t excess;
    DO(make("reclaim=on,groups=on", 0));
    DO(vellum_group_create(vm, LIMIT, &group));
    DO(vellum_space_create(vm, &space));
    DO(vellum_space_create(vm, &other));
    DO(vellum_group_join(vm, space, group));
    EXPECT(stats(group).spaces == 1 && stats(group).limit_bytes == LIMIT);

    /* Private memory cannot leave: there is no swap. */
    uint64_t place = map(space, 4 * LIMIT, nothing);
    uint64_t had = touch(space, place, 256, VELLUM_WRITE, &last);
    EXPECT(last == VELLUM_STATUS_GROUP_LIMIT && had > 32 && had <= 64);
    EXPECT(stats(group).used_bytes <= LIMIT && stats(group).used_bytes >= had * PAGE);
    EXPECT(stats(group).limit_hits > 0 && stats(group).failures > 0);
    uint64_t elsewhere = map(other, 4 * LIMIT, nothing);
    EXPECT(touch(other, elsewhere, 256, VELLUM_WRITE, &last) == 256);

    DO(vellum_group_limit_set(vm, group, 2 * LIMIT, &excess));
    EXPECT(excess == 0 && touch(space, place, 100, VELLUM_WRITE, &last) == 100);
    DO(vellum_group_limit_set(vm, group, LIMIT, &excess));
    EXPECT(excess > 0);
    DO(vellum_group_limit_set(vm, group, UINT64_MAX, NULL));
    EXPECT(stats(group).limit_bytes == UINT64_MAX);

    DO(vellum_fork(vm, space, &child));
    EXPECT(stats(group).spaces == 2);
    DO(vellum_group_join(vm, child, root));
    ANSWERS(IN_USE, vellum_group_end(vm, group));
    DO(vellum_exit(vm, space, NULL));
    DO(vellum_group_end(vm, group));
    ANSWERS(NO_GROUP, vellum_group_end(vm, group));
    ANSWERS(NO_GROUP, vellum_group_join(vm, child, group));
    DO(vellum_exit(vm, child, NULL));
    DO(vellum_exit(vm, other, NULL));
    ANSWERS(NO_SPACE, vellum_group_join(vm, other, root));
    shut_down();
}

static void pages_of_files_leave_at_the_limit(void)
{
    enum vellum_status last;
    struct vellum_space space;
    struct vellum_group group;
    struct vellum_object file;
    DO(make("reclaim=on,groups=on,aging=generations", 0));
    DO(vellum_group_create(vm, LIMIT, &group));
    DO(vellum_space_create(vm, &space));
    DO(vellum_group_join(vm, space, group));
    DO(vellum_file_create(vm, 3, 8 * LIMIT, &file));
    uint64_t place = map(space, 8 * LIMIT, file);
    EXPECT(touch(space, place, 512, VELLUM_READ, &last) == 512);
    EXPECT(stats(group).reclaimed_bytes >= 7 * LIMIT / 2 && stats(group).peak_bytes <= LIMIT);
    DO(vellum_exit(vm, space, NULL));
    DO(vellum_object_release(vm, file));
    DO(vellum_group_end(vm, group));
    shut_down();
}

static void groups_lie_within_groups(void)
{
    enum vellum_status last;
    struct vellum_space space;
    struct vellum_group outer, inner;
    struct vellum_object file;
    uint64_t bytes;
    DO(make("reclaim=on,groups=all", 0));
    DO(vellum_group_create(vm, LIMIT, &outer));
    DO(vellum_group_create_in(vm, outer, UINT64_MAX, &inner));
    DO(vellum_space_create(vm, &space));
    DO(vellum_group_join(vm, space, inner));
    EXPECT(stats(outer).table_bytes == PAGE && stats(outer).used_bytes == PAGE);
    ANSWERS(IN_USE, vellum_group_end(vm, outer));
    DO(vellum_file_create(vm, 3, 8 * LIMIT, &file));
    uint64_t place = map(space, 8 * LIMIT, file);
    EXPECT(touch(space, place, 512, VELLUM_READ, &last) == 512);
    EXPECT(stats(outer).peak_bytes <= LIMIT && stats(outer).limit_hits > 0);
    EXPECT(stats(inner).used_bytes == stats(outer).used_bytes && stats(inner).table_bytes > PAGE);
    EXPECT(stats(outer).record_bytes == PAGE);

    struct vellum_group_limits limits = {
        .max_bytes = UINT64_MAX, .high_bytes = 16 * PAGE, .low_bytes = 4 * PAGE, .min_bytes = PAGE};
    DO(vellum_group_limits_set(vm, inner, &limits, &bytes));
    EXPECT(bytes == 0 && stats(inner).used_bytes <= 16 * PAGE);
    EXPECT(touch(space, place, 512, VELLUM_READ, &last) == 512);
    EXPECT(stats(inner).high_events > 0 && stats(inner).failures == 0);
    EXPECT(stats(inner).low_events == 0);
    limits.low_bytes = 1;
    ANSWERS(ARGUMENT, vellum_group_limits_set(vm, inner, &limits, NULL));
    ANSWERS(ARGUMENT, vellum_group_limits_set(vm, inner, NULL, NULL));
    DO(vellum_group_reclaim(vm, inner, 4 * PAGE, &bytes));
    EXPECT(bytes >= 4 * PAGE);
    ANSWERS(NO_GROUP, vellum_group_reclaim(vm, root, PAGE, NULL));
    DO(vellum_exit(vm, space, NULL));
    DO(vellum_object_release(vm, file));
    EXPECT(stats(outer).used_bytes == 0);
    DO(vellum_group_end(vm, inner));
    ANSWERS(NO_GROUP, vellum_group_create_in(vm, inner, LIMIT, &inner));
    DO(vellum_group_end(vm, outer));
    shut_down();
}

static void what_is_no_group_is_refused(void)
{
    struct vellum_group group, groups[100];
    struct vellum_group_stats stats;
    ANSWERS(OUT_OF_MEMORY, make("reclaim=on,groups=on", 4096));
    free(heap);
    DO(make("reclaim=on", 0));
    ANSWERS(NOT_IN_DESIGN, vellum_group_create(vm, LIMIT, &group));
    ANSWERS(NOT_IN_DESIGN, vellum_group_end(vm, root));
    shut_down();
    DO(make("reclaim=on,groups=on", 0));
    ANSWERS(ARGUMENT, vellum_group_create(vm, 1, &group));
    ANSWERS(ARGUMENT, vellum_group_create(vm, LIMIT, NULL));
    ANSWERS(ARGUMENT, vellum_group_create(NULL, LIMIT, &group));
    ANSWERS(NO_GROUP, vellum_group_stats_get(vm, root, &stats));
    ANSWERS(NO_GROUP, vellum_group_end(vm, root));
    size_t made = 0;
    while (made < 100 && vellum_group_create(vm, LIMIT, &groups[made]) == VELLUM_STATUS_OK)
        made++;
    EXPECT(made == 63);
    ANSWERS(TOO_MANY, vellum_group_create(vm, LIMIT, &group));
    while (made-- > 0)
        DO(vellum_group_end(vm, groups[made]));
    shut_down();
}

static void no_more_is_promised_than_may_be(void)
{
    struct vellum_space space, child;
    struct vellum_group group;
    struct vellum_region region;
    struct vellum_stats all;
    uint64_t address;
    struct vellum_map_request request = {
        .bytes = 16 * PAGE,
        .prot = VELLUM_PROT_READ | VELLUM_PROT_WRITE,
    };
    struct vellum_limits limits = {.bytes = UINT64_MAX, .regions = 100, .data_bytes = 40 * PAGE};
    DO(make("", 0));
    ANSWERS(NOT_IN_DESIGN, vellum_commit_always(vm));
    ANSWERS(NOT_IN_DESIGN, vellum_group_commit_limit_set(vm, root, PAGE));
    shut_down();
    DO(make("reclaim=on,groups=on,commit=never", 0));
    DO(vellum_commit_never(vm, 40 * PAGE, 4 * PAGE, 0));
    DO(vellum_space_create(vm, &space));
    DO(vellum_map(vm, space, &request, &address));
    DO(vellum_region_at(vm, space, address, &region));
    EXPECT(region.flags == VELLUM_MAP_COMMITTED);
    DO(vellum_stats_get(vm, &all));
    EXPECT(all.committed_pages == 16 && all.commit_limit_pages == 40);
    DO(vellum_fork(vm, space, &child));
    ANSWERS(COMMIT_LIMIT, vellum_fork(vm, space, &child));
    request.bytes = 5 * PAGE;
    ANSWERS(COMMIT_LIMIT, vellum_map(vm, space, &request, &address));
    limits.is_admin = true;
    DO(vellum_limits_set(vm, space, &limits));
    DO(vellum_map(vm, space, &request, &address));
    DO(vellum_exit(vm, child, NULL));
    request.bytes = 20 * PAGE;
    ANSWERS(LIMIT, vellum_map(vm, space, &request, &address));

    DO(vellum_commit_heuristic(vm));
    DO(vellum_group_create(vm, UINT64_MAX, &group));
    DO(vellum_group_join(vm, space, group));
    EXPECT(stats(group).committed_bytes == 21 * PAGE);
    EXPECT(stats(group).commit_limit_bytes == UINT64_MAX);
    DO(vellum_group_commit_limit_set(vm, group, 25 * PAGE));
    request.bytes = 5 * PAGE;
    ANSWERS(COMMIT_LIMIT, vellum_map(vm, space, &request, &address));
    request.flags = VELLUM_MAP_NO_RESERVE;
    DO(vellum_map(vm, space, &request, &address));
    DO(vellum_region_at(vm, space, address, &region));
    EXPECT(region.flags == VELLUM_MAP_NO_RESERVE);
    ANSWERS(NO_GROUP, vellum_group_commit_limit_set(vm, root, PAGE));
    DO(vellum_exit(vm, space, NULL));
    DO(vellum_stats_get(vm, &all));
    EXPECT(all.committed_pages == 0);
    DO(vellum_group_end(vm, group));
    shut_down();
}

int main(void)
{
    ram = aligned_alloc(PAGE, FRAMES * PAGE);
    EXPECT(ram != NULL);
    a_group_has_no_more_than_its_limit();
    pages_of_files_leave_at_the_limit();
    groups_lie_within_groups();
    what_is_no_group_is_refused();
    no_more_is_promised_than_may_be();
    puts("groups have what they may have");
    return 0;
}
