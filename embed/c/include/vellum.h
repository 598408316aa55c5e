/* Vellum, a virtual-memory manager, for kernels written in C.
 *
 * Written by `cargo xtask c --write` from the sources in embed/c/src: change those.
 * docs/c.md says how to build the library and how to use it.
 *
 * What every function asks for, unless it says otherwise:
 *
 * - Pointers to what is passed or returned are valid, or null. A null pointer, a number that
 *   is none of the constants, and an address or a length that is no multiple of a page are
 *   answered by VELLUM_STATUS_ARGUMENT, and nothing has changed then. A pointer that leads
 *   nowhere cannot be noticed.
 * - `vm` comes from vellum_create() and was not given to vellum_destroy().
 * - Any number of CPUs may call at the same time. Spaces and objects are names, and stale
 *   ones are noticed; but what a call names must not end while the call runs.
 * - Calls that may sleep are not made while pinned, by an interrupt handler, or from a
 *   function of `struct vellum_platform`. Those that may sleep: all but
 *   vellum_translate(), vellum_load(), vellum_region_at(), vellum_status_text(),
 *   vellum_stats_get(), vellum_superpage_stats_get(), vellum_space_stats_get(),
 *   vellum_group_stats_get(), vellum_object_huge_set(), vellum_unpin_pages(),
 *   vellum_frames_alloc() and vellum_frames_free().
 * - The structures have no padding that matters: fields that are not set are zero.
 */

#ifndef VELLUM_H
#define VELLUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the kernel defines: prints `length` bytes of text, which no zero byte ends, and does
 * not return. Called if the library finds itself or the platform broken; never because of an
 * argument, and never because memory ran out. */
#ifdef __cplusplus
extern "C" [[noreturn]] void vellum_panic(const char *text, size_t length);
#else
_Noreturn void vellum_panic(const char *text, size_t length);
#endif

/*
 An access that loads.
 */
#define VELLUM_READ 0

/*
 An access that stores.
 */
#define VELLUM_WRITE 1

/*
 An access that fetches an instruction.
 */
#define VELLUM_EXECUTE 2

/*
 Whether the rights of regions count.
 */
#define VELLUM_CHECKED 0

/*
 They do not: for debuggers. All that is mapped can be read, and private memory written, whose
 pages are copied where others see them.
 */
#define VELLUM_FORCED 1

/*
 The right to load.
 */
#define VELLUM_PROT_READ 1

/*
 The right to store.
 */
#define VELLUM_PROT_WRITE 2

/*
 The right to fetch instructions.
 */
#define VELLUM_PROT_EXECUTE 4

/*
 Write-combining, for frame buffers, instead of write-back.
 */
#define VELLUM_PROT_WRITE_COMBINING 16

/*
 Uncached, for registers of devices.
 */
#define VELLUM_PROT_UNCACHED 32

/*
 Stores are seen by all who map the object. Without an object: memory that a fork shares.
 */
#define VELLUM_MAP_SHARED 1

/*
 A stack: a fault below it extends it.
 */
#define VELLUM_MAP_GROWS_DOWN 2

/*
 The heap that vellum_brk() moves; in `struct vellum_region` only.
 */
#define VELLUM_MAP_HEAP 4

/*
 Its pages stay in memory once they are there, as after vellum_lock_pages().
 */
#define VELLUM_MAP_LOCKED 8

/*
 It stays as it is, after vellum_seal(); in `struct vellum_region` only.
 */
#define VELLUM_MAP_SEALED 16

/*
 A forked child has nothing there, after VELLUM_DONT_FORK; like the next ones in
 `struct vellum_region` only.
 */
#define VELLUM_MAP_NOT_FORKED 128

/*
 A forked child finds zeroes there, after VELLUM_WIPE_ON_FORK.
 */
#define VELLUM_MAP_WIPED_BY_FORK 256

/*
 Superpages are wanted, after VELLUM_HUGE.
 */
#define VELLUM_MAP_HUGE 512

/*
 Superpages and folios are not wanted, after VELLUM_NO_HUGE.
 */
#define VELLUM_MAP_NOT_HUGE 1024

/*
 Pages are used in turn, after VELLUM_SEQUENTIAL.
 */
#define VELLUM_MAP_SEQUENTIAL 8192

/*
 Pages are used in no order, after VELLUM_RANDOM.
 */
#define VELLUM_MAP_RANDOM 16384

/*
 It shows frames in a row that the manager does not manage, a device's or some of
 vellum_frames_reserve(): `offset` is the physical address of its first byte, and `object` is
 none. VELLUM_STATUS_UNMANAGED if they are the manager's. All entries are made at once.
 */
#define VELLUM_MAP_FRAMES 32

/*
 Faults make the entries of VELLUM_MAP_FRAMES; in requests only.
 */
#define VELLUM_MAP_ON_FAULT 64

/*
 Nothing is charged of what is promised before it is used, unless vellum_commit_never() says so.
 */
#define VELLUM_MAP_NO_RESERVE 2048

/*
 Its pages are charged with `commit=`; in `struct vellum_region` only.
 */
#define VELLUM_MAP_COMMITTED 4096

/*
 In the highest gap that is wide enough.
 */
#define VELLUM_ANYWHERE 0

/*
 At the address if that is free, or else in the highest gap.
 */
#define VELLUM_HINT 1

/*
 At the address, in place of whatever is mapped there.
 */
#define VELLUM_FIXED 2

/*
 At the address, if nothing is mapped there.
 */
#define VELLUM_FIXED_FREE 3

/*
 In the highest gap, at a multiple of the address, which is a power of two.
 */
#define VELLUM_ALIGNED 4

/*
 Of vellum_remap(): in a gap, and what the pages leave stays mapped (MREMAP_DONTUNMAP).
 */
#define VELLUM_LEAVE 5

/*
 Of vellum_remap(): the same, at the address.
 */
#define VELLUM_LEAVE_FOR 6

/*
 Of vellum_remap(): all regions of the range go to the address, with the gaps between them.
 */
#define VELLUM_ALL_TO 7

/*
 Unmap the pages of a range: private ones read as zeroes, or as the object, afterwards.
 */
#define VELLUM_DONT_NEED 0

/*
 Private pages may be dropped until they are stored to again: they then read as zeroes.
 */
#define VELLUM_FREE 1

/*
 Pages are not needed soon: they count as not used, and leave memory before those that are.
 */
#define VELLUM_COLD 2

/*
 Write private pages and those of shared memory to swap now.
 */
#define VELLUM_PAGE_OUT 3

/*
 From now on a forked child has nothing there (MADV_DONTFORK).
 */
#define VELLUM_DONT_FORK 4

/*
 Ends VELLUM_DONT_FORK.
 */
#define VELLUM_DO_FORK 5

/*
 From now on a forked child finds zeroes there: private memory without an object.
 */
#define VELLUM_WIPE_ON_FORK 6

/*
 Ends VELLUM_WIPE_ON_FORK.
 */
#define VELLUM_KEEP_ON_FORK 7

/*
 Superpages are wanted, for the design superpage=advise.
 */
#define VELLUM_HUGE 8

/*
 Superpages and folios are not wanted.
 */
#define VELLUM_NO_HUGE 9

/*
 Ends VELLUM_SEQUENTIAL and VELLUM_RANDOM.
 */
#define VELLUM_NORMAL 10

/*
 Pages are used in turn: a fault has those after its own read from the file, too.
 */
#define VELLUM_SEQUENTIAL 11

/*
 Pages are used in no order: a fault has its page alone read.
 */
#define VELLUM_RANDOM 12

/*
 Pages are needed soon: those of files are read, and those in swap.
 */
#define VELLUM_WILL_NEED 13

/*
 Map every page as a load does.
 */
#define VELLUM_POPULATE_READ 14

/*
 Map every page as a store does.
 */
#define VELLUM_POPULATE_WRITE 15

/*
 Make a hole in the object that is mapped, shared.
 */
#define VELLUM_REMOVE 16

/*
 Drop the pages and have every access to them fail, without a region of their own.
 */
#define VELLUM_GUARD_INSTALL 17

/*
 End guards.
 */
#define VELLUM_GUARD_REMOVE 18

/*
 No policy: another one counts, or none.
 */
#define VELLUM_NODES_DEFAULT 0

/*
 The node of the CPU that faults, then others, nearest first (MPOL_LOCAL).
 */
#define VELLUM_NODES_LOCAL 1

/*
 These nodes only, nearest first; VELLUM_STATUS_OUT_OF_MEMORY rather than others (MPOL_BIND).
 */
