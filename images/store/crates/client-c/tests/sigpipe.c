/* A server that dies ends no program: it gets an error, not a signal. Arguments: locator, the server's process. */
#define _POSIX_C_SOURCE 200809L
#include <rcbox.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void is(rcbox_client *client, rcbox_status wanted, rcbox_status status)
{
    if (status != wanted) {
        fprintf(stderr, "%s in place of %s: %s\n", rcbox_status_name(status), rcbox_status_name(wanted),
                rcbox_error(client));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static char value[100000];
    rcbox_client *client = NULL;
    rcbox_options options;
    rcbox_outcome outcome;
    uint64_t table, operations[8];
    size_t bytes;
    if (argc != 3)
        return 2;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout_us = 500000;
    is(NULL, RCBOX_OK, rcbox_connect(argv[1], &options, &client));
    is(client, RCBOX_OK, rcbox_create_table(client, "fruit", 1, &table));
    is(client, RCBOX_OK, rcbox_write(client, table, "key", 3, value, sizeof value, NULL, NULL));

    if (kill((pid_t)strtol(argv[2], NULL, 10), SIGKILL) != 0)
        return 3;
    /* It is gone when nobody can connect any more; the connection that is there still looks sound to its owner. */
    char state[64], path[64];
    snprintf(path, sizeof path, "/proc/%s/stat", argv[2]);
    for (;;) {
        FILE *file = fopen(path, "r");
        if (file == NULL)
            break;
        if (fscanf(file, "%*d (%*[^)]) %63s", state) == 1 && (state[0] == 'Z' || state[0] == 'X')) {
            fclose(file);
            break;
        }
        fclose(file);
    }

    /* The first makes the kernel find out, those behind it are written to a connection that it knows to be broken. */
    for (int at = 0; at < 8; at++)
        is(client, RCBOX_OK,
           rcbox_submit_write(client, table, "key", 3, value, sizeof value, NULL, &operations[at]));
    for (int at = 0; at < 8; at++)
        is(client, RCBOX_ERR_TIMEOUT, rcbox_wait(client, operations[at], &outcome));
    is(client, RCBOX_ERR_TIMEOUT, rcbox_read(client, table, "key", 3, NULL, value, sizeof value, &bytes, NULL));
    rcbox_close(client);
    puts("no signal");
    return 0;
}
