/* Every function of the header, with what it is for and with what it refuses. Ends with 0 if all of it holds. */
#define _POSIX_C_SOURCE 200809L
#include <rcbox.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define IS(wanted, expression) is((wanted), (expression), #expression, __LINE__)
#define HOLDS(expression) holds((expression), #expression, __LINE__)

static rcbox_client *client;

static void is(rcbox_status wanted, rcbox_status status, const char *what, int line)
{
    if (status != wanted) {
        fprintf(stderr, "line %d: %s: %s in place of %s: %s\n", line, what, rcbox_status_name(status),
                rcbox_status_name(wanted), rcbox_error(client));
        exit(1);
    }
}

static void holds(int is_so, const char *what, int line)
{
    if (!is_so) {
        fprintf(stderr, "line %d: not so: %s\n", line, what);
        exit(1);
    }
}

static void connecting(const char *locator)
{
    rcbox_client *none = (rcbox_client *)&client;
    rcbox_options options;
    memset(&options, 0, sizeof options);
    HOLDS(rcbox_abi() == RCBOX_ABI);
    HOLDS(strchr(rcbox_version(), '.') != NULL);

    IS(RCBOX_ERR_ARGUMENT, rcbox_connect(locator, NULL, NULL));
    IS(RCBOX_ERR_ARGUMENT, rcbox_connect(NULL, NULL, &none));
    HOLDS(none == NULL);
    IS(RCBOX_ERR_ARGUMENT, rcbox_connect("nonsense", NULL, &none));
    HOLDS(strstr(rcbox_error(NULL), "nonsense") != NULL);
    IS(RCBOX_ERR_ARGUMENT, rcbox_connect("\xff\xfe", NULL, &none));
    IS(RCBOX_ERR_ARGUMENT, rcbox_connect(locator, &options, &none));
    HOLDS(strstr(rcbox_error(NULL), "sizeof(rcbox_options)") != NULL);
    options.size = sizeof options;
    options.timeout_us = UINT64_MAX;
    IS(RCBOX_ERR_ARGUMENT, rcbox_connect(locator, &options, &none));

    /* Nobody listens there. */
    options.timeout_us = 50000;
    options.spin_us = -1;
    uint64_t table;
    IS(RCBOX_OK, rcbox_connect("tcp:host=127.0.0.1,port=1", &options, &none));
    IS(RCBOX_ERR_TIMEOUT, rcbox_find_table(none, "fruit", &table));
    HOLDS(strstr(rcbox_error(none), "port=1") != NULL);
    IS(RCBOX_OK, rcbox_close(none));

    options.timeout_us = 20000000;
    options.spin_us = 100;
    options.session_timeout_us = 5000000;
    IS(RCBOX_OK, rcbox_connect(locator, &options, &client));
    HOLDS(strcmp(rcbox_error(client), "") == 0);
    IS(RCBOX_OK, rcbox_close(NULL));
    IS(RCBOX_ERR_ARGUMENT, rcbox_drop_table(NULL, "fruit"));
}

static uint64_t tables(void)
{
    uint64_t table = 0, found = 0;
    IS(RCBOX_TABLE_DOESNT_EXIST, rcbox_find_table(client, "fruit", &table));
    HOLDS(strstr(rcbox_error(client), "create the table first") != NULL);
    IS(RCBOX_ERR_ARGUMENT, rcbox_create_table(client, NULL, 1, &table));
    IS(RCBOX_ERR_ARGUMENT, rcbox_create_table(client, "fruit", 1, NULL));
    IS(RCBOX_OK, rcbox_create_table(client, "fruit", 1, &table));
    IS(RCBOX_OK, rcbox_find_table(client, "fruit", &found));
    HOLDS(table == found);
    return table;
}

