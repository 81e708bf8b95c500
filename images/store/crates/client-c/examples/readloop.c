/*
 * How long a read of 100 bytes takes: one at a time, and how many a second with several under way from this one thread.
 *
 *     cc -std=c11 -O2 readloop.c $(pkg-config --cflags --libs rcbox) -o readloop
 *     ./readloop tcp:host=127.0.0.1,port=11100 [READS [UNDER_WAY]]
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <rcbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TABLE "readloop-c"

enum { KEYS = 1000, VALUE_BYTES = 100 };

static void check(rcbox_client *client, rcbox_status status, const char *what)
{
    if (status != RCBOX_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, rcbox_status_name(status), rcbox_error(client));
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static uint64_t key_of(uint64_t number)
{
    return number * 7919 % KEYS;
}

static void fill(rcbox_client *client, uint64_t table)
{
    char value[VALUE_BYTES] = {0};
    for (uint64_t key = 0; key < KEYS; key++)
        check(client, rcbox_write(client, table, &key, sizeof key, value, sizeof value, NULL, NULL), "write");
}

static void one_at_a_time(rcbox_client *client, uint64_t table, size_t reads)
{
    uint64_t *took = (uint64_t *)malloc(reads * sizeof *took);
    if (took == NULL)
        exit(1);
    for (size_t at = 0; at < reads; at++) {
        char value[VALUE_BYTES];
        size_t bytes;
        uint64_t key = key_of(at), begun = now_ns();
        check(client, rcbox_read(client, table, &key, sizeof key, NULL, value, sizeof value, &bytes, NULL), "read");
        took[at] = now_ns() - begun;
    }
    qsort(took, reads, sizeof *took, compare);
    printf("one at a time: p50 %.1f us, p99 %.1f us of %zu reads\n", (double)took[reads / 2] / 1e3,
           (double)took[reads * 99 / 100] / 1e3, reads);
    free(took);
}

static void start(rcbox_client *client, uint64_t table, uint64_t number)
{
    uint64_t key = key_of(number), operation;
    check(client, rcbox_submit_read(client, table, &key, sizeof key, NULL, &operation), "submit");
}

static void several(rcbox_client *client, uint64_t table, size_t reads, size_t under_way)
{
    uint64_t begun = now_ns();
    size_t started = 0;
    while (started < under_way && started < reads)
        start(client, table, started++);
    for (size_t ended = 0; ended < reads; ended++) {
        uint64_t operation;
        char value[VALUE_BYTES];
        size_t bytes;
        check(client, rcbox_wait_any(client, 10000000, &operation), "wait");
        check(client, rcbox_wait_read(client, operation, value, sizeof value, &bytes, NULL), "read");
        if (started < reads)
            start(client, table, started++);
    }
    double seconds = (double)(now_ns() - begun) / 1e9;
    printf("%zu at a time: %.0f reads/s\n", under_way, (double)reads / seconds);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s LOCATOR [READS [UNDER_WAY]]\n", argv[0]);
        return 2;
    }
    size_t reads = argc > 2 ? strtoul(argv[2], NULL, 10) : 100000;
    size_t under_way = argc > 3 ? strtoul(argv[3], NULL, 10) : 16;
    if (reads == 0 || under_way == 0 || under_way > 4096) {
        fprintf(stderr, "READS is at least 1, UNDER_WAY 1 to 4096\n");
        return 2;
    }
    rcbox_client *client = NULL;
    check(NULL, rcbox_connect(argv[1], NULL, &client), "connect");
    /* What this program has not made, it must not drop. */
    uint64_t table = 0;
    rcbox_status found = rcbox_find_table(client, TABLE, &table);
    if (found == RCBOX_OK) {
        fprintf(stderr, "there is a table %s already: drop it yourself if it is left over from this program\n", TABLE);
        rcbox_close(client);
        return 1;
    }
    if (found != RCBOX_TABLE_DOESNT_EXIST)
        check(client, found, "look for the table");
    check(client, rcbox_create_table(client, TABLE, 1, &table), "create table");
    fill(client, table);
    one_at_a_time(client, table, reads);
    several(client, table, reads, under_way);
    check(client, rcbox_drop_table(client, TABLE), "drop table");
    rcbox_close(client);
    return 0;
}