#define VELLUM_NODES_BIND 2

/*
 These nodes, nearest first, then others (MPOL_PREFERRED_MANY).
 */
#define VELLUM_NODES_PREFER 3

/*
 These in turn, by the number of the page (MPOL_INTERLEAVE).
 */
#define VELLUM_NODES_INTERLEAVE 4

/*
 The same, by the weights of vellum_set_node_weight() (MPOL_WEIGHTED_INTERLEAVE).
 */
#define VELLUM_NODES_WEIGHTED 5

/*
 No node from which others of VELLUM_NODES_BIND and VELLUM_NODES_PREFER are near or far: that is
 the one of the CPU that faults.
 */
#define VELLUM_NO_HOME UINT32_MAX

/*
 No node: each page moves to where the policy that counts wants it.
 */
#define VELLUM_BY_POLICY UINT32_MAX

/*
 Catches accesses to pages that are not there.
 */
#define VELLUM_HOOK_MISSING 1

/*
 Catches stores to pages that vellum_hooks_protect() has protected.
 */
#define VELLUM_HOOK_STORES 2

/*
 Catches accesses to pages that shared memory has and the space does not map.
 */
#define VELLUM_HOOK_MINOR 4

/*
 Pages come protected: for vellum_hooks_supply().
 */
#define VELLUM_HOOK_PROTECTED 1

/*
 Who waits is not woken: vellum_hooks_wake() is called later.
 */
#define VELLUM_HOOK_QUIET 2

/*
 Pages that were written lose the right to store, so that the next store faults.
 */
#define VELLUM_DIRTY_PROTECTS 1

/*
 Superpages are made single pages, as far as there is memory for tables.
 */
#define VELLUM_DIRTY_SPLITS 2

/*
 No more seals.
 */
#define VELLUM_SEAL_SEAL 1

/*
 It does not get shorter.
 */
#define VELLUM_SEAL_SHRINK 2

/*
 It does not get longer.
 */
#define VELLUM_SEAL_GROW 4

/*
 Its content stays.
 */
#define VELLUM_SEAL_WRITE 8

/*
 Its content stays, but for what those store who have it mapped.
 */
#define VELLUM_SEAL_FUTURE_WRITE 16

/*
 Whether it may be executed stays; kept for the caller.
 */
#define VELLUM_SEAL_EXEC 32

/*
 Pages are made, and the object gets longer if need be.
 */
#define VELLUM_ALLOCATE 0

/*
 Pages are made, and the length stays.
 */
#define VELLUM_ALLOCATE_KEEP_SIZE 1

/*
 Bytes are zeroed, pages made, and the object gets longer if need be.
 */
#define VELLUM_ALLOCATE_ZERO 2

/*
 Bytes are zeroed, pages made, and the length stays.
 */
#define VELLUM_ALLOCATE_ZERO_KEEP_SIZE 3

/*
 Whole pages go, and parts of pages are zeroed (FALLOC_FL_PUNCH_HOLE); the length stays.
 */
#define VELLUM_ALLOCATE_HOLE 4

/*
 Whole pages of memory are taken out, and what follows moves to their place
 (FALLOC_FL_COLLAPSE_RANGE).
 */
#define VELLUM_ALLOCATE_COLLAPSE 5

/*
 What is there moves back, and leaves a hole of whole pages (FALLOC_FL_INSERT_RANGE).
 */
#define VELLUM_ALLOCATE_INSERT 6

/*
 Words of a `struct vellum_open_file`.
 */
#define VELLUM_OPEN_FILE_WORDS 8

/*
 Superpages of an object as the design says (`huge=`, of files with a backing store
 `filehuge=`).
 */
#define VELLUM_HUGE_DEFAULT 0

/*
 An object without superpages.
 */
#define VELLUM_HUGE_NEVER 1

/*
 An object with superpages, if the design does not say `never`.
 */
#define VELLUM_HUGE_ALWAYS 2

/*
 A frame that is out of use can be used: memory that comes back, or that is added.
 */
#define VELLUM_FRAME_GOOD 0

/*
 Errors in the memory of a frame were corrected, or it is to be taken away: what it holds is good.
 */
#define VELLUM_FRAME_FAILING 1

/*
 What a frame held is lost.
 */
#define VELLUM_FRAME_FAILED 2

/*
 Nobody used the frame.
 */
#define VELLUM_WITHDRAWN_UNUSED 0

/*
 It held a page of a file, which is read anew.
 */
#define VELLUM_WITHDRAWN_DROPPED 1

/*
 What it held is elsewhere.
 */
#define VELLUM_WITHDRAWN_MOVED 2

/*
 What it held is lost: accesses are VELLUM_STATUS_LOST until the page is unmapped or dropped, and of
 a page of a file an error is told when it is synchronised.
 */
#define VELLUM_WITHDRAWN_LOST 3

/*
 It was out of use, and is free now.
 */
#define VELLUM_READMITTED 4

/*
 How a call went. Whatever is not VELLUM_STATUS_OK says that nothing has changed, unless
 the function says otherwise.
 */
enum vellum_status {
  /*
   As asked.
   */
  VELLUM_STATUS_OK = 0,
  /*
   A pointer is null, a number is none of the constants, or an address or a length is no
   multiple of a page.
   */
  VELLUM_STATUS_ARGUMENT,
  /*
   No such space.
   */
  VELLUM_STATUS_NO_SPACE,
  /*
   No such object.
   */
  VELLUM_STATUS_NO_OBJECT,
  /*
   No region holds the address.
   */
  VELLUM_STATUS_NO_REGION,
  /*
   The region does not allow the access.
   */
  VELLUM_STATUS_PROTECTION,
  /*
   The page lies past the end of the mapped object.
   */
  VELLUM_STATUS_PAST_END,
  /*
   The range is empty, or lies outside of what page tables can map.
   */
  VELLUM_STATUS_BAD_RANGE,
  /*
   Part of the range is not mapped.
   */
  VELLUM_STATUS_NOT_MAPPED,
  /*
   Something else is mapped there.
   */
  VELLUM_STATUS_OCCUPIED,
  /*
   No gap is wide enough.
   */
  VELLUM_STATUS_NO_GAP,
  /*
   A limit of the space would be exceeded.
   */
  VELLUM_STATUS_LIMIT,
  /*
   The object's mount has as many pages as it may.
   */
  VELLUM_STATUS_FULL,
  /*
   The place lies past what an object may hold.
   */
  VELLUM_STATUS_TOO_LARGE,
  /*
   No frame, table or node could be had; or the memory given to vellum_create() is less
   than vellum_heap_bytes().
   */
  VELLUM_STATUS_OUT_OF_MEMORY,
  /*
   The backing store failed.
   */
  VELLUM_STATUS_IO,
  /*
   The platform or the design cannot be used; the message says why.
   */
  VELLUM_STATUS_SETUP,
  /*
   An audit found something wrong; the message says what.
   */
  VELLUM_STATUS_AUDIT,
  /*
   Another CPU is making a manager.
   */
  VELLUM_STATUS_BUSY,
  /*
   The group of the space has as many pages as it may, and none of them can leave.
   */
  VELLUM_STATUS_GROUP_LIMIT,
  /*
   No such group, or it is the root.
   */
  VELLUM_STATUS_NO_GROUP,
  /*
   There are as many groups, swap areas or pins of a page as can be.
   */
  VELLUM_STATUS_TOO_MANY,
  /*
   Spaces belong to the group; or the store is a swap area, or a page of it is kept.
   */
  VELLUM_STATUS_IN_USE,
  /*
   The manager's design leaves it out.
   */
  VELLUM_STATUS_NOT_IN_DESIGN,
  /*
   Part of the range is locked.
   */
  VELLUM_STATUS_LOCKED,
  /*
   Growing down, and advice to free, are for private memory without an object only.
   */
  VELLUM_STATUS_WRONG_KIND,
  /*
   The mapping may never get these rights, or the space makes no code of other memory.
   */
  VELLUM_STATUS_RIGHTS,
  /*
   Part of the range is sealed.
   */
  VELLUM_STATUS_SEALED,
  /*
   The memory is none that the manager manages (VELLUM_MAP_FRAMES), or a frame that was to be
   mapped so is.
   */
  VELLUM_STATUS_UNMANAGED,
  /*
   More memory would be promised than may be.
   */
  VELLUM_STATUS_COMMIT_LIMIT,
  /*
   A fault hook caught the access, and the platform did not have the task wait.
   */
  VELLUM_STATUS_HOOKED,
  /*
   Part of the range has no hooks, or not the one that the call needs.
   */
  VELLUM_STATUS_NOT_HOOKED,
  /*
   There is a page already.
   */
  VELLUM_STATUS_EXISTS,
  /*
   The object has no page there.
   */
  VELLUM_STATUS_NO_PAGE,
  /*
   A policy of nodes names none, or one that there is not.
   */
  VELLUM_STATUS_BAD_NODES,
  /*
   The memory of the page has failed, and what it held is lost.
   */
  VELLUM_STATUS_LOST,
  /*
   What the frame holds cannot leave it, or it is out of use, or in use, already.
   */
  VELLUM_STATUS_KEPT,
};

