/* A machine of one CPU without a TLB, and what tests say when something is not so. Included by
 * one file of each program.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vellum.h"

#define PAGE ((uint64_t)4096)

static unsigned char *ram;
static struct vellum *vm;

_Noreturn void vellum_panic(const char *text, size_t length)
{
    fprintf(stderr, "vellum: %.*s\n", (int)length, text);
    abort();
}

static void expect(bool holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
        exit(1);
    }
}

#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)
#define ANSWERS(answer, call) EXPECT((call) == VELLUM_STATUS_##answer)
#define DO(call) ANSWERS(OK, call)

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

/* This processor keeps no translations. */
static void flush(void *context, uint32_t from, const uint64_t *cpus, size_t words,
                  const struct vellum_flush *request)
{
    (void)context;
    (void)from;
    (void)cpus;
    (void)words;
    (void)request;
}

/* The machine, with so much memory, where `ram` is. */
static struct vellum_platform machine_with(const struct vellum_memory *memory)
{
    struct vellum_platform platform;
    memset(&platform, 0, sizeof platform);
    platform.size = sizeof platform;
    platform.cpus = 1;
    platform.nodes = 1;
    platform.memory = memory;
    platform.memory_ranges = 1;
    platform.direct_map = ram;
    platform.pin = pin;
    platform.unpin = unpin;
    platform.flush = flush;
    return platform;
}

#endif