static void objects(uint64_t table)
{
    char value[16] = "untouched";
    size_t bytes = 99;
    uint64_t first = 0, version = 0;
    rcbox_buffer owned = {NULL, 0};

    IS(RCBOX_OBJECT_DOESNT_EXIST, rcbox_read(client, table, "apple", 5, NULL, value, sizeof value, &bytes, &version));
    HOLDS(bytes == 0 && version == 0);
    IS(RCBOX_OK, rcbox_write(client, table, "apple", 5, "green", 5, NULL, &first));
    IS(RCBOX_ERR_BUFFER, rcbox_read(client, table, "apple", 5, NULL, value, 4, &bytes, &version));
    HOLDS(bytes == 5 && version == first && strcmp(value, "untouched") == 0);
    IS(RCBOX_ERR_BUFFER, rcbox_read(client, table, "apple", 5, NULL, NULL, 0, &bytes, NULL));
    HOLDS(bytes == 5);
    IS(RCBOX_ERR_ARGUMENT, rcbox_read(client, table, "apple", 5, NULL, NULL, 16, &bytes, NULL));
    IS(RCBOX_ERR_ARGUMENT, rcbox_read(client, table, "apple", 5, NULL, value, 16, NULL, NULL));
    IS(RCBOX_OK, rcbox_read(client, table, "apple", 5, NULL, value, 5, &bytes, NULL));
    HOLDS(bytes == 5 && memcmp(value, "greenched", 9) == 0);

    IS(RCBOX_ERR_ARGUMENT, rcbox_write(client, table, NULL, 5, "x", 1, NULL, NULL));
    IS(RCBOX_ERR_ARGUMENT, rcbox_write(client, table, "apple", 5, NULL, 1, NULL, NULL));
    IS(RCBOX_ERR_ARGUMENT, rcbox_write(client, table, "apple", SIZE_MAX, "x", 1, NULL, NULL));

    /* A value of nothing. */
    IS(RCBOX_OK, rcbox_write(client, table, "air", 3, NULL, 0, NULL, NULL));
    IS(RCBOX_OK, rcbox_read(client, table, "air", 3, NULL, NULL, 0, &bytes, NULL));
    HOLDS(bytes == 0);
    IS(RCBOX_OK, rcbox_read_alloc(client, table, "air", 3, NULL, &owned, NULL));
    HOLDS(owned.data == NULL && owned.bytes == 0);
    rcbox_buffer_free(&owned);

    IS(RCBOX_OK, rcbox_read_alloc(client, table, "apple", 5, NULL, &owned, &version));
    HOLDS(owned.bytes == 5 && memcmp(owned.data, "green", 5) == 0 && version == first);
    rcbox_buffer_free(&owned);
    HOLDS(owned.data == NULL && owned.bytes == 0);
    rcbox_buffer_free(&owned);
    rcbox_buffer_free(NULL);
    IS(RCBOX_OBJECT_DOESNT_EXIST, rcbox_read_alloc(client, table, "ghost", 5, NULL, &owned, NULL));
    HOLDS(owned.data == NULL);

    IS(RCBOX_OK, rcbox_remove(client, table, "apple", 5, NULL, &version));
    HOLDS(version == first);
    IS(RCBOX_OK, rcbox_remove(client, table, "apple", 5, NULL, &version));
    HOLDS(version == 0);
    IS(RCBOX_OK, rcbox_remove(client, table, "air", 3, NULL, NULL));
}

static void large(uint64_t table)
{
    static char value[1 << 20], back[1 << 20];
    size_t bytes;
    for (size_t at = 0; at < sizeof value; at++)
        value[at] = (char)(at * 31);
    IS(RCBOX_OK, rcbox_write(client, table, "large", 5, value, sizeof value, NULL, NULL));
    IS(RCBOX_OK, rcbox_read(client, table, "large", 5, NULL, back, sizeof back, &bytes, NULL));
    HOLDS(bytes == sizeof value && memcmp(value, back, bytes) == 0);
    IS(RCBOX_OK, rcbox_remove(client, table, "large", 5, NULL, NULL));
}