/*
 What resolving a fault took.
 */
enum vellum_resolved {
  /*
   The page was mapped.
   */
  VELLUM_RESOLVED_MAPPED = 0,
  /*
   The entry was there and got the right that was missing.
   */
  VELLUM_RESOLVED_UPGRADED,
  /*
   The page was copied, and the copy mapped.
   */
  VELLUM_RESOLVED_COPIED,
  /*
   The entry allowed the access already.
   */
  VELLUM_RESOLVED_SPURIOUS,
};

/*
 A manager.
 */
struct vellum;

/*
 A run of page frames for the manager's use alone.
 */
struct vellum_memory {
  /*
   The first: its address divided by the size of a page.
   */
  uint32_t first_frame;
  /*
   How many.
   */
  uint32_t frames;
  /*
   The node that the memory belongs to.
   */
  uint32_t node;
};

/*
 Translations to forget.
 */
struct vellum_flush {
  /*
   The tag of the space whose translations they are (`struct vellum_loaded`).
   */
  uint32_t space;
  /*
   Whether all translations of the space are meant; the next two are 0 then.
   */
  bool all;
  /*
   Whether page tables were unlinked, too: entries of upper levels that the processor
   caches must go.
   */
  bool tables;
  /*
   Address of the first page.
   */
  uint64_t start;
  /*
   Bytes.
   */
  uint64_t bytes;
};

/*
 The machine under the manager. vellum_create() copies it; what it points to stays there
 until vellum_destroy().

 What is promised by filling it in:

 1. The frames in `memory` are memory that nobody else uses. The ranges are ascending and
    do not overlap.
 2. A frame's address is aligned to the frame's size, and the whole frame can be read and
    written there, for good. Distinct frames do not overlap.
 3. Between `pin` and the matching `unpin` the caller stays on the CPU that `pin` named,
    from 0 to `cpus - 1`, and nobody else is pinned there. Pins of one caller nest. An
    interrupt handler that calls the manager is another caller: either none does, or `pin`
    keeps interrupts off.
 4. When `flush` returns, none of the named CPUs uses or will use a translation that the
    request covers and that was read from the tables before the call, and accesses made
    with them have completed.
 5. The kernel touches the bytes of frames that the manager uses only as aligned words of
    8 bytes, or while nobody else may store to them (user programs and devices may, at any
    time). The frames that `read_page` is to fill are the platform's alone until it
    returns.
 6. `root_made` and `root_ends` change no entry for pages of programs.
 7. No function but `fault_hook` calls the manager that the platform serves, and none leaves by longjmp() or
    by a C++ exception.
 */
struct vellum_platform {
  /*
   sizeof(struct vellum_platform): tells a kernel and a library that were compiled with
   different headers apart.
   */
  uint32_t size;
  /*
   CPUs, 1 to 512.
   */
  uint32_t cpus;
  /*
   Nodes, 1 to 1024.
   */
  uint32_t nodes;
  /*
   Ranges in `memory`.
   */
  uint32_t memory_ranges;
  /*
   The memory to manage.
   */
  const struct vellum_memory *memory;
  /*
   Handed to every function below.
   */
  void *context;
  /*
   Where frame 0 lies in the kernel's map of all memory, or would lie if there were one;
   used if `frame` is null.
   */
  void *direct_map;
  /*
   The address of a frame, for kernels without such a map; may be null.
   */
  void *(*frame)(void *context, uint32_t frame);
  /*
   The node of a CPU; null if there is one node.
   */
  uint32_t (*node_of)(void *context, uint32_t cpu);
  /*
   Binds the caller to its CPU, and names it: disables preemption.
   */
  uint32_t (*pin)(void *context);
  /*
   Ends the last pin.
   */
  void (*unpin)(void *context, uint32_t cpu);
  /*
   Makes CPUs forget translations, and returns when they have. Bit `n % 64` of word
   `n / 64` of `cpus` stands for CPU `n`. Called pinned, by CPU `from`. Whoever waits for
   a lock of the manager is pinned, and must be able to answer meanwhile.
   */
  void (*flush)(void *context,
                uint32_t from,
                const uint64_t *cpus,
                size_t words,
                const struct vellum_flush *request);
  /*
   A root table was made that nobody can have loaded: fills the entries for the kernel's
   half of the address space. May be null, as may the next one.
   */
  void (*root_made)(void *context, uint32_t root);
  /*
   A root table is given up: clears the entries that `root_made` filled.
   */
  void (*root_ends)(void *context, uint32_t root);
  /*
   Called while spinning; `spins` counts from 0. May be null.
   */
  void (*relax)(void *context, uint32_t spins);
  /*
   The task that runs, as the scheduler names it. The next three may be null together:
   then whoever has to wait asks again and again.
   */
  uint64_t (*current_task)(void *context);
  /*
   Sleeps until `unpark` is called for this task. A wake that comes first is not lost.
   May return early. Never called pinned.
   */
  void (*park)(void *context);
  /*
   Wakes a task.
   */
  void (*unpark)(void *context, uint64_t task);
  /*
   Reads page `index` of a backing store into a frame; false if it cannot. Never called
   pinned. Null if there are no files, as are the next four.
   */
  bool (*read_page)(void *context, uint64_t store, uint64_t index, uint32_t frame);
  /*
   Writes a frame to page `index` of a backing store; false if it was not taken.
   */
  bool (*write_page)(void *context, uint64_t store, uint64_t index, uint32_t frame);
  /*
   Makes what a store took survive a loss of power. Null if every write does.
   */
  bool (*flush_store)(void *context, uint64_t store);
  /*
   Makes `pages` pages from `first` on read as zeroes until they are written: a file was
   cut off. `pages` may reach far beyond what was ever written. Null if no file is cut.
   */
  bool (*discard_pages)(void *context, uint64_t store, uint64_t first, uint64_t pages);
  /*
   A hook caught an access of a space at an address (vellum_hooks()): has whoever supplies
   pages hear of it. True if the task is to sleep until its page has changed, false if the call
   is to fail with VELLUM_STATUS_HOOKED. Called again if the task is woken and the page is still
   caught. `space` has the bits of a
   struct vellum_space; `access` is VELLUM_READ and so on, `hook` VELLUM_HOOK_MISSING and so on. Not called pinned, and
   may call the manager. Null if all such calls fail.
   */
  bool (*fault_hook)(void *context,
                     uint64_t space,
                     uint64_t address,
                     uint32_t access,
                     uint32_t hook);
};

/*
 Names an address space. All bits are zero in no name.
 */
struct vellum_space {
  /*
   To be kept and compared, and for nothing else.
   */
  uint64_t bits;
};

/*
 What a CPU needs to run a task of a space.
 */
struct vellum_loaded {
  /*
   The tag of the space, for a PCID or an ASID.
   */
  uint32_t tag;
  /*
   The frame of the root table.
   */
  uint32_t root;
};

/*
 What a page shows.
 */
struct vellum_translation {
  /*
   The frame.
   */
  uint32_t frame;
  /*
   What the entry allows: VELLUM_PROT_READ and so on.
   */
  uint32_t prot;
};

/*
 Names a file or shared memory. All bits are zero in no name.
 */
struct vellum_object {
  /*
   To be kept and compared, and for nothing else.
   */
  uint64_t bits;
};

/*
 What to map, and where. Zero in every field but `bytes` and `prot` asks for private zeroes
 anywhere.
 */
struct vellum_map_request {
  /*
   How much.
   */
  uint64_t bytes;
  /*
   VELLUM_PROT_READ and so on.
   */
  uint32_t prot;
  /*
   VELLUM_MAP_SHARED and so on.
   */
  uint32_t flags;
  /*
   VELLUM_ANYWHERE, VELLUM_HINT, VELLUM_FIXED, VELLUM_FIXED_FREE or VELLUM_ALIGNED.
   */
  uint32_t placement;
  /*
   For all but VELLUM_ANYWHERE.
   */
  uint64_t address;
  /*
   What is shown; zeroes if `bits` is 0.
   */
  struct vellum_object object;
  /*
   From which byte of the object on; with VELLUM_MAP_FRAMES, the physical address.
   */
  uint64_t offset;
  /*
   A word of the caller's own: regions are united only if theirs are equal.
   */
  uint64_t tag;
  /*
   Rights that it never gets, VELLUM_PROT_READ and so on, whatever vellum_protect() is asked:
   those without which a file was opened.
   */
  uint32_t barred;
};

