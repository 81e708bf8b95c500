/*
 * Writes an object, reads it, changes it only if nobody else has, and lists the table. It works in a table of its own,
 * "hello-c", which it makes and drops; where somebody has such a table already, it leaves that alone and ends.
 *
 *     cc -std=c11 hello.c $(pkg-config --cflags --libs rcbox) -o hello
 *     ./hello tcp:host=127.0.0.1,port=11100
 */
#include <inttypes.h>
#include <rcbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "hello-c"

/* Ends the program if something failed. */
static void check(rcbox_client *client, rcbox_status status, const char *what)
{
    if (status != RCBOX_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, rcbox_status_name(status), rcbox_error(client));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s LOCATOR\n", argv[0]);
        return 2;
    }
    rcbox_client *client = NULL;
    check(NULL, rcbox_connect(argv[1], NULL, &client), "connect");

    /* Making a table finds it if it is there: what this program has not made, it must not drop. */
    uint64_t table = 0, version = 0;
    rcbox_status found = rcbox_find_table(client, TABLE, &table);
    if (found == RCBOX_OK) {
        fprintf(stderr, "there is a table %s already: drop it yourself if it is left over from this program\n", TABLE);
        rcbox_close(client);
        return 1;
    }
    if (found != RCBOX_TABLE_DOESNT_EXIST)
        check(client, found, "look for the table");
    check(client, rcbox_create_table(client, TABLE, 1, &table), "create table");
    check(client, rcbox_write(client, table, "apple", 5, "green", 5, NULL, &version), "write");

    char value[64];
    size_t bytes = 0;
    check(client, rcbox_read(client, table, "apple", 5, NULL, value, sizeof value, &bytes, &version), "read");
    printf("apple is %.*s, version %" PRIu64 "\n", (int)bytes, value, version);

    /* Only if nobody has written meanwhile. */
    rcbox_rules unchanged;
    memset(&unchanged, 0, sizeof unchanged);
    unchanged.given_version = version;
    unchanged.version_ne_given = 1;
    check(client, rcbox_write(client, table, "apple", 5, "red", 3, &unchanged, &version), "write if unchanged");
    rcbox_status status = rcbox_write(client, table, "apple", 5, "blue", 4, &unchanged, &version);
    printf("a second time: %s, for it is at version %" PRIu64 "\n", rcbox_status_name(status), version);

    rcbox_scan *scan = rcbox_scan_new(table, 0);
    rcbox_object object;
    while ((status = rcbox_scan_next(client, scan, &object)) == RCBOX_OK)
        printf("%.*s: %.*s\n", (int)object.key_bytes, (const char *)object.key, (int)object.value_bytes,
               (const char *)object.value);
    rcbox_scan_free(scan);
    if (status != RCBOX_ERR_END)
        check(client, status, "scan");

    check(client, rcbox_drop_table(client, TABLE), "drop table");
    rcbox_close(client);
    return 0;
}