static void conditions(uint64_t table)
{
    rcbox_rules rules;
    char value[16];
    size_t bytes;
    uint64_t first, second, told;

    memset(&rules, 0, sizeof rules);
    rules.doesnt_exist = 1;
    IS(RCBOX_OBJECT_DOESNT_EXIST, rcbox_write(client, table, "pear", 4, "x", 1, &rules, NULL));
    IS(RCBOX_OBJECT_DOESNT_EXIST, rcbox_remove(client, table, "pear", 4, &rules, NULL));
    IS(RCBOX_OK, rcbox_write(client, table, "pear", 4, "ripe", 4, NULL, &first));

    memset(&rules, 0, sizeof rules);
    rules.exists = 255; /* any number but 0 */
    IS(RCBOX_OBJECT_EXISTS, rcbox_write(client, table, "pear", 4, "x", 1, &rules, &told));
    HOLDS(told == first);

    memset(&rules, 0, sizeof rules);
    rules.version_ne_given = 1;
    rules.given_version = first;
    IS(RCBOX_OK, rcbox_write(client, table, "pear", 4, "soft", 4, &rules, &second));
    HOLDS(second > first);
    IS(RCBOX_WRONG_VERSION, rcbox_write(client, table, "pear", 4, "x", 1, &rules, &told));
    HOLDS(told == second && strstr(rcbox_error(client), "WRONG_VERSION") != NULL);
    IS(RCBOX_WRONG_VERSION, rcbox_read(client, table, "pear", 4, &rules, value, sizeof value, &bytes, &told));
    HOLDS(told == second && bytes == 0);

    memset(&rules, 0, sizeof rules);
    rules.version_le_given = 1;
    rules.given_version = second;
    IS(RCBOX_WRONG_VERSION, rcbox_remove(client, table, "pear", 4, &rules, NULL));
    rules.given_version = first;
    IS(RCBOX_OK, rcbox_remove(client, table, "pear", 4, &rules, NULL));
}

static void increments(uint64_t table)
{
    int64_t sum = 0;
    double total = 0;
    uint64_t version = 0;
    IS(RCBOX_OK, rcbox_increment(client, table, "visits", 6, 40, NULL, &sum, NULL));
    IS(RCBOX_OK, rcbox_increment(client, table, "visits", 6, -45, NULL, &sum, &version));
    HOLDS(sum == -5 && version > 0);
    IS(RCBOX_OK, rcbox_increment_double(client, table, "weight", 6, 0.5, NULL, &total, NULL));
    IS(RCBOX_OK, rcbox_increment_double(client, table, "weight", 6, 0.25, NULL, &total, NULL));
    HOLDS(total > 0.74 && total < 0.76);
    IS(RCBOX_OK, rcbox_write(client, table, "short", 5, "x", 1, NULL, NULL));
    IS(RCBOX_INVALID_OBJECT, rcbox_increment(client, table, "short", 5, 1, NULL, NULL, NULL));
    IS(RCBOX_OK, rcbox_remove(client, table, "short", 5, NULL, NULL));
    IS(RCBOX_OK, rcbox_remove(client, table, "visits", 6, NULL, NULL));
    IS(RCBOX_OK, rcbox_remove(client, table, "weight", 6, NULL, NULL));
}

enum { MANY = 100 };

/* Parts are filled with rubbish first: nothing that is written later may be looked at. */
static void many(uint64_t table)
{
    static uint32_t keys[MANY];
    static rcbox_write_part writes[MANY];
    static rcbox_read_part reads[MANY + 1];
    static rcbox_remove_part removes[MANY];
    memset(writes, 0xa5, sizeof writes);
    memset(reads, 0xa5, sizeof reads);
    memset(removes, 0xa5, sizeof removes);
    for (uint32_t at = 0; at < MANY; at++) {
        keys[at] = at;
        writes[at].table = reads[at].table = removes[at].table = table;
        writes[at].key = reads[at].key = removes[at].key = &keys[at];
        writes[at].key_bytes = reads[at].key_bytes = removes[at].key_bytes = sizeof keys[at];
        writes[at].rules = reads[at].rules = removes[at].rules = NULL;
        writes[at].value = &keys[at];
        writes[at].value_bytes = sizeof keys[at];
    }
    reads[MANY].table = table;
    reads[MANY].key = "ghost";
    reads[MANY].key_bytes = 5;
    reads[MANY].rules = NULL;

    IS(RCBOX_OK, rcbox_multi_write(client, writes, MANY));
    IS(RCBOX_OK, rcbox_multi_read(client, reads, MANY + 1));
    for (uint32_t at = 0; at < MANY; at++) {
        HOLDS(writes[at].status == RCBOX_OK && reads[at].status == RCBOX_OK);
        HOLDS(reads[at].version == writes[at].version && reads[at].version > 0);
        HOLDS(reads[at].value.bytes == 4 && memcmp(reads[at].value.data, &keys[at], 4) == 0);
        rcbox_buffer_free(&reads[at].value);
    }
    HOLDS(reads[MANY].status == RCBOX_OBJECT_DOESNT_EXIST && reads[MANY].value.data == NULL);

    reads[1].key = NULL;
    IS(RCBOX_ERR_ARGUMENT, rcbox_multi_read(client, reads, 2));
    HOLDS(reads[0].status == RCBOX_ERR_ARGUMENT && reads[1].status == RCBOX_ERR_ARGUMENT);
    HOLDS(reads[0].value.data == NULL);
    IS(RCBOX_ERR_ARGUMENT, rcbox_multi_read(client, NULL, 2));
    IS(RCBOX_ERR_ARGUMENT, rcbox_multi_read(client, reads, SIZE_MAX / 2));
    IS(RCBOX_OK, rcbox_multi_read(client, NULL, 0));

    IS(RCBOX_OK, rcbox_multi_remove(client, removes, MANY));
    for (int at = 0; at < MANY; at++)
        HOLDS(removes[at].status == RCBOX_OK && removes[at].version == writes[at].version);
}