/*
 What a space may have at most.
 */
struct vellum_limits {
  /*
   Bytes of all regions together.
   */
  uint64_t bytes;
  /*
   Bytes that a stack may grow to.
   */
  uint64_t stack_bytes;
  /*
   Bytes that stay free below a stack.
   */
  uint64_t stack_gap_bytes;
  /*
   Bytes of all locked regions together.
   */
  uint64_t locked_bytes;
  /*
   Bytes of all regions together that are private, can be written and are no stack.
   */
  uint64_t data_bytes;
  /*
   Regions.
   */
  uint32_t regions;
  /*
   Whether what vellum_commit_never() reserves for administrators is for the space, too.
   */
  bool is_admin;
};

/*
 A region of a space.
 */
struct vellum_region {
  /*
   Address of its first byte.
   */
  uint64_t start;
  /*
   How much.
   */
  uint64_t bytes;
  /*
   VELLUM_PROT_READ and so on.
   */
  uint32_t prot;
  /*
   VELLUM_MAP_SHARED and so on.
   */
  uint32_t flags;
  /*
   What it shows; `bits` is 0 for private zeroes.
   */
  struct vellum_object object;
  /*
   Which byte of the object is the region's first; with VELLUM_MAP_FRAMES, its physical address.
   */
  uint64_t offset;
  /*
   The backing store of the object, if it is a file.
   */
  uint64_t store;
  /*
   Whether it is.
   */
  bool is_file;
  /*
   The word that its request had.
   */
  uint64_t tag;
  /*
   Rights that it never gets, VELLUM_PROT_READ and so on.
   */
  uint32_t barred;
};

/*
 On which nodes pages come to lie. Those that are there already stay where they are.
 */
struct vellum_node_policy {
  /*
   One of VELLUM_NODES_*.
   */
  uint32_t kind;
  /*
   A node or VELLUM_NO_HOME.
   */
  uint32_t home;
  /*
   A bit for each node from 0 to 47.
   */
  uint64_t nodes;
};

/*
 What became of the pages of a range that were to lie elsewhere, of those that are in memory.
 */
struct vellum_pages_moved {
  /*
   Pages that have moved.
   */
  uint64_t moved;
  /*
   Pages that lay right.
   */
  uint64_t in_place;
  /*
   Private pages that other spaces map, too.
   */
  uint64_t shared;
  /*
   Pages that are pinned, in the swap cache, or written or referred to at this moment; and of
   objects, those in a locked range, and those that a fault hook watches.
   */
  uint64_t busy;
  /*
   Pages for which there was no frame where they were to be.
   */
  uint64_t no_memory;
};

/*
 How a space is laid out.
 */
struct vellum_layout {
  /*
   The lowest address that can be mapped, also at a fixed place (mmap_min_addr).
   */
  uint64_t lowest;
  /*
   What is mapped anywhere comes below, as long as there is a gap.
   */
  uint64_t base;
  /*
   Where a range begins in which nothing is placed unless at a fixed place.
   */
  uint64_t kept_free;
  /*
   How long that range is; 0 if there is none.
   */
  uint64_t kept_free_bytes;
  /*
   For the caller: the end of the first stack.
   */
  uint64_t stack_end;
  /*
   For the caller: how far behind the program the heap begins.
   */
  uint64_t heap_gap;
};

/*
 A file that somebody has open: what a kernel keeps beside the position, in memory of its own,
 from vellum_open() to vellum_close(). It stays where it is. Threads may share it.
 */
struct vellum_open_file {
  /*
   For the library alone.
   */
  uint64_t words[VELLUM_OPEN_FILE_WORDS];
};

/*
 What vellum_collapse() did.
 */
struct vellum_collapsed {
  /*
   Ranges of a superpage's size that were looked at.
   */
  uint64_t scanned;
  /*
   Superpages made.
   */
  uint64_t collapsed;
  /*
   Where the next call goes on: vellum_user_end() when there is nothing after it.
   */
  uint64_t next;
};

/*
 Superpages, folios and reservations since the manager was made.
 */
struct vellum_superpage_stats {
  /*
   Superpages mapped by faults.
   */
  uint64_t maps;
  /*
   Times there was no run of frames for a superpage, or no memory to map it.
   */
  uint64_t failures;
  /*
   Mappings of superpages that became single pages.
   */
  uint64_t demotions;
  /*
   Superpages made by vellum_collapse().
   */
  uint64_t collapses;
  /*
   Superpages that faults made of single pages in place.
   */
  uint64_t promotions;
  /*
   Runs of frames set aside.
   */
  uint64_t reservations;
  /*
   Of these, those that were broken because memory had run out.
   */
  uint64_t broken_reservations;
  /*
   Bytes that are set aside and unused now; approximate while CPUs are at work.
   */
  uint64_t reserved_bytes;
  /*
   Folios mapped.
   */
  uint64_t folios;
  /*
   Bytes of these folios.
   */
  uint64_t folio_bytes;
  /*
   Times there was no run of frames of any size for a folio, or no memory to map it.
   */
  uint64_t folio_failures;
};

/*
 Names a group of spaces. All bits are zero in the name of the root, in which spaces begin
 and which has no limit.
 */
struct vellum_group {
  /*
   To be kept and compared, and for nothing else.
   */
  uint32_t bits;
};

/*
 What a group may have and keep, with those within it, as the limits of Linux's memory control
 groups.
 */
struct vellum_group_limits {
  /*
   What it never has more of; UINT64_MAX for no limit.
   */
  uint64_t max_bytes;
  /*
   Above this, calls have pages of it leave first, and go on; UINT64_MAX for no limit.
   */
  uint64_t high_bytes;
  /*
   Up to this, its pages leave for others only if nothing else can.
   */
  uint64_t low_bytes;
  /*
   Up to this, they never do.
   */
  uint64_t min_bytes;
};

/*
 What there is of a group.
 */
struct vellum_group_stats {
  /*
   Bytes of the pages that it is charged for; approximate while CPUs charge it.
   */
  uint64_t used_bytes;
  /*
   The most that this was since the group was made, with what CPUs had taken for it and
   not used yet.
   */
  uint64_t peak_bytes;
  /*
   What it may be charged for; UINT64_MAX if there is no limit.
   */
  uint64_t limit_bytes;
  /*
   Of what it is charged for, page tables; with `groups=all`.
   */
  uint64_t table_bytes;
  /*
   Of what it is charged for, records of the regions of its spaces, in whole pages for each
   space; with `groups=all`.
   */
  uint64_t record_bytes;
  /*
   Bytes of its pages that reclaim had leave memory.
   */
  uint64_t reclaimed_bytes;
  /*
   Times that the limit was reached and pages of the group had to leave.
   */
  uint64_t limit_hits;
  /*
   Calls that failed because no page of it could leave.
   */
  uint64_t failures;
  /*
   Times that a call had pages of the group leave first because it was above its high_bytes.
   */
  uint64_t high_events;
  /*
   Times that its pages were looked at although it had no more than its low_bytes.
   */
  uint64_t low_events;
  /*
   Bytes that its spaces are promised, with the shared memory made for it; with `commit=`.
   */
  uint64_t committed_bytes;
  /*
   Most of that; UINT64_MAX if there is no limit.
   */
  uint64_t commit_limit_bytes;
  /*
   Spaces that belong to it.
   */
  uint32_t spaces;
};

/*
 What a space uses.
 */
struct vellum_space_stats {
  /*
   Private pages.
   */
  uint64_t anonymous_pages;
  /*
   Mapped pages of files.
   */
  uint64_t file_pages;
  /*
   Mapped pages of shared memory.
   */
  uint64_t shared_memory_pages;
  /*
   Entries that show the shared zero page, which takes no memory.
   */
  uint64_t zero_pages;
  /*
   Pages of all regions together.
   */
  uint64_t mapped_pages;
  /*
   Pages of all locked regions together, in memory or not.
   */
  uint64_t locked_pages;
  /*
   Pages of all regions together that are private, can be written and are no stack.
   */
  uint64_t data_pages;
  /*
   Pages of private memory that are charged with `commit=`.
   */
  uint64_t committed_pages;
  /*
   Bytes of page tables, with the root.
   */
  uint64_t table_bytes;
  /*
   Regions.
   */
  uint32_t regions;
  /*
   Users.
   */
  uint32_t users;
};

/*
 What happened since the manager was made, and where memory is.
 */
struct vellum_stats {
  /*
   Frames.
   */
  uint64_t frames;
  /*
   Those that nobody uses, whether in CPUs' lists or not.
   */
  uint64_t free_frames;
  /*
   Faults that found a region.
   */
  uint64_t faults;
  /*
   Faults that found nothing to do.
   */
  uint64_t spurious_faults;
  /*
   Private pages made of zeroes.
   */
  uint64_t zero_fills;
  /*
   Private pages made by copying.
   */
  uint64_t cow_copies;
  /*
   Write-protected private pages that needed no copy.
   */
  uint64_t cow_reuses;
  /*
   Entries made that show the shared zero page.
   */
  uint64_t zero_maps;
  /*
   Pages of objects mapped, whether by the fault that asked for them or around it.
   */
  uint64_t file_maps;
  /*
   Pages read from backing stores.
   */
  uint64_t page_reads;
  /*
   Pages written to backing stores.
   */
  uint64_t page_writes;
  /*
   Objects that ended with pages that their backing store did not take.
   */
  uint64_t lost_objects;
  /*
   Forks.
   */
  uint64_t forks;
  /*
   Spaces that ended.
   */
  uint64_t exits;
  /*
   Pages promised with `commit=` (Committed_AS).
   */
  uint64_t committed_pages;
  /*
   Pages that may be promised (CommitLimit), if that is what is refused.
   */
  uint64_t commit_limit_pages;
};

/*
 What an audit counted.
 */