static void scanning(uint64_t table)
{
    char seen[MANY] = {0};
    rcbox_object object;
    rcbox_status status;
    for (uint32_t key = 0; key < MANY; key++)
        IS(RCBOX_OK, rcbox_write(client, table, &key, sizeof key, "value", 5, NULL, NULL));
    HOLDS(rcbox_scan_new(table, 2) == NULL);
    for (uint32_t flags = 0; flags <= RCBOX_SCAN_KEYS_ONLY; flags++) {
        rcbox_scan *scan = rcbox_scan_new(table, flags);
        memset(seen, 0, sizeof seen);
        while ((status = rcbox_scan_next(client, scan, &object)) == RCBOX_OK) {
            uint32_t key;
            HOLDS(object.key_bytes == sizeof key && object.version > 0);
            memcpy(&key, object.key, sizeof key);
            HOLDS(key < MANY);
            seen[key] = 1;
            if (flags == RCBOX_SCAN_KEYS_ONLY)
                HOLDS(object.value == NULL && object.value_bytes == 0);
            else
                HOLDS(object.value_bytes == 5 && memcmp(object.value, "value", 5) == 0);
        }
        IS(RCBOX_ERR_END, status);
        HOLDS(memchr(seen, 0, sizeof seen) == NULL);
        IS(RCBOX_ERR_END, rcbox_scan_next(client, scan, &object));
        rcbox_scan_free(scan);
    }
    IS(RCBOX_ERR_ARGUMENT, rcbox_scan_next(client, NULL, &object));
    rcbox_scan_free(NULL);
}