struct vellum_audit {
  /*
   Spaces.
   */
  uint64_t spaces;
  /*
   Regions.
   */
  uint64_t regions;
  /*
   Objects.
   */
  uint64_t objects;
  /*
   Page tables in use.
   */
  uint64_t tables;
  /*
   Entries that map frames, the shared zero page aside.
   */
  uint64_t entries;
  /*
   Frames that the kernel holds.
   */
  uint64_t kernel_frames;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 A status in English, for messages. Never null, and there for good.
 */
const char *vellum_status_text(uint32_t status);

/*
 Bytes of a page, and of a page frame.
 */
size_t vellum_page_bytes(void);

/*
 The first address that programs cannot have. An entry of a root that maps this address or
 a higher one is the kernel's.
 */
uint64_t vellum_user_end(void);

/*
 The bytes that vellum_create() needs for a platform and a design without reclaim; 0 if the
 platform is not complete.
 */
size_t vellum_heap_bytes(const struct vellum_platform *platform);

/*
 The same with `reclaim=on`: more for each frame, CPU and node.
 */
size_t vellum_heap_bytes_for_reclaim(const struct vellum_platform *platform);

/*
 Makes a manager of a platform, which it copies, in `heap_bytes` bytes at `heap`, which it
 uses until vellum_destroy(). Needs less than 16 KiB of stack, as all other calls do.

 `design` may be null; or it chooses among the manager's options, as "fork=..." (docs/c.md).
 Page tables and the reverse mapping are those that the library was built with, and naming
 others is an error. `message` may be null: of an error it gets what is wrong, as a
 string cut off to `message_bytes`.
 */
enum vellum_status vellum_create(const struct vellum_platform *platform,
                                 const char *design,
                                 void *heap,
                                 size_t heap_bytes,
                                 struct vellum **vm,
                                 char *message,
                                 size_t message_bytes);

/*
 Destroys a manager. Its heap and the platform's memory are the kernel's again, whatever
 they hold. No CPU may have one of its spaces loaded, and no call may be running.
 */
enum vellum_status vellum_destroy(struct vellum *vm);

/*
 The bytes that a manager has taken of its heap; 0 if `vm` is null.
 */
size_t vellum_heap_used(const struct vellum *vm);

/*
 Makes an empty space, with one user.
 */
enum vellum_status vellum_space_create(struct vellum *vm, struct vellum_space *space);

/*
 Copies a space: private pages are shared until one side stores to them. Of a failure,
 entries of the parent may have become write-protected.
 */
enum vellum_status vellum_fork(struct vellum *vm,
                               struct vellum_space parent,
                               struct vellum_space *child);

/*
 Adds a user to a space: another thread, or a child of vfork().
 */
enum vellum_status vellum_space_share(struct vellum *vm, struct vellum_space space);

/*
 A user leaves a space; with the last one the space ends, and no CPU may have it loaded
 then. `ended`, which may be null, gets whether it did.
 */
enum vellum_status vellum_exit(struct vellum *vm, struct vellum_space space, bool *ended);

/*
 Loads a space on this CPU, as far as the manager is concerned: from now on this CPU is
 among those that are flushed. Called before the processor gets the root.
 */
enum vellum_status vellum_load(struct vellum *vm,
                               struct vellum_space space,
                               struct vellum_loaded *loaded);

/*
 Resolves a page fault of a program: what the trap handler calls. VELLUM_STATUS_OK says that
 the access is to be tried again. `access` is VELLUM_READ, VELLUM_WRITE or VELLUM_EXECUTE.
 `resolved`, which may be null, gets what it took. Of a failure, a stack may have been
 extended.
 */
enum vellum_status vellum_fault(struct vellum *vm,
                                struct vellum_space space,
                                uint64_t address,
                                uint32_t access,
                                enum vellum_resolved *resolved);

/*
 What the page of an address shows, by a walk of the page tables as the processor does it.
 VELLUM_STATUS_NOT_MAPPED if no entry is there.
 */
enum vellum_status vellum_translate(struct vellum *vm,
                                    struct vellum_space space,
                                    uint64_t address,
                                    struct vellum_translation *translation);

/*
 Copies memory of a program to a buffer that nobody else uses meanwhile, and that is no memory
 of a program. Pages are faulted in. `rights` is VELLUM_CHECKED or VELLUM_FORCED. `done`, which may
 be null, gets how many bytes were copied: fewer than `bytes` if a page could not be read.
 */
enum vellum_status vellum_memory_read(struct vellum *vm,
                                      struct vellum_space space,
                                      uint64_t address,
                                      void *buffer,
                                      size_t bytes,
                                      uint32_t rights,
                                      size_t *done);

/*
 Copies a buffer that nobody stores to meanwhile to memory of a program, as its own stores
 would. `rights` is VELLUM_CHECKED or VELLUM_FORCED. `done`, which may be null, gets how many bytes
 were copied.
 */
enum vellum_status vellum_memory_write(struct vellum *vm,
                                       struct vellum_space space,
                                       uint64_t address,
                                       const void *buffer,
                                       size_t bytes,
                                       uint32_t rights,
                                       size_t *done);

/*
 Copies a string of a program that ends with a zero byte. `length`, which may be null, gets
 its length without that byte, or `bytes` if the buffer has no room for all of it.
 */
enum vellum_status vellum_memory_read_string(struct vellum *vm,
                                             struct vellum_space space,
                                             uint64_t address,
                                             void *buffer,
                                             size_t bytes,
                                             size_t *length);

/*
 Puts `desired` in the place of a 4-byte word of a program if it is `*expected`, in one atomic
 step; otherwise `*expected` gets what it is, and the answer is VELLUM_STATUS_OK as well: what
 futexes are made of. VELLUM_STATUS_ARGUMENT if the address is no multiple of 4.
 */
enum vellum_status vellum_memory_compare_exchange(struct vellum *vm,
                                                  struct vellum_space space,
                                                  uint64_t address,
                                                  uint32_t *expected,
                                                  uint32_t desired);

/*
 Faults in the `count` pages from `address` on, for VELLUM_READ, VELLUM_WRITE or
 VELLUM_EXECUTE, and pins their frames, whose numbers go to `frames`: for a device that reads or
 writes them. A pinned frame stays what the space sees there, and stays allocated, until
 vellum_unpin_pages(), whatever happens to its mapping. After a failure nothing is pinned.
 VELLUM_STATUS_TOO_MANY if a page has as many pins as can be counted.
 */
enum vellum_status vellum_pin_pages(struct vellum *vm,
                                    struct vellum_space space,
                                    uint64_t address,
                                    uint32_t access,
                                    uint32_t *frames,
                                    size_t count);

/*
 Ends pins that vellum_pin_pages() of this manager made, each once, in any order and number. No
 device uses the frames any more.
 */
enum vellum_status vellum_unpin_pages(struct vellum *vm,
                                      const uint32_t *frames,
                                      size_t count);

/*
 Maps memory; `address` gets where.
 */
enum vellum_status vellum_map(struct vellum *vm,
                              struct vellum_space space,
                              const struct vellum_map_request *request,
                              uint64_t *address);

/*
 Unmaps whatever is mapped in a range.
 */
enum vellum_status vellum_unmap(struct vellum *vm,
                                struct vellum_space space,
                                uint64_t address,
                                uint64_t bytes);

/*
 Sets the rights of a range, all of which is mapped.
 */
enum vellum_status vellum_protect(struct vellum *vm,
                                  struct vellum_space space,
                                  uint64_t address,
                                  uint64_t bytes,
                                  uint32_t prot);

/*
 Maps the pages of a range now: as stores would where memory is private and may be stored to,
 as loads would elsewhere. Of a failure, those before stay mapped.
 */
enum vellum_status vellum_populate(struct vellum *vm,
                                   struct vellum_space space,
                                   uint64_t address,
                                   uint64_t bytes);

/*
 Locks a range: pages that are in memory stay there, and so do those that come later.
 vellum_populate() brings them in; both calls together are mlock(). vellum_remap() keeps it,
 unmapping ends it, and a forked child has none of it.
 */
enum vellum_status vellum_lock_pages(struct vellum *vm,
                                     struct vellum_space space,
                                     uint64_t address,
                                     uint64_t bytes);

/*
 Lets pages of a range leave memory again, however often they were locked.
 */
enum vellum_status vellum_unlock_pages(struct vellum *vm,
                                       struct vellum_space space,
                                       uint64_t address,
                                       uint64_t bytes);

/*
 Gives advice on a range: VELLUM_DONT_NEED and so on.
 VELLUM_STATUS_NOT_MAPPED if the range has a hole; nothing changed by advice for what comes
 later and on guards, and the mapped parts were treated all the same by other advice.
 VELLUM_STATUS_LOCKED if part of it is locked, by advice that drops pages; nothing changed.
 */
enum vellum_status vellum_advise(struct vellum *vm,
                                 struct vellum_space space,
                                 uint64_t address,
                                 uint64_t bytes,
                                 uint32_t advice);

/*
 Resizes a mapping of `bytes` bytes at `address`, which lies in one region. VELLUM_FIXED
 moves it to `to`; VELLUM_ANYWHERE moves it if it cannot grow where it is; VELLUM_HINT and
 VELLUM_FIXED_FREE keep it in place, whatever `to` is. With VELLUM_LEAVE, VELLUM_LEAVE_FOR and
 VELLUM_ALL_TO the size stays. If `bytes` is 0, what a shared mapping shows from `address` on is
 mapped once more. `moved_to` gets where it is afterwards.
 */
enum vellum_status vellum_remap(struct vellum *vm,
                                struct vellum_space space,
                                uint64_t address,
                                uint64_t bytes,
                                uint64_t new_bytes,
                                uint32_t placement,
                                uint64_t to,
                                uint64_t *moved_to);

/*
 Says where the heap of a space begins, which is empty then.
 */
enum vellum_status vellum_heap_start(struct vellum *vm,
                                     struct vellum_space space,
                                     uint64_t start);

/*
 Moves the end of the heap, which maps or unmaps private zeroes.
 */
enum vellum_status vellum_brk(struct vellum *vm, struct vellum_space space, uint64_t end);

/*
 Sets what a space may have. What it has already stays.
 */
enum vellum_status vellum_limits_set(struct vellum *vm,
                                     struct vellum_space space,
                                     const struct vellum_limits *limits);

/*
 The region that holds an address, found without a lock. VELLUM_STATUS_NO_REGION if there is
 none, or no such space.
 */
enum vellum_status vellum_region_at(struct vellum *vm,
                                    struct vellum_space space,
                                    uint64_t address,
                                    struct vellum_region *region);

/*
 Calls `each` for every region of a space, ascending, with `context`. The space's lock is
 held meanwhile: `each` must not call the manager.
 */
enum vellum_status vellum_regions_each(struct vellum *vm,
                                       struct vellum_space space,
                                       void (*each)(void *context,
                                                    const struct vellum_region *region),
                                       void *context);

/*
 Says on which nodes pages of a range come to lie (mbind), or, with `bytes` 0, those of the space
 that no other policy is about (set_mempolicy). No `policy` takes it away.
 */
enum vellum_status vellum_set_node_policy(struct vellum *vm,
                                          struct vellum_space space,
                                          uint64_t address,
                                          uint64_t bytes,
                                          const struct vellum_node_policy *policy);

/*
 The same of an object, in whichever space its pages are first touched, where the region has no
 policy of its own.
 */
enum vellum_status vellum_object_set_node_policy(struct vellum *vm,
                                                 struct vellum_object object,
                                                 const struct vellum_node_policy *policy);

/*
 How many pages in a row a node gets of VELLUM_NODES_WEIGHTED, 1 to 255; 1 at first.
 */
enum vellum_status vellum_set_node_weight(struct vellum *vm,
                                          uint32_t node,
                                          uint32_t weight);

/*
 Moves the pages of a range that are in memory to a node, or with VELLUM_BY_POLICY to where their
 policies want them (move_pages, mbind with MPOL_MF_MOVE). Pages of objects move for all spaces,
 private ones only if no other space maps them. `moved`, which may be null, gets what became of
 them.
 */
enum vellum_status vellum_move_pages(struct vellum *vm,
                                     struct vellum_space space,
                                     uint64_t address,
                                     uint64_t bytes,
                                     uint32_t node,
                                     struct vellum_pages_moved *moved);

/*
 The policy of the region that holds an address, or that of its space if it has none of its own
 (get_mempolicy). `node`, which may be null, gets the node of the page that is there, or
 VELLUM_NO_HOME.
 */
enum vellum_status vellum_node_policy_at(struct vellum *vm,
                                         struct vellum_space space,
                                         uint64_t address,
                                         struct vellum_node_policy *policy,
                                         uint32_t *node);

/*
 Has the regions of a range, all of which is mapped, stay as they are until the space ends
 (mseal): VELLUM_STATUS_SEALED is the answer to whoever unmaps, replaces, moves, resizes or
 protects them, and to advice that drops pages which the space could not store to. Their
 contents may change. A forked child has the seals, too.
 */
enum vellum_status vellum_seal(struct vellum *vm,
                               struct vellum_space space,
                               uint64_t address,
                               uint64_t bytes);

/*
 From now on memory of the space that is no code does not become code, and none is both code
 and stored to (PR_SET_MDWE): VELLUM_STATUS_RIGHTS. Holds for spaces that come of it, too.
 */
enum vellum_status vellum_refuse_new_code(struct vellum *vm,
                                          struct vellum_space space);

/*
 A layout that nobody can guess who does not know the seed, and the same for the same seed, with
 room for a stack of `stack_bytes`. 64-bit address spaces have 28 random bits of pages for the
 base, 22 for the stack and 18 for the heap, or as many as they have room for.
 */
enum vellum_status vellum_layout_random(uint64_t seed,
                                        uint64_t stack_bytes,
                                        struct vellum_layout *layout);

/*
 Lays a space out. What is mapped already stays. A forked child has the same layout.
 */
enum vellum_status vellum_layout_set(struct vellum *vm,
                                     struct vellum_space space,
                                     const struct vellum_layout *layout);

/*
 Says of each page of a range, all of which is mapped, whether it is in memory (mincore): of
 objects also if nobody maps it. `resident` has room for as many.
 */
enum vellum_status vellum_residency(struct vellum *vm,
                                    struct vellum_space space,
                                    uint64_t address,
                                    uint64_t bytes,
                                    bool *resident);

/*
 Gives a range, all of which is mapped, these hooks and no others: a sum of VELLUM_HOOK_MISSING,
 VELLUM_HOOK_STORES and VELLUM_HOOK_MINOR, or 0 to take all of them off. What they catch is told
 to `fault_hook` of the platform. VELLUM_STATUS_WRONG_KIND for files, and for VELLUM_HOOK_MINOR of
 private memory.
 */
enum vellum_status vellum_hooks(struct vellum *vm,
                                struct vellum_space space,
                                uint64_t address,
                                uint64_t bytes,
                                uint32_t hooks);

/*
 Puts pages into a range that has hooks, where there are none: with the bytes of a buffer as long
 as the range, which nobody stores to meanwhile, or zeroes, if it is null. `flags` is a sum of
 VELLUM_HOOK_PROTECTED, not with zeroes, and VELLUM_HOOK_QUIET. `done`, which may be null, gets how
 many bytes of the range that were: fewer than `bytes` if a page could not be put there. Only if
 that was the first, it is an error: VELLUM_STATUS_EXISTS if there is a page.
 */
enum vellum_status vellum_hooks_supply(struct vellum *vm,
                                       struct vellum_space space,
                                       uint64_t address,
                                       uint64_t bytes,
                                       const void *buffer,
                                       uint32_t flags,
                                       uint64_t *done);

/*
 Maps the pages of a range that its shared memory has, and wakes who waits for them. `done`, which
 may be null, gets how many bytes of the range that were, as of vellum_hooks_supply().
 VELLUM_STATUS_NO_PAGE if there is none to begin with, VELLUM_STATUS_EXISTS if it is mapped.
 */
enum vellum_status vellum_hooks_map_present(struct vellum *vm,
                                            struct vellum_space space,
                                            uint64_t address,
                                            uint64_t bytes,
                                            uint64_t *done);

/*
 Protects the pages of a range with VELLUM_HOOK_STORES: the next store to each is caught. Or, with
 false, ends that, and wakes who waits. VELLUM_STATUS_NOT_HOOKED if part of the range has not that
 hook.
 */
enum vellum_status vellum_hooks_protect(struct vellum *vm,
                                        struct vellum_space space,
                                        uint64_t address,
                                        uint64_t bytes,
                                        bool is_protected);

/*
 Wakes the tasks that wait for a page of a range: their faults begin again.
 */
enum vellum_status vellum_hooks_wake(struct vellum *vm,
                                     struct vellum_space space,
                                     uint64_t address,
                                     uint64_t bytes);

/*
 Calls `each`, with `context`, for the pages of a range that were written since the call before, and
 clears the marks that say so. The first call reports everything, and later ones also what was mapped,
 moved or dropped since. `flags` is a sum of VELLUM_DIRTY_PROTECTS and VELLUM_DIRTY_SPLITS. `each` may
 get a page twice. The space's lock is held meanwhile: `each` must not call the manager.
 */
enum vellum_status vellum_dirty_take(struct vellum *vm,
                                     struct vellum_space space,
                                     uint64_t address,
                                     uint64_t bytes,
                                     uint32_t flags,
                                     void (*each)(void *context,
                                                  uint64_t address,
                                                  uint64_t bytes),
                                     void *context);

/*
 Makes an object for a file of `bytes` bytes in the backing store with the number `store`,
 which is less than 2^63.
 */
enum vellum_status vellum_file_create(struct vellum *vm,
                                      uint64_t store,
                                      uint64_t bytes,
                                      struct vellum_object *object);

/*
 Makes shared memory of `bytes` bytes, which are zero.
 */
enum vellum_status vellum_shared_memory_create(struct vellum *vm,
                                               uint64_t bytes,
                                               struct vellum_object *object);

/*
 As vellum_shared_memory_create(), and vellum_object_seal() may seal it.
 */
enum vellum_status vellum_sealable_memory_create(struct vellum *vm,
                                                 uint64_t bytes,
                                                 struct vellum_object *object);

/*
 Adds seals, VELLUM_SEAL_SHRINK and so on. VELLUM_STATUS_SEALED if there are to be no more,
 VELLUM_STATUS_BUSY if somebody may store to what is to be sealed against that. The object may be
 sealed then: VELLUM_STATUS_SEALED of calls that break what a seal promises.
 */
enum vellum_status vellum_object_seal(struct vellum *vm,
                                      struct vellum_object object,
                                      uint32_t seals);

/*
 The seals of an object.
 */
enum vellum_status vellum_object_seals(struct vellum *vm,
                                       struct vellum_object object,
                                       uint32_t *seals);

/*
 Has pages of an object made, zeroed, dropped or moved: VELLUM_ALLOCATE and so on. Of a file in a
 backing store bytes can be zeroed and dropped.
 */
enum vellum_status vellum_object_allocate(struct vellum *vm,
                                          struct vellum_object object,
                                          uint32_t how,
                                          uint64_t offset,
                                          uint64_t bytes);

/*
 Who made the object is done with it. It ends with its last mapping; what was stored to a
 file is written then.
 */
enum vellum_status vellum_object_release(struct vellum *vm, struct vellum_object object);

/*
 Writes what was stored to a file to its backing store. `pages`, which may be null, gets
 how many pages that were. Of a failure, those before were written.
 */
enum vellum_status vellum_object_sync(struct vellum *vm,
                                      struct vellum_object object,
                                      uint64_t *pages);

/*
 The bytes of an object.
 */
enum vellum_status vellum_object_size(struct vellum *vm,
                                      struct vellum_object object,
                                      uint64_t *bytes);

/*
 Makes an object longer or shorter. Pages past the end go, private copies of them too. If
 the backing store does not discard what is cut off, the object is shorter all the same.
 */
enum vellum_status vellum_object_resize(struct vellum *vm,
                                        struct vellum_object object,
                                        uint64_t bytes);

/*
 Reads up to `bytes` bytes of an object, from byte `offset` on, into a buffer that nobody
 else uses meanwhile, and that is no memory of a program. `done`, which may be null, gets how
 many were read: fewer at the object's end only, or if a page could not be read.
 */
enum vellum_status vellum_object_read(struct vellum *vm,
                                      struct vellum_object object,
                                      uint64_t offset,
                                      void *buffer,
                                      size_t bytes,
                                      size_t *done);

/*
 Writes bytes to an object, from byte `offset` on, from a buffer that nobody stores to
 meanwhile, and makes the object longer if need be. `done`, which may be null, gets how many
 were written: fewer only if memory ran out or the backing store failed after others had
 been.
 */
enum vellum_status vellum_object_write(struct vellum *vm,
                                       struct vellum_object object,
                                       uint64_t offset,
                                       const void *buffer,
                                       size_t bytes,
                                       size_t *done);

/*
 Opens an object: one user more. Syncs of it tell of errors of writing back from now on, and
 of one before if nobody has been told of it yet.
 */
enum vellum_status vellum_open(struct vellum *vm,
                               struct vellum_object object,
                               struct vellum_open_file *file);

/*
 Closes what was opened. The object ends with its last user; what was stored to a file is
 written then. VELLUM_STATUS_BUSY if the file was opened by another manager, and stays open.
 */
enum vellum_status vellum_close(struct vellum *vm,
                                struct vellum_open_file *file);

/*
 As vellum_object_read(), of a file that is open: the pages that will be read next are read
 ahead.
 */
enum vellum_status vellum_open_read(struct vellum *vm,
                                    const struct vellum_open_file *file,
                                    uint64_t offset,
                                    void *buffer,
                                    size_t bytes,
                                    size_t *done);

/*
 fsync: writes what was stored to a file that is open to its backing store, and tells once of
 an error since it was opened or last synced (VELLUM_STATUS_IO). `pages`, which may be null,
 gets how many pages were written.
 */
enum vellum_status vellum_open_sync(struct vellum *vm,
                                    const struct vellum_open_file *file,
                                    uint64_t *pages);

/*
 Writes bytes at the end of an object: no other write comes between finding the end and
 writing there. `offset`, which may be null, gets where they are; `done` as for
 vellum_object_write().
 */
enum vellum_status vellum_object_append(struct vellum *vm,
                                        struct vellum_object object,
                                        const void *buffer,
                                        size_t bytes,
                                        uint64_t *offset,
                                        size_t *done);

/*
 The bytes that vellum_swap_on() needs for an area of `slots` pages; 0 if none can have as
 many.
 */
size_t vellum_swap_heap_bytes(uint64_t slots);

/*
 Lets private pages and those of shared memory be written to the pages 0 to `slots - 1` of a
 backing store from now on, with `write_page` and `read_page` of the platform. The manager's
 design has `reclaim=on`. Areas of higher priority are filled first. What the store holds is
 overwritten. After VELLUM_STATUS_OK `heap` is used until vellum_destroy();
 vellum_swap_heap_bytes() says how much it must be.

 VELLUM_STATUS_IN_USE if the store is an area already, VELLUM_STATUS_TOO_MANY if there are 32,
 VELLUM_STATUS_OUT_OF_MEMORY if the heap is too small, VELLUM_STATUS_BUSY if another CPU uses
 another heap at this moment.
 */
enum vellum_status vellum_swap_on(struct vellum *vm,
                                  uint64_t store,
                                  uint64_t slots,
                                  int32_t priority,
                                  void *heap,
                                  size_t heap_bytes);

/*
 Brings back everything that a swap area holds, and writes nothing there any more, unless
 vellum_swap_on() adds it again. VELLUM_STATUS_NO_OBJECT if the store is no area; after another
 failure it is used on.
 */
enum vellum_status vellum_swap_off(struct vellum *vm,
                                   uint64_t store);

/*
 Says whether the pages of shared memory come in superpages from now on:
 VELLUM_HUGE_DEFAULT, VELLUM_HUGE_NEVER or VELLUM_HUGE_ALWAYS. Pages that are there stay
 what they are. With `never` it changes nothing.
 */
enum vellum_status vellum_object_huge_set(struct vellum *vm,
                                          struct vellum_object object,
                                          uint32_t huge);

/*
 Says how many bytes the largest folio has that a first store maps in a range: a page or a
 power of two of them, and more than 1 MiB is as 1 MiB; 0 for what the design says
 (`folio=`). With `folio=off` there are none all the same. VELLUM_STATUS_NOT_MAPPED, and
 nothing has changed, if the range has a hole.
 */
enum vellum_status vellum_folio_advise(struct vellum *vm,
                                       struct vellum_space space,
                                       uint64_t address,
                                       uint64_t bytes,
                                       uint64_t folio_bytes);

/*
 Looks at up to `ranges` ranges of a superpage's size from `start` on, and makes a superpage
 of each that lies in one private region, has at least `least_bytes` bytes of pages in use,
 and none that somebody shares or holds. Pages of it that were not in use are zero, and in
 use then. A task that calls this now and then sets the rate. Without `superpage=eager` or
 `superpage=reserve` it does nothing.

 VELLUM_STATUS_OUT_OF_MEMORY if there is no run of frames, or no page table: what was made
 before stays, and `done` is as it was.
 */
enum vellum_status vellum_collapse(struct vellum *vm,
                                   struct vellum_space space,
                                   uint64_t start,
                                   uint64_t ranges,
                                   uint64_t least_bytes,
                                   struct vellum_collapsed *done);

/*
 Superpages, folios and reservations; approximate while CPUs are at work.
 */
enum vellum_status vellum_superpage_stats_get(struct vellum *vm,
                                              struct vellum_superpage_stats *stats);

/*
 Bytes of a superpage: what one entry maps of the tables above the lowest.
 */
size_t vellum_superpage_bytes(void);

/*
 Makes a group that is charged for at most so many bytes of pages (UINT64_MAX: no limit).
 At its limit pages of its own leave memory, and if none can, a call that needs one fails
 with VELLUM_STATUS_GROUP_LIMIT. Needs a design with `reclaim=on,groups=on`.
 */
enum vellum_status vellum_group_create(struct vellum *vm,
                                       uint64_t limit_bytes,
                                       struct vellum_group *group);

/*
 The same within another group: what the new one is charged for, that one is charged for, too,
 and the limits of both hold.
 */
enum vellum_status vellum_group_create_in(struct vellum *vm,
                                          struct vellum_group around,
                                          uint64_t limit_bytes,
                                          struct vellum_group *group);

/*
 Gives a group other limits, as vellum_group_limit_set does with the first of them.
 */
enum vellum_status vellum_group_limits_set(struct vellum *vm,
                                           struct vellum_group group,
                                           const struct vellum_group_limits *limits,
                                           uint64_t *excess_bytes);

/*
 Has up to about so many bytes of pages of a group leave memory; `left_bytes`, which may be null,
 gets how many have.
 */
enum vellum_status vellum_group_reclaim(struct vellum *vm,
                                        struct vellum_group group,
                                        uint64_t bytes,
                                        uint64_t *left_bytes);

/*
 Ends a group that no space belongs to and no group lies within. What it is charged for is that of
 the group around it then. Looks at every frame.
 */
enum vellum_status vellum_group_end(struct vellum *vm,
                                    struct vellum_group group);

/*
 Gives a group another limit. If it has more, pages of it leave until it has not, or none
 can leave any more. `excess_bytes` may be null: it gets what is left above the limit, and
 until that is gone everything is refused that would be charged to the group.
 */
enum vellum_status vellum_group_limit_set(struct vellum *vm,
                                          struct vellum_group group,
                                          uint64_t limit_bytes,
                                          uint64_t *excess_bytes);

/*
 Moves a space to a group, or to the root: what it touches from now on is charged there.
 What was charged before stays where it is. A child of fork begins in its parent's group.
 */
enum vellum_status vellum_group_join(struct vellum *vm,
                                     struct vellum_space space,
                                     struct vellum_group group);

/*
 What there is of a group that is not the root.
 */
enum vellum_status vellum_group_stats_get(struct vellum *vm,
                                          struct vellum_group group,
                                          struct vellum_group_stats *stats);

/*
 Limits what the spaces of a group may be promised together, with the shared memory that they
 make (UINT64_MAX: no limit); what is more is refused with VELLUM_STATUS_COMMIT_LIMIT. Needs a
 design with `commit=`.
 */
enum vellum_status vellum_group_commit_limit_set(struct vellum *vm,
                                                 struct vellum_group group,
                                                 uint64_t limit_bytes);

/*
 Refuses from now on what alone asks for more than there are frames and swap slots
 (`vm.overcommit_memory` 0). Needs a design with `commit=`, as do the other policies.
 */
enum vellum_status vellum_commit_heuristic(struct vellum *vm);

/*
 Refuses no promise from now on (1).
 */
enum vellum_status vellum_commit_always(struct vellum *vm);

/*
 Refuses from now on what would have been promised in all above so many bytes and those of swap
 (2). Of these `admin_reserve_bytes` are for spaces that are an administrator's alone, and a space
 leaves `user_reserve_bytes`, or a 32nd of its own size if that is less.
 */
enum vellum_status vellum_commit_never(struct vellum *vm,
                                       uint64_t most_bytes,
                                       uint64_t admin_reserve_bytes,
                                       uint64_t user_reserve_bytes);

/*
 Takes `1 << order` frames in a row, aligned to as many; `order` is 10 at most. `first` gets
 the first one's number. The audit counts them as the kernel's.
 */
enum vellum_status vellum_frames_alloc(struct vellum *vm,
                                       uint32_t order,
                                       bool zeroed,
                                       uint32_t *first);

/*
 Takes a frame out of use (memory_failure, soft_offline_page), whose memory fails or has failed, or
 back into use: VELLUM_FRAME_*. `what`, which may be null, gets one of VELLUM_WITHDRAWN_*. The frame is still
 in use after VELLUM_STATUS_KEPT (a page table, the kernel's or the manager's own memory, or out of
 use already), IN_USE (pinned), OUT_OF_MEMORY, UNMANAGED, and BUSY, after which the call may be made
 again.
 */
enum vellum_status vellum_set_frame_health(struct vellum *vm,
                                           uint32_t frame,
                                           uint32_t health,
                                           uint32_t *what);

/*
 Gives frames back that vellum_frames_alloc() handed out, with the same order. A frame that
 it did not hand out, or that was given back, is VELLUM_STATUS_ARGUMENT; another order cannot
 be noticed.
 */
enum vellum_status vellum_frames_free(struct vellum *vm,
                                      uint32_t first,
                                      uint32_t order);

/*
 Keeps frames for good that vellum_frames_alloc() handed out, with the same order: they leave
 the manager's memory, and can be mapped by VELLUM_MAP_FRAMES. Errors as of vellum_frames_free().
 */
enum vellum_status vellum_frames_reserve(struct vellum *vm,
                                         uint32_t first,
                                         uint32_t order);

/*
 What a space uses. Exact if none of its tasks runs.
 */
enum vellum_status vellum_space_stats_get(struct vellum *vm,
                                          struct vellum_space space,
                                          struct vellum_space_stats *stats);

/*
 Statistics; approximate while CPUs are at work.
 */
enum vellum_status vellum_stats_get(struct vellum *vm, struct vellum_stats *stats);

/*
 Checks everything that the manager keeps against everything else, while no other call runs
 on any CPU. VELLUM_STATUS_AUDIT if something is wrong; `message`, which may be null, gets
 what, as a string cut off to `message_bytes`.
 */
enum vellum_status vellum_audit_run(struct vellum *vm,
                                    struct vellum_audit *audit,
                                    char *message,
                                    size_t message_bytes);

/*
 For a CPU with nothing else to do: frees page tables that are kept beyond need, and gives
 frames back to their nodes. Returns whether another call would do more.
 */
bool vellum_idle(struct vellum *vm);

/*
 For a CPU that is taken away: frees what is kept for it. Returns how much still waits
 until other CPUs are done; called on that CPU until it is 0.
 */
uint64_t vellum_offline(struct vellum *vm);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VELLUM_H */