static void submitting(uint64_t table)
{
    rcbox_outcome outcome;
    rcbox_status status;
    char value[8], key[8] = "submit";
    size_t bytes;
    uint64_t write, read, sum, gone, version;

    IS(RCBOX_ERR_NO_OPERATION, rcbox_wait_any(client, 0, &read));
    IS(RCBOX_ERR_ARGUMENT, rcbox_submit_read(client, table, key, 6, NULL, NULL));
    IS(RCBOX_OK, rcbox_submit_write(client, table, key, 6, "done", 4, NULL, &write));
    /* Nobody looks at it any more. */
    memset(key, 'x', sizeof key);
    while ((status = rcbox_poll(client, write)) == RCBOX_ERR_PENDING)
        ;
    IS(RCBOX_OK, status);
    IS(RCBOX_ERR_ARGUMENT, rcbox_wait(client, write, NULL));
    IS(RCBOX_ERR_ARGUMENT, rcbox_wait_read(client, write, value, sizeof value, &bytes, NULL));
    IS(RCBOX_OK, rcbox_wait(client, write, &outcome));
    HOLDS(outcome.version > 0 && outcome.value.data == NULL && outcome.number == 0);
    IS(RCBOX_ERR_NO_OPERATION, rcbox_wait(client, write, &outcome));
    IS(RCBOX_ERR_NO_OPERATION, rcbox_poll(client, write));
    IS(RCBOX_ERR_NO_OPERATION, rcbox_cancel(client, write));

    IS(RCBOX_OK, rcbox_submit_read(client, table, "submit", 6, NULL, &read));
    IS(RCBOX_ERR_BUFFER, rcbox_wait_read(client, read, value, 3, &bytes, &version));
    HOLDS(bytes == 4 && version > 0);
    IS(RCBOX_OK, rcbox_poll(client, read));
    IS(RCBOX_ERR_NO_OPERATION, rcbox_wait_any(client, 0, &gone));
    IS(RCBOX_OK, rcbox_wait_read(client, read, value, sizeof value, &bytes, &version));
    HOLDS(bytes == 4 && memcmp(value, "done", 4) == 0);
    IS(RCBOX_OK, rcbox_submit_read(client, table, "submit", 6, NULL, &read));
    IS(RCBOX_OK, rcbox_wait(client, read, &outcome));
    HOLDS(outcome.value.bytes == 4 && outcome.version == version);
    rcbox_buffer_free(&outcome.value);

    IS(RCBOX_OK, rcbox_submit_increment(client, table, "count", 5, 7, NULL, &sum));
    IS(RCBOX_OK, rcbox_wait(client, sum, &outcome));
    HOLDS(outcome.number == 7);
    IS(RCBOX_OK, rcbox_submit_remove(client, table, "count", 5, NULL, &gone));
    IS(RCBOX_OK, rcbox_wait(client, gone, &outcome));
    IS(RCBOX_OK, rcbox_submit_read(client, table, "count", 5, NULL, &read));
    IS(RCBOX_OBJECT_DOESNT_EXIST, rcbox_wait(client, read, &outcome));
    HOLDS(outcome.value.data == NULL);
    IS(RCBOX_OK, rcbox_submit_read(client, table, "submit", 6, NULL, &read));
    IS(RCBOX_OK, rcbox_cancel(client, read));
    HOLDS(rcbox_under_way(client) == 0);
}

/* As many as may be, and one more; then one after the other as they come. */
static void as_many_as_may_be(uint64_t table)
{
    uint64_t operation;
    size_t started = 0, ended = 0, bytes;
    char value[8];
    rcbox_status status;
    while ((status = rcbox_submit_read(client, table, "submit", 6, NULL, &operation)) == RCBOX_OK)
        started++;
    IS(RCBOX_ERR_TOO_MANY, status);
    HOLDS(started == 4096 && rcbox_under_way(client) == 4096);
    while ((status = rcbox_wait_any(client, 10000000, &operation)) == RCBOX_OK) {
        IS(RCBOX_OK, rcbox_wait_read(client, operation, value, sizeof value, &bytes, NULL));
        HOLDS(bytes == 4);
        ended++;
    }
    IS(RCBOX_ERR_NO_OPERATION, status);
    HOLDS(ended == started);
}

static void *of_another_thread(void *table)
{
    size_t bytes;
    char value[8];
    IS(RCBOX_OK, rcbox_read(client, *(uint64_t *)table, "submit", 6, NULL, value, sizeof value, &bytes, NULL));
    return NULL;
}

static void threads_and_processes(uint64_t table)
{
    pthread_t thread;
    int ended = -1;
    HOLDS(pthread_create(&thread, NULL, of_another_thread, &table) == 0);
    HOLDS(pthread_join(thread, NULL) == 0);

    pid_t child = fork();
    if (child == 0) {
        IS(RCBOX_ERR_FORKED, rcbox_drop_table(client, "fruit"));
        HOLDS(strstr(rcbox_error(client), "fork") != NULL);
        IS(RCBOX_OK, rcbox_close(client));
        _exit(0);
    }
    HOLDS(waitpid(child, &ended, 0) == child && ended == 0);
    IS(RCBOX_OK, rcbox_find_table(client, "fruit", &table));
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2);
    connecting(argv[1]);
    uint64_t table = tables();
    objects(table);
    large(table);
    conditions(table);
    increments(table);
    many(table);
    scanning(table);
    submitting(table);
    as_many_as_may_be(table);
    threads_and_processes(table);
    IS(RCBOX_OK, rcbox_drop_table(client, "fruit"));
    /* What is under way goes with the client. */
    uint64_t operation;
    IS(RCBOX_OK, rcbox_submit_read(client, table, "submit", 6, NULL, &operation));
    IS(RCBOX_OK, rcbox_close(client));
    puts("all of it holds");
    return 0;
}
